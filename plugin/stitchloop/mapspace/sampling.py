"""Draws mappings of a mapspace at random, each choice evenly, without listing the choices."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from random import Random

from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.mapspace.factors import FactorRange, bounds_of, covered, residual_of
from stitchloop.mapspace.orders import LoopSpace, SpatialSpace
from stitchloop.mapspace.space import Mapspace


def sample_mappings(mapspace: Mapspace, seed: int) -> Iterator[Mapping]:
    """Endless random mappings: a uniform factorisation per rank, then an even order, layout and keep set per level.

    The same seed gives the same mappings. Nothing is yielded when some rank has no admissible factorisation.
    """
    rng = Random(seed)
    draws = {
        rank: _Factorisations(size, mapspace.limits(rank), mapspace.imperfect) for rank, size in mapspace.einsum.sizes.items()
    }
    keep_sets = [list(level.tensors.sets()) for level in mapspace.levels]
    while all(draw.count(draw.size, 0) for draw in draws.values()):
        loops = {rank: draw.loops(rank, rng) for rank, draw in draws.items()}
        levels = []
        for index, space in enumerate(mapspace.levels):
            spatial = {rank: slots[2 * index] for rank, slots in loops.items() if slots[2 * index].bound > 1}
            temporal = {rank: slots[2 * index + 1] for rank, slots in loops.items() if slots[2 * index + 1].bound > 1}
            x, y = _layout(space.spatial, frozenset(spatial), rng)
            order = _order(space.temporal, frozenset(temporal), rng)
            nest = (tuple(temporal[r] for r in order), tuple(spatial[r] for r in x), tuple(spatial[r] for r in y))
            levels.append(LevelMapping(*nest, rng.choice(keep_sets[index])))
        yield Mapping(tuple(levels))


class _Factorisations:
    """Draws the bounds of one rank, every factorisation with the same probability."""

    def __init__(self, size: int, limits: tuple[FactorRange, ...], imperfect: bool) -> None:
        self.size, self.limits, self.imperfect = size, limits, imperfect
        self._counts: dict[tuple[int, int], int] = {}
        self._choices: dict[tuple[int, int], tuple[list[int], list[int]]] = {}

    def count(self, left: int, slot: int) -> int:
        """How many ways cover ``left`` with the slots from ``slot`` outwards."""
        if slot == len(self.limits):
            return int(left == 1)
        known = self._counts.get((left, slot))
        if known is None:
            bounds = bounds_of(left, self.limits[slot], self.imperfect)
            known = sum(self.count(covered(left, bound), slot + 1) for bound in bounds)
            self._counts[left, slot] = known
        return known

    def loops(self, rank: str, rng: Random) -> list[Loop]:
        """One loop per slot, bound 1 included."""
        left, loops = self.size, []
        for slot in range(len(self.limits)):
            bounds, weights = self._choice(left, slot)
            bound = rng.choices(bounds, cum_weights=weights)[0] if len(bounds) > 1 else bounds[0]
            last = residual_of(left, bound)
            loops.append(Loop(rank, bound, 0 if last == bound else last))
            left = covered(left, bound)
        return loops

    def _choice(self, left: int, slot: int) -> tuple[list[int], list[int]]:
        """Bounds of a slot with the running sums of their weights: how many factorisations each begins."""
        known = self._choices.get((left, slot))
        if known is None:
            bounds = list(bounds_of(left, self.limits[slot], self.imperfect))
            known = bounds, list(accumulate(self.count(covered(left, bound), slot + 1) for bound in bounds))
            self._choices[left, slot] = known
        return known


def _order(space: LoopSpace, looped: frozenset[str], rng: Random) -> tuple[str, ...]:
    free = [rank for rank in space.free if rank in looped]
    if not space.canonical:
        rng.shuffle(free)
    return (*(r for r in space.inner if r in looped), *free, *(r for r in space.outer if r in looped))


def _layout(space: SpatialSpace, looped: frozenset[str], rng: Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """An even draw of :meth:`SpatialSpace.layouts`."""
    order = _order(space, looped, rng)
    if space.split is None:
        cut = rng.randint(0, len(order))
        return order[:cut], order[cut:]
    inner, outer = space.fixed_sides(looped)
    free = tuple(rank for rank in order if rank in space.free)
    count = rng.choice(space.free_on_x(len(free)))
    return inner[0] + free[:count] + outer[0], inner[1] + free[count:] + outer[1]
