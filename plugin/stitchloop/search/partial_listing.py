"""Branch and bound over all imperfect mappings of a small mapspace: spatial bounds, keep sets, tilings, orders.

Each step leaves out what a lower bound (:mod:`stitchloop.search.imperfect_bound`) does not put below the incumbent. Layouts on X
and Y, and the order of spatial loops, make no difference to the count of imperfect mappings: one of each is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.mapspace.factors import FactorRange, covered, factorizations, residual_of
from stitchloop.mapspace.space import Mapspace
from stitchloop.search.imperfect_bound import ImperfectBound
from stitchloop.search.nest import KeepSets
from stitchloop.search.spatial import lay_out

TILINGS = 200_000
"""Most tilings of one choice of spatial bounds that are listed."""


class TooMany(Exception):
    """There are more tilings than are listed."""


def tilings(mapspace: Mapspace, spatial: Any) -> Any:
    """All bounds ``int64[tilings, slots, ranks]`` with the spatial ones ``spatial[levels, ranks]``; raises :class:`TooMany`."""
    by_rank = []
    for r, (rank, size) in enumerate(mapspace.einsum.sizes.items()):
        limits = [
            FactorRange(int(spatial[index, r]), int(spatial[index, r])) if is_spatial else limit
            for (index, is_spatial), limit in zip(mapspace.slots, mapspace.limits(rank))
        ]
        own = []
        for bounds in factorizations(size, limits, imperfect=True):
            own.append(bounds)
            if len(own) > TILINGS:
                raise TooMany
        by_rank.append(np.array(own, dtype=np.int64).reshape(-1, len(limits)))
    if prod(map(len, by_rank)) > TILINGS:
        raise TooMany
    numbers = np.unravel_index(np.arange(prod(map(len, by_rank))), [len(own) for own in by_rank]) if by_rank else ()
    return np.stack([own[number] for own, number in zip(by_rank, numbers)], axis=2)


def extents_of(mapspace: Mapspace, bounds: Any) -> Any:
    """``int64[levels, tilings, ranks]``: the largest tile of every level."""
    tiles = np.minimum(np.cumprod(bounds, axis=1), np.array(mapspace.einsum.rank_sizes))
    return tiles[:, 1::2].transpose(1, 0, 2)


def fitting(bound: ImperfectBound, keeps: KeepSets, extents: Any) -> Any:
    """Which tilings fit the capacities."""
    einsum, fits = bound.space.einsum, np.ones(extents.shape[1], dtype=np.bool_)
    for level, keep, tiles in zip(bound.space.architecture.levels, keeps, extents):
        if level.capacity is not None and keep:
            own = [shape for tensor, shape in zip(einsum.tensors, bound.shapes) if tensor.name in keep]
            fits &= sum(shape.volume(tiles) for shape in own) <= level.capacity
    return fits


def nests(mapspace: Mapspace, bounds: Any, keeps: KeepSets) -> Iterator[Mapping]:
    """Every order of the temporal loops of one tiling ``bounds[slots, ranks]``; imperfect mappings only."""
    ranks = mapspace.einsum.ranks
    left = dict(mapspace.einsum.sizes)
    loops: list[dict[str, Loop]] = []
    for row in bounds:
        here = {}
        for rank, bound in zip(ranks, map(int, row)):
            last = residual_of(left[rank], bound)
            if bound > 1:
                here[rank] = Loop(rank, bound, 0 if last == bound else last)
            left[rank] = covered(left[rank], bound)
        loops.append(here)
    if all(loop.is_perfect for here in loops for loop in here.values()):
        return
    options = []
    for index, level in enumerate(mapspace.levels):
        spatial, temporal = loops[2 * index], loops[2 * index + 1]
        x, y = lay_out(level.spatial, tuple(map(int, bounds[2 * index])))
        on_x, on_y = (tuple(spatial[loop.rank] for loop in side) for side in (x, y))
        orders = level.temporal.orders(temporal)
        options.append([LevelMapping(tuple(temporal[r] for r in order), on_x, on_y, keeps[index]) for order in orders])
    for levels in product(*options):
        yield Mapping(levels)


def candidates(bound: ImperfectBound, spatial: Any, keeps: KeepSets, hopeless: Callable[[Any], bool]) -> Iterator[Mapping]:
    """Imperfect mappings with these spatial bounds and keep sets, those of low bounds first.

    ``hopeless(goals)`` says of a tiling's bounds on the objectives whether it is to be left out; it is asked again before each
    tiling. Raises :class:`TooMany`.
    """
    mapspace = bound.space
    every = tilings(mapspace, spatial)
    extents = extents_of(mapspace, every)
    fits = fitting(bound, keeps, extents)
    every, extents = every[fits], extents[:, fits]
    if not len(every):
        return
    goals = bound.of_tiles(spatial, keeps, extents)
    for i in np.argsort(goals[:, 0], kind="stable"):
        if not hopeless(goals[i]):
            yield from nests(mapspace, every[i], keeps)
