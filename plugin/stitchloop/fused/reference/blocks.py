"""Blocks: what a memory holds of one coordinate, unit by unit, and how much of it is new as the loops step on.

A *bundle* is what a storage node's loops leave fixed: for each unit of the memory (told apart by the iterations of spatial
loops) the set of points of the coordinate. A block axis is an axis whose leaves are bundles and whose loops are the temporal
loops above the node; spatial loops have moved into the bundles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from stitchloop.fused.reference.axis import Axis, Loop
from stitchloop.fused.reference.sets import EMPTY, Points, difference, intersection, repeated, shifted, size, union

Unit: TypeAlias = tuple[tuple[int, int], ...]
"""(level, iteration) of the spatial loops that single out one unit."""
Bundle: TypeAlias = dict[Unit, Points]


@dataclass(frozen=True)
class Steps:
    """A temporal loop at ``level``: runs of (what is inside, start, step, count)."""

    level: int
    runs: tuple[tuple[BlockAxis, int, int, int], ...]


BlockAxis: TypeAlias = Steps | Bundle


def block_axis(axis: Axis, depth: int, units: frozenset[int], spatial: frozenset[int]) -> BlockAxis:
    """The blocks of a node below ``depth`` loops in a memory whose units the spatial loops at levels ``units`` tell apart."""
    if not isinstance(axis, Loop):
        return {(): axis}
    if axis.level in spatial:
        sides: list[BlockAxis] = []
        for index, (tree, offset) in enumerate(axis.children()):
            unit: Unit = ((axis.level, index),) if axis.level in units else ()
            sides.append(_placed(block_axis(tree, depth, units, spatial), offset, unit))
        return _side_by_side(sides)
    if axis.level < depth:
        runs = ((block_axis(run.tree, depth, units, spatial), run.start, run.step, run.count) for run in axis.runs)
        return Steps(axis.level, tuple(runs))
    whole: Bundle = {}
    for run in axis.runs:
        inside = block_axis(run.tree, depth, units, spatial)
        assert isinstance(inside, dict)
        for unit, points in inside.items():
            whole[unit] = union(whole.get(unit, EMPTY), repeated(shifted(points, run.start), run.step, run.count))
    return whole


def _placed(blocks: BlockAxis, offset: int, unit: Unit) -> BlockAxis:
    """The same blocks moved by ``offset``, as those of ``unit``."""
    if isinstance(blocks, dict):
        return {(*unit, *inner): shifted(points, offset) for inner, points in blocks.items()}
    runs = ((_placed(tree, 0, unit), start + offset, step, count) for tree, start, step, count in blocks.runs)
    return Steps(blocks.level, tuple(runs))


def _side_by_side(sides: list[BlockAxis]) -> BlockAxis:
    """Blocks of several units, stepping together."""
    if all(isinstance(side, dict) for side in sides):
        together: Bundle = {}
        for side in sides:
            for unit, points in side.items():  # type: ignore[union-attr]
                together[unit] = union(together.get(unit, EMPTY), points)
        return together
    loops = [side for side in sides if isinstance(side, Steps)]
    shapes = {tuple((step, count) for _, _, step, count in one.runs) for one in loops}
    if len(shapes) == 1:
        runs = []
        for at, (step, count) in enumerate(next(iter(shapes))):
            inside = [_placed(one.runs[at][0], one.runs[at][1], ()) for one in loops]
            runs.append((_side_by_side(inside), 0, step, count))
        return Steps(loops[0].level, tuple(runs))
    children = [list(_children(one)) for one in loops]
    steps = range(max(map(len, children)))
    return Steps(loops[0].level, tuple((_side_by_side([c[i] for c in children if i < len(c)]), 0, 0, 1) for i in steps))


def _children(steps: Steps) -> Iterator[BlockAxis]:
    for tree, start, step, count in steps.runs:
        for i in range(count):
            yield _placed(tree, start + i * step, ())


def levels_above(blocks: BlockAxis) -> frozenset[int]:
    """The temporal loops that step through the blocks."""
    if isinstance(blocks, dict):
        return frozenset()
    return frozenset({blocks.level}).union(*(levels_above(tree) for tree, _, _, _ in blocks.runs))


@dataclass(frozen=True)
class Measure:
    """Points in one coordinate: of the blocks stepped to, and of what their units held already one step before.

    ``own`` and ``own_held`` add up the units; ``joint`` and ``joint_held`` count what several units of one parent unit take
    together once.
    """

    own: int
    own_held: int
    joint: int
    joint_held: int

    def __add__(self, other: Measure) -> Measure:
        return Measure(
            self.own + other.own, self.own_held + other.own_held, self.joint + other.joint, self.joint_held + other.joint_held
        )

    def times(self, count: int) -> Measure:
        return Measure(self.own * count, self.own_held * count, self.joint * count, self.joint_held * count)


NOTHING = Measure(0, 0, 0, 0)


def measure(before: Bundle, after: Bundle, apart: int | None, parent: frozenset[int]) -> Measure:
    """Compares two bundles; ``apart`` is by how far ``after`` lies beyond ``before``, None if nothing was held before."""
    if len(after) == 1 and apart is not None and before.keys() == after.keys():
        ((unit, new),) = after.items()
        old = before[unit]
        total = size(new)
        held = total if apart == 0 and new == old else size(intersection(shifted(new, apart), old))
        return Measure(total, held, total, held)
    own = own_held = 0
    groups: dict[Unit, tuple[Points, Points]] = {}
    for unit, points in after.items():
        old = EMPTY if apart is None else shifted(before.get(unit, EMPTY), -apart)
        own += size(points)
        own_held += size(intersection(points, old))
        group = tuple(part for part in unit if part[0] in parent)
        taken, fresh = groups.get(group, (EMPTY, EMPTY))
        groups[group] = (union(taken, points), union(fresh, difference(points, old)))
    joint = sum(size(taken) for taken, _ in groups.values())
    return Measure(own, own_held, joint, joint - sum(size(fresh) for _, fresh in groups.values()))


def _end(blocks: BlockAxis, is_last: bool) -> tuple[Bundle, int]:
    """The first or last bundle, and where it lies."""
    if isinstance(blocks, dict):
        return blocks, 0
    tree, start, step, count = blocks.runs[-1 if is_last else 0]
    bundle, offset = _end(tree, is_last)
    return bundle, offset + start + (step * (count - 1) if is_last else 0)


def at_start(blocks: BlockAxis, parent: frozenset[int]) -> Measure:
    """The first block of all."""
    first, _ = _end(blocks, is_last=False)
    return measure({}, first, None, parent)


def over_all(blocks: BlockAxis, parent: frozenset[int]) -> Measure:
    """The sum over all steps, nothing held."""
    if isinstance(blocks, dict):
        return measure({}, blocks, None, parent)
    total = NOTHING
    for tree, _, _, count in blocks.runs:
        total += over_all(tree, parent).times(count)
    return total


def at_steps(blocks: BlockAxis, level: int, parent: frozenset[int], first: frozenset[int] = frozenset()) -> Measure:
    """The sum over all steps of the loop at ``level`` to its next iteration, for all iterations of the loops outside it.

    Loops inside it go from their last iteration to their first. Of the outer loops at the levels ``first`` only the first
    iteration counts.
    """
    if isinstance(blocks, dict) or blocks.level > level:
        closing, closes = _end(blocks, is_last=True)
        opening, opens = _end(blocks, is_last=False)
        return measure(closing, opening, opens - closes, parent)
    if blocks.level < level:
        runs = blocks.runs[:1] if blocks.level in first else blocks.runs
        total = NOTHING
        for tree, _, _, count in runs:
            total += at_steps(tree, level, parent, first).times(1 if blocks.level in first else count)
        return total
    total = NOTHING
    before: tuple[Bundle, int] | None = None
    for tree, start, step, count in blocks.runs:
        opening, opens = _end(tree, is_last=False)
        closing, closes = _end(tree, is_last=True)
        if before is not None:
            total += measure(before[0], opening, start + opens - before[1], parent)
        if count > 1:
            total += measure(closing, opening, step + opens - closes, parent).times(count - 1)
        before = (closing, start + (count - 1) * step + closes)
    return total


def largest(blocks: BlockAxis) -> int:
    """Points of the largest block of one unit."""
    if isinstance(blocks, dict):
        return max(map(size, blocks.values()))
    return max(largest(tree) for tree, _, _, _ in blocks.runs)


def smallest(blocks: BlockAxis) -> int:
    """Points of the smallest block of one unit."""
    if isinstance(blocks, dict):
        return min(map(size, blocks.values()))
    return min(smallest(tree) for tree, _, _, _ in blocks.runs)
