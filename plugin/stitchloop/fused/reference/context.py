"""One tree under one set of rules: its spaces, and the blocks that its storage nodes hold."""

from __future__ import annotations

from functools import cached_property
from math import prod

from stitchloop.fused.reference.axis import Axis, truncated
from stitchloop.fused.reference.blocks import BlockAxis, block_axis
from stitchloop.fused.reference.space import Space, spaces, visits
from stitchloop.fused.rules import Rules
from stitchloop.fused.structure import Path, StoragePoint, Structure
from stitchloop.workload import Tensor


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

    def units(self, path: Path, point: StoragePoint, tensor: Tensor) -> frozenset[int]:
        """Spatial loops whose iterations hold the tensor's block in units of their own."""
        return path.unit_levels(point, tensor.name, common=self.rules.same_units)

    def blocks(self, path: Path, point: StoragePoint, tensor: Tensor) -> list[BlockAxis]:
        """A tensor's blocks at a storage node for one Einsum, dimension by dimension."""
        key = (path.einsum.name, tensor.name, point.address)
        if key not in self._blocks:
            units = self.units(path, point, tensor)
            axes = self.dimensions(path, tensor)
            self._blocks[key] = [block_axis(axis, point.depth, units, path.spatial_levels) for axis in axes]
        return self._blocks[key]

    def silent_blocks(self, path: Path, point: StoragePoint, tensor: Tensor) -> list[BlockAxis]:
        """The iterations of the loops that do not index the tensor, as its node sees them."""
        units = self.units(path, point, tensor)
        return [block_axis(axis, point.depth, units, path.spatial_levels) for axis in self.others(path, tensor)]

    def steps(self, path: Path, point: StoragePoint, tensor: Tensor) -> tuple[Axis, ...]:
        """A node's steps and blocks in one comparable value."""
        axes = (*self.dimensions(path, tensor), *self.others(path, tensor))
        return tuple(sorted((truncated(axis, point.depth) for axis in axes), key=repr))
