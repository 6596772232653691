"""LoopTree mappings (``type: fused``): trees of storage, loops, branches and compute nodes.

A tree is read from the root down. A node is above (outside) all nodes that follow it in its sequence; a branch ends its
sequence. Loops above a branch use ranks of the *head* Einsum below it (the one whose output no other Einsum below reads);
loops inside a branch use ranks of the head Einsum of that branch. Targets number the memories: 0 is DRAM (backing store),
1 and up are buffers, outer to inner; a compute node's target is the compute unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

BranchKind: TypeAlias = Literal["sequential", "pipeline"]


@dataclass(frozen=True)
class Storage:
    """From here down, memory ``target`` holds of each tensor the block that the deeper temporal loops address.

    ``exploits_reuse`` False: nothing of the previous block is kept when the next one is filled (LoopTree heeds it for an
    intermediate only, which is then computed anew).
    """

    target: int
    tensors: tuple[str, ...]
    exploits_reuse: bool = True


@dataclass(frozen=True)
class Temporal:
    """Cuts ``rank`` from the start of the current tile in steps of ``tile_shape``, one after the other."""

    rank: str
    tile_shape: int


@dataclass(frozen=True)
class Spatial:
    """Cuts ``rank`` in pieces of ``tile_shape`` that run side by side, one on each unit."""

    rank: str
    tile_shape: int


@dataclass(frozen=True)
class Compute:
    """The leaf: ``einsum`` runs on compute unit ``target``."""

    einsum: str
    target: int


@dataclass(frozen=True)
class Branch:
    """Several Einsums below the same loops: one after the other (``sequential``) or overlapped (``pipeline``)."""

    kind: BranchKind
    branches: tuple[tuple[Node, ...], ...]


Node: TypeAlias = Storage | Temporal | Spatial | Branch | Compute
Loop: TypeAlias = Temporal | Spatial


@dataclass(frozen=True)
class FusedMapping:
    """A whole tree: the root's sequence of nodes."""

    nodes: tuple[Node, ...]

    @cached_property
    def paths(self) -> dict[str, tuple[Node, ...]]:
        """For each Einsum, in order of the leaves: the nodes from the root to its compute node, branches included."""
        return {path[-1].einsum: path for path in _paths(self.nodes, ()) if isinstance(path[-1], Compute)}

    @cached_property
    def walk(self) -> tuple[tuple[tuple[int, ...], Node], ...]:
        """Every node with its address, root first: indices into sequence, branch, sequence, branch and so on."""
        return tuple(_walk(self.nodes, ()))

    @cached_property
    def targets(self) -> tuple[int, ...]:
        """The memories that hold something, outer to inner."""
        return tuple(sorted({node.target for _, node in self.walk if isinstance(node, Storage)}))


def _paths(nodes: tuple[Node, ...], above: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    for at, node in enumerate(nodes):
        if isinstance(node, Branch):
            for branch in node.branches:
                yield from _paths(branch, above + nodes[: at + 1])
        elif isinstance(node, Compute):
            yield above + nodes[: at + 1]


def _walk(nodes: tuple[Node, ...], address: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Node]]:
    for at, node in enumerate(nodes):
        yield (*address, at), node
        if isinstance(node, Branch):
            for index, branch in enumerate(node.branches):
                yield from _walk(branch, (*address, at, index))
