"""One coordinate of an iteration space or of a tensor, as nested loops visit it.

An axis is a tree. Its leaves are the sets of points that the coordinate takes in one innermost step; an inner node is a
loop (its *level* is the number of loops above it on the Einsum's path) whose children follow one another in runs: ``count``
copies of one subtree, the first moved by ``start``, each next one ``step`` further. A loop of a thousand equal tiles is one
run, so that the cost of every operation below depends on how many *different* tiles there are and not on how many tiles.

Axes of different coordinates are independent: the loops of an iteration space pick one child in each. That is what makes
the counts of :mod:`~stitchloop.fused.reference.counts` products of sums over single axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

from stitchloop.fused.reference.sets import (
    EMPTY,
    ORIGIN,
    Points,
    check_pieces,
    difference,
    intersection,
    interval,
    repeated,
    shifted,
    union,
    weighted_sum,
)


@dataclass(frozen=True, slots=True)
class Run:
    """``count`` copies of ``tree``, the i-th moved by ``start + i*step``."""

    tree: Axis
    start: int
    step: int
    count: int


@dataclass(frozen=True)
class Loop:
    """A loop at ``level``, its iterations in order."""

    level: int
    runs: tuple[Run, ...]

    @cached_property
    def points(self) -> Points:
        """Every point that the loop visits."""
        total = EMPTY
        for run in self.runs:
            total = union(total, repeated(shifted(points_of(run.tree), run.start), run.step, run.count))
        return total

    @cached_property
    def levels(self) -> frozenset[int]:
        return frozenset({self.level}).union(*(levels_of(run.tree) for run in self.runs))

    @property
    def trips(self) -> int:
        return sum(run.count for run in self.runs)

    def children(self) -> Iterator[tuple[Axis, int]]:
        """Every child with its offset, one by one."""
        check_pieces(self.trips)
        for run in self.runs:
            for i in range(run.count):
                yield run.tree, run.start + i * run.step

    @property
    def first(self) -> tuple[Axis, int]:
        return self.runs[0].tree, self.runs[0].start

    @property
    def last(self) -> tuple[Axis, int]:
        run = self.runs[-1]
        return run.tree, run.start + (run.count - 1) * run.step


Axis: TypeAlias = Loop | Points


def points_of(axis: Axis) -> Points:
    return axis.points if isinstance(axis, Loop) else axis


def levels_of(axis: Axis) -> frozenset[int]:
    return axis.levels if isinstance(axis, Loop) else frozenset()


def loop(level: int, children: list[Run]) -> Axis:
    """A loop with neighbouring equal runs joined; ``EMPTY`` where nothing is left to visit."""
    runs: list[Run] = []
    for new in children:
        if new.count == 0 or new.tree == EMPTY:
            continue
        old = runs[-1] if runs else None
        if old is not None and old.tree == new.tree:
            gap = new.start - (old.start + (old.count - 1) * old.step)
            if (old.count == 1 or old.step == gap) and (new.count == 1 or new.step == gap):
                runs[-1] = Run(old.tree, old.start, gap, old.count + new.count)
                continue
        runs.append(new)
    return Loop(level, tuple(runs)) if runs else EMPTY


def rebuilt(axis: Axis, leaf: Callable[[Points], Axis]) -> Axis:
    """The same loops over other leaves."""
    if not isinstance(axis, Loop):
        return leaf(axis)
    return loop(axis.level, [Run(rebuilt(run.tree, leaf), run.start, run.step, run.count) for run in axis.runs])


def tiled(axis: Axis, level: int, tile_shape: int) -> Axis:
    """Cuts every leaf, from its first point on, in steps of ``tile_shape``, by a loop at ``level`` inside all others."""

    def cut(points: Points) -> Axis:
        if not points:
            return EMPTY
        start, stop = points[0][0], points[-1][1]
        if len(points) == 1:
            whole, rest = divmod(stop - start, tile_shape)
            return loop(
                level,
                [
                    Run(interval(tile_shape), start, tile_shape, whole),
                    Run(interval(rest), start + whole * tile_shape, tile_shape, 1),
                ],
            )
        pieces = []
        check_pieces((stop - start) // tile_shape)
        for at in range(start, stop, tile_shape):
            piece = tuple((max(a, at) - at, min(b, at + tile_shape) - at) for a, b in points if a < at + tile_shape and b > at)
            pieces.append(Run(piece, at, tile_shape, 1))
        return loop(level, pieces)

    return rebuilt(axis, cut)


def summed(terms: list[tuple[int, Axis]]) -> Axis:
    """The axis of ``c1*x1 + c2*x2 + ...`` for independent axes with disjoint loops, their loops nested by level."""
    if len(terms) == 1 and terms[0][0] == 1:
        return terms[0][1]
    outer = min((axis.level for _, axis in terms if isinstance(axis, Loop)), default=None)
    if outer is None:
        return weighted_sum([(c, axis) for c, axis in terms if not isinstance(axis, Loop)])
    runs, rest = [], []
    for coefficient, axis in terms:
        if isinstance(axis, Loop) and axis.level == outer:
            factor, runs = coefficient, list(axis.runs)
        else:
            rest.append((coefficient, axis))
    joined = [Run(summed([(factor, run.tree), *rest]), factor * run.start, factor * run.step, run.count) for run in runs]
    return loop(outer, joined)


def moved(axis: Axis, by: int) -> Axis:
    """The axis with all its points ``by`` further."""
    if not isinstance(axis, Loop):
        return shifted(axis, by)
    return Loop(axis.level, tuple(Run(run.tree, run.start + by, run.step, run.count) for run in axis.runs))


def merged(one: Axis, other: Axis, combine: Callable[[Points, Points], Points]) -> Axis | None:
    """Two axes of one coordinate as one, leaf by leaf; None where a loop has different iterations in them.

    An axis without some loop of the other one is the same in each of its iterations.
    """
    if not isinstance(one, Loop) and not isinstance(other, Loop):
        return combine(one, other)
    level = min(axis.level for axis in (one, other) if isinstance(axis, Loop))
    sides = [list(axis.runs) if isinstance(axis, Loop) and axis.level == level else None for axis in (one, other)]
    trips = {sum(run.count for run in runs) for runs in sides if runs is not None}
    if len(trips) > 1:
        return None
    constant = [Run(axis, 0, 0, max(trips)) for axis in (one, other)]
    children: list[Run] = []
    for mine, its in _side_by_side(sides[0] or constant[:1], sides[1] or constant[1:]):
        child = merged(mine.tree, moved(its.tree, its.start - mine.start), combine)
        if child is None:
            return None
        children.append(Run(child, mine.start, mine.step, mine.count))
    return loop(level, children)


def _side_by_side(one: list[Run], other: list[Run]) -> Iterator[tuple[Run, Run]]:
    """Pairs of runs of equal count and step that cover both lists."""
    mine, its = list(reversed(one)), list(reversed(other))
    while mine and its:
        a, b = mine.pop(), its.pop()
        count = min(a.count, b.count) if a.step == b.step else 1
        check_pieces(min(a.count, b.count) // count)
        yield Run(a.tree, a.start, a.step, count), Run(b.tree, b.start, b.step, count)
        for runs, run in ((mine, a), (its, b)):
            if run.count > count:
                runs.append(Run(run.tree, run.start + count * run.step, run.step, run.count - count))


def truncated(axis: Axis, level: int) -> Axis:
    """The axis seen from above ``level``: one leaf for all that deeper loops visit."""
    if not isinstance(axis, Loop):
        return axis
    if axis.level >= level:
        return axis.points
    return loop(axis.level, [Run(truncated(run.tree, level), run.start, run.step, run.count) for run in axis.runs])


def silent(axis: Axis) -> Axis:
    """The same iterations of a coordinate that a tensor does not have: every leaf is the one point 0."""
    if not isinstance(axis, Loop):
        return ORIGIN if axis else EMPTY
    return loop(axis.level, [Run(silent(run.tree), 0, 0, run.count) for run in axis.runs])


def first_only(axis: Axis, levels: frozenset[int]) -> Axis:
    """The axis without the iterations after the first of the loops at ``levels``."""
    if not isinstance(axis, Loop):
        return axis
    runs = axis.runs
    if axis.level in levels:
        runs = (Run(runs[0].tree, runs[0].start, runs[0].step, 1),)
    return loop(axis.level, [Run(first_only(run.tree, levels), run.start, run.step, run.count) for run in runs])


def newly_visited(axis: Axis, depth: int, kept: frozenset[int], apart: frozenset[int] = frozenset()) -> Axis:
    """What each leaf visits that a memory does not hold yet.

    The memory holds one block at a time: all that the loops at ``depth`` and deeper visit. Within a block, what was visited
    before is held. When a loop above ``depth`` steps on, the block before it is held if the loop's level is in ``kept``, else
    nothing is. Iterations of the (spatial) loops at the levels ``apart`` have memories of their own.
    """
    return _new(axis, EMPTY, depth, kept, apart)


def _new(axis: Axis, held: Points, depth: int, kept: frozenset[int], apart: frozenset[int]) -> Axis:
    if not isinstance(axis, Loop):
        return difference(axis, held)
    step_of = _within_block if axis.level >= depth else _between_blocks
    children: list[Run] = []
    for run in axis.runs:
        held = shifted(held, -run.start)
        parts, held = step_of(run, held, depth, axis.level in kept) if axis.level not in apart else ([(EMPTY, run.count)], EMPTY)
        at = 0
        for before, repeats in parts:
            children.append(Run(_new(run.tree, before, depth, kept, apart), run.start + at * run.step, run.step, repeats))
            at += repeats
        held = shifted(held, run.start)
    return loop(axis.level, children)


def slides(axis: Axis, above: frozenset[int], levels: frozenset[int]) -> bool:
    """Whether, at one of ``levels`` that has a loop of ``above`` inside it, two neighbouring iterations visit a common point."""
    if not isinstance(axis, Loop) or not axis.levels & above:
        return False
    if axis.level in levels:
        children = [(run.tree, run.start + i * run.step) for run in axis.runs for i in {0, 1, run.count - 1} if i < run.count]
        for (tree, at), (after, later) in pairwise(sorted(children, key=lambda child: child[1])):
            if at != later and intersection(shifted(points_of(tree), at), shifted(points_of(after), later)):
                return True
    return any(slides(run.tree, above, levels) for run in axis.runs)


Parts: TypeAlias = tuple[list[tuple[Points, int]], Points]
"""What is held before each iteration of a run, relative to it, and for how many iterations; what is held after the run."""


def _between_blocks(run: Run, held: Points, depth: int, keeps: bool) -> Parts:
    block = last_block(run.tree, depth) if keeps else EMPTY
    parts = [(held, 1), (shifted(block, -run.step), run.count - 1)]
    return parts[: min(run.count, 2)], shifted(block, (run.count - 1) * run.step)


def _within_block(run: Run, held: Points, depth: int, keeps: bool) -> Parts:
    """The same before every iteration from the one on that neither the first nor what was held at the start reaches."""
    reach = points_of(run.tree)
    low, high = reach[0][0], reach[-1][1]
    parts, before = [], held
    for at in range(run.count):
        way = at * run.step
        is_past = not held or run.step == 0 or (held[-1][1] <= low + way if run.step > 0 else held[0][0] >= high + way)
        if at and is_past and (abs(way) >= high - low or run.step == 0):
            parts.append((before, run.count - at))
            break
        parts.append((before, 1))
        check_pieces(at)
        before = shifted(union(before, reach), -run.step)
    return parts, union(held, repeated(reach, run.step, run.count))


def last_block(axis: Axis, depth: int) -> Points:
    """What the loops at ``depth`` and deeper visit in the last iteration of the loops above."""
    if isinstance(axis, Loop) and axis.level < depth:
        tree, offset = axis.last
        return shifted(last_block(tree, depth), offset)
    return points_of(axis)


def first_block(axis: Axis, depth: int) -> Points:
    """What the loops at ``depth`` and deeper visit in the first iteration of the loops above."""
    if isinstance(axis, Loop) and axis.level < depth:
        tree, offset = axis.first
        return shifted(first_block(tree, depth), offset)
    return points_of(axis)
