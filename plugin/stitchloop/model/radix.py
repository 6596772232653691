"""Imperfect loops of one rank as a mixed-radix number.

The loops of a rank, outermost first, are the digits of its points: a point is active when its number is below the rank's
size, that is, when its digits are at most the boundary digits (``last - 1``) in the order of the loops. So a loop runs
``last`` times when all loops of its rank outside it are in their last iteration, and ``bound`` times otherwise (Timeloop's
``M=4,3``; Horeni et al., "Ruby", ISPASS 2022).

An instance fixes the digits of the spatial loops outside it. What it still visits of the rank is an initial segment of the
numbers that the temporal digits spell: all of it is said by :class:`Segment`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from stitchloop.mapping import LevelMapping, Loop, Mapping


class Digit(NamedTuple):
    """One loop of a rank. ``order`` is its place among all temporal loops, innermost first; -1 for a spatial loop."""

    bound: int
    last: int
    stride: int
    level: int
    order: int

    @property
    def is_temporal(self) -> bool:
        return self.order >= 0


class Segment(NamedTuple):
    """What an instance sees of one rank: how many positions of its tile, their extent, and the extent of the last one."""

    positions: int
    full: int
    last: int


class State(NamedTuple):
    """Advances of one loop that look the same along one rank: the tile's extents before and after, and how far it moves."""

    times: int
    before: int
    after: int
    move: int


class Branch(NamedTuple):
    """Instances whose digits compare alike with the boundary.

    While ``is_open`` they equal it so far; ``positions`` counts the positions that are certain.
    """

    instances: int
    positions: int
    is_open: bool


class Radix(NamedTuple):
    """The digits of one rank, outermost first."""

    digits: tuple[Digit, ...]

    def temporal(self, child: int) -> list[Digit]:
        """Temporal digits outside level ``child``, innermost first."""
        return [d for d in reversed(self.digits) if d.is_temporal and d.level > child]

    def extents(self, child: int) -> tuple[int, int]:
        """Extents of the tile of level ``child``: the full one, and the one at the boundary."""
        full, boundary = 1, 0
        for d in reversed(self.digits):
            if d.level <= child:
                boundary += (d.last - 1) * full
                full *= d.bound
        return full, boundary + 1

    def is_full_inside(self, index: int) -> bool:
        """Whether all digits inside ``digits[index]`` are at their bounds on the boundary, which then cuts nothing off."""
        return all(d.last == d.bound for d in self.digits[index + 1 :])

    def branches(self, level: int, child: int, *, with_spatial: bool = False) -> list[Branch]:
        """Instances of ``level`` by how their digits compare with the boundary, with the positions of ``child``'s tile.

        ``with_spatial`` counts the digits of spatial loops between ``child`` and ``level`` as positions too. Instances that
        never work are left out; the first branch is that of instance 0, which works most.
        """
        inner = prod(d.bound for d in self.digits if d.level > child and (d.is_temporal or (with_spatial and d.level <= level)))
        free = prod(d.bound for d in self.digits if d.level > level and not d.is_temporal)
        found, late, positions = [], [], 0
        for index, d in enumerate(self.digits):
            if d.level <= level:
                break
            if d.is_temporal:
                inner //= d.bound
                positions += (d.last - 1) * inner
                continue
            free //= d.bound
            full = self.is_full_inside(index)
            before = d.last if full else d.last - 1
            if before:
                found.append(Branch(before * free, positions + inner, False))
            if d.bound > d.last and positions:
                late.append(Branch((d.bound - d.last) * free, positions, False))
            if full:
                return found + late
        return [*found, Branch(1, positions, True), *late]

    def close(self, branch: Branch, level: int, child: int) -> Segment:
        """The segment of a branch of ``level`` when spatial digits inside are positions (``with_spatial``) or there are none."""
        full, boundary = self.extents(child)
        if not branch.is_open:
            return Segment(branch.positions, full, full)
        positions, inner = branch.positions + 1, 1
        for d in reversed(self.digits):
            if child < d.level <= level:
                positions += (d.last - 1) * inner
                inner *= d.bound
        return Segment(positions, full, boundary)


def radices(ranks: Sequence[str], mapping: Mapping) -> list[Radix]:
    """The digits of every rank of an effective mapping (see :func:`effective`)."""
    digits: dict[str, list[Digit]] = {rank: [] for rank in ranks}
    strides = dict.fromkeys(ranks, 1)
    order = 0
    for level, at in enumerate(mapping.levels):
        for loop, is_temporal in [(x, False) for x in at.spatial] + [(t, True) for t in at.temporal]:
            digits[loop.rank].append(Digit(loop.bound, loop.residual, strides[loop.rank], level, order if is_temporal else -1))
            strides[loop.rank] *= loop.bound
            order += is_temporal
    return [Radix(tuple(reversed(digits[rank]))) for rank in ranks]


def effective(mapping: Mapping) -> Mapping:
    """The same iterations with the bounds that are reached: a rank's outermost loops run ``last`` times, loops of 1 are gone."""
    reached: set[str] = set()

    def shrink(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
        kept = []
        for loop in reversed(loops):
            bound = loop.bound if loop.rank in reached else loop.residual
            if bound > 1:
                reached.add(loop.rank)
                kept.append(Loop(loop.rank, bound, 0 if loop.residual == bound else loop.residual))
        return tuple(reversed(kept))

    levels = []
    for level in reversed(mapping.levels):
        temporal, y = shrink(level.temporal), shrink(level.spatial_y)
        levels.append(LevelMapping(temporal, shrink(level.spatial_x), y, level.keep))
    return Mapping(tuple(reversed(levels)))


def states(digits: Sequence[Digit], segment: Segment, advancing: Digit, *, is_own: bool) -> list[State]:
    """How one rank's tile changes when the loop ``advancing`` advances and all loops inside it start anew.

    Parameters
    ----------
    digits : sequence of Digit
        The rank's temporal digits outside the tile, innermost first.
    is_own : bool
        Whether ``advancing`` is one of them.
    """
    block, rewind = 1, 0
    inside = [d for d in digits if d.order < advancing.order]
    for d in inside:
        block *= d.bound
        rewind += (d.bound - 1) * d.stride
    blocks, rest = divmod(segment.positions - 1, block)
    arriving = segment.last if rest == 0 else segment.full
    full = segment.full
    if is_own:
        advances = blocks - blocks // advancing.bound
        into_last = 1 if blocks % advancing.bound else 0
        move = advancing.stride - rewind
        found = [State(advances - into_last, full, full, move), State(into_last, full, arriving, move)]
    else:
        short_rewind = 0
        for d in inside:
            rest, digit = divmod(rest, d.bound)
            short_rewind += digit * d.stride
        found = [State(blocks, full, full, -rewind), State(1, segment.last, arriving, -short_rewind)]
    return [state for state in found if state.times]
