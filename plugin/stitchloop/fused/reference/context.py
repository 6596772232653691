"""One tree under one set of rules: its spaces, and the blocks that its storage nodes hold."""

from __future__ import annotations

from functools import cached_property, reduce
from itertools import combinations
from math import prod

from stitchloop.fused.reference.axis import Axis, truncated
from stitchloop.fused.reference.blocks import BlockAxis, block_axis
from stitchloop.fused.reference.needs import Need, Space, needed, visits
from stitchloop.fused.reference.sets import Points, intersection, interval, size, weighted_sum
from stitchloop.fused.reference.space import spaces
from stitchloop.fused.rules import Rules
from stitchloop.fused.structure import Address, Path, StoragePoint, Structure
from stitchloop.workload import Einsum, Tensor


def _whole(einsum: Einsum, tensor: Tensor) -> tuple[Points, ...]:
    """All that an Einsum may access of a tensor, dimension by dimension."""
    return tuple(weighted_sum((t.coefficient, interval(einsum.sizes[t.rank])) for t in terms) for terms in tensor.projection)


class Context:
    """What all counts of one evaluation share, each part derived once."""

    def __init__(self, structure: Structure, rules: Rules) -> None:
        self.structure, self.rules = structure, rules
        self._dimensions: dict[tuple[str, str], tuple[Axis, ...]] = {}
        self._blocks: dict[tuple[str, str, tuple[int, ...]], list[BlockAxis]] = {}

    @cached_property
    def spaces(self) -> dict[str, Space]:
        return spaces(self.structure, self.rules)

    def dimensions(self, path: Path, tensor: Tensor) -> tuple[Axis, ...]:
        """The axis of each rank of a tensor as an Einsum accesses it."""
        key = (path.einsum.name, tensor.name)
        if key not in self._dimensions:
            self._dimensions[key] = self.spaces[path.einsum.name].dimensions(tensor)
        return self._dimensions[key]

    def others(self, path: Path, tensor: Tensor) -> tuple[Axis, ...]:
        """Silent axes of the loops that do not index the tensor."""
        return self.spaces[path.einsum.name].others(tensor)

    def extent(self, path: Path, tensor: Tensor) -> int:
        """Words of a tensor that an Einsum accesses."""
        return prod(visits(truncated(axis, 0)) for axis in self.dimensions(path, tensor))

    def handed_on(self, path: Path, tensor: Tensor) -> int:
        """Words of an output that are also read, all of it if nobody reads it: what LoopTree subtracts once."""
        readers = self.structure.readers[tensor.name]
        written = _whole(path.einsum, tensor)
        if not readers:
            return prod(map(size, written))
        einsums = (self.structure.paths[name].einsum for name in readers)
        parts = [tuple(map(intersection, written, _whole(einsum, einsum.tensor(tensor.name)))) for einsum in einsums]
        words = 0
        for chosen in range(1, len(parts) + 1):
            for some in combinations(parts, chosen):
                common = [reduce(intersection, sides) for sides in zip(*some, strict=True)]
                words += (-1) ** (chosen + 1) * prod(map(size, common))
        return words

    def units(self, path: Path, point: StoragePoint, tensor: Tensor) -> frozenset[int]:
        """Spatial loops whose iterations hold the tensor's block in units of their own."""
        return path.unit_levels(point, tensor.name, common=self.rules.same_units)

    def blocks(self, path: Path, point: StoragePoint, tensor: Tensor) -> list[BlockAxis]:
        """A tensor's blocks at a storage node for one Einsum, dimension by dimension."""
        key = (path.einsum.name, tensor.name, point.address)
        if key not in self._blocks:
            units = self.units(path, point, tensor)
            axes = self.need(path, point, tensor).dimensions
            self._blocks[key] = [block_axis(axis, point.depth, units, path.spatial_levels) for axis in axes]
        return self._blocks[key]

    def users(self, point: StoragePoint, tensor: str) -> tuple[str, ...]:
        """The Einsums below a node that read the tensor there, in the tree's order."""
        return tuple(path.einsum.name for path, _ in self.below[point.address] if tensor in self._reads[path.einsum.name])

    @cached_property
    def below(self) -> dict[Address, tuple[tuple[Path, StoragePoint], ...]]:
        """Address of each storage node to the paths that pass it, in the tree's order, with the node as each path sees it."""
        found: dict[Address, list[tuple[Path, StoragePoint]]] = {}
        for path in self.structure.paths.values():
            for point in path.storages:
                found.setdefault(point.address, []).append((path, point))
        return {address: tuple(passing) for address, passing in found.items()}

    @cached_property
    def _reads(self) -> dict[str, frozenset[str]]:
        return {name: frozenset(t.name for t in path.einsum.inputs) for name, path in self.structure.paths.items()}

    def need(self, path: Path, point: StoragePoint, tensor: Tensor) -> Need:
        """What a node holds of a tensor for one Einsum, or for all that read it there if their needs are united."""
        space = self.spaces[path.einsum.name]
        users = self.users(point, tensor.name)
        if tensor.is_output or len(users) < 2 or not self.rules.unite_readers:
            return Need(self.dimensions(path, tensor), self.others(path, tensor), space.gates, space.skips)
        parting = next(branch for branch in path.branches if len(branch.address) >= len(point.address))
        return needed(self.structure, tensor.name, users, parting.depth, self.spaces)

    def silent_blocks(self, path: Path, point: StoragePoint, tensor: Tensor) -> list[BlockAxis]:
        """The iterations of the loops that do not index the tensor, as its node sees them."""
        units = self.units(path, point, tensor)
        return [block_axis(axis, point.depth, units, path.spatial_levels) for axis in self.need(path, point, tensor).idle]
