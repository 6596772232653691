"""The best mapping: bounds first, then every candidate that the bounds leave.

For each row and tiling a lower bound of every objective follows from its exact DRAM access and, for each Einsum apart, the
best that any placement can do. What cannot beat the best so far is left out; the rest is evaluated for all placements. Ties
within one part in 10**12 are broken by the other objectives, in order, and at last by the order of rows and tilings, so that
every run gives the same answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stitchloop.fused.block import CELLS, SLACK, Block, Candidate, all_tilings, candidate, infeasible
from stitchloop.fused.evaluate import Evaluator
from stitchloop.fused.options import OBJECTIVES

INTERRUPTED = "interrupted"
"""Why a search ended that the user broke off."""


class Keeper(Protocol):
    """What a search keeps as it goes: the best so far, or a front."""

    places: list[int]

    def may_improve(self, bounds: np.ndarray) -> np.ndarray:
        """Whether something with these lower bounds (objectives by cells) can be of use."""

    def take(self, block: Block, rows: np.ndarray, at: np.ndarray) -> None:
        """Evaluate all placements of the given cells."""

    def check_time(self) -> None:
        """Raise :class:`Stopped` when it is time."""


class Incumbent:
    """The lexicographically best mapping so far."""

    def __init__(self, order: Sequence[str], deadline: float | None = None) -> None:
        self.places = [OBJECTIVES.index(name) for name in order]
        self.deadline = deadline
        self.values: np.ndarray | None = None
        self.candidate: Candidate | None = None
        self.evaluated = 0

    def may_improve(self, bounds: np.ndarray) -> np.ndarray:
        """Whether something with these lower bounds (objectives by cells) can come before the best so far."""
        if self.values is None:
            return np.ones(bounds.shape[1:], dtype=bool)
        verdict = np.zeros(bounds.shape[1:], dtype=bool)
        level = np.ones(bounds.shape[1:], dtype=bool)
        for place, value in zip(self.places, self.values, strict=True):
            bound = bounds[place]
            verdict |= level & (bound * SLACK < value)
            level = level & (bound <= value * SLACK)
        return verdict

    def check_time(self) -> None:
        """Raise :class:`Stopped` when the deadline has passed and there is something to return."""
        if self.deadline is not None and self.candidate is not None and time.monotonic() > self.deadline:
            raise Stopped

    def take(self, block: Block, rows: np.ndarray, at: np.ndarray) -> None:
        """Evaluate all placements of the given cells."""
        step = max(1, CELLS // len(block.ev.combos) // 4)
        for start in range(0, len(rows), step):
            self.check_time()
            r, c = rows[start : start + step], at[start : start + step]
            self.evaluated += len(r) * len(block.ev.combos)
            self._lead(block, r, c)

    def _lead(self, block: Block, rows: np.ndarray, at: np.ndarray) -> None:
        values, tile = block.expand(rows, at)
        ranked = values[self.places].reshape(len(self.places), -1)
        index = np.arange(ranked.shape[1])
        for level, row in enumerate(ranked):
            lowest = row[index].min()
            if self.values is not None and level == 0 and lowest > self.values[0] * SLACK:
                return
            index = index[row[index] <= lowest * SLACK]
        winner = int(index[0])
        if self.values is None or _is_before(ranked[:, winner], self.values):
            self.values = ranked[:, winner]
            self.candidate = candidate(block, rows, at, tile, values.reshape(len(OBJECTIVES), -1)[:, winner], winner)


class Stopped(Exception):
    """The time limit has passed."""


@dataclass(frozen=True)
class Found:
    """What a search found; ``stopped`` says why it ended early (empty: it did not, and the candidate is the best).

    ``floor`` is a lower bound of the first objective over the whole mapspace, in the unit of :data:`OBJECTIVES`' screened values.
    """

    candidate: Candidate
    evaluated: int
    stopped: str
    floor: float


def search(ev: Evaluator, order: Sequence[str], time_limit: float | None = None) -> Found:
    """The lexicographically best mapping; on a time limit or an interruption the best so far.

    Raises
    ------
    NoMapping
        When no row fits the buffer at any tiling; the smallest buffer that would do is named.
    KeyboardInterrupt
        When nothing was found before the interruption; a limit waits for a first mapping.
    """
    incumbent = Incumbent(order, None if time_limit is None else time.monotonic() + time_limit)
    stopped = ""
    try:
        descend(ev, incumbent)
    except Stopped:
        stopped = f"the time limit of {time_limit:g} s passed"
    except KeyboardInterrupt:
        if incumbent.candidate is None:
            raise
        stopped = INTERRUPTED
    if incumbent.candidate is None:
        raise infeasible(ev)
    value = incumbent.candidate.screened[incumbent.places[0]]
    floor = float(all_tilings(ev).bounds[incumbent.places[0]].min()) if stopped else value
    return Found(incumbent.candidate, incumbent.evaluated, stopped, min(floor, value))


def best(ev: Evaluator, order: Sequence[str]) -> tuple[Candidate, int]:
    """The lexicographically best mapping, and how many were evaluated beyond their bounds (see :func:`search`)."""
    found = search(ev, order)
    return found.candidate, found.evaluated


def descend(ev: Evaluator, keeper: Keeper) -> None:
    """Go through all rows and tilings by bounds: each axis is cut into segments, then each of these into its tile sizes."""
    steps = [axis for axis, starts in enumerate(ev.segments) if len(starts) > 1]
    steps = [*range(len(ev.outer)), *steps]
    rows = np.arange(len(ev.rows))
    everything = [np.array([ev.whole_axis(axis)]) for axis in range(len(ev.outer))]
    _descend(ev, keeper, rows, everything, steps, np.ones((len(rows), 1), dtype=bool))


def _descend(
    ev: Evaluator, keeper: Keeper, rows: np.ndarray, index: list[np.ndarray], steps: list[int], open_: np.ndarray
) -> None:
    """Cut one more axis and look into what the bounds leave, the most promising columns first."""
    if not steps:
        block = Block(ev, rows, index)
        _settle(block, keeper, open_ & block.feasible)
        return
    parents, index = _children(ev, index, steps[0])
    step = max(1, CELLS // max(1, len(rows)))
    for start in range(0, len(parents), step):
        keeper.check_time()
        part = [i[start : start + step] for i in index]
        block = Block(ev, rows, part)
        left = open_[:, parents[start : start + step]] & keeper.may_improve(block.quick_bounds)
        columns = np.flatnonzero(left.any(axis=0))
        if not len(columns):
            continue
        block, left, part = block.keep(columns), left[:, columns], [i[columns] for i in part]
        left &= block.feasible
        if len(steps) == 1:
            _settle(block, keeper, left)
            continue
        left &= keeper.may_improve(block.bounds)
        order = _by_promise(block.bounds[keeper.places[:2]], left)
        for piece in _growing(order):
            now = left[:, piece] & keeper.may_improve(block.bounds[:, :, piece])
            rows_left, columns_left = np.flatnonzero(now.any(axis=1)), np.flatnonzero(now.any(axis=0))
            if len(columns_left):
                below = [i[piece[columns_left]] for i in part]
                _descend(ev, keeper, rows[rows_left], below, steps[1:], now[np.ix_(rows_left, columns_left)])


def _children(ev: Evaluator, index: list[np.ndarray], axis: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The columns with one axis cut further: the whole into segments (or tiles, if it is short), segments into tiles."""
    starts, tiles = ev.segments[axis], len(ev.outer[axis])
    now = index[axis]
    if now[0] == ev.whole_axis(axis):
        first, last = (0, tiles) if len(starts) == 1 else (tiles, tiles + len(starts))
        parents = np.repeat(np.arange(len(now)), last - first)
        cut = np.tile(np.arange(first, last), len(now))
    else:
        bounds = np.append(starts, tiles)
        begin, end = bounds[now - tiles], bounds[now - tiles + 1]
        parents = np.repeat(np.arange(len(now)), end - begin)
        offsets = np.arange(len(parents)) - np.repeat(np.cumsum(end - begin) - (end - begin), end - begin)
        cut = begin[parents] + offsets
    return parents, [cut if at == axis else i[parents] for at, i in enumerate(index)]


def _by_promise(bounds: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Columns with anything left, by the least bound of the first objective in them, then of the second."""
    first = np.where(left, bounds[0], np.inf)
    least = first.min(axis=0)
    second = np.where(first <= least * SLACK, bounds[-1], np.inf).min(axis=0)
    return np.lexsort((second, least))[: int(np.isfinite(least).sum())]


def _growing(order: np.ndarray) -> Iterator[np.ndarray]:
    """Pieces of growing length: a few columns first, for a good incumbent, then many."""
    start, length = 0, 4
    while start < len(order):
        yield order[start : start + length]
        start, length = start + length, min(4096, length * 4)


def _settle(block: Block, keeper: Keeper, left: np.ndarray) -> None:
    if not left.any():
        return
    bounds = block.bounds
    if len(block.rows) > 1:
        first = np.where(left, bounds[keeper.places[0]], np.inf)
        rows = np.arange(len(first))
        at = first.argmin(axis=1)
        good = np.isfinite(first[rows, at])
        good &= keeper.may_improve(bounds[:, rows, at])
        if good.any():
            keeper.take(block, rows[good], at[good])
    rows, at = np.nonzero(left & keeper.may_improve(bounds))
    keeper.take(block, rows, at)


def _is_before(a: np.ndarray, b: np.ndarray) -> bool:
    for x, y in zip(a, b, strict=True):
        if x * SLACK < y:
            return True
        if y * SLACK < x:
            return False
    return False
