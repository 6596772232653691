"""The best mapping, and Pareto fronts: bounds first, then every candidate that the bounds leave.

For each row and tiling a lower bound of every objective follows from its exact DRAM access and, for each Einsum apart, the
best that any placement can do. What cannot beat the best so far is left out; the rest is evaluated for all placements. Ties
within one part in 10**12 are broken by the other objectives, in order, and at last by the order of rows and tilings, so that
every run gives the same answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stitchloop.errors import NoMapping, Obstacle
from stitchloop.fused.evaluate import Evaluator, Monomials
from stitchloop.fused.options import OBJECTIVES

CELLS = 1 << 20
"""Rows times tilings that are looked at together."""

SLACK = 1 + 1e-12


@dataclass(frozen=True)
class Candidate:
    """One mapping by its numbers: row, tile of each looped rank, placement of each Einsum."""

    row: int
    tiles: tuple[tuple[int, int], ...]
    placements: tuple[int, ...]
    screened: tuple[float, ...]
    """Objectives in the order of :data:`OBJECTIVES`, as the float form gives them."""


class Block:
    """Some rows at some columns: feasibility, DRAM access, and bounds.

    ``index`` holds the columns' tile indices along the first outer axes; along the others everything is bounded from below.
    """

    def __init__(self, ev: Evaluator, rows: np.ndarray, index: Sequence[np.ndarray]) -> None:
        self.ev, self.rows, self.index = ev, rows, tuple(index)
        self.monomials = Monomials(ev, index)
        self.inputs = ev.incidences.inputs.at(self.monomials, rows)
        self.written = ev.incidences.written.at(self.monomials, rows)
        self._fit()

    def _fit(self) -> None:
        """Feasible cells and, of the folded rank, the number of tile sizes that fit."""
        ev = self.ev
        capacity = ev.capacity
        self.whole = [w.at(self.monomials, self.rows) for w in ev.incidences.whole]
        if ev.folded is None:
            self.sizes = None
            self.feasible = np.ones(self.whole[0].shape, dtype=bool)
            for whole in self.whole:
                self.feasible &= whole <= capacity
            return
        self.tiled = [w.at(self.monomials, self.rows) for w in ev.incidences.folded]
        largest = np.full(self.whole[0].shape, float(ev.axes[ev.folded].size))
        self.feasible = np.ones(self.whole[0].shape, dtype=bool)
        for whole, tiled in zip(self.whole, self.tiled):
            left = capacity - whole
            self.feasible &= left >= 0
            with np.errstate(divide="ignore", invalid="ignore"):
                np.minimum(largest, np.where(tiled > 0, np.floor_divide(left, tiled), largest), out=largest)
        self.sizes = ev.fitting[np.clip(largest, 0, ev.axes[ev.folded].size).astype(np.int64)]
        self.feasible &= self.sizes > 0

    def keep(self, columns: np.ndarray) -> Block:
        """The same rows at some of the columns."""
        part = object.__new__(Block)
        part.ev, part.rows, part.index = self.ev, self.rows, tuple(i[columns] for i in self.index)
        part.monomials = self.monomials.keep(columns)
        part.inputs, part.written, part.feasible = self.inputs[:, columns], self.written[:, columns], self.feasible[:, columns]
        part.whole = [w[:, columns] for w in self.whole]
        part.sizes = None if self.sizes is None else self.sizes[:, columns]
        if self.sizes is not None:
            part.tiled = [t[:, columns] for t in self.tiled]
        return part

    @cached_property
    def demand(self) -> np.ndarray:
        """Buffer demand with the folded rank's smallest tile."""
        return np.maximum.reduce(self.whole if self.sizes is None else [w + t for w, t in zip(self.whole, self.tiled)])

    @cached_property
    def quick_bounds(self) -> np.ndarray:
        """Lower bounds of the objectives from DRAM access and what the arrays cost at the very least."""
        energy, cycles = floors(self.ev)
        total = self.dram_energy(self.inputs, self.written) + energy[self.rows][:, None]
        return objectives(self.ev, total, cycles[self.rows][:, None], self.inputs, self.written, self.demand)

    def dram_energy(self, inputs: np.ndarray, written: np.ndarray) -> np.ndarray:
        m = self.ev.machine
        again = written - self.ev.shape.output_words
        into, out = m.dram_read + m.buffer_write, m.dram_write + m.buffer_read
        return (inputs + again) * into + written * out

    def dram_cycles(self, inputs: np.ndarray, written: np.ndarray) -> np.ndarray:
        return dram_cycles(self.ev, inputs + written - self.ev.shape.output_words, written)

    def per_op(self, e: int, which: str) -> list[np.ndarray]:
        """For each mode of Einsum ``e``: fixed and sliding part of cycles or energy, placements by columns."""
        table = self.ev.incidences.cycles[e] if which == "cycles" else self.ev.incidences.energy[e]
        return [np.stack([fixed.at(self.monomials), slide.at(self.monomials)]) for fixed, slide in table]

    @cached_property
    def op_parts(self) -> list[dict[str, list[np.ndarray]]]:
        return [{which: self.per_op(e, which) for which in ("cycles", "energy")} for e in self.ev.ops]

    @cached_property
    def work(self) -> list[np.ndarray]:
        return [w.at(self.monomials) for w in self.ev.incidences.work]

    @cached_property
    def bounds(self) -> np.ndarray:
        """Lower bounds of the objectives: objectives by rows by columns."""
        ev = self.ev
        energy, cycles = self.least_inside
        energy = energy + self.dram_energy(self.inputs, self.written)
        return objectives(ev, energy, cycles, self.inputs, self.written, self.demand)

    @cached_property
    def least_inside(self) -> tuple[np.ndarray, np.ndarray]:
        """The least energy and cycles of arrays and softmax: rows by columns each."""
        ev = self.ev
        cycles = np.zeros(self.feasible.shape)
        energy = np.full(self.feasible.shape, ev.constant_energy)
        for e in ev.ops:
            least = {}
            for which in ("cycles", "energy"):
                parts = self.op_parts[e][which]
                least[which] = np.stack([(p[0] + p[1] * ev.least_scalar[e][m][:, None]).min(axis=0) for m, p in enumerate(parts)])
            modes = ev.mode_of[self.rows, e]
            cycles += least["cycles"][modes]
            energy += (least["energy"] + self.work[e])[modes]
        return energy, cycles

    def expand(self, rows: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Objectives of all placements of the cells (row, column): objectives by cells by placements, and folded tile indices."""
        ev = self.ev
        combos = ev.combos
        energy = np.zeros((len(rows), len(combos)))
        cycles = np.zeros_like(energy)
        fixed = self.dram_energy(self.inputs[rows, at], self.written[rows, at]) + ev.constant_energy
        tile = np.zeros((len(rows), len(combos)), dtype=np.int64)
        for e in ev.ops:
            modes = ev.mode_of[self.rows[rows], e]
            fixed = fixed + self.work[e][modes, at]
            own, e_cost, c_cost = self._op_cost(e, modes, rows, at)
            pick = combos[:, e]
            energy += e_cost[:, pick]
            cycles += c_cost[:, pick]
            if own is not None:
                tile = own[:, pick]
        energy += fixed[:, None]
        inputs, written = self.inputs[rows, at][:, None], self.written[rows, at][:, None]
        demand = [w[rows, at][:, None] for w in self.whole]
        if self.sizes is not None and ev.folded is not None:
            words = ev.axes[ev.folded].tiles[tile]
            demand = [w + t[rows, at][:, None] * words for w, t in zip(demand, self.tiled)]
        return objectives(ev, energy, cycles, inputs, written, np.maximum.reduce(demand)), tile

    def _op_cost(
        self, e: int, modes: np.ndarray, rows: np.ndarray, at: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
        ev = self.ev
        count = len(ev.placements[e])
        e_cost, c_cost = np.empty((len(rows), count)), np.empty((len(rows), count))
        own = None
        if self.sizes is not None and ev.folded in ev.shape.structure.ops[e].ranks:
            own = np.zeros((len(rows), count), dtype=np.int64)
        for mode in np.unique(modes):
            mine = np.flatnonzero(modes == mode)
            columns = at[mine]
            scalar = np.ones((len(mine), count))
            if own is not None and self.sizes is not None:
                fit = self.sizes[rows[mine], columns] - 1
                own[mine] = ev.best_tile[e][mode][:, fit].T
                scalar = ev.best_scalar[e][mode][:, fit].T
            for out, which in ((e_cost, "energy"), (c_cost, "cycles")):
                part = self.op_parts[e][which][mode][:, :, columns]
                out[mine] = (part[0] + part[1] * scalar.T).T
        return own, e_cost, c_cost


def floors(ev: Evaluator) -> tuple[np.ndarray, np.ndarray]:
    """The least energy and cycles inside the arrays of each row, over all tilings."""
    if ev.floors is None:
        energy, cycles = Block(ev, np.arange(len(ev.rows)), []).least_inside
        ev.floors = (energy[:, 0], cycles[:, 0])
    return ev.floors


def dram_cycles(ev: Evaluator, reads: np.ndarray, writes: np.ndarray) -> np.ndarray:
    """Cycles of the DRAM interface for one head's words times all heads."""
    port, copies = ev.machine.port, ev.shape.copies
    cycles = np.zeros(np.broadcast(reads, writes).shape)
    for words, width in ((reads, port.read), (writes, port.write), (reads + writes, port.shared)):
        if width is not None:
            cycles = np.maximum(cycles, np.ceil(words * copies / width * (1 - 1e-12)))
    return cycles


def objectives(
    ev: Evaluator, energy: np.ndarray, cycles: np.ndarray, inputs: np.ndarray, written: np.ndarray, demand: np.ndarray
) -> np.ndarray:
    """Objectives of the whole workload in the order of :data:`OBJECTIVES`, from the figures of one head."""
    copies = ev.shape.copies
    reads = inputs + written - ev.shape.output_words
    compute = ev.compute_cycles(cycles)
    energy = energy * copies
    latency = np.broadcast_to(np.maximum(compute, dram_cycles(ev, reads, written)), energy.shape)
    dram = np.broadcast_to((reads + written) * copies, latency.shape)
    return np.stack([energy, latency, energy * latency, dram, np.broadcast_to(demand * ev.shares, latency.shape)])


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
    KeyboardInterrupt, TimeoutError
        When nothing was found before the interruption or the limit.
    """
    incumbent = Incumbent(order, None if time_limit is None else time.monotonic() + time_limit)
    rows = np.arange(len(ev.rows))
    stopped = ""
    try:
        _descend(ev, incumbent, rows, [], np.ones((len(rows), 1), dtype=bool))
    except Stopped:
        stopped = f"the time limit of {time_limit:g} s passed"
    except KeyboardInterrupt:
        if incumbent.candidate is None:
            raise
        stopped = "interrupted"
    if incumbent.candidate is None:
        if stopped:
            raise TimeoutError(stopped)
        raise infeasible(ev)
    value = incumbent.candidate.screened[incumbent.places[0]]
    floor = float(Block(ev, rows, []).bounds[incumbent.places[0]].min()) if stopped else value
    return Found(incumbent.candidate, incumbent.evaluated, stopped, min(floor, value))


def best(ev: Evaluator, order: Sequence[str]) -> tuple[Candidate, int]:
    """The lexicographically best mapping, and how many were evaluated beyond their bounds (see :func:`search`)."""
    found = search(ev, order)
    return found.candidate, found.evaluated


def _descend(ev: Evaluator, incumbent: Incumbent | Front, rows: np.ndarray, index: list[np.ndarray], open_: np.ndarray) -> None:
    """Cut one more axis into its tile sizes and look into what the bounds leave, the most promising columns first."""
    if len(index) == len(ev.outer):
        block = Block(ev, rows, index)
        _settle(block, incumbent, open_ & block.feasible)
        return
    width = len(ev.outer[len(index)])
    index = [np.repeat(i, width) for i in index] + [np.tile(np.arange(width), open_.shape[1])]
    open_ = np.repeat(open_, width, axis=1)
    final = len(index) == len(ev.outer)
    step = max(1, CELLS // max(1, len(rows)))
    for start in range(0, open_.shape[1], step):
        incumbent.check_time()
        part = [i[start : start + step] for i in index]
        block = Block(ev, rows, part)
        left = open_[:, start : start + step] & block.feasible
        left &= incumbent.may_improve(block.quick_bounds)
        columns = np.flatnonzero(left.any(axis=0))
        if not len(columns):
            continue
        block, left, part = block.keep(columns), left[:, columns], [i[columns] for i in part]
        if final:
            _settle(block, incumbent, left)
            continue
        left &= incumbent.may_improve(block.bounds)
        order = _by_promise(block.bounds[incumbent.places[:2]], left)
        for piece in _growing(order):
            now = left[:, piece] & incumbent.may_improve(block.bounds[:, :, piece])
            rows_left, columns_left = np.flatnonzero(now.any(axis=1)), np.flatnonzero(now.any(axis=0))
            if len(columns_left):
                below = [i[piece[columns_left]] for i in part]
                _descend(ev, incumbent, rows[rows_left], below, now[np.ix_(rows_left, columns_left)])


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


def _settle(block: Block, incumbent: Incumbent | Front, left: np.ndarray) -> None:
    if not left.any():
        return
    bounds = block.bounds
    if len(block.rows) > 1:
        first = np.where(left, bounds[incumbent.places[0]], np.inf)
        rows = np.arange(len(first))
        at = first.argmin(axis=1)
        good = np.isfinite(first[rows, at])
        good &= incumbent.may_improve(bounds[:, rows, at])
        if good.any():
            incumbent.take(block, rows[good], at[good])
    rows, at = np.nonzero(left & incumbent.may_improve(bounds))
    incumbent.take(block, rows, at)


def _is_before(a: np.ndarray, b: np.ndarray) -> bool:
    for x, y in zip(a, b, strict=True):
        if x * SLACK < y:
            return True
        if y * SLACK < x:
            return False
    return False


def candidate(block: Block, rows: np.ndarray, at: np.ndarray, tile: np.ndarray, values: np.ndarray, winner: int) -> Candidate:
    ev = block.ev
    cell, combo = divmod(winner, len(ev.combos))
    tiles = {axis.rank: int(axis.tiles[i[at[cell]]]) for axis, i in zip(ev.outer, block.index)}
    if ev.folded is not None:
        tiles[ev.folded] = int(ev.axes[ev.folded].tiles[tile[cell, combo]])
    return Candidate(
        int(block.rows[rows[cell]]),
        tuple(sorted(tiles.items())),
        tuple(int(p) for p in ev.combos[combo]),
        tuple(float(v) for v in values),
    )


def least_demand(ev: Evaluator) -> int:
    """Words of buffer, for one head, of the least demanding row: every tile one point."""
    block = Block(ev, np.arange(len(ev.rows)), [np.zeros(1, dtype=np.int64) for _ in ev.outer])
    whole = block.whole if block.sizes is None else [w + t for w, t in zip(block.whole, block.tiled)]
    return int(np.maximum.reduce(whole).min())


def infeasible(ev: Evaluator) -> NoMapping:
    """The error for a buffer that is too small for every template, naming the smallest that would do."""
    words, capacity, name = least_demand(ev) * ev.shares, ev.machine.capacity, ev.machine.buffer_name
    sentence = f"no fused mapping fits {name}: every template needs at least {words} words, it holds {capacity}"
    relaxation = f"a capacity of {words} words ({words - capacity} more)"
    return NoMapping(sentence, (Obstacle("capacity", name, float(words), float(capacity), sentence, relaxation),))


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
    _descend(ev, front, rows, [], np.ones((len(rows), 1), dtype=bool))
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
