"""Who computes what below which loops: paths, heads, and where a tensor is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from stitchloop.errors import InvalidMapping
from stitchloop.fused.tree import Branch, BranchKind, Compute, FusedMapping, Node, Spatial, Storage, Temporal
from stitchloop.workload import Einsum, Tensor, Workload

Address = tuple[int, ...]


@dataclass(frozen=True)
class PathLoop:
    """A loop on an Einsum's path. Its level is its index in :attr:`Path.loops`."""

    rank: str
    tile_shape: int
    is_spatial: bool
    branches: int
    """Number of branches that the loop stands inside of."""
    targets_below: frozenset[int]
    """Targets of all storage nodes below it."""


@dataclass(frozen=True)
class StoragePoint:
    """A storage node on a path; ``depth`` is the number of loops above it."""

    node: Storage
    address: Address
    depth: int

    @property
    def branches(self) -> int:
        """Number of branches that the node stands inside of."""
        return len(self.address) // 2


@dataclass(frozen=True)
class BranchPoint:
    """A branch node on a path; ``depth`` is the number of loops above it, ``index`` the branch that the path takes."""

    kind: BranchKind
    address: Address
    depth: int
    index: int
    members: tuple[tuple[str, ...], ...]
    """The Einsums of each branch."""

    @cached_property
    def group(self) -> tuple[str, ...]:
        return tuple(name for members in self.members for name in members)


@dataclass(frozen=True)
class Path:
    """What stands above one compute node."""

    einsum: Einsum
    loops: tuple[PathLoop, ...]
    storages: tuple[StoragePoint, ...]
    branches: tuple[BranchPoint, ...]
    compute: Compute

    @cached_property
    def spatial_levels(self) -> frozenset[int]:
        return frozenset(level for level, loop in enumerate(self.loops) if loop.is_spatial)

    def storages_of(self, tensor: str) -> tuple[StoragePoint, ...]:
        """The storage nodes of a tensor, outermost first."""
        return tuple(point for point in self.storages if tensor in point.node.tensors)

    def unit_levels(self, point: StoragePoint, tensor: str, *, common: bool) -> frozenset[int]:
        """Spatial loops whose iterations hold a tensor's block at a node in units of their own.

        Those are the loops above the last node of that memory on the path. ``common`` looks at the whole tree, so that the
        units are the same for all Einsums: a loop inside a branch does not split what stands above the branch, and what
        one node splits is split in all nodes inside it.
        """
        if common:
            outer = [p for p in self.storages_of(tensor) if len(p.address) < len(point.address) or p.address <= point.address]
            return frozenset().union(*(self._own_units(p) for p in outer))
        last = max(p.depth for p in self.storages if p.node.target == point.node.target)
        return frozenset(level for level in self.spatial_levels if level < last)

    def _own_units(self, point: StoragePoint) -> frozenset[int]:
        return frozenset(
            level
            for level in self.spatial_levels
            if level < point.depth
            or (self.loops[level].branches == point.branches and point.node.target in self.loops[level].targets_below)
        )

    def feeding_levels(self, parent: StoragePoint, child: StoragePoint | None, tensor: str, *, common: bool) -> frozenset[int]:
        """Spatial loops each of whose iterations takes words of its own from ``parent`` into ``child`` (None: compute).

        One word from a unit of the parent serves all units below it (``common``). LoopTree has one word serve the iterations
        of those loops only whose next storage node is in the child's memory.
        """
        if common:
            return self.unit_levels(parent, tensor, common=True)
        units = self.unit_levels(child, tensor, common=False) if child else self.spatial_levels
        target = child.node.target if child else self.compute.target
        below = {level: [p.node.target for p in self.storages if p.depth > level] for level in units}
        return frozenset(level for level in units if [*below[level], self.compute.target][0] != target)

    def branch_above(self, point: StoragePoint) -> tuple[BranchPoint, ...]:
        """The branches that a storage node stands inside of."""
        above = {point.address[:length] for length in range(len(point.address))}
        return tuple(branch for branch in self.branches if branch.address in above)


@dataclass(frozen=True)
class Structure:
    """A checked pair of workload and tree."""

    workload: Workload
    mapping: FusedMapping
    paths: dict[str, Path]

    @cached_property
    def producers(self) -> dict[str, str]:
        """The Einsum that writes each tensor."""
        return {tensor.name: einsum.name for einsum in self.workload.einsums for tensor in einsum.outputs}

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """The Einsums that read each tensor, in the tree's order."""
        return {
            name: tuple(path for path, p in self.paths.items() if any(tensor.name == name for tensor in p.einsum.inputs))
            for name in self.tensors
        }

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name, as its producer (else its first reader) accesses it."""
        found: dict[str, Tensor] = {}
        for einsum in self.workload.einsums:
            for tensor in einsum.tensors:
                if tensor.is_output or tensor.name not in found:
                    found[tensor.name] = tensor
        return found

    def volume(self, name: str) -> int:
        """Words of a whole tensor."""
        return max(einsum.size_of(tensor) for einsum in self.workload.einsums for tensor in einsum.tensors if tensor.name == name)

    def heads(self, group: tuple[str, ...]) -> tuple[str, ...]:
        """The Einsums of a group whose outputs no other Einsum of the group reads."""
        if group not in self._heads:
            inside = set(group)
            self._heads[group] = tuple(
                name for name in group if not any(inside.intersection(self.readers[out]) for out in self.outputs(name))
            )
        return self._heads[group]

    @cached_property
    def _heads(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        """What :meth:`heads` has worked out; branches share few groups, and every tensor asks for them."""
        return {}

    def members(self, branch: Address) -> tuple[tuple[str, ...], ...]:
        """The Einsums of each branch of a branch node."""
        return next(point.members for path in self.paths.values() for point in path.branches if point.address == branch)

    def outputs(self, einsum: str) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.paths[einsum].einsum.outputs)

    def intermediates(self, einsum: str) -> tuple[str, ...]:
        """Outputs of an Einsum that some other Einsum reads."""
        return tuple(name for name in self.outputs(einsum) if self.readers[name])

    def is_intermediate(self, tensor: str) -> bool:
        """Whether one Einsum writes the tensor and another reads it."""
        return tensor in self.producers and bool(self.readers[tensor])

    def common_input(self, group: tuple[str, ...]) -> str | None:
        """The one tensor that all Einsums of a group with one head read; None if there is none or more than one."""
        common = set.intersection(*({tensor.name for tensor in self.paths[name].einsum.inputs} for name in group))
        return common.pop() if len(common) == len(self.heads(group)) == 1 else None

    def joint(self, einsum: str) -> BranchPoint | None:
        """The branch below which an Einsum is its own head: its loops begin there. None: at the root."""
        return self.joints(einsum)[-1] if self.joints(einsum) else None

    def joints(self, einsum: str) -> tuple[BranchPoint, ...]:
        """The branches, outermost first, whose other Einsums decide what an Einsum computes."""
        return tuple(point for point in self.paths[einsum].branches if einsum not in self.heads(point.group))

    @cached_property
    def upstream_order(self) -> tuple[str, ...]:
        """Every Einsum after all the Einsums that read its outputs."""
        order: list[str] = []

        def visit(name: str, chain: tuple[str, ...]) -> None:
            if name in chain:
                raise InvalidMapping(f"the Einsums form a cycle: {' -> '.join((*chain, name))}", kind="cycle")
            if name in order:
                return
            for out in self.outputs(name):
                for reader in self.readers[out]:
                    visit(reader, (*chain, name))
            order.append(name)

        for name in self.paths:
            visit(name, ())
        return tuple(order)


def paths(workload: Workload, mapping: FusedMapping) -> dict[str, Path]:
    """The path of each Einsum, in the order of the leaves."""
    einsums = {einsum.name: einsum for einsum in workload.einsums}
    return {path.einsum.name: path for path in _paths(mapping.nodes, (), einsums, (), (), ())}


def _paths(
    nodes: tuple[Node, ...],
    address: Address,
    einsums: dict[str, Einsum],
    loops: tuple[PathLoop, ...],
    storages: tuple[StoragePoint, ...],
    branches: tuple[BranchPoint, ...],
) -> Iterator[Path]:
    for at, node in enumerate(nodes):
        here = (*address, at)
        if isinstance(node, Temporal | Spatial):
            below = frozenset(_targets(nodes[at + 1 :]))
            loops += (PathLoop(node.rank, node.tile_shape, isinstance(node, Spatial), len(branches), below),)
        elif isinstance(node, Storage):
            storages += (StoragePoint(node, here, len(loops)),)
        elif isinstance(node, Branch):
            members = tuple(tuple(_leaves(branch)) for branch in node.branches)
            for index, branch in enumerate(node.branches):
                point = BranchPoint(node.kind, here, len(loops), index, members)
                yield from _paths(branch, (*here, index), einsums, loops, storages, (*branches, point))
        elif isinstance(node, Compute):
            yield Path(einsums[node.einsum], loops, storages, branches, node)


def _targets(nodes: tuple[Node, ...]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, Storage):
            yield node.target
        elif isinstance(node, Branch):
            for branch in node.branches:
                yield from _targets(branch)


def _leaves(nodes: tuple[Node, ...]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Branch):
            for branch in node.branches:
                yield from _leaves(branch)
        elif isinstance(node, Compute):
            yield node.einsum
