"""The best contiguous grouping for any objective, by dynamic programming over what a grouping costs.

Time, energy and DRAM words of a grouping are sums over its groups, so that what is dominated for the first j nodes stays
dominated whatever follows; every objective that grows with them (a product too) is least on the front.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from stitchloop.cascade.evaluate import Model
from stitchloop.cascade.merge import Node
from stitchloop.cascade.performance import GroupCost

COSTS = ("seconds", "energy_pj", "dram_words")
OBJECTIVES: dict[str, tuple[str, ...]] = {
    "delay": ("seconds",),
    "latency": ("seconds",),
    "energy": ("energy_pj",),
    "edp": ("seconds", "energy_pj"),
    "last-level-accesses": ("dram_words",),
}
"""Objective to the costs whose product it is."""


@dataclass(frozen=True)
class Point:
    """A grouping: where its groups end in the order of nodes, and its costs in the order of :data:`COSTS`."""

    ends: tuple[int, ...] = ()
    costs: tuple[float, ...] = (0.0,) * len(COSTS)

    def value(self, objective: str) -> float:
        """A cost, or an objective: seconds, picojoules, picojoule-seconds or words."""
        return prod(self.costs[COSTS.index(cost)] for cost in OBJECTIVES.get(objective, (objective,)))

    def groups(self, nodes: Sequence[Node]) -> list[tuple[Node, ...]]:
        return [tuple(nodes[start:stop]) for start, stop in zip((0, *self.ends[:-1]), self.ends, strict=True)]

    def then(self, stop: int, cost: GroupCost) -> Point:
        """The grouping with one more group."""
        added = (cost.seconds, sum(cost.energy_pj.values()), cost.volume.total)
        return Point((*self.ends, stop), tuple(a + b for a, b in zip(self.costs, added, strict=True)))


def front(model: Model, nodes: Sequence[Node], costs: Iterable[str], longest: int | None = None) -> tuple[Point, ...]:
    """Groupings of the nodes, in this order, that no other beats in all the named costs at once.

    Each group runs with the partitioning that the model chose for it. Groups that do not fit in the buffer are left out;
    the front is empty when that leaves nothing. Groups of more than ``longest`` nodes are not tried.
    """
    kept = tuple(dict.fromkeys(costs))
    fronts: list[tuple[Point, ...]] = [(Point(),)]
    for stop in range(1, len(nodes) + 1):
        found: list[Point] = []
        for start in range(stop - 1, -1 if longest is None else max(-1, stop - 1 - longest), -1):
            cost = model.group(tuple(nodes[start:stop]), nodes[start - 1] if start else None)
            if not cost.shortfall_words:
                found += [point.then(stop, cost) for point in fronts[start]]
        fronts.append(undominated(found, kept))
    return fronts[-1]


def undominated(points: Sequence[Point], objectives: Sequence[str]) -> tuple[Point, ...]:
    """The points that no other equals or beats in all objectives (or costs); of equal ones the one with the fewest groups."""
    valued = [(tuple(point.value(name) for name in objectives), point) for point in points]
    found: list[tuple[tuple[float, ...], Point]] = []
    for values, point in sorted(valued, key=lambda pair: (pair[0], len(pair[1].ends), pair[1].ends)):
        if not any(all(a <= b for a, b in zip(other, values, strict=True)) for other, _ in found):
            found.append((values, point))
    return tuple(point for _, point in found)
