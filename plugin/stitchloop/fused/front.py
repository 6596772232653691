"""Pareto fronts of two or three objectives over all rows, tilings and placements."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from stitchloop.fused.block import CELLS, SLACK, Block, Candidate, candidate, infeasible
from stitchloop.fused.evaluate import Evaluator
from stitchloop.fused.options import OBJECTIVES
from stitchloop.fused.select import INTERRUPTED, Stopped, descend


class Front:
    """A Pareto front as it grows."""

    def __init__(self, names: Sequence[str], deadline: float | None = None) -> None:
        self.deadline = deadline
        self.places = [OBJECTIVES.index(name) for name in names]
        self.points = np.empty((len(self.places), 0))
        self.stairs = Stairs(self.points)
        self.members: list[Candidate] = []

    def may_improve(self, bounds: np.ndarray) -> np.ndarray:
        """Whether something with these lower bounds (objectives by cells) can be a new point."""
        flat = bounds[self.places].reshape(len(self.places), -1)
        return ~self.stairs.beat(flat).reshape(bounds.shape[1:])

    def check_time(self) -> None:
        """Raise :class:`Stopped` when the deadline has passed and there are points to return."""
        if self.deadline is not None and self.members and time.monotonic() > self.deadline:
            raise Stopped

    def take(self, block: Block, rows: np.ndarray, at: np.ndarray) -> None:
        """Evaluate all placements of the given cells."""
        step = max(1, CELLS // len(block.ev.combos) // 8)
        for start in range(0, len(rows), step):
            self.check_time()
            r, c = rows[start : start + step], at[start : start + step]
            if start:
                left = self.may_improve(block.bounds[:, r, c])
                r, c = r[left], c[left]
            if len(r):
                self._merge(block, r, c)

    def _merge(self, block: Block, rows: np.ndarray, at: np.ndarray) -> None:
        values, tile = block.expand(rows, at)
        points = values[self.places].reshape(len(self.places), -1)
        every = values.reshape(len(OBJECTIVES), -1)
        fresh = np.flatnonzero(~self.stairs.beat(points))
        fresh = fresh[_undominated(points[:, fresh], every[:, fresh])]
        made = [candidate(block, rows, at, tile, every[:, w], int(w)) for w in fresh]
        stay = ~_beaten(self.points, points[:, fresh])
        self.members = [m for m, keep in zip(self.members, stay) if keep] + made
        self.points = np.concatenate([self.points[:, stay], points[:, fresh]], axis=1)
        self.stairs = Stairs(self.points)


def pareto(ev: Evaluator, names: Sequence[str], time_limit: float | None = None) -> tuple[list[Candidate], str]:
    """The Pareto front of two or three objectives over all rows, tilings and placements, sorted by the first.

    Returns the points, and why the search ended before the front was whole (empty: it is whole).
    """
    front = Front(names, None if time_limit is None else time.monotonic() + time_limit)
    stopped = ""
    try:
        descend(ev, front)
    except Stopped:
        stopped = f"the time limit of {time_limit:g} s passed"
    except KeyboardInterrupt:
        if not front.members:
            raise
        stopped = INTERRUPTED
    if not front.members:
        raise infeasible(ev)
    return [front.members[i] for i in np.lexsort(front.points[::-1])], stopped


class Stairs:
    """Looks up whether some member of a set equals or beats a point in everything.

    Members sorted by the first objective; for two objectives the least second one so far, for three a table of the least third
    one by place along the first and along the second.
    """

    def __init__(self, members: np.ndarray) -> None:
        order = np.argsort(members[0], kind="stable")
        self.first = members[0][order]
        self.second = np.sort(members[1])
        rest = members[-1][order]
        if len(members) == 2:
            self.least = np.minimum.accumulate(np.concatenate([[np.inf], rest]))[:, None]
            return
        count = members.shape[1]
        self.least = np.full((count + 1, count + 1), np.inf)
        places = np.argsort(np.argsort(members[1], kind="stable"), kind="stable")[order]
        self.least[np.arange(1, count + 1), places + 1] = rest
        np.minimum.accumulate(self.least, axis=0, out=self.least)
        np.minimum.accumulate(self.least, axis=1, out=self.least)

    def beat(self, points: np.ndarray) -> np.ndarray:
        """Which points (objectives by points) some member equals or beats."""
        row = np.searchsorted(self.first, points[0] * SLACK, side="right")
        if len(points) == 2:
            return self.least[row, 0] <= points[1] * SLACK
        column = np.searchsorted(self.second, points[1] * SLACK, side="right")
        return self.least[row, column] <= points[2] * SLACK


def _beaten(points: np.ndarray, members: np.ndarray) -> np.ndarray:
    if not members.shape[1] or not points.shape[1]:
        return np.zeros(points.shape[1], dtype=bool)
    if points.shape[1] > members.shape[1]:
        return Stairs(members).beat(points)
    beats = np.less_equal(members[:, :, None], points[:, None, :] * SLACK).all(axis=0)
    return np.asarray(beats.any(axis=0))


def _undominated(points: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """Indices of the points that no other beats; of equals the one with the least ``ties``, row after row."""
    order = np.lexsort((*ties[::-1], *points[::-1]))
    kept = np.empty(0, dtype=np.int64)
    for start in range(0, len(order), 512):
        part = order[start : start + 512]
        part = part[~_beaten(points[:, part], points[:, kept])]
        mine = points[:, part]
        beats = (mine[:, :, None] <= mine[:, None, :] * SLACK).all(axis=0)
        kept = np.concatenate([kept, part[~np.triu(beats, 1).any(axis=0)]])
    # Values that tie but for rounding may stand in the wrong order: a later point may beat an earlier one.
    for start in range(0, len(kept) - 1, 512):
        mine, others = points[:, kept[start : start + 512]], points[:, kept[start:]]
        beats = (others[:, :, None] <= mine[:, None, :] * SLACK).all(axis=0)
        kept[start : start + 512] = np.where(np.tril(beats, -1).any(axis=0), -1, kept[start : start + 512])
    return kept[kept >= 0]
