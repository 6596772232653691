"""Perfect problems near an imperfect one: padded rank sizes, and mappings cut back to the true sizes.

Every imperfect mapping is a perfect mapping of a *padded* problem, whose rank sizes are the products of its bounds, with the
last pass of each loop cut short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.mapspace import build_mapspace
from stitchloop.mapspace.factors import FactorRange, covered, divisors, residual_of
from stitchloop.mapspace.space import KeepSpace, Mapspace
from stitchloop.search.machine import prime_factors
from stitchloop.search.nest import KeepSets

SLACK = 1.06
"""How much larger a padded size may be than needed."""


def cut(mapspace: Mapspace, mapping: Mapping) -> Mapping:
    """The mapping with its loops cut to the true rank sizes: ``n -> ceil(n / bound)`` from the inner end."""
    left = dict(mapspace.einsum.sizes)

    def shorten(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
        kept = []
        for loop in loops:
            bound = min(loop.bound, left[loop.rank])
            if bound > 1:
                last = residual_of(left[loop.rank], bound)
                kept.append(Loop(loop.rank, bound, 0 if last == bound else last))
                left[loop.rank] = covered(left[loop.rank], bound)
        return tuple(kept)

    levels = []
    for level in mapping.levels:
        x, y = shorten(level.spatial_x), shorten(level.spatial_y)
        levels.append(LevelMapping(shorten(level.temporal), x, y, level.keep))
    return Mapping(tuple(levels))


def resized(mapspace: Mapspace, sizes: Sequence[int]) -> Mapspace:
    """The perfect mapspace of other rank sizes; :class:`InputError` when constraints contradict them."""
    return build_mapspace(replace(mapspace.einsum, rank_sizes=tuple(sizes)), mapspace.architecture, mapspace.constraints)


def padded(mapspace: Mapspace, sizes: Sequence[int], spatial: Any, keeps: KeepSets | None) -> Mapspace:
    """The perfect mapspace of other rank sizes with the bounds ``spatial[levels, ranks]`` and keep sets given, if any.

    Raises
    ------
    InputError
        When constraints contradict the sizes.
    """
    own = resized(mapspace, sizes)
    names = frozenset(tensor.name for tensor in mapspace.einsum.tensors)
    levels = []
    for i, level in enumerate(own.levels):
        if spatial is not None:
            factors = {rank: FactorRange(int(bound), int(bound)) for rank, bound in zip(own.einsum.ranks, spatial[i])}
            level = replace(level, spatial=replace(level.spatial, factors=factors))
        if keeps is not None:
            level = replace(level, tensors=KeepSpace(keeps[i], names - keeps[i], ()))
        levels.append(level)
    return replace(own, levels=tuple(levels))


def fitted_sizes(sizes: Sequence[int], spatial: Any) -> tuple[int, ...]:
    """The least sizes that the spatial bounds divide."""
    along = spatial.prod(axis=0)
    return tuple(int(step) * -(-size // int(step)) for size, step in zip(sizes, along))


def smooth_sizes(sizes: Sequence[int], spatial: Any) -> tuple[int, ...]:
    """Sizes that the spatial bounds divide, of at most :data:`SLACK` times the least, with the most divisors."""
    found = []
    for size, step in zip(sizes, map(int, spatial.prod(axis=0))):
        least = -(-size // step)
        parts = [base << power for base in (1, 3, 5) for power in range(least.bit_length())]
        options = {part * -(-least // part) for part in parts if part * -(-least // part) <= least * SLACK}
        found.append(step * max(options, key=lambda number: (len(divisors(number)), -number)))
    return tuple(found)


def guided_sizes(sizes: Sequence[int], spatial: Any, tiles: Sequence[Any]) -> tuple[int, ...]:
    """Sizes in which every level's tile may have the extents ``tiles[level]``, as far as they are multiples of each other."""
    found = []
    for r, size in enumerate(sizes):
        extent = 1
        for own, tile in zip(spatial, tiles):
            extent *= int(own[r])
            if tile is not None and extent < size:
                extent *= max(1, int(tile[r]) // extent)
        found.append(extent * -(-size // extent))
    return tuple(found)


def padded_sizes(mapspace: Mapspace) -> list[tuple[int, ...]]:
    """Rank sizes that divide well over the fan-outs, by volume; the true ones are left out."""
    einsum = mapspace.einsum
    sides = sorted({side for level in mapspace.levels for side in (level.spatial.fanout_x, level.spatial.fanout_y) if side > 1})
    options = [_near(size, sides) for size in einsum.rank_sizes]
    ranked = sorted(product(*options), key=lambda sizes: (prod(sizes), sizes))
    return [sizes for sizes in ranked if sizes != einsum.rank_sizes]


def _near(size: int, sides: list[int]) -> list[int]:
    """The size where its primes are small, else the two larger ones with most divisors among multiples of parts of ``sides``."""
    if size == 1 or max(prime_factors(size)) <= 3:
        return [size]
    slack = 1.04 if size > 64 else 1.15
    steps = {step for side in sides for step in divisors(side) if step > 1}
    multiples = sorted({step * -(-size // step) for step in steps if step * -(-size // step) <= size * slack} - {size})
    return sorted(sorted(multiples, key=lambda number: (-len(divisors(number)), number))[:2]) or [size]
