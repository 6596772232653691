"""Shared-input merging: GEMM-like Einsums that contract the same input alike become one multi-output Einsum.

``TX = NEX * WTX`` and ``RX = NEX * WRX`` are one GEMM whose weights stand side by side: NEX streams through once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from stitchloop.cascade.cascade import Cascade, ExtendedEinsum
from stitchloop.cascade.expression import Access
from stitchloop.cascade.order import stable_order

Node = tuple[str, ...]
"""Einsums that run as one: a single name, or the members of a merged Einsum, in the cascade's order."""


def plain_nodes(cascade: Cascade) -> tuple[Node, ...]:
    """Every Einsum a node of its own."""
    return tuple((einsum.name,) for einsum in cascade.einsums)


def merge_shared_inputs(cascade: Cascade) -> tuple[Node, ...]:
    """The cascade's nodes after merging, in an order that the dependences permit.

    Einsums merge when each is GEMM-like, reads the same tensor (no weight) at the same indices and contracts the same
    ranks of it, and when none depends on another, through other merged Einsums either.
    """
    node_of: dict[str, Node] = {einsum.name: (einsum.name,) for einsum in cascade.einsums}
    for candidates in _readers_alike(cascade):
        free = [name for name in candidates if len(node_of[name]) == 1]
        merged: Node = ()
        for name in free:
            grown = _in_order(cascade, (*merged, name))
            if not merged or not _path_within(node_graph(cascade, node_of), {node_of[member] for member in grown}):
                merged = grown
                node_of.update(dict.fromkeys(grown, grown))
    nodes = tuple(dict.fromkeys(node_of[einsum.name] for einsum in cascade.einsums))
    return stable_order(nodes, node_graph(cascade, node_of))


def merged_cascade(cascade: Cascade, nodes: Iterable[Node]) -> Cascade:
    """The algebraic step written out: each merged node is one multi-output Einsum, named ``E6_E8``."""
    from dataclasses import replace

    name_of = {name: "_".join(node) for node in nodes for name in node}
    einsums = tuple(
        ExtendedEinsum("_".join(node), tuple(equation for name in node for equation in cascade.einsum(name).equations))
        for node in nodes
    )
    tensors = tuple(replace(tensor, producer=name_of.get(tensor.producer or "")) for tensor in cascade.tensors)
    return replace(cascade, einsums=einsums, tensors=tensors)


def node_graph(cascade: Cascade, node_of: Mapping[str, Node]) -> dict[Node, frozenset[Node]]:
    """Node to the nodes, of those given, that must run before it."""
    before: dict[Node, set[Node]] = {node: set() for node in node_of.values()}
    for name, node in node_of.items():
        before[node] |= {node_of[other] for other in cascade.predecessors[name] if other in node_of}
    return {node: frozenset(nodes - {node}) for node, nodes in before.items()}


def nodes_graph(cascade: Cascade, nodes: Iterable[Node]) -> dict[Node, frozenset[Node]]:
    """:func:`node_graph` of a list of nodes."""
    return node_graph(cascade, {name: node for node in nodes for name in node})


def _readers_alike(cascade: Cascade) -> list[tuple[str, ...]]:
    alike: dict[tuple[Access, frozenset[str]], list[str]] = {}
    for einsum in cascade.einsums:
        if not einsum.is_gemm:
            continue
        for access in einsum.inputs:
            contracted = frozenset(access.ranks) & frozenset(einsum.reduced)
            if contracted and not cascade.tensor(access.tensor).is_weight and not cascade.is_carried(access):
                alike.setdefault((access, contracted), []).append(einsum.name)
    return [tuple(names) for names in alike.values() if len(names) > 1]


def _in_order(cascade: Cascade, names: Iterable[str]) -> Node:
    wanted = set(names)
    return tuple(einsum.name for einsum in cascade.einsums if einsum.name in wanted)


def _path_within(graph: Mapping[Node, frozenset[Node]], nodes: set[Node]) -> bool:
    """Whether some of the nodes depends on another one, directly or through others."""
    waiting = deque(before for node in nodes for before in graph[node])
    seen: set[Node] = set()
    while waiting:
        node = waiting.popleft()
        if node in nodes:
            return True
        if node not in seen:
            seen.add(node)
            waiting.extend(graph[node])
    return False
