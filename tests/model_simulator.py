"""A loop-by-loop simulation of a mapping, perfect or not: slow, explicit, and independent of the model's closed forms.

Every pass of every loop is executed; tiles are sets of words. A point of a rank is worked on when its number, spelt by the
loops' indices, is below the rank's size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from stitchloop.architecture import Architecture
from stitchloop.mapping import Mapping
from stitchloop.workload import Einsum, Tensor

Digits = tuple[int, ...]


@dataclass(frozen=True)
class Line:
    rank: str
    bound: int
    stride: int
    level: int
    is_temporal: bool


@dataclass(frozen=True)
class InstanceCounts:
    """What one instance of a level counts for one tensor."""

    reads: int
    fills: int
    updates: int
    capacity: int


class Simulation:
    """Runs ``mapping``; ``keep_on_wraps`` lets a wrapping tile keep what it overlaps with its predecessor."""

    def __init__(self, einsum: Einsum, architecture: Architecture, mapping: Mapping, keep_on_wraps: bool) -> None:
        self.einsum, self.mapping, self.keep_on_wraps = einsum, mapping, keep_on_wraps
        self.levels = len(architecture.levels)
        strides = dict.fromkeys(einsum.ranks, 1)
        self.lines: list[Line] = []
        for level, at in enumerate(mapping.levels):
            for loop, is_temporal in [(x, False) for x in at.spatial] + [(t, True) for t in at.temporal]:
                self.lines.append(Line(loop.rank, loop.bound, strides[loop.rank], level, is_temporal))
                strides[loop.rank] *= loop.bound

    def computes_and_cycles(self) -> tuple[int, int]:
        """Points worked on, and passes in which anybody works."""
        work = [self.passes(-1, element) for element in self.elements(-1, self.levels)]
        return sum(len(passes) for passes in work), len({when for passes in work for when, _ in passes})

    def working(self, level: int) -> list[Digits]:
        """Instances of ``level`` that ever work, instance 0 first."""
        return [element for element in self.elements(level, self.levels) if self.passes(level, element)]

    def tensor(self, tensor: Tensor, level: int, child: int, is_outermost: bool) -> list[InstanceCounts]:
        """Counts at ``level``, which feeds ``child`` next inside it, of every instance that works."""
        counted = []
        for instance in self.working(level):
            asked = sum(sum(stream.values()) for stream in self.merged(tensor, child, level, instance))
            own_tiles = self.tiles(tensor, level, instance)
            filled = 0 if is_outermost else sum(self.stream(tensor, level, instance).values())
            capacity = max(len(tile) for _, tile, _ in own_tiles)
            if not tensor.is_output:
                counted.append(InstanceCounts(asked, filled, 0, capacity))
                continue
            below = [
                instance_below
                for instance_below in self.elements(child, self.levels)
                if self.is_under(instance_below, child, instance, level)
            ]
            asked_first = len(set().union(*(tile for e in below for _, tile, _ in self.tiles(tensor, child, e))))
            filled_first = 0 if is_outermost else len(set().union(*(tile for _, tile, _ in own_tiles)))
            counted.append(InstanceCounts(asked - asked_first, filled - filled_first, asked, capacity))
        return counted

    def merged(self, tensor: Tensor, child: int, level: int, instance: Digits) -> list[dict[Digits, int]]:
        """Words by pass that an instance of ``level`` hands out, one stream for all children that share it."""
        return [stream for _, stream in self.subtree(tensor, child, level, instance)]

    def subtree(self, tensor: Tensor, child: int, level: int, instance: Digits) -> list[tuple[object, dict[Digits, int]]]:
        """Signature and stream of every child under ``instance`` of ``level``, after sharing inside each fan-out."""
        if level == child:
            return [(self.signature(tensor, child, instance), self.stream(tensor, child, instance))]
        loops = [line for line in self.lines if line.level == level and not line.is_temporal]
        foreign = [line.rank not in tensor.ranks for line in loops]
        shared: dict[object, list[tuple[object, dict[Digits, int]]]] = {}
        first_of: dict[Digits, list[tuple[object, dict[Digits, int]]]] = {}
        for digits in itertools.product(*(range(line.bound) for line in reversed(loops))):
            digits = digits[::-1]
            branch = self.subtree(tensor, child, level - 1, digits + instance)
            own = tuple(0 if is_foreign else d for d, is_foreign in zip(digits, foreign, strict=True))
            if own in first_of:
                for _, other in branch:
                    assert any(first.items() >= other.items() for _, first in first_of[own]), "a child asks for what no twin does"
                continue
            first_of[own] = branch
            if any(stream for _, stream in branch):
                shared.setdefault(tuple(signature for signature, _ in branch), branch)
        return [leaf for branch in shared.values() for leaf in branch]

    def signature(self, tensor: Tensor, child: int, element: Digits) -> object:
        """Position and extents of the element's tile in every pass."""
        return tuple(
            (when, place, tuple(e for r, e in extents if r in tensor.ranks))
            for when, place, extents in self.boxes(tensor, child, element)
        )

    def stream(self, tensor: Tensor, child: int, element: Digits) -> dict[Digits, int]:
        """Words that one child gets, by pass."""
        if child < 0:
            return {when: 1 for when, _ in self.passes(child, element)}
        stream = {}
        held: set[Digits] = set()
        before: Digits | None = None
        step = self.slide(tensor, child)
        for when, tile, place in self.tiles(tensor, child, element):
            slides = before is not None and tuple(b - a for a, b in zip(before, place, strict=True)) == step
            keeps = self.keep_on_wraps or slides or tile <= held
            stream[when] = len(tile - held) if keeps else len(tile)
            held, before = tile, place
        return stream

    def slide(self, tensor: Tensor, child: int) -> Digits | None:
        """How far one step of the innermost moving loop moves the tile."""
        for line in self.lines:
            if line.is_temporal and line.level > child and line.rank in tensor.ranks and self.runs(line):
                return tuple(
                    sum(t.coefficient * line.stride for t in terms if t.rank == line.rank) for terms in tensor.projection
                )
        return None

    def runs(self, line: Line) -> bool:
        """Whether the loop ever takes a second step."""
        return line.stride < self.einsum.sizes[line.rank]

    def tiles(self, tensor: Tensor, child: int, element: Digits) -> list[tuple[Digits, set[Digits], Digits]]:
        """Pass, words of the tile, and its position, in the order of time."""
        listed = []
        for when, place, extents in self.boxes(tensor, child, element):
            lengths = dict(extents)
            ranges = []
            for start, terms in zip(place, tensor.projection, strict=True):
                corners = [
                    start + sum(c) for c in itertools.product(*((0, t.coefficient * (lengths[t.rank] - 1)) for t in terms))
                ]
                ranges.append(range(min(corners), max(corners) + 1))
            listed.append((when, set(itertools.product(*ranges)), place))
        return listed

    def boxes(self, tensor: Tensor, child: int, element: Digits) -> Iterator[tuple[Digits, Digits, tuple[tuple[str, int], ...]]]:
        for when, points in self.passes(child, element):
            place = tuple(sum(t.coefficient * points[t.rank].start for t in terms) for terms in tensor.projection)
            yield when, place, tuple((rank, len(run)) for rank, run in points.items())

    def passes(self, child: int, element: Digits) -> list[tuple[Digits, dict[str, range]]]:
        """Passes in which the element works, in the order of time, with the points of its tile along each rank."""
        outside = [line for line in self.lines if line.level > child]
        temporal = [line for line in outside if line.is_temporal]
        spatial = [line for line in outside if not line.is_temporal]
        inner = dict.fromkeys(self.einsum.ranks, 1)
        for line in self.lines:
            if line.level <= child:
                inner[line.rank] *= line.bound
        found = []
        for backwards in itertools.product(*(range(line.bound) for line in reversed(temporal))):
            when = backwards[::-1]
            base = dict.fromkeys(self.einsum.ranks, 0)
            for line, index in [*zip(temporal, when, strict=True), *zip(spatial, element, strict=True)]:
                base[line.rank] += index * line.stride
            points = {r: range(base[r], min(base[r] + inner[r], self.einsum.sizes[r])) for r in self.einsum.ranks}
            if all(points.values()):
                found.append((when, points))
        return found

    def elements(self, child: int, level: int) -> list[Digits]:
        """Indices of the spatial loops outside ``child``, up to ``level``, inner to outer; all zero first."""
        loops = [line for line in self.lines if child < line.level <= level and not line.is_temporal]
        return [d[::-1] for d in itertools.product(*(range(line.bound) for line in reversed(loops)))]

    def is_under(self, element: Digits, child: int, instance: Digits, level: int) -> bool:
        inside = sum(1 for line in self.lines if child < line.level <= level and not line.is_temporal)
        return element[inside:] == instance


def points_of(einsum: Einsum) -> int:
    return prod(einsum.rank_sizes)
