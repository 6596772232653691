"""Greedy stitching: a cascade cut into fusion groups by the relation of neighbouring iteration spaces.

The rule, over the nodes in order (an Einsum, or several merged ones)::

    group = [first]; I_prev = none
    for node in the rest:
        class  = relation(previous node, node); I_curr = shared ranks of the two
        joins  = class is allowed by the strategy
        if joins and I_prev is set and RD is not allowed: joins = I_curr and I_prev are nested
        joins: append, I_prev = I_curr      else: close the group, start a new one with node, I_prev = none

For cascades that are no chain, a node also stays out of a group when a tensor reaches it from an earlier member through a
class that the strategy does not allow. Each condition holds for a stretch of nodes only if it holds for every shorter
stretch inside, so that the greedy cut gives the fewest groups of its order, and more permissive strategies never give more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.expression import Equation
from stitchloop.cascade.merge import Node, merge_shared_inputs, nodes_graph, plain_nodes
from stitchloop.cascade.relations import FusionClass, Relation, relate

STRATEGIES: dict[str, frozenset[FusionClass]] = {
    "none": frozenset(),
    "ri": frozenset({FusionClass.RI}),
    "ri+rsb": frozenset({FusionClass.RI, FusionClass.RSB}),
    "ri+rsb+rsp": frozenset({FusionClass.RI, FusionClass.RSB, FusionClass.RSP}),
    "full": frozenset(FusionClass),
}
"""Greedy strategies, least permissive first, with the classes that each lets into a group."""

_READY_LIMIT = 16


@dataclass(frozen=True)
class Group:
    """A fusion group: nodes that run together, so that what passes between them stays on chip."""

    nodes: tuple[Node, ...]

    @cached_property
    def einsums(self) -> tuple[str, ...]:
        return tuple(name for node in self.nodes for name in node)


@dataclass(frozen=True)
class Boundary:
    """Between two neighbouring nodes.

    Attributes
    ----------
    before, after : Node
    relation : Relation
        Class of the pair, and the tensors that pass directly from one to the other.
    is_cut : bool
    reason : str
        Why the group ends here; empty where it does not.
    """

    before: Node
    after: Node
    relation: Relation
    is_cut: bool
    reason: str = ""

    @property
    def fusion_class(self) -> FusionClass:
        return self.relation.fusion_class


@dataclass(frozen=True)
class Stitching:
    """A cascade's fusion groups.

    Attributes
    ----------
    cascade : Cascade
    strategy : str
    groups : tuple of Group
        In the order in which they run; their nodes in order are the chosen order of Einsums.
    boundaries : tuple of Boundary
        Between all neighbouring nodes, cuts or not.
    fewest : int
        No order of the nodes gives fewer groups than this (forbidden edges along the longest path, plus one).
    reordered : bool
        Whether the nodes run in another order than the cascade gives them, because that needs fewer groups.
    """

    cascade: Cascade = field(repr=False)
    strategy: str
    groups: tuple[Group, ...]
    boundaries: tuple[Boundary, ...]
    fewest: int
    reordered: bool = False

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for group in self.groups for node in group.nodes)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Einsum names in the order in which they run."""
        return tuple(name for group in self.groups for name in group.einsums)

    @cached_property
    def cuts(self) -> tuple[Boundary, ...]:
        return tuple(boundary for boundary in self.boundaries if boundary.is_cut)


def stitch(cascade: Cascade, strategy: str = "full", *, merge: bool = True, reorder: bool = True) -> Stitching:
    """Cut a cascade into fusion groups.

    Parameters
    ----------
    cascade : Cascade
    strategy : str
        A key of :data:`STRATEGIES`.
    merge : bool
        Merge Einsums that contract a shared input first (:func:`stitchloop.cascade.merge.merge_shared_inputs`).
    reorder : bool
        Look for an order of the nodes that needs fewer groups; the given order stays when none is found.

    Notes
    -----
    The search tries a fixed list of orders, the same for every strategy: the given one, and for each strategy two built
    node by node, always preferring a ready node that may join the open group, once among all ready nodes and once among
    those behind the fewest forbidden edges. It stops early at ``fewest``. The first order with the fewest groups wins.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"no greedy strategy '{strategy}'; they are {', '.join(STRATEGIES)}")
    nodes = merge_shared_inputs(cascade) if merge else plain_nodes(cascade)
    return _Stitcher(cascade, nodes).best(strategy, reorder)


def stitch_order(cascade: Cascade, nodes: Sequence[Node], strategy: str) -> Stitching:
    """Groups of the nodes in exactly this order."""
    return _Stitcher(cascade, tuple(nodes)).cut(tuple(nodes), strategy)


def grouping(cascade: Cascade, groups: Sequence[Sequence[Node]], strategy: str) -> Stitching:
    """A grouping chosen elsewhere (by the performance model, say), with the class at each boundary."""
    nodes = tuple(node for group in groups for node in group)
    stitcher = _Stitcher(cascade, nodes)
    starts = {group[0] for group in groups}
    boundaries = tuple(
        Boundary(before, after, stitcher.relation(before, after), after in starts, "chosen" if after in starts else "")
        for before, after in pairwise(nodes)
    )
    return Stitching(cascade, strategy, tuple(Group(tuple(group)) for group in groups), boundaries, 1)


class _OpenGroup:
    """The group that the next node may join: its members, the last one, and the intersection with which that one joined."""

    def __init__(self, first: Node) -> None:
        self.last = first
        self.members = {first}
        self.intersection: frozenset[str] | None = None

    def append(self, node: Node, shared: frozenset[str]) -> None:
        self.last, self.intersection = node, shared
        self.members.add(node)


class _Stitcher:
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

    def refusal(self, group: _OpenGroup, node: Node, strategy: str) -> str:
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

    def cut(self, order: tuple[Node, ...], strategy: str) -> Stitching:
        group = _OpenGroup(order[0])
        groups: list[list[Node]] = [[order[0]]]
        boundaries: list[Boundary] = []
        for before, node in pairwise(order):
            relation = self.relation(before, node)
            reason = self.refusal(group, node, strategy)
            boundaries.append(Boundary(before, node, relation, bool(reason), reason))
            if reason:
                groups.append([node])
                group = _OpenGroup(node)
            else:
                groups[-1].append(node)
                group.append(node, relation.shared)
        found = tuple(Group(tuple(group)) for group in groups)
        return Stitching(self.cascade, strategy, found, tuple(boundaries), self.fewest(strategy), order != self.nodes)

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

    def best(self, strategy: str, reorder: bool) -> Stitching:
        best = self.cut(self.nodes, strategy)
        for candidate in (name for name, allowed in STRATEGIES.items() if allowed):
            for by_level in (False, True):
                if not reorder or len(best.groups) == best.fewest:
                    return best
                found = self.cut(self._schedule(candidate, by_level), strategy)
                if len(found.groups) < len(best.groups):
                    best = found
        return best

    def _schedule(self, strategy: str, by_level: bool) -> tuple[Node, ...]:
        """An order built greedily to keep groups open under a strategy."""
        levels = self.levels(strategy)
        followers: dict[Node, list[Node]] = {node: [] for node in self.nodes}
        for node in self.nodes:
            for before in self.before[node]:
                followers[before].append(node)
        missing = {node: len(self.before[node]) for node in self.nodes}
        ready = [node for node in self.nodes if not missing[node]]
        order: list[Node] = []
        group: _OpenGroup | None = None
        while ready:
            ready.sort(key=lambda node: (levels[node], self.place[node]))
            node = self._choose(ready, levels, group, strategy, by_level)
            if group is not None and not self.refusal(group, node, strategy):
                group.append(node, self.relation(group.last, node).shared)
            else:
                group = _OpenGroup(node)
            ready.remove(node)
            order.append(node)
            for follower in followers[node]:
                missing[follower] -= 1
                if not missing[follower]:
                    ready.append(follower)
        return tuple(order)

    def _choose(
        self, ready: Sequence[Node], levels: Mapping[Node, int], group: _OpenGroup | None, strategy: str, by_level: bool
    ) -> Node:
        lowest = [node for node in ready if levels[node] == levels[ready[0]]] if by_level else ready
        if group is not None:
            near = [node for node in lowest if group.last in self.before[node]]
            for node in (*near, *lowest[:_READY_LIMIT]):
                if not self.refusal(group, node, strategy):
                    return node
        return lowest[0]


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
