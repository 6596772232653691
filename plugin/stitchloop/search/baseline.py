"""A random search of the mapspace, as Timeloop's mapper does it by default: what a proved optimum is held against."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import islice
from math import prod

from stitchloop.errors import InvalidMapping
from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.mapspace.factors import factorizations, residual_of
from stitchloop.mapspace.mapspace import build_mapspace
from stitchloop.mapspace.space import Mapspace
from stitchloop.model import Evaluator
from stitchloop.spec import Spec
from stitchloop.stats import Stats

FACTORISATIONS_PER_RANK = 20_000


@dataclass(frozen=True)
class RandomSearch:
    """The best of ``valid`` valid mappings that ``tried`` draws gave."""

    mapping: Mapping
    stats: Stats
    valid: int
    tried: int


def random_search(spec: Spec, valid: int = 500, tries: int = 100_000, seed: int = 0) -> RandomSearch | None:
    """Draw mappings until ``valid`` of them are valid or ``tries`` are spent; the lowest first metric wins.

    Every choice is drawn evenly: a factorisation per rank, a permutation and a split per level, a keep set per level. The
    same seed draws the same mappings. None when no draw is valid.
    """
    from stitchloop.search.objectives import value_of

    assert spec.architecture is not None
    assert spec.workload is not None
    einsum = spec.workload.einsum
    mapspace = build_mapspace(einsum, spec.architecture, spec.constraints, spec.options)
    evaluator = Evaluator(einsum, spec.architecture)
    draw = _Draw(mapspace, random.Random(seed))
    best: tuple[float, Mapping, Stats] | None = None
    found = tried = 0
    while found < valid and tried < tries:
        tried += 1
        mapping = draw.mapping()
        if mapping is None or mapspace.contains(mapping) is not None:
            continue
        try:
            stats = evaluator.evaluate(mapping)
        except InvalidMapping:
            continue
        found += 1
        value = value_of(spec.options.metrics[0], stats)
        if best is None or value < best[0]:
            best = value, mapping, stats
    return None if best is None else RandomSearch(best[1], best[2], found, tried)


class _Draw:
    """Draws mappings of one mapspace; factorisations of each rank are listed once."""

    def __init__(self, mapspace: Mapspace, source: random.Random) -> None:
        self.mapspace, self.source = mapspace, source
        self.bounds = {
            rank: list(islice(factorizations(size, mapspace.limits(rank), mapspace.imperfect), FACTORISATIONS_PER_RANK))
            for rank, size in mapspace.einsum.sizes.items()
        }

    def mapping(self) -> Mapping | None:
        """The next mapping; None when its spatial loops need more instances than a fan-out has."""
        loops = {rank: self._loops(rank) for rank in self.mapspace.einsum.ranks}
        levels = []
        for index, space in enumerate(self.mapspace.levels):
            spatial = {rank: loops[rank][2 * index] for rank in loops if loops[rank][2 * index].bound > 1}
            temporal = {rank: loops[rank][2 * index + 1] for rank in loops if loops[rank][2 * index + 1].bound > 1}
            if prod(loop.bound for loop in spatial.values()) > space.spatial.fanout:
                return None
            x, y = self.source.choice(list(space.spatial.layouts(spatial)) or [((), ())])
            order = self._order(index, list(temporal))
            kept = space.tensors.keep | {name for name in space.tensors.free if self.source.random() < 0.5}
            levels.append(
                LevelMapping(
                    tuple(temporal[rank] for rank in order),
                    tuple(spatial[rank] for rank in x),
                    tuple(spatial[rank] for rank in y),
                    frozenset(kept),
                )
            )
        return Mapping(tuple(levels))

    def _loops(self, rank: str) -> list[Loop]:
        left, loops = self.mapspace.einsum.sizes[rank], []
        for bound in self.source.choice(self.bounds[rank]):
            last = residual_of(left, bound)
            loops.append(Loop(rank, bound, 0 if last == bound else last))
            left = -(-left // bound)
        return loops

    def _order(self, index: int, looped: list[str]) -> list[str]:
        space = self.mapspace.levels[index].temporal
        free = [rank for rank in space.free if rank in looped]
        self.source.shuffle(free)
        return [r for r in space.inner if r in looped] + free + [r for r in space.outer if r in looped]
