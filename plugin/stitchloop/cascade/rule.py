"""The stitching rule: whether a node may join the open group under a strategy, and why not."""

from __future__ import annotations

from dataclasses import dataclass

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.expression import Equation
from stitchloop.cascade.merge import Node, nodes_graph
from stitchloop.cascade.relations import FusionClass, Relation, relate

STRATEGIES: dict[str, frozenset[FusionClass]] = {
    "none": frozenset(),
    "ri": frozenset({FusionClass.RI}),
    "ri+rsb": frozenset({FusionClass.RI, FusionClass.RSB}),
    "ri+rsb+rsp": frozenset({FusionClass.RI, FusionClass.RSB, FusionClass.RSP}),
    "full": frozenset(FusionClass),
}
"""Greedy strategies, least permissive first, with the classes that each lets into a group."""


@dataclass(frozen=True)
class OpenGroup:
    """The group that the next node may join: its members, the last one, and the intersection with which that one joined."""

    last: Node
    members: frozenset[Node]
    intersection: frozenset[str] | None = None


class Rule:
    """The nodes of one cascade with their relations, worked out once."""

    def __init__(self, cascade: Cascade, nodes: tuple[Node, ...]) -> None:
        self.cascade, self.nodes = cascade, nodes
        self.equations: dict[Node, tuple[Equation, ...]] = {
            node: tuple(equation for name in node for equation in cascade.einsum(name).equations) for node in nodes
        }
        self.before = nodes_graph(cascade, nodes)
        self.place = {node: position for position, node in enumerate(nodes)}
        writer = {equation.output.tensor: node for node in nodes for equation in self.equations[node]}
        self.sources: dict[Node, frozenset[Node]] = {
            node: frozenset(writer[a.tensor] for e in self.equations[node] for a in e.inputs if a.tensor in writer)
            for node in nodes
        }
        self.spaces = {node: tuple(equation.ranks for equation in self.equations[node]) for node in nodes}
        self._relations: dict[tuple[Node, Node], Relation] = {}
        self._by_spaces: dict[tuple[object, object], Relation] = {}

    def relation(self, u: Node, v: Node) -> Relation:
        if (u, v) not in self._relations:
            key = (u, v) if u in self.sources[v] else (self.spaces[u], self.spaces[v])
            if key not in self._by_spaces:
                self._by_spaces[key] = relate(self.cascade, self.equations[u], self.equations[v])
            self._relations[u, v] = self._by_spaces[key]
        return self._relations[u, v]

    def refusal(self, group: OpenGroup, node: Node, strategy: str) -> str:
        """Why the node may not join the group; empty when it may."""
        allowed = STRATEGIES[strategy]
        relation = self.relation(group.last, node)
        previous = group.intersection
        if relation.fusion_class not in allowed:
            return f"{relation.fusion_class} is not allowed by {strategy}: {_difference(relation)}"
        if FusionClass.RD in allowed:
            return ""
        if previous is not None and not (relation.shared <= previous or previous <= relation.shared):
            return f"the shared ranks {_set(relation.shared)} and the ones before, {_set(previous)}, are not nested"
        for member in sorted(self.sources[node] & group.members, key=self.place.__getitem__):
            edge = self.relation(member, node)
            if edge.fusion_class not in allowed:
                tensors = ", ".join(edge.tensors)
                return f"{tensors} comes from {'+'.join(member)} in the same group by {edge.fusion_class}: {_difference(edge)}"
        return ""

    def step(self, group: OpenGroup | None, node: Node, strategy: str) -> tuple[OpenGroup, bool]:
        """The open group after the node, and whether the node starts it."""
        if group is None or self.refusal(group, node, strategy):
            return OpenGroup(node, frozenset({node})), True
        return OpenGroup(node, group.members | {node}, self.relation(group.last, node).shared), False

    def levels(self, strategy: str) -> dict[Node, int]:
        """Forbidden edges along the worst path to each node: two nodes of one group have the same level."""
        allowed = STRATEGIES[strategy]
        levels: dict[Node, int] = {}
        for node in self.nodes:
            steps = (levels[u] + (self.relation(u, node).fusion_class not in allowed) for u in self.before[node])
            levels[node] = max(steps, default=0)
        return levels

    def fewest(self, strategy: str) -> int:
        return len(self.nodes) if not STRATEGIES[strategy] else 1 + max(self.levels(strategy).values())


def _difference(relation: Relation) -> str:
    parts = []
    if relation.extra_producer:
        parts.append(f"{', '.join(relation.extra_producer)} only before")
    if relation.extra_consumer:
        parts.append(f"{', '.join(relation.extra_consumer)} only (or again) after")
    through = f" {', '.join(relation.tensors)}" if relation.tensors else ""
    return " and ".join(parts) + through if parts else "equal ranks"


def _set(ranks: frozenset[str]) -> str:
    return "{" + ", ".join(sorted(ranks)) + "}"
