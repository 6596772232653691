"""A random search of the mapspace, as Timeloop's mapper does it by default: what a proved optimum is held against."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from math import prod

from stitchloop.errors import InvalidMapping
from stitchloop.mapping import Mapping
from stitchloop.mapspace.mapspace import build_mapspace
from stitchloop.mapspace.space import Mapspace
from stitchloop.model import Evaluator
from stitchloop.spec import Spec
from stitchloop.stats import Stats

PATIENCE = 10
"""How many times the seconds given to wait for a first valid mapping."""


@dataclass(frozen=True)
class RandomSearch:
    """The best of ``valid`` valid mappings that ``tried`` draws gave."""

    mapping: Mapping
    stats: Stats
    valid: int
    tried: int


def random_search(spec: Spec, valid: int = 200, tries: int = 100_000, seed: int = 0) -> RandomSearch | None:
    """Draw mappings until ``valid`` of them are valid or ``tries`` are spent; the lowest first metric wins.

    Every choice is drawn evenly: a factorisation per rank, a permutation and a split per level, a keep set per level. The
    same seed draws the same mappings. None when no draw is valid.
    """
    assert spec.architecture is not None
    assert spec.workload is not None
    mapspace = build_mapspace(spec.workload.einsum, spec.architecture, spec.constraints, spec.options)
    return sample(mapspace, spec.options.metrics[0], valid, tries, seed)


def sample(
    mapspace: Mapspace, metric: str, valid: int, tries: int, seed: int = 0, seconds: float | None = None
) -> RandomSearch | None:
    """As :func:`random_search`, of a mapspace and one metric, for about ``seconds``, longer while none is valid."""
    from stitchloop.search.objectives import value_of

    evaluator = Evaluator(mapspace.einsum, mapspace.architecture)
    best: tuple[float, Mapping, Stats] | None = None
    found = tried = 0
    start = time.perf_counter()
    for mapping in islice(mapspace.sample_mappings(seed), tries):
        tried += 1
        if seconds is not None and time.perf_counter() > start + seconds * (PATIENCE if best is None else 1):
            break
        if not _fits(mapspace, mapping) or mapspace.contains(mapping) is not None:
            continue
        try:
            stats = evaluator.evaluate(mapping)
        except InvalidMapping:
            continue
        found += 1
        value = value_of(metric, stats)
        if best is None or value < best[0]:
            best = value, mapping, stats
        if found == valid:
            break
    return None if best is None else RandomSearch(best[1], best[2], found, tried)


def _fits(mapspace: Mapspace, mapping: Mapping) -> bool:
    """Whether spatial loops fit every fan-out: what most draws fail, told at once."""
    return all(
        prod(loop.bound for loop in level.spatial_x) <= space.spatial.fanout_x
        and prod(loop.bound for loop in level.spatial_y) <= space.spatial.fanout_y
        for level, space in zip(mapping.levels, mapspace.levels, strict=True)
    )
