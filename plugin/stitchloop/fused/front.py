"""Pareto fronts of two or three objectives over all rows, tilings and placements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stitchloop.fused.block import CELLS, SLACK, Block, Candidate, candidate, infeasible
from stitchloop.fused.evaluate import Evaluator
from stitchloop.fused.options import OBJECTIVES
from stitchloop.fused.select import descend


class Front:
    """A Pareto front as it grows."""

    def __init__(self, names: Sequence[str]) -> None:
        self.places = [OBJECTIVES.index(name) for name in names]
        self.points = np.empty((len(self.places), 0))
        self.members: list[Candidate] = []

    def may_improve(self, bounds: np.ndarray) -> np.ndarray:
        """Whether something with these lower bounds (objectives by cells) can be a new point."""
        flat = bounds[self.places].reshape(len(self.places), -1)
        return ~_beaten(flat, self.points).reshape(bounds.shape[1:])

    def check_time(self) -> None:
        """A front is wanted whole."""

    def take(self, block: Block, rows: np.ndarray, at: np.ndarray) -> None:
        """Evaluate all placements of the given cells."""
        step = max(1, CELLS // len(block.ev.combos) // 8)
        for start in range(0, len(rows), step):
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
        fresh = np.flatnonzero(~_beaten(points, self.points))
        fresh = fresh[_undominated(points[:, fresh], every[:, fresh])]
        made = [candidate(block, rows, at, tile, every[:, w], int(w)) for w in fresh]
        stay = ~_beaten(self.points, points[:, fresh])
        self.members = [m for m, keep in zip(self.members, stay) if keep] + made
        self.points = np.concatenate([self.points[:, stay], points[:, fresh]], axis=1)


def pareto(ev: Evaluator, names: Sequence[str]) -> list[Candidate]:
    """The Pareto front of two or three objectives over all rows, tilings and placements, sorted by the first."""
    front = Front(names)
    rows = np.arange(len(ev.rows))
    descend(ev, front, rows, [], np.ones((len(rows), 1), dtype=bool))
    if not front.members:
        raise infeasible(ev)
    return [front.members[i] for i in np.lexsort(front.points[::-1])]


def _beaten(points: np.ndarray, front: np.ndarray) -> np.ndarray:
    """Which points some member of the front equals or beats in everything."""
    out = np.zeros(points.shape[1], dtype=bool)
    if not front.shape[1]:
        return out
    spread = np.argsort(front[0])[:: max(1, front.shape[1] // 16)]
    for members in (front[:, spread], front):
        left = np.flatnonzero(~out)
        for start in range(0, len(left), 1 << 14):
            part = left[start : start + (1 << 14)]
            hit = np.ones((members.shape[1], len(part)), dtype=bool)
            for axis in range(points.shape[0]):
                hit &= members[axis][:, None] <= points[axis][part][None, :] * SLACK
            out[part] |= hit.any(axis=0)
    return out


def _undominated(points: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """Indices of the points that no other beats; of equals the one with the least ``ties``, row after row."""
    order = np.lexsort((*ties[::-1], *points[::-1]))
    kept: list[int] = []
    array = np.empty((points.shape[0], 0))
    for start in range(0, len(order), 512):
        part = order[start : start + 512]
        part = part[~_beaten(points[:, part], array)]
        for index in part:
            if not _beaten(points[:, index : index + 1], points[:, kept])[0]:
                kept.append(int(index))
        array = points[:, kept]
    return np.array(kept, dtype=np.int64)
