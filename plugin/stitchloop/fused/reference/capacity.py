"""What each memory needs: rule by rule of the tree, with every block at its largest."""

from __future__ import annotations

from math import prod

from stitchloop.fused.reference.blocks import largest, smallest
from stitchloop.fused.reference.context import Context
from stitchloop.fused.structure import Address
from stitchloop.fused.tree import Branch, Node, Storage


def capacities(context: Context) -> dict[int, int]:
    """Words by target.

    DRAM (target 0) needs what is accessed of the tensors stored there. A unit of any other memory needs the sum over the
    storage nodes of a sequence, and of the branches below it the largest (``sequential``) or the sum (``pipeline``).
    """
    mapping = context.structure.mapping
    needed = {target: _needed(context, target, mapping.nodes, ()) for target in mapping.targets if target}
    if 0 in mapping.targets:
        held = {name for _, node in mapping.walk if isinstance(node, Storage) and node.target == 0 for name in node.tensors}
        needed[0] = sum(_accessed(context, name) for name in held)
    return {target: needed[target] for target in mapping.targets}


def varying(context: Context) -> frozenset[int]:
    """Targets other than DRAM in which some block is not of one size throughout."""
    varies = set()
    for path in context.structure.paths.values():
        for point in path.storages:
            for tensor in path.einsum.tensors:
                if tensor.name in point.node.tensors and point.node.target not in varies:
                    blocks = context.blocks(path, point, tensor)
                    if any(largest(axis) != smallest(axis) for axis in blocks):
                        varies.add(point.node.target)
    return frozenset(varies - {0})


def _needed(context: Context, target: int, nodes: tuple[Node, ...], address: Address) -> int:
    """Words of one unit of a target for a sequence of nodes."""
    words = 0
    for at, node in enumerate(nodes):
        here = (*address, at)
        if isinstance(node, Storage) and node.target == target:
            words += sum(_block(context, name, here) for name in node.tensors)
        elif isinstance(node, Branch):
            inside = [_needed(context, target, branch, (*here, index)) for index, branch in enumerate(node.branches)]
            words += max(inside) if node.kind == "sequential" else sum(inside)
    return words


def _block(context: Context, name: str, address: Address) -> int:
    """Words of the largest block of a tensor at a storage node, over the Einsums below that access it."""
    words = 0
    for path, point in context.below.get(address, ()):
        for tensor in path.einsum.tensors:
            if tensor.name == name:
                words = max(words, prod(largest(axis) for axis in context.blocks(path, point, tensor)))
    return words


def _accessed(context: Context, name: str) -> int:
    """Words of a tensor that some Einsum accesses."""
    paths = context.structure.paths.values()
    return max(context.extent(path, tensor) for path in paths for tensor in path.einsum.tensors if tensor.name == name)
