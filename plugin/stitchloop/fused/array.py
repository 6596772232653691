"""Inside the array: what each stationarity option costs, as monomials.

An Einsum's ranks fall into groups by the operands that they index. With two inputs they are ``m`` (first input and output),
``n`` (second input and output) and ``r`` (both inputs, reduced). An option lays one rank over the rows and one over the
columns and streams the rest. A rank's part in a tensor's buffer-register traffic is all its points where it indexes the
tensor, the passes of its lanes where it is spatial and does not, and its tiles where it is streamed and does not: a tensor
rests while ranks that do not index it stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations
from math import prod

from stitchloop.fused.machine import Machine
from stitchloop.fused.monomials import Extent
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.shape import Op, Shape
from stitchloop.fused.tilings import Passes, Variable, divisors

Product = tuple[tuple[Variable, int], ...]

NAMED = {"WS": ("r", "n"), "IS": ("r", "m"), "OS": ("m", "n")}
"""Groups over the rows and over the columns."""


@dataclass(frozen=True)
class Lanes:
    """One rank over one side of the array: ``rank`` (-1: only whole ranks), the whole ranks that are flattened with it, and
    the lanes."""

    rank: int
    whole: tuple[int, ...]
    lanes: int

    @property
    def covered(self) -> frozenset[int]:
        return frozenset({self.rank, *self.whole})


@dataclass(frozen=True)
class Placement:
    """One option: its name, the two sides of the (logical) array, and the ranks that are split over several arrays, each
    with how many share it."""

    name: str
    sides: tuple[Lanes, ...]
    splits: tuple[tuple[int, int], ...] = ()

    def arrays_along(self, rank: int) -> int:
        """Arrays that share ``rank``; 1 where it is not split."""
        return dict(self.splits).get(rank, 1)


@dataclass(frozen=True)
class Mode:
    """How an Einsum's tiles run in a group of rows: points and tiles along each of its ranks, and the shared ranks that
    repeat it."""

    sweeps: tuple[Extent, ...]
    trips: tuple[Extent, ...]
    repeats: tuple[int, ...]


@dataclass(frozen=True)
class ArrayCost:
    """Cycles, input reads, partial-sum writes and first touches (written without a read) of one placement, as monomials."""

    placement: Placement
    cycles: Product
    reads: tuple[Product, ...]
    writes: Product
    fresh: Product


def groups(shape: Shape, op: Op) -> dict[tuple[bool, ...], list[int]]:
    """Ranks (of size above 1) by the operands that they index, inputs first."""
    found: dict[tuple[bool, ...], list[int]] = {}
    for rank in sorted(op.ranks):
        if shape.points(shape.structure.ops.index(op), rank) > 1:
            found.setdefault(tuple(rank in o.touching for o in op.operands), []).append(rank)
    return found


def placements(shape: Shape, at: int, machine: Machine, options: FusedOptions) -> tuple[Placement, ...]:
    """Every option for Einsum ``at``: the stationarity options, for each logical array shape."""
    op = shape.structure.ops[at]
    cuts = array_cuts(shape, at, machine, options)
    units = machine.rows * machine.columns
    shapes = [(r, units // r) for r in divisors(units)] if options.reconfigurable else [(machine.rows, machine.columns)]
    found = {
        Placement(name, sides, cut): None
        for rows, columns in shapes
        for name, sides in _sides(shape, op, options, rows, columns)
        for cut in cuts
    }
    return tuple(found)


def array_cuts(shape: Shape, at: int, machine: Machine, options: FusedOptions) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Every way to cut Einsum ``at`` over the arrays: pairs of a rank and the arrays that share it. () where one array works."""
    if machine.arrays == 1 or options.arrays == "heads":
        return ((),)
    if options.arrays == "split":
        rank = split_rank(shape, machine, options)
        return (((rank, machine.arrays),) if rank >= 0 else (),)
    op = shape.structure.ops[at]
    ranks = [r for r in sorted(op.ranks) if r not in shape.structure.whole and shape.points(at, r) > 1]
    cuts: list[tuple[tuple[int, int], ...]] = [((rank, machine.arrays),) for rank in ranks]
    shared = [(count, machine.arrays // count) for count in divisors(machine.arrays)[1:-1]]
    cuts += [((a, first), (b, second)) for a, b in combinations(ranks, 2) for first, second in shared]
    return tuple(cuts) or ((),)


def split_rank(shape: Shape, machine: Machine, options: FusedOptions) -> int:
    """The rank that the arrays split among them: the longest that indexes every Einsum's output; -1 where there is none."""
    structure = shape.structure
    common = [r for r in structure.looped if all(r in op.output.ranks for op in structure.ops)]
    return max(common, key=lambda r: (shape.sizes[r], -r), default=-1)


def _sides(shape: Shape, op: Op, options: FusedOptions, rows: int, columns: int) -> Iterator[tuple[str, tuple[Lanes, ...]]]:
    by_role = groups(shape, op)
    roles = {"m": (True, False, True), "n": (False, True, True), "r": (True, True, False)}
    whole = shape.structure.whole

    def lanes(group: list[int], count: int) -> list[Lanes]:
        flat = tuple(r for r in group if r in whole)
        return [Lanes(r, flat, count) for r in group if r not in whole] or [Lanes(-1, flat, count)]

    if len(op.inputs) == 2 and all(role in by_role for role in roles.values()) and len(by_role) == 3:
        for name in options.stationarity:
            first, second = (by_role[roles[letter]] for letter in NAMED[name])
            yield from ((name, (a, b)) for a in lanes(first, rows) for b in lanes(second, columns))
        return
    if len(by_role) > 1:
        for first, second in permutations(by_role.values(), 2):
            yield from (("free", (a, b)) for a in lanes(first, rows) for b in lanes(second, columns))
        return
    every = next(iter(by_role.values()), [])
    yield from (("free", (side,)) for side in lanes(every, rows * columns))
    yield from (("free", (Lanes(a, (), rows), Lanes(b, (), columns))) for a, b in permutations(every, 2) if not {a, b} & whole)


def cost(shape: Shape, at: int, placement: Placement, mode: Mode, exact: bool) -> ArrayCost:
    """The monomials of one placement for one way of running the tiles."""
    op = shape.structure.ops[at]
    ranks = [index.rank for index in op.ranges]
    sweeps, trips = dict(zip(ranks, mode.sweeps)), dict(zip(ranks, mode.trips))
    covered = frozenset().union(*(side.covered for side in placement.sides))
    repeats: list[Variable] = [Extent(rank, trips=1) for rank in mode.repeats]

    def in_lanes(rank: int, lanes: tuple[int, ...], scale: int) -> Passes:
        if rank < 0:
            return Passes(-1, lanes, scale, exact=exact)
        index = op.range_of[rank]
        own = bool(trips[rank].own)
        keeps = not own and sweeps[rank].trips == 0
        plain = index.stride == index.window == 1
        return Passes(rank, lanes, scale, index.stride, index.window, own, keeps and not plain, exact and plain)

    def side_passes(side: Lanes) -> Passes:
        arrays = placement.arrays_along(side.rank)
        nested = (arrays, side.lanes) if arrays > 1 else (side.lanes,)
        return in_lanes(side.rank, nested, prod(shape.points(at, r) for r in side.whole))

    def streamed(rank: int) -> Variable:
        arrays = placement.arrays_along(rank)
        return in_lanes(rank, (arrays,), 1) if arrays > 1 else sweeps[rank]

    def moved(touching: frozenset[int]) -> Product:
        factors: list[Variable] = list(repeats)
        factors += [sweeps[r] for r in ranks if r in touching]
        factors += [trips[r] for r in ranks if r not in touching | covered and r not in shape.structure.whole]
        factors += [side_passes(side) for side in placement.sides if not side.covered & touching]
        return _product(factors)

    cycles = _product([*repeats, *map(side_passes, placement.sides), *(streamed(r) for r in ranks if r not in covered)])
    fresh = _product([*repeats, *(sweeps[r] for r in ranks if r in op.output.touching)])
    reads = tuple(moved(o.touching) for o in op.inputs)
    return ArrayCost(placement, cycles, reads, moved(op.output.touching), fresh)


def _product(factors: list[Variable]) -> Product:
    exponents: dict[Variable, int] = {}
    for factor in factors:
        exponents[factor] = exponents.get(factor, 0) + 1
    return tuple(exponents.items())
