"""Reads, writes and capacity of a fused mapping from the spaces of its Einsums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from stitchloop.fused.reference.axis import Axis, truncated
from stitchloop.fused.reference.blocks import (
    BlockAxis,
    Measure,
    at_start,
    at_steps,
    block_axis,
    largest,
    levels_above,
    over_all,
)
from stitchloop.fused.reference.space import NotSeparable, Space, losing_conditions, spaces, visits
from stitchloop.fused.rules import Rules
from stitchloop.fused.stats import Access
from stitchloop.fused.structure import Address, Path, StoragePoint, Structure
from stitchloop.fused.tree import Branch, Node, Storage
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
    return _Counter(structure, rules).counts()


class _Counter:
    def __init__(self, structure: Structure, rules: Rules) -> None:
        self.structure, self.rules = structure, rules
        self.spaces = spaces(structure, rules)
        self.reads: dict[Access, int] = defaultdict(int)
        self.writes: dict[Access, int] = defaultdict(int)
        self.moved: dict[tuple[Address, str], dict[str, tuple[Axis, ...]]] = {}

    def counts(self) -> Counts:
        for path in self.structure.paths.values():
            for tensor in path.einsum.tensors:
                self._move(path, tensor)
        capacity, varies = self._capacity()
        return Counts(
            capacity,
            varies,
            dict(self.reads),
            dict(self.writes),
            {name: _operations(self.spaces[name]) for name in self.structure.paths},
        )

    def _move(self, path: Path, tensor: Tensor) -> None:
        """Counts what one Einsum moves of one tensor: from each of its storage nodes to the next one inside."""
        points = path.storages_of(tensor.name)
        fresh = (
            self._begun(path, tensor, points[0]) if self.rules.fresh_sums else self._extent(self.spaces[path.einsum.name], tensor)
        )
        for parent, child in zip(points, [*points[1:], None]):
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
        space, joint = self.spaces[path.einsum.name], self._joint_depth(path, tensor)
        units = self._units(path, top, tensor)
        axes = (*space.dimensions(tensor), *space.others(tensor))
        return _product([over_all(block_axis(axis, joint, units, path.spatial_levels), frozenset()) for axis in axes]).own

    def _joint_depth(self, path: Path, tensor: Tensor) -> int:
        """Loops above the branch below which an intermediate is computed anew in every iteration; else 0."""
        joint = self.structure.joint(path.einsum.name)
        return joint.depth if joint and tensor.name in self.structure.intermediates(path.einsum.name) else 0

    def _fill(self, path: Path, tensor: Tensor, parent: StoragePoint, child: StoragePoint | None) -> Fill:
        space = self.spaces[path.einsum.name]
        axes = (*space.dimensions(tensor), *space.others(tensor))
        above = self._units(path, parent, tensor)
        if child is None:
            blocks = [block_axis(axis, len(path.loops), path.spatial_levels, path.spatial_levels) for axis in axes]
            return _product([over_all(b, above) for b in blocks])
        units = self._units(path, child, tensor)
        blocks = [block_axis(axis, child.depth, units, path.spatial_levels) for axis in axes]
        if child.node.exploits_reuse:
            fill = self._stepping(path, tensor, child, blocks, above)
        else:
            fill = _product([over_all(b, above) for b in blocks])
        return self._shared(path, tensor, child, axes, fill) if self.rules.unite_readers else fill

    def _units(self, path: Path, point: StoragePoint, tensor: Tensor) -> frozenset[int]:
        return path.unit_levels(point, tensor.name, common=self.rules.same_units)

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
        """When a block is lost as the loop at ``level`` steps on."""
        if self.rules.fresh_sums and tensor.is_output and level < self._joint_depth(path, tensor):
            return [frozenset()]
        if self.rules.unite_readers and not tensor.is_output:
            maker = self.structure.producers.get(tensor.name, "")
            if maker in self.moved.get((child.address, tensor.name), ()) and level in self.spaces[maker].restarts:
                return [frozenset()]
        if not self.rules.refetch:
            return []
        found = []
        for branch in path.branch_above(child):
            if level < branch.depth:
                found += losing_conditions(self.structure, self.spaces, path.einsum.name, branch, level)
        return found

    def _shared(self, path: Path, tensor: Tensor, child: StoragePoint, axes: tuple[Axis, ...], fill: Fill) -> Fill:
        """What is left to move if another Einsum put the same block into the same node before."""
        before = self.moved.setdefault((child.address, tensor.name), {})
        seen = tuple(sorted((truncated(axis, child.depth) for axis in axes), key=repr))
        maker = self.structure.producers.get(tensor.name)
        readers = [einsum for einsum in before if einsum != maker]
        before[path.einsum.name] = seen
        if any(before[einsum] != seen for einsum in readers):
            raise NotSeparable(f"several Einsums hold different parts of {tensor.name} in one block")
        if readers:
            return Fill(0, 0)
        if maker in before and maker != path.einsum.name:
            if fill.own != fill.joint:
                raise NotSeparable(f"units side by side take parts of {tensor.name} that one of them made")
            made = self.spaces[maker].computed
            return Fill(fill.own - made, fill.joint - made)
        return fill

    def _capacity(self) -> tuple[dict[int, int], frozenset[int]]:
        mapping = self.structure.mapping
        needed: dict[int, int] = {}
        varies = set()
        for target in mapping.targets:
            if target == 0:
                held = {t for _, node in mapping.walk if isinstance(node, Storage) and node.target == 0 for t in node.tensors}
                needed[0] = sum(self._accessed(name) for name in held)
                continue
            needed[target] = self._needed(target, mapping.nodes, ())
        for path in self.structure.paths.values():
            for point in path.storages:
                if any(self._varies(path, point, t) for t in path.einsum.tensors if t.name in point.node.tensors):
                    varies.add(point.node.target)
        return needed, frozenset(varies - {0})

    def _accessed(self, name: str) -> int:
        """Words of a tensor that some Einsum accesses."""
        users = ((space, self.structure.paths[e].einsum) for e, space in self.spaces.items())
        return max(self._extent(space, t) for space, einsum in users for t in einsum.tensors if t.name == name)

    @staticmethod
    def _extent(space: Space, tensor: Tensor) -> int:
        return _multiplied([visits(truncated(axis, 0)) for axis in space.dimensions(tensor)])

    def _needed(self, target: int, nodes: tuple[Node, ...], address: Address) -> int:
        """Words of one unit of a target that a sequence of nodes needs."""
        words = 0
        for at, node in enumerate(nodes):
            if isinstance(node, Storage) and node.target == target:
                words += sum(self._block(name, (*address, at)) for name in node.tensors)
            elif isinstance(node, Branch):
                inside = [self._needed(target, branch, (*address, at, index)) for index, branch in enumerate(node.branches)]
                words += max(inside) if node.kind == "sequential" else sum(inside)
        return words

    def _blocks_at(self, path: Path, point: StoragePoint, tensor: Tensor) -> list[BlockAxis]:
        units = self._units(path, point, tensor)
        dimensions = self.spaces[path.einsum.name].dimensions(tensor)
        return [block_axis(axis, point.depth, units, path.spatial_levels) for axis in dimensions]

    def _block(self, name: str, address: Address) -> int:
        """Words of the largest block of a tensor at a storage node, over the Einsums below that access it."""
        words = 0
        for path in self.structure.paths.values():
            for point in path.storages:
                accessed = [tensor for tensor in path.einsum.tensors if tensor.name == name]
                if point.address == address and accessed:
                    words = max(words, _multiplied([largest(b) for b in self._blocks_at(path, point, accessed[0])]))
        return words

    def _varies(self, path: Path, point: StoragePoint, tensor: Tensor) -> bool:
        return any(largest(b) != smallest(b) for b in self._blocks_at(path, point, tensor))


def smallest(blocks: BlockAxis) -> int:
    """Points of the smallest block of one unit."""
    if isinstance(blocks, dict):
        return min(sum(stop - start for start, stop in points) for points in blocks.values())
    return min(smallest(tree) for tree, _, _, _ in blocks.runs)


def _operations(space: Space) -> int:
    return _multiplied([visits(axis) for axis in (*space.ranks.values(), *space.idle)])


def _multiplied(factors: Sequence[int]) -> int:
    product = 1
    for factor in factors:
        product *= factor
    return product


def _product(measures: list[Measure]) -> Fill:
    return _compared(measures)[0]


def _compared(measures: list[Measure]) -> tuple[Fill, Fill]:
    """What a block of several coordinates takes in all, and what of it was held."""
    new = Fill(_multiplied([m.own for m in measures]), _multiplied([m.joint for m in measures]))
    held = Fill(_multiplied([m.own_held for m in measures]), _multiplied([m.joint_held for m in measures]))
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
