"""Brute force: every mapping of a small mapspace through the reference model. The oracle that searches are held against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stitchloop.errors import InvalidMapping
from stitchloop.mapping import Mapping
from stitchloop.mapspace.space import Mapspace
from stitchloop.model import TIMELOOP, Counting, Evaluator
from stitchloop.stats import Stats


@dataclass(frozen=True)
class Optimum:
    """The best mapping of a mapspace.

    Attributes
    ----------
    values : tuple of float
        Its objectives, in the order asked for.
    mapping, stats
        The first mapping, in the order of the listing, that reaches them.
    valid, listed : int
        How many mappings are valid, of how many that the fan-outs admit.
    """

    values: tuple[float, ...]
    mapping: Mapping
    stats: Stats
    valid: int
    listed: int


def valid_mappings(mapspace: Mapspace, counting: Counting = TIMELOOP) -> Iterator[tuple[Mapping, Stats | None]]:
    """Every mapping that the fan-outs admit, with its figures, or None where a constraint or the hardware forbids it."""
    evaluator = Evaluator(mapspace.einsum, mapspace.architecture, counting)
    for mapping in mapspace.enumerate_mappings(fitting=True):
        if mapspace.contains(mapping) is not None:
            yield mapping, None
            continue
        try:
            yield mapping, evaluator.evaluate(mapping)
        except InvalidMapping:
            yield mapping, None


def exhaustive(mapspace: Mapspace, metrics: Sequence[str], counting: Counting = TIMELOOP) -> Optimum | None:
    """The mapping with the lexicographically least ``metrics``; None when no mapping is valid.

    Parameters
    ----------
    metrics : sequence of str
        As in :class:`stitchloop.options.MapperOptions`.
    """
    from stitchloop.search.objectives import value_of

    best: tuple[tuple[float, ...], Mapping, Stats] | None = None
    valid = listed = 0
    for mapping, stats in valid_mappings(mapspace, counting):
        listed += 1
        if stats is None:
            continue
        valid += 1
        values = tuple(value_of(metric, stats) for metric in metrics)
        if best is None or values < best[0]:
            best = values, mapping, stats
    return None if best is None else Optimum(*best, valid, listed)


def exhaustive_front(mapspace: Mapspace, metrics: Sequence[str], counting: Counting = TIMELOOP) -> list[tuple[float, ...]]:
    """The values of the Pareto front over ``metrics``, in ascending order."""
    from stitchloop.search.objectives import value_of

    points = {
        tuple(value_of(metric, stats) for metric in metrics)
        for _, stats in valid_mappings(mapspace, counting)
        if stats is not None
    }
    front: list[tuple[float, ...]] = []
    for point in sorted(points):
        if not any(all(a <= b for a, b in zip(other, point)) for other in front):
            front.append(point)
    return front
