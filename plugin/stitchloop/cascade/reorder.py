"""Orders of a cascade's nodes that may need fewer fusion groups than the given one.

A fixed list, the same for every strategy, so that a more permissive strategy never ends with more groups: for each strategy
two orders built node by node, and for cascades of moderate length one found by a beam search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stitchloop.cascade.merge import Node
from stitchloop.cascade.rule import STRATEGIES, OpenGroup, Rule

_READY_LIMIT = 16
_BEAM_WORK = 20_000
"""Width times the square of the number of nodes that a beam search may take."""


def candidate_orders(rule: Rule) -> Iterator[tuple[Node, ...]]:
    """Orders worth trying, the cheapest to find first; every one respects the dependences."""
    strategies = [name for name, allowed in STRATEGIES.items() if allowed]
    for strategy in strategies:
        for by_level in (False, True):
            yield _greedy(rule, strategy, by_level)
    width = _BEAM_WORK // len(rule.nodes) ** 2
    for strategy in strategies if width else ():
        yield _beam(rule, strategy, width)


def _greedy(rule: Rule, strategy: str, by_level: bool) -> tuple[Node, ...]:
    """Always a ready node that joins the open group, among all, or among those behind the fewest forbidden edges."""
    levels = rule.levels(strategy)
    followers: dict[Node, list[Node]] = {node: [] for node in rule.nodes}
    for node in rule.nodes:
        for before in rule.before[node]:
            followers[before].append(node)
    missing = {node: len(rule.before[node]) for node in rule.nodes}
    ready = [node for node in rule.nodes if not missing[node]]
    order: list[Node] = []
    group: OpenGroup | None = None
    while ready:
        ready.sort(key=lambda node: (levels[node], rule.place[node]))
        node = _choose(rule, ready, levels, group, strategy, by_level)
        group, _ = rule.step(group, node, strategy)
        ready.remove(node)
        order.append(node)
        for follower in followers[node]:
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)
    return tuple(order)


def _choose(
    rule: Rule, ready: Sequence[Node], levels: Mapping[Node, int], group: OpenGroup | None, strategy: str, by_level: bool
) -> Node:
    lowest = [node for node in ready if levels[node] == levels[ready[0]]] if by_level else ready
    if group is not None:
        near = [node for node in lowest if group.last in rule.before[node]]
        for node in (*near, *lowest[:_READY_LIMIT]):
            if not rule.refusal(group, node, strategy):
                return node
    return lowest[0]


@dataclass(frozen=True)
class _State:
    """The first nodes of an order, with the groups that they need."""

    order: tuple[Node, ...]
    done: frozenset[Node]
    groups: int
    group: OpenGroup | None


def _beam(rule: Rule, strategy: str, width: int) -> tuple[Node, ...]:
    """Beam search: of all beginnings of equal length, those that promise the fewest groups go on.

    A beginning promises its groups, and one more for each forbidden edge on the longest path that is left.
    """
    left = _edges_left(rule, strategy)
    states = [_State((), frozenset(), 0, None)]
    for _ in rule.nodes:
        found: dict[object, tuple[tuple[int, ...], _State]] = {}
        for state in states:
            for node in rule.nodes:
                if node in state.done or not rule.before[node] <= state.done:
                    continue
                group, starts = rule.step(state.group, node, strategy)
                after = _State((*state.order, node), state.done | {node}, state.groups + starts, group)
                rest = max((left[other] for other in rule.nodes if other not in after.done), default=0)
                key = (after.groups + rest, after.groups, *(rule.place[other] for other in after.order))
                same = (after.done, group)
                if same not in found or key < found[same][0]:
                    found[same] = (key, after)
        states = [state for _, state in sorted(found.values(), key=lambda pair: pair[0])[:width]]
    return states[0].order


def _edges_left(rule: Rule, strategy: str) -> dict[Node, int]:
    """Forbidden edges along the worst path from each node to an end."""
    allowed = STRATEGIES[strategy]
    left = dict.fromkeys(rule.nodes, 0)
    for node in reversed(rule.nodes):
        for before in rule.before[node]:
            forbidden = rule.relation(before, node).fusion_class not in allowed
            left[before] = max(left[before], left[node] + forbidden)
    return left
