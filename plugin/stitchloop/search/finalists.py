"""The best mapping so far, and the non-dominated ones, as the reference model counts them."""

from __future__ import annotations

from collections.abc import Sequence

from stitchloop.errors import InvalidMapping
from stitchloop.mapping import Mapping
from stitchloop.mapspace.space import Mapspace
from stitchloop.model import TIMELOOP, Evaluator
from stitchloop.search.objectives import value_of
from stitchloop.stats import Stats

Finalist = tuple[tuple[float, ...], Mapping, Stats]
"""Values of the objectives, the mapping, and all its figures."""


class Points:
    """Mappings that no other one taken so far matches or beats in every objective."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.points: list[Finalist] = []

    def take(self, mapping: Mapping, stats: Stats) -> None:
        """Add a mapping unless another one matches it, and drop those that it matches."""
        values = tuple(value_of(name, stats) for name in self.names)
        if not self.match(values):
            rest = [other for other in self.points if not all(a <= b for a, b in zip(values, other[0]))]
            self.points = sorted([*rest, (values, mapping, stats)], key=lambda other: other[0])

    def match(self, values: Sequence[float]) -> bool:
        """Whether some mapping is no worse than ``values`` in every objective."""
        return any(all(a <= b for a, b in zip(other[0], values)) for other in self.points)


class Finalists:
    """Takes mappings, evaluates each once, and keeps the best.

    Parameters
    ----------
    names : sequence of str
        Objectives, lexicographic.
    points : Points, optional
        Is shown every valid mapping.
    """

    def __init__(self, mapspace: Mapspace, names: Sequence[str], points: Points | None = None) -> None:
        self.mapspace, self.names, self.points = mapspace, tuple(names), points
        self.evaluator = Evaluator(mapspace.einsum, mapspace.architecture, TIMELOOP)
        self.best: Finalist | None = None
        self.seen: set[Mapping] = set()

    def offer(self, mapping: Mapping) -> Finalist | None:
        """Evaluate a mapping that is new; None when it is not, or when a constraint or the hardware forbids it."""
        if mapping in self.seen:
            return None
        self.seen.add(mapping)
        if self.mapspace.contains(mapping) is not None:
            return None
        try:
            stats = self.evaluator.evaluate(mapping)
        except InvalidMapping:
            return None
        found = tuple(value_of(name, stats) for name in self.names), mapping, stats
        if self.best is None or found[0] < self.best[0]:
            self.best = found
        if self.points is not None:
            self.points.take(mapping, stats)
        return found

    @property
    def value(self) -> float:
        """The first objective of the best; infinite when there is none."""
        return float("inf") if self.best is None else self.best[0][0]
