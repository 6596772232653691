"""Reads and writes of a fused mapping: what every Einsum moves of every tensor between neighbouring storage nodes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from math import prod

from stitchloop.fused.reference.blocks import BlockAxis, Measure, at_start, at_steps, block_axis, levels_above, over_all
from stitchloop.fused.reference.capacity import capacities, varying
from stitchloop.fused.reference.context import Context
from stitchloop.fused.reference.needs import visits
from stitchloop.fused.reference.sets import NotSeparable
from stitchloop.fused.reference.space import losing_conditions
from stitchloop.fused.rules import Rules
from stitchloop.fused.stats import Access
from stitchloop.fused.structure import Path, StoragePoint, Structure
from stitchloop.workload import Tensor


@dataclass(frozen=True)
class Fill:
    """Words that come into a memory over time.

    ``own`` adds up what each unit takes; ``joint`` counts what units of one parent unit take together once.
    """

    own: int
    joint: int


@dataclass(frozen=True)
class Counts:
    """The figures of :class:`~stitchloop.fused.stats.FusedStats` under one set of rules."""

    capacity: dict[int, int]
    varies: frozenset[int]
    reads: dict[Access, int]
    writes: dict[Access, int]
    operations: dict[str, int]


def counts(structure: Structure, rules: Rules) -> Counts:
    """Evaluates a tree under ``rules``; raises :class:`NotSeparable` where only stepping through it would do."""
    context = Context(structure, rules)
    traffic = _Traffic(context)
    for path in structure.paths.values():
        for tensor in path.einsum.tensors:
            traffic.move(path, tensor)
    operations = {}
    for name in structure.paths:
        space = context.spaces[name]
        operations[name] = prod(visits(axis) for axis in (*space.ranks.values(), *space.idle))
    return Counts(capacities(context), varying(context), dict(traffic.reads), dict(traffic.writes), operations)


class _Traffic:
    def __init__(self, context: Context) -> None:
        self.context, self.structure, self.rules = context, context.structure, context.rules
        self.reads: dict[Access, int] = defaultdict(int)
        self.writes: dict[Access, int] = defaultdict(int)

    def move(self, path: Path, tensor: Tensor) -> None:
        """Counts what one Einsum moves of one tensor: from each of its storage nodes to the next one inside."""
        points = path.storages_of(tensor.name)
        fresh = self._begun(path, tensor, points[0]) if self.rules.fresh_sums else self.context.handed_on(path, tensor)
        for parent, child in zip(points, [*points[1:], None], strict=True):
            fill = self._fill(path, tensor, parent, child)
            p = (parent.node.target, tensor.name, path.einsum.name)
            c = (child.node.target, tensor.name, path.einsum.name) if child else None
            if not tensor.is_output:
                self.reads[p] += fill.joint
                if c:
                    self.writes[c] += fill.own
                continue
            self.writes[p] += fill.joint
            self.reads[p] += fill.joint - fresh
            if c:
                fetched = fill.joint if self.rules.fresh_sums else fill.own
                self.writes[c] += fetched - fresh
                if self.rules.fresh_sums:
                    fresh = fill.own - (fill.joint - fresh)

    def _begun(self, path: Path, tensor: Tensor, top: StoragePoint) -> int:
        """Words of an output that begin at nothing: of an intermediate, as often as they are computed."""
        depth, units = self._joint_depth(path, tensor), self.context.units(path, top, tensor)
        axes = (*self.context.dimensions(path, tensor), *self.context.others(path, tensor))
        return _product([over_all(block_axis(axis, depth, units, path.spatial_levels), frozenset()) for axis in axes]).own

    def _joint_depth(self, path: Path, tensor: Tensor) -> int:
        """Loops above the branch below which an intermediate is computed anew in every iteration; else 0."""
        joint = self.structure.joint(path.einsum.name)
        return joint.depth if joint and tensor.name in self.structure.intermediates(path.einsum.name) else 0

    def _fill(self, path: Path, tensor: Tensor, parent: StoragePoint, child: StoragePoint | None) -> Fill:
        above = path.feeding_levels(parent, child, tensor.name, common=self.rules.same_units)
        if child is None:
            spatial = path.spatial_levels
            axes = (*self.context.dimensions(path, tensor), *self.context.others(path, tensor))
            return _product([over_all(block_axis(axis, len(path.loops), spatial, spatial), above) for axis in axes])
        users = self.context.users(child, tensor.name)
        if self.rules.unite_readers and not tensor.is_output and path.einsum.name != users[0]:
            return Fill(0, 0)
        blocks = [*self.context.blocks(path, child, tensor), *self.context.silent_blocks(path, child, tensor)]
        if child.node.exploits_reuse or not self.rules.heed_no_reuse:
            fill = self._stepping(path, tensor, child, blocks, above)
        else:
            fill = _product([over_all(b, above) for b in blocks])
        return self._without_made(path, tensor, child, fill)

    def _stepping(self, path: Path, tensor: Tensor, child: StoragePoint, blocks: list[BlockAxis], above: frozenset[int]) -> Fill:
        """The first block, and at every step what of the next block the last one did not hold."""
        start = _product([at_start(b, above) for b in blocks])
        own, joint = start.own, start.joint
        for level in sorted(frozenset().union(*(levels_above(b) for b in blocks))):
            new, held = _compared([at_steps(b, level, above) for b in blocks])
            own, joint = own + new.own - held.own, joint + new.joint - held.joint
            for sign, first in _union_of(self._losses(path, tensor, child, level)):
                _, held = _compared([at_steps(b, level, above, first) for b in blocks])
                own, joint = own + sign * held.own, joint + sign * held.joint
        return Fill(own, joint)

    def _losses(self, path: Path, tensor: Tensor, child: StoragePoint, level: int) -> list[frozenset[int]]:
        """When a block is lost as the loop at ``level`` steps on; see :func:`losing_conditions`."""
        if self.rules.fresh_sums and tensor.is_output and level < self._joint_depth(path, tensor):
            return [frozenset()]
        maker = self._maker(tensor, child)
        if maker is not None and level in self.context.spaces[maker].restarts:
            return [frozenset()]
        found, need = [], self.context.need(path, child, tensor)
        for branch in path.branch_above(child) if self.rules.refetch else ():
            if level < branch.depth:
                found += losing_conditions(self.structure, self.context.spaces, need, branch, level)
        return found

    def _maker(self, tensor: Tensor, child: StoragePoint) -> str | None:
        """The Einsum that makes what others read in the same node."""
        maker = self.structure.producers.get(tensor.name)
        if maker is None or tensor.is_output or not self.rules.unite_readers:
            return None
        return maker if any(point.address == child.address for point in self.structure.paths[maker].storages) else None

    def _without_made(self, path: Path, tensor: Tensor, child: StoragePoint, fill: Fill) -> Fill:
        """What is left to move if the maker puts what it makes into the same node."""
        maker = self._maker(tensor, child)
        if maker is None:
            return fill
        if fill.own != fill.joint:
            raise NotSeparable(f"units side by side take parts of {tensor.name} that one of them made")
        made = self.context.spaces[maker].computed
        return Fill(fill.own - made, fill.joint - made)


def _product(measures: list[Measure]) -> Fill:
    return _compared(measures)[0]


def _compared(measures: list[Measure]) -> tuple[Fill, Fill]:
    """What a block of several coordinates takes in all, and what of it was held."""
    new = Fill(prod(m.own for m in measures), prod(m.joint for m in measures))
    held = Fill(prod(m.own_held for m in measures), prod(m.joint_held for m in measures))
    return new, held


def _union_of(conditions: list[frozenset[int]]) -> list[tuple[int, frozenset[int]]]:
    """Signed terms that count where at least one of the conditions holds (inclusion and exclusion)."""
    if frozenset() in conditions:
        return [(1, frozenset())]
    distinct = list(dict.fromkeys(conditions))
    return [
        ((-1) ** (chosen + 1), frozenset().union(*some))
        for chosen in range(1, len(distinct) + 1)
        for some in combinations(distinct, chosen)
    ]
