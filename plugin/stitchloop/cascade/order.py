"""Orders of a cascade's Einsums that respect its dependences."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from stitchloop.cascade.cascade import Cascade

Key = TypeVar("Key", bound=Hashable)


def topological_order(cascade: Cascade) -> tuple[str, ...]:
    """Einsum names, as near to the given order as the dependences permit.

    Raises
    ------
    ValueError
        Where there is a cycle (:func:`stitchloop.cascade.check.check_cascade` reports it first).
    """
    names = tuple(einsum.name for einsum in cascade.einsums)
    return stable_order(names, cascade.predecessors)


def stable_order(items: Sequence[Key], predecessors: Mapping[Key, frozenset[Key]]) -> tuple[Key, ...]:
    """Kahn's algorithm that always takes the earliest ready item, so that a valid order comes back unchanged."""
    rank = {item: position for position, item in enumerate(items)}
    missing = {item: len(predecessors[item]) for item in items}
    followers: dict[Key, list[Key]] = {item: [] for item in items}
    for item in items:
        for before in predecessors[item]:
            followers[before].append(item)
    ready = [rank[item] for item in items if not missing[item]]
    heapq.heapify(ready)
    order: list[Key] = []
    while ready:
        item = items[heapq.heappop(ready)]
        order.append(item)
        for follower in followers[item]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, rank[follower])
    if len(order) != len(items):
        raise ValueError("the dependences hold a cycle")
    return tuple(order)


def find_cycle(items: Sequence[Key], predecessors: Mapping[Key, frozenset[Key]]) -> tuple[Key, ...]:
    """The items of one cycle in the direction of the data, first item repeated at the end; empty when there is none."""
    done: set[Key] = set()
    for start in items:
        trail: list[Key] = []
        stack = [(start, iter(sorted(predecessors[start], key=str)))]
        on_trail = {start}
        trail.append(start)
        while stack and start not in done:
            item, before = stack[-1]
            step = next((b for b in before if b not in done), None)
            if step is None:
                done.add(item)
                on_trail.discard(item)
                trail.pop()
                stack.pop()
            elif step in on_trail:
                return tuple(reversed((*trail[trail.index(step) :], step)))
            else:
                on_trail.add(step)
                trail.append(step)
                stack.append((step, iter(sorted(predecessors[step], key=str))))
    return ()
