"""Loop templates of a fused chain, and their compilation to sums of monomials.

A template says which loops over tiles the Einsums share, in what order each Einsum runs the rest, and at which loop each
tensor's buffered block is fixed (its retention level: the number of loops outside it). Nothing in it depends on tile sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import NamedTuple

from stitchloop.fused.monomials import ONE, Extent, Monomial, at_most, full_extent, tile_extent, trip_count
from stitchloop.fused.monomials import product as extents_product
from stitchloop.fused.shape import Index, Op, Operand, Structure


@dataclass(frozen=True)
class Template:
    """One loop template.

    Attributes
    ----------
    shared : tuple of int
        Ranks of the loops above the branch, outermost first.
    inner : tuple of tuple of int
        For each Einsum, the ranks of its own loops below the branch, outermost first.
    levels : tuple of tuple of int
        For each Einsum and each of its operands, how many loops of ``shared + inner`` stand outside the block; an intermediate
        tensor's level is ``len(shared)``.
    held : tuple of tuple of bool
        Whether the block keeps its place while the other Einsums run: always above the last shared loop, never inside a phase, by
        choice where the last shared loop slides over the tensor (its halo then need not be read again).
    """

    shared: tuple[int, ...]
    inner: tuple[tuple[int, ...], ...]
    levels: tuple[tuple[int, ...], ...]
    held: tuple[tuple[bool, ...], ...]

    def loops(self, op: int) -> tuple[int, ...]:
        return self.shared + self.inner[op]

    def walks(self, structure: Structure) -> tuple[Walk, ...]:
        return _walks(structure, self.shared, self.inner)


class Choice(NamedTuple):
    """One retention level of one tensor: its block, what it moves, and whether it keeps its place in every phase."""

    level: int
    block: Monomial
    dram: Monomial
    held: bool


@dataclass(frozen=True)
class Row:
    """A compiled template: what of its cost depends on the template, for any tile sizes.

    Attributes
    ----------
    template : Template
    phases : tuple of tuple of Monomial
        For each Einsum, the blocks that lie in the buffer while it runs; their sum is its buffer demand.
    dram : tuple of tuple of Monomial
        For each Einsum and operand the words moved; for the chain's output the words written, ``W`` (it re-reads ``W`` less its
        volume); ``()`` stands for 1 at intermediate tensors, which move nothing.
    sweeps : tuple of tuple of Extent
        For each Einsum and each of its ranks in order, all points that its tiles run through, a halo's repeats included.
    trips : tuple of tuple of Extent
        The number of those tiles along each rank.
    """

    template: Template
    phases: tuple[tuple[Monomial, ...], ...]
    dram: tuple[tuple[Monomial, ...], ...]
    sweeps: tuple[tuple[Extent, ...], ...]
    trips: tuple[tuple[Extent, ...], ...]
    repeats: tuple[frozenset[int], ...]

    @cached_property
    def recomputes(self) -> bool:
        return any(self.repeats)

    @cached_property
    def group(self) -> tuple[object, ...]:
        """Rows of one group do the same operations in the same tiles; only buffer demand and DRAM access tell them apart."""
        return (self.repeats, self.sweeps, self.trips)


class Walk(NamedTuple):
    """The loops of one Einsum: the shared ones first.

    An Einsum other than the head rests while shared loops run inside the last one that cuts its output: its block is still there.
    """

    structure: Structure
    op: Op
    loops: tuple[int, ...]
    shared: int

    def range_of(self, rank: int) -> Index:
        return self.op.range_of[rank]

    def is_shared(self, rank: int) -> bool:
        return rank in self.loops[: self.shared]

    @property
    def active(self) -> tuple[int, ...]:
        """The shared loops at whose steps the Einsum runs."""
        shared = self.loops[: self.shared]
        if self.op is self.structure.head:
            return shared
        cutting = [at for at, rank in enumerate(shared) if rank in self.op.output.ranks]
        return shared[: cutting[-1] + 1] if cutting else ()

    def running(self, level: int) -> tuple[int, ...]:
        """The loops among the outermost ``level`` at whose steps the Einsum runs."""
        idle = self.loops[len(self.active) : self.shared]
        return tuple(rank for rank in self.loops[:level] if rank not in idle)

    @property
    def repeats(self) -> frozenset[int]:
        """Ranks of shared loops that the Einsum does not have: it runs again for each of their tiles."""
        return frozenset(self.active) - self.op.ranks

    def keeps_halo(self, rank: int) -> bool:
        """The innermost of these loops slides: the overlap of the intermediate blocks is kept, not computed again."""
        return bool(self.active) and self.active[-1] == rank


def sweep(walk: Walk, rank: int) -> Extent:
    """All points of ``rank`` that the Einsum's tiles run through."""
    _, stride, window = walk.range_of(rank).as_tuple
    if walk.is_shared(rank) and window > stride and not walk.keeps_halo(rank):
        return Extent(rank, full=stride, trips=window - stride)
    if walk.is_shared(rank) and window < stride:
        return Extent(rank, full=stride, trips=window - stride)
    return full_extent(rank, stride, window)


def tiles_along(walk: Walk, rank: int) -> Extent:
    """Trip count of the Einsum's loop over ``rank``."""
    index = walk.range_of(rank)
    if walk.is_shared(rank) or index.stride == index.window:
        return trip_count(rank)
    return Extent(rank, own=1, stride=index.stride, window=index.window)


def _scaled(index: Index, points: Extent, tiles: Extent) -> Extent:
    """``stride*(points - tiles) + window*tiles``: words touched by ``tiles`` tiles that hold ``points`` points together."""
    a, b = index.stride, index.window - index.stride
    need = (points.stride or tiles.stride, points.window or tiles.window)
    return Extent(
        index.rank,
        a * points.tile + b * tiles.tile,
        a * points.full + b * tiles.full,
        a * points.trips + b * tiles.trips,
        a * points.own + b * tiles.own,
        a * points.constant + b * tiles.constant,
        *(need if a * points.own + b * tiles.own else (0, 0)),
    )


def _one(rank: int) -> Extent:
    return Extent(rank, constant=1)


def block_words(walk: Walk, operand: Operand, level: int) -> Monomial:
    """Words of the block that is fixed inside ``level`` loops: whole along deeper loops, one tile along the others."""
    outside = walk.loops[:level]

    def along(index: Index) -> Extent:
        points = (tile_extent if index.rank in outside else full_extent)(*walk.range_of(index.rank).as_tuple)
        return _scaled(index, points, _one(index.rank))

    return extents_product(map(along, operand.index))


def _traffic(walk: Walk, operand: Operand, level: int, held: bool) -> Monomial:
    """Words that cross the DRAM interface for an input; words written for the chain's output."""
    outside = walk.running(level)
    last = outside[-1] if outside and (held or level != walk.shared) else None

    def along(index: Index) -> Extent:
        rank = index.rank
        if rank not in outside or rank == last:
            return _scaled(index, full_extent(*walk.range_of(rank).as_tuple), _one(rank))
        return _scaled(index, sweep(walk, rank), tiles_along(walk, rank))

    again = [
        tiles_along(walk, rank) if rank in walk.op.ranks else trip_count(rank) for rank in outside if rank not in operand.ranks
    ]
    return extents_product([*map(along, operand.index), *again])


def _levels(walk: Walk, operand: Operand) -> range:
    """Retention levels that a tensor may have: partial sums of the output stay put while a shared loop reduces over them."""
    if operand.kind == "output":
        reducing = [at for at, rank in enumerate(walk.loops[: walk.shared]) if rank not in operand.ranks]
        if reducing:
            return range(reducing[0] + 1)
    return range(len(walk.loops) + 1)


def choices(walk: Walk, operand: Operand) -> tuple[Choice, ...]:
    """Every retention level of one tensor, compiled."""
    if operand.kind == "intermediate":
        return (_choice(walk, operand, walk.shared, True),)
    return tuple(
        _choice(walk, operand, level, held) for level in _levels(walk, operand) for held in _lifetimes(walk, operand, level)
    )


def _lifetimes(walk: Walk, operand: Operand, level: int) -> tuple[bool, ...]:
    """Whether a block at this level may keep its place through all phases."""
    if level != walk.shared or not level:
        return (level < walk.shared,)
    rank = walk.active[-1] if walk.active else -1
    slides = any(i.rank == rank and _overlaps(i, walk.range_of(rank)) for i in operand.index)
    return (False, True) if slides else (False,)


def _overlaps(index: Index, points: Index) -> bool:
    """Whether the blocks of neighbouring tiles share words."""
    return index.stride * (points.window - 1) + index.window > index.stride * points.stride


def _choice(walk: Walk, operand: Operand, level: int, held: bool) -> Choice:
    dram = ONE if operand.kind == "intermediate" else _traffic(walk, operand, level, held)
    return Choice(level, block_words(walk, operand, level), dram, held)


def useful(options: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """The choices of one tensor that no other choice of it is proved to beat or equal in block, traffic and lifetime."""

    def beats(u: Choice, v: Choice) -> bool:
        return at_most(u.block, v.block) and at_most(u.dram, v.dram) and u.held <= v.held

    kept: list[Choice] = []
    for option in options:
        if not any(beats(other, option) for other in kept):
            kept = [other for other in kept if not beats(option, other)] + [option]
    return tuple(kept)


def compile_row(structure: Structure, template: Template) -> Row:
    """Compile one template."""
    walks = _walks(structure, template.shared, template.inner)
    chosen = tuple(
        tuple(_choice(walk, o, t, h) for o, t, h in zip(walk.op.operands, levels, held, strict=True))
        for walk, levels, held in zip(walks, template.levels, template.held, strict=True)
    )
    return assemble(structure, walks, chosen)


def assemble(structure: Structure, walks: tuple[Walk, ...], chosen: tuple[tuple[Choice, ...], ...]) -> Row:
    """The row of one choice for every tensor."""
    always: list[Monomial] = []
    for op, picks in zip(structure.ops, chosen, strict=True):
        always += [p.block for o, p in zip(op.operands, picks) if (o.kind == "intermediate" and o is op.output)]
    held = [
        [p.block for o, p in zip(op.operands, picks) if o.kind != "intermediate" and p.held]
        for op, picks in zip(structure.ops, chosen, strict=True)
    ]
    phases = []
    for e, (op, picks) in enumerate(zip(structure.ops, chosen, strict=True)):
        own = [p.block for o, p in zip(op.operands, picks) if o.kind != "intermediate"]
        others = [block for f, blocks in enumerate(held) if f != e for block in blocks]
        phases.append(tuple(sorted([*own, *others, *always])))
    shared = walks[0].loops[: walks[0].shared]
    template = Template(
        shared,
        tuple(walk.loops[walk.shared :] for walk in walks),
        tuple(tuple(pick.level for pick in picks) for picks in chosen),
        tuple(tuple(pick.held for pick in picks) for picks in chosen),
    )
    return Row(
        template,
        tuple(phases),
        tuple(tuple(pick.dram for pick in picks) for picks in chosen),
        tuple(tuple(sweep(walk, i.rank) for i in walk.op.ranges) for walk in walks),
        tuple(tuple(tiles_along(walk, i.rank) for i in walk.op.ranges) for walk in walks),
        tuple(walk.repeats for walk in walks),
    )


def _walks(structure: Structure, shared: tuple[int, ...], inner: tuple[tuple[int, ...], ...]) -> tuple[Walk, ...]:
    return tuple(Walk(structure, op, shared + own, len(shared)) for op, own in zip(structure.ops, inner, strict=True))


class Skeleton(NamedTuple):
    """Shared loops, and for each Einsum the loop orders that may go with them.

    ``together``: the orders of the Einsums belong to one common order, so that the n-th of each go together; else they are free.
    ``positions`` counts retention levels per tensor where they are positions in that common order (0: loops of the Einsum alone).
    """

    orders: tuple[tuple[Walk, ...], ...]
    together: bool
    positions: int

    @property
    def first(self) -> tuple[Walk, ...]:
        """One of its loop orders for each Einsum."""
        return tuple(walks[0] for walks in self.orders)


def skeletons(structure: Structure) -> Iterator[Skeleton]:
    """Every choice of shared loops and loop orders.

    For one Einsum or a pair, the loops of all ranks stand in one common order (their retention levels count its positions); in
    longer chains each Einsum orders its own loops.
    """
    if len(structure.ops) <= 2:
        yield from _in_common_order(structure)
    else:
        yield from _in_own_orders(structure)


def _is_canonical(structure: Structure, shared: tuple[int, ...]) -> bool:
    """Loops that cut no intermediate tensor may not stand innermost above the branch: they would only cost."""
    intermediate = [op.output.ranks for op in structure.ops[:-1]]
    return not shared or any(shared[-1] in ranks for ranks in intermediate)


def _in_common_order(structure: Structure) -> Iterator[Skeleton]:
    for order in permutations(sorted(structure.looped)):
        for count in range(len(order) + 1 if len(structure.ops) == 2 else 1):
            shared = order[:count]
            if not structure.shareable.issuperset(shared):
                break
            if _is_canonical(structure, shared):
                inner = tuple(tuple(r for r in order[count:] if r in op.ranks) for op in structure.ops)
                yield Skeleton(tuple((walk,) for walk in _walks(structure, shared, inner)), True, len(order) + 1)


def _in_own_orders(structure: Structure) -> Iterator[Skeleton]:
    shareable = sorted(structure.shareable)
    for count in range(len(shareable) + 1):
        for shared in permutations(shareable, count):
            if _is_canonical(structure, shared):
                yield Skeleton(tuple(_own_orders(structure, op, shared) for op in structure.ops), False, 0)


def _own_orders(structure: Structure, op: Op, shared: tuple[int, ...]) -> tuple[Walk, ...]:
    own = sorted((op.ranks & structure.looped) - set(shared))
    return tuple(Walk(structure, op, shared + inner, len(shared)) for inner in permutations(own))


def level_count(skeleton: Skeleton, walk: Walk, operand: Operand) -> int:
    """Retention levels of one tensor as the raw mapspace counts them."""
    own = choices(walk, operand)
    limited = len(_levels(walk, operand)) <= walk.shared
    if not skeleton.positions or limited or operand.kind == "intermediate":
        return len(own)
    return len(own) + skeleton.positions - (len(walk.loops) + 1)
