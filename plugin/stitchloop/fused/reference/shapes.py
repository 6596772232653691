"""Sizes for people: how large the blocks of a tree are, and how often its loops run."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from stitchloop.fused.reference.axis import Axis, Loop
from stitchloop.fused.reference.blocks import BlockAxis, block_axis, largest
from stitchloop.fused.reference.sets import NotSeparable
from stitchloop.fused.reference.space import spaces
from stitchloop.fused.rules import SOUND
from stitchloop.fused.structure import Address, Structure


@dataclass(frozen=True)
class Shapes:
    """Largest blocks and trip counts of a tree; empty where they are no products over axes.

    Attributes
    ----------
    blocks : dict
        Extents of the largest block of a tensor at a storage node, by the node's address and the tensor.
    points : dict
        Points that the busiest compute unit of each Einsum computes one after the other; spatial loops run side by side.
    trips : dict
        Fewest and most iterations of a loop, by Einsum and level.
    """

    blocks: dict[tuple[Address, str], tuple[int, ...]]
    points: dict[str, int]
    trips: dict[tuple[str, int], tuple[int, int]]


def shapes(structure: Structure) -> Shapes:
    """Sizes of the blocks and loops of a checked tree."""
    blocks: dict[tuple[Address, str], tuple[int, ...]] = {}
    points: dict[str, int] = {}
    trips: dict[tuple[str, int], tuple[int, int]] = {}
    try:
        found = spaces(structure, SOUND)
        for name, path in structure.paths.items():
            for axis in found[name].ranks.values():
                for level, (least, most) in _trips(axis).items():
                    trips[name, level] = (least, most)
            axes = (*found[name].ranks.values(), *found[name].idle)
            points[name] = prod(
                _in_turn(block_axis(axis, len(path.loops), path.spatial_levels, path.spatial_levels)) for axis in axes
            )
            for point in path.storages:
                for tensor in path.einsum.tensors:
                    if tensor.name in point.node.tensors:
                        units = path.unit_levels(point, tensor.name, common=True)
                        dimensions = found[name].dimensions(tensor)
                        extents = tuple(largest(block_axis(axis, point.depth, units, path.spatial_levels)) for axis in dimensions)
                        key = (point.address, tensor.name)
                        blocks[key] = tuple(map(max, extents, blocks.get(key, extents)))
    except NotSeparable:
        return Shapes({}, {}, {})
    return Shapes(blocks, points, trips)


def _in_turn(blocks: BlockAxis) -> int:
    """Over all steps, the points of the unit that has most."""
    if isinstance(blocks, dict):
        return largest(blocks)
    return sum(count * _in_turn(tree) for tree, _, _, count in blocks.runs)


def _trips(axis: Axis) -> dict[int, tuple[int, int]]:
    if not isinstance(axis, Loop):
        return {}
    counts = {axis.level: (axis.trips, axis.trips)}
    for run in axis.runs:
        for level, (least, most) in _trips(run.tree).items():
            low, high = counts.get(level, (least, most))
            counts[level] = (min(low, least), max(high, most))
    return counts
