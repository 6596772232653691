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

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.merge import Node, merge_shared_inputs, plain_nodes
from stitchloop.cascade.relations import FusionClass, Relation
from stitchloop.cascade.reorder import candidate_orders
from stitchloop.cascade.rule import STRATEGIES, Rule

__all__ = ["STRATEGIES", "Boundary", "Group", "Stitching", "grouping", "stitch", "stitch_order"]


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
    The search tries a fixed list of orders, the same for every strategy: the given one and those of
    :func:`stitchloop.cascade.reorder.candidate_orders`. It stops early at ``fewest``. The first order with the fewest groups
    wins. Over 450 stitchings of random cascades of 8 Einsums none of all orders needs fewer groups.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"no greedy strategy '{strategy}'; they are {', '.join(STRATEGIES)}")
    nodes = merge_shared_inputs(cascade) if merge else plain_nodes(cascade)
    rule = Rule(cascade, nodes)
    best = _cut(rule, nodes, strategy)
    for order in candidate_orders(rule) if reorder else ():
        if len(best.groups) == best.fewest:
            break
        found = _cut(rule, order, strategy)
        if len(found.groups) < len(best.groups):
            best = found
    return best


def stitch_order(cascade: Cascade, nodes: Sequence[Node], strategy: str) -> Stitching:
    """Groups of the nodes in exactly this order."""
    return _cut(Rule(cascade, tuple(nodes)), tuple(nodes), strategy)


def grouping(cascade: Cascade, groups: Sequence[Sequence[Node]], strategy: str) -> Stitching:
    """A grouping chosen elsewhere (by the performance model, say), with the class at each boundary."""
    nodes = tuple(node for group in groups for node in group)
    rule = Rule(cascade, nodes)
    starts = {group[0] for group in groups}
    boundaries = tuple(
        Boundary(before, after, rule.relation(before, after), after in starts, "chosen" if after in starts else "")
        for before, after in pairwise(nodes)
    )
    return Stitching(cascade, strategy, tuple(Group(tuple(group)) for group in groups), boundaries, 1)


def _cut(rule: Rule, order: tuple[Node, ...], strategy: str) -> Stitching:
    """The greedy cut of one order."""
    group, _ = rule.step(None, order[0], strategy)
    groups: list[list[Node]] = [[order[0]]]
    boundaries: list[Boundary] = []
    for before, node in pairwise(order):
        reason = rule.refusal(group, node, strategy)
        boundaries.append(Boundary(before, node, rule.relation(before, node), bool(reason), reason))
        group, starts = rule.step(group, node, strategy)
        if starts:
            groups.append([])
        groups[-1].append(node)
    found = tuple(Group(tuple(nodes)) for nodes in groups)
    return Stitching(rule.cascade, strategy, found, tuple(boundaries), rule.fewest(strategy), order != rule.nodes)
