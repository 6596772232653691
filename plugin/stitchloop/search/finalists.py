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


class Finalists:
    """Takes mappings, evaluates each once, and keeps the best.

    Parameters
    ----------
    names : sequence of str
        Objectives, lexicographic for ``best``.
    front : int
        How many of the first objectives the front is over; 0 keeps none.
    """

    def __init__(self, mapspace: Mapspace, names: Sequence[str], front: int = 0) -> None:
        self.mapspace, self.names, self.dimensions = mapspace, tuple(names), front
        self.evaluator = Evaluator(mapspace.einsum, mapspace.architecture, TIMELOOP)
        self.best: Finalist | None = None
        self.front: list[Finalist] = []
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
        if self.dimensions and not self.dominated(found[0]):
            own = found[0][: self.dimensions]
            rest = [other for other in self.front if not all(a <= b for a, b in zip(own, other[0]))]
            self.front = sorted([*rest, found], key=lambda other: other[0])
        return found

    def dominated(self, values: Sequence[float]) -> bool:
        """Whether a point of the front is no worse in any of its objectives."""
        return any(all(a <= b for a, b in zip(other[0][: self.dimensions], values)) for other in self.front)

    @property
    def value(self) -> float:
        """The first objective of the best; infinite when there is none."""
        return float("inf") if self.best is None else self.best[0][0]
