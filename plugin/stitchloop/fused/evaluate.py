"""Every row at every tiling: ``exp(Q . ln B)``, added by incidence.

``Q`` holds the exponents (a row per monomial, a column per variable), ``B`` the boundary values (a row per variable, a column per
tiling). A value below 2**44 rounds to the exact integer, because the exponent's error stays below 1e-14; that covers every buffer
demand that matters, so that feasibility is decided in integers. Larger values only rank.

One rank may be *folded*: a rank private to one Einsum that multiplies no DRAM access enters a row through its tile in the
buffer demand and through one non-increasing figure per stationarity option. The capacity left over bounds its tile, and the
best tile below a bound is looked up, not enumerated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from stitchloop.fused.array import ArrayCost, Mode, cost, placements
from stitchloop.fused.machine import Machine
from stitchloop.fused.matrices import Factors, Sums, Table
from stitchloop.fused.monomials import Extent
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.shape import Shape
from stitchloop.fused.sharing import rounds_of, shares_of, softmax_of
from stitchloop.fused.template import Row
from stitchloop.fused.tilings import Axis, Passes, Variable, imperfect_axis, passes, perfect_axis

EXACT = float(2**44)

SHORT = 16
"""Tile sizes of one axis that are cut apart at once; more are cut into segments first."""

QUERY_MATRICES = ("buffer_producer", "buffer_consumer", "dram", "compute_producer", "compute_consumer", "buffer_register")
"""The six query matrices by their published meaning."""


@dataclass(frozen=True)
class OpCosts:
    """One placement in one mode, after the folded rank was taken out: ``fixed + sliding * s`` for cycles and energy.

    ``s`` is the value of ``scalar`` at the folded rank's tile (None: nothing slides).
    """

    cost: ArrayCost
    cycles: tuple[int, bool]
    energy: tuple[tuple[tuple[int, float], ...], tuple[tuple[int, float], ...]]
    scalar: Variable | None


@dataclass(frozen=True)
class Incidences:
    """Weights of the monomials in each sum (sums by monomials).

    ``whole`` and ``folded``: buffer demand of each phase, a row per template, without and with the folded rank's tile as a
    factor. ``inputs`` and ``written``: DRAM access. ``cycles`` and ``energy``: per Einsum and mode, fixed and sliding, a row
    per placement. ``work``: MAC energy per Einsum, a row per mode.
    """

    whole: tuple[Sums, ...]
    folded: tuple[Sums, ...]
    inputs: Sums
    written: Sums
    cycles: tuple[list[tuple[Sums, Sums]], ...]
    energy: tuple[list[tuple[Sums, Sums]], ...]
    work: tuple[Sums, ...]


def _slide(
    weigh: Callable[[Sequence[Sequence[tuple[int, float]]]], Sums], sums: list[list[tuple[int, float]]], slides: list[bool]
) -> tuple[Sums, Sums]:
    fixed = [[] if sliding else terms for terms, sliding in zip(sums, slides, strict=True)]
    slide = [terms if sliding else [] for terms, sliding in zip(sums, slides, strict=True)]
    return weigh(fixed), weigh(slide)


class Evaluator:
    """Rows of one shape on one machine, ready to be evaluated at any tilings.

    Parameters
    ----------
    shape, machine, options
    rows : sequence of Row
    fold : bool
        Fold a rank where one qualifies.
    """

    def __init__(self, shape: Shape, machine: Machine, options: FusedOptions, rows: Sequence[Row], fold: bool = True) -> None:
        self.shape, self.machine, self.options, self.rows = shape, machine, options, tuple(rows)
        structure = shape.structure
        self.ops = range(len(structure.ops))
        self.placements = tuple(placements(shape, e, machine, options) for e in self.ops)
        self.modes: list[list[Mode]] = [[] for _ in self.ops]
        self.mode_of = np.array([[self._mode(row, e) for e in self.ops] for row in self.rows]).reshape(
            len(self.rows), len(self.ops)
        )
        self.array_costs = [
            [[cost(shape, e, p, mode, options.perfect) for p in self.placements[e]] for mode in self.modes[e]] for e in self.ops
        ]
        self.axes = self._axes()
        self.folded = self._folded() if fold else None
        self.outer = self._outer()
        self.table = Table()
        self.floors: tuple[np.ndarray, np.ndarray] | None = None
        """Least energy and cycles inside the arrays, per row; filled by the search."""
        self._compile()

    def _mode(self, row: Row, e: int) -> int:
        mode = Mode(row.sweeps[e], row.trips[e], tuple(sorted(row.repeats[e])))
        if mode not in self.modes[e]:
            self.modes[e].append(mode)
        return self.modes[e].index(mode)

    def _axes(self) -> dict[int, Axis]:
        shape, wanted = self.shape, self._variables()
        axes = {}
        for rank in sorted(shape.structure.looped):
            size = shape.sizes[rank]
            mine = [v for v in wanted if v.rank == rank]
            axes[rank] = perfect_axis(rank, size) if self.options.perfect else imperfect_axis(rank, size, mine)
        return axes

    def _outer(self) -> list[Axis]:
        """The axes that are cut, in the order in which bounds tell most: ranks of one Einsum alone first, then by tile sizes."""
        owners = {rank: sum(rank in op.ranks for op in self.shape.structure.ops) for rank in self.axes}
        order = sorted(self.axes, key=lambda rank: (owners[rank] > 1, -len(self.axes[rank]), rank))
        return [self.axes[rank] for rank in order if rank != self.folded]

    def _variables(self) -> set[Variable]:
        found: set[Variable] = set()
        for by_mode in self.array_costs:
            for by_placement in by_mode:
                for c in by_placement:
                    for factors in (c.cycles, *c.reads, c.writes, c.fresh):
                        found |= {v for v, _ in factors}
        for row in self.rows:
            for terms in row.dram:
                for monomial in terms:
                    found |= {v for v, _ in monomial}
        return found

    def _folded(self) -> int | None:
        """The rank with most tile sizes among those that qualify."""
        structure = self.shape.structure
        candidates = []
        for rank in structure.looped:
            owners = [op for op in structure.ops if rank in op.ranks]
            if len(owners) != 1:
                continue
            (owner,) = owners
            indices = [i for i in (*owner.ranges, *(i for o in owner.operands for i in o.index)) if i.rank == rank]
            plain = all(i.stride == i.window == 1 for i in indices)
            moves = any(e.rank == rank and e.trips for row in self.rows for ms in row.dram for m in ms for e, _ in m) or any(
                rank in repeats for row in self.rows for repeats in row.repeats
            )
            shared = any(rank in row.template.shared for row in self.rows)
            if plain and not moves and not shared and self._one_scalar(rank):
                candidates.append(rank)
        return max(candidates, key=lambda r: (len(self.axes[r]), -r), default=None)

    def _one_scalar(self, rank: int) -> bool:
        return all(len(self._sliding(c, rank)) <= 1 for by_mode in self.array_costs for by_place in by_mode for c in by_place)

    @staticmethod
    def _sliding(c: ArrayCost, rank: int) -> set[Variable]:
        every = {v for factors in (c.cycles, *c.reads, c.writes, c.fresh) for v, _ in factors if v.rank == rank}
        return {v for v in every if isinstance(v, Passes) or v.trips or v.tile or v.own}

    def _take_out(self, factors: Factors, sliding: Variable | None) -> tuple[int, bool]:
        rest = tuple((v, x) for v, x in factors if v != sliding)
        return self.table.add(rest), len(rest) < len(factors)

    def _compile(self) -> None:
        shape, machine = self.shape, self.machine
        count = len(self.shape.structure.ops)
        self.whole_phase: list[list[list[tuple[int, float]]]] = [[] for _ in range(count)]
        self.folded_phase: list[list[list[tuple[int, float]]]] = [[] for _ in range(count)]
        for row in self.rows:
            for e, phase in enumerate(row.phases):
                plain: list[tuple[int, float]] = []
                tiled: list[tuple[int, float]] = []
                for monomial in phase:
                    tile = next((v for v, _ in monomial if v.rank == self.folded and v.tile), None)
                    (tiled if tile else plain).append((self._take_out(monomial, tile)[0], 1.0))
                self.whole_phase[e].append(plain)
                self.folded_phase[e].append(tiled)
        self.inputs, self.written = [], []
        for row in self.rows:
            kinds = [(o.kind, m) for op, ms in zip(shape.structure.ops, row.dram) for o, m in zip(op.operands, ms)]
            self.inputs.append([(self.table.add(m), 1.0) for kind, m in kinds if kind == "input"])
            self.written.append([(self.table.add(m), 1.0) for kind, m in kinds if kind == "output"])
        self.costs = [[[self._op_costs(c) for c in by_place] for by_place in by_mode] for by_mode in self.array_costs]
        self.work = [[[(self.table.add(_operations(mode)), machine.mac)] for mode in modes] for modes in self.modes]

    def _op_costs(self, c: ArrayCost) -> OpCosts:
        machine = self.machine
        sliding = next(iter(self._sliding(c, self.folded)), None) if self.folded is not None else None
        terms = [(factors, machine.buffer_read) for factors in c.reads]
        terms += [(c.writes, machine.buffer_write + machine.buffer_read), (c.fresh, -machine.buffer_read)]
        fixed: list[tuple[int, float]] = []
        slides: list[tuple[int, float]] = []
        for factors, weight in terms:
            row, moved = self._take_out(factors, sliding)
            (slides if moved else fixed).append((row, weight))
        return OpCosts(c, self._take_out(c.cycles, sliding), (tuple(fixed), tuple(slides)), sliding)

    @cached_property
    def columns(self) -> int:
        """Tilings of all ranks but the folded one."""
        return prod(len(axis) for axis in self.outer)

    @cached_property
    def tilings(self) -> int:
        """Tilings that the result is certified over: every divisor, or every size."""
        if self.options.perfect:
            return prod(len(axis) for axis in self.axes.values())
        return prod(axis.size for axis in self.axes.values())

    @cached_property
    def segments(self) -> list[np.ndarray]:
        """For each outer axis, where its segments start: one for a short axis, else about as many as the root of its length."""
        starts = []
        for axis in self.outer:
            length = len(axis) if len(axis) <= SHORT else math.isqrt(len(axis))
            starts.append(np.arange(0, len(axis), length))
        return starts

    @cached_property
    def _logs(self) -> list[tuple[int, np.ndarray]]:
        """For each variable its axis (-1: constant) and logarithms: at each tile, the least in each segment, the least of all."""
        logs = []
        at = {axis.rank: n for n, axis in enumerate(self.outer)}
        for variable in self.table.variables:
            axis, values = at.get(variable.rank, -1), np.log(self.values(variable).astype(float))
            if axis >= 0:
                values = np.concatenate([values, np.minimum.reduceat(values, self.segments[axis]), [values.min()]])
            logs.append((axis, values))
        return logs

    def whole_axis(self, axis: int) -> int:
        """The index that stands for all tiles of an outer axis."""
        return len(self.outer[axis]) + len(self.segments[axis])

    def values(self, variable: Variable) -> np.ndarray:
        """Exact values of a variable along its axis; one value for whole ranks."""
        if variable.rank in self.axes:
            return self.axes[variable.rank].values(variable)
        if isinstance(variable, Passes) and variable.rank < 0:
            return passes(np.array([1]), variable)
        size = self.shape.sizes[variable.rank]
        return Axis(variable.rank, size, np.array([size])).values(variable)

    @cached_property
    def exponents(self) -> np.ndarray:
        return self.table.exponents

    def boundary(self, index: Sequence[np.ndarray]) -> np.ndarray:
        """``ln B``: variables by columns.

        ``index`` holds for each outer axis an index per column: of a tile; behind the tiles, of a segment; at last, of the whole
        axis. In a segment every variable takes its least value: all sums grow with every variable, so that what they give is a
        lower bound over its tiles.
        """
        out = np.empty((len(self.table.variables), len(index[0]) if index else 1))
        for row, (axis, logs) in enumerate(self._logs):
            out[row] = logs[0] if axis < 0 else logs[index[axis]]
        return out

    def monomials(self, index: Sequence[np.ndarray], which: np.ndarray) -> np.ndarray:
        """``exp(Q . ln B)``, rounded where that makes it exact: some of the monomials by columns."""
        values = np.exp(self.exponents[which] @ self.boundary(index))
        small = values < EXACT
        return np.rint(values, where=small, out=values)

    @cached_property
    def incidences(self) -> Incidences:
        """All sums as weights of monomials."""

        def weigh(sums: Sequence[Sequence[tuple[int, float]]]) -> Sums:
            return Sums(self.table.incidence(sums))

        cycles, energy = [], []
        for by_op in self.costs:
            cycles.append([_slide(weigh, [[(c.cycles[0], 1.0)] for c in cs], [c.cycles[1] for c in cs]) for cs in by_op])
            energy.append([(weigh([c.energy[0] for c in cs]), weigh([c.energy[1] for c in cs])) for cs in by_op])
        return Incidences(
            tuple(weigh(w) for w in self.whole_phase), tuple(weigh(w) for w in self.folded_phase), weigh(self.inputs),
            weigh(self.written), tuple(cycles), tuple(energy), tuple(weigh(w) for w in self.work),
        )  # fmt: skip

    @cached_property
    def combos(self) -> np.ndarray:
        """Every combination of placements: combinations by Einsums."""
        return np.array(list(product(*(range(len(p)) for p in self.placements))), dtype=np.int64)

    @cached_property
    def shares(self) -> int:
        """Heads that lie in the buffer together."""
        return shares_of(self.shape, self.machine, self.options)

    @cached_property
    def capacity(self) -> int:
        """Words for one head."""
        return self.machine.capacity // self.shares

    @cached_property
    def constant_energy(self) -> float:
        """Energy of the softmax, per head."""
        elements, _ = softmax_of(self.shape, self.machine, self.options)
        return self.options.softmax_ops * elements * self.machine.elementary

    def compute_cycles(self, cycles: np.ndarray) -> np.ndarray:
        """Cycles of all heads on the arrays (and on the softmax unit) from those of one head."""
        _, softmax = softmax_of(self.shape, self.machine, self.options)
        busy = np.maximum(cycles, softmax) if self.options.softmax == "overlapped" else cycles + softmax
        return busy * rounds_of(self.shape, self.machine, self.options)

    @cached_property
    def fitting(self) -> np.ndarray:
        """For each number of words along the folded rank, how many of its tile sizes are at most that."""
        assert self.folded is not None
        axis = self.axes[self.folded]
        return np.searchsorted(axis.tiles, np.arange(axis.size + 1), side="right")

    @cached_property
    def _scalars(self) -> list[list[np.ndarray]]:
        """Per Einsum and mode, the folded rank's figure of each placement at each of its tile sizes."""
        width = len(self.axes[self.folded]) if self.folded is not None else 1
        return [
            [
                np.stack(
                    [np.ones(width) if c.scalar is None else self.axes[c.scalar.rank].values(c.scalar).astype(float) for c in cs]
                )
                for cs in by_op
            ]
            for by_op in self.costs
        ]

    @cached_property
    def best_scalar(self) -> list[list[np.ndarray]]:
        """The least figure among the first tile sizes: placements by number of sizes."""
        return [[np.minimum.accumulate(s, axis=1) for s in by_op] for by_op in self._scalars]

    @cached_property
    def best_tile(self) -> list[list[np.ndarray]]:
        """The smallest tile size (its index) that reaches it."""
        return [[np.stack([np.searchsorted(-b, -b, side="left") for b in best]) for best in by_op] for by_op in self.best_scalar]

    @cached_property
    def least_scalar(self) -> list[list[np.ndarray]]:
        return [[b[:, -1] for b in by_op] for by_op in self.best_scalar]

    def query_matrices(self) -> dict[str, np.ndarray]:
        """Weights of the monomials in the six published quantities, a row for each template (and placement, inside the array).

        ``buffer_*`` and ``dram`` have a row per template; the others a row per mode and placement of the Einsum.
        ``exp(Q . ln B)`` times a row is the quantity at every tiling, with the folded rank's own factor left out.
        """
        named = {}
        for name, e in (("buffer_producer", 0), ("buffer_consumer", len(self.ops) - 1)):
            named[name] = self.table.incidence([a + b for a, b in zip(self.whole_phase[e], self.folded_phase[e])])
        doubled = [[(m, 2.0 * w) for m, w in terms] for terms in self.written]
        named["dram"] = self.table.incidence([a + b for a, b in zip(self.inputs, doubled)])
        for name, e in (("compute_producer", 0), ("compute_consumer", len(self.ops) - 1)):
            named[name] = self.table.incidence([[(c.cycles[0], 1.0)] for by_mode in self.costs[e] for c in by_mode])
        traffic = []
        for by_op in self.costs:
            for by_mode in by_op:
                for c in by_mode:
                    sliding = c.scalar
                    terms = [(self._take_out(f, sliding)[0], 1.0) for f in c.cost.reads]
                    terms += [(self._take_out(c.cost.writes, sliding)[0], 2.0), (self._take_out(c.cost.fresh, sliding)[0], -1.0)]
                    traffic.append(terms)
        named["buffer_register"] = self.table.incidence(traffic)
        return named


def _operations(mode: Mode) -> Factors:
    """Points of the iteration space that an Einsum computes in one mode."""
    exponents: dict[Variable, int] = {}
    for extent in (*mode.sweeps, *(Extent(rank, trips=1) for rank in mode.repeats)):
        exponents[extent] = exponents.get(extent, 0) + 1
    return tuple(exponents.items())
