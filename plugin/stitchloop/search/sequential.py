"""``remove_sequential_factors``: no level that asks for it may begin with the rank that the loops inside it end with.

The exact search does not know this constraint, so its optimum is a lower bound. When its mapping breaks the constraint,
this module looks for one that keeps it: other orders and merged loops at the levels concerned, and the optimum of the
mapspace in which those levels have no loops at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from math import factorial

from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.mapspace.factors import ONE
from stitchloop.mapspace.space import Mapspace

ORDERS = 720
"""Most orders of one level that are tried."""


def asks(mapspace: Mapspace) -> bool:
    """Whether any level has the constraint."""
    return any(level.remove_sequential_factors for level in mapspace.levels)


def without_loops(mapspace: Mapspace) -> Mapspace:
    """The part of the mapspace in which levels with the constraint have only the loops that factors force on them."""
    levels = []
    for level in mapspace.levels:
        if level.remove_sequential_factors:
            factors = {rank: ONE if limits.low <= 1 else limits for rank, limits in level.temporal.factors.items()}
            level = replace(level, temporal=replace(level.temporal, factors=factors))
        levels.append(level)
    return replace(mapspace, levels=tuple(levels))


def repairs(mapspace: Mapspace, mapping: Mapping) -> Iterator[Mapping]:
    """Mappings near ``mapping`` that keep the constraint: loops in other orders, or merged into the level inside or outside."""
    todo, seen = [mapping], {mapping}
    while todo and len(seen) < ORDERS:
        given = todo.pop(0)
        if mapspace.contains(given) is None:
            yield given
            continue
        for near in _near(mapspace, given):
            if near not in seen:
                seen.add(near)
                todo.append(near)


def _near(mapspace: Mapspace, mapping: Mapping) -> Iterator[Mapping]:
    for i, level in enumerate(mapspace.levels):
        if not level.remove_sequential_factors or not mapping.levels[i].temporal:
            continue
        inside = next((j for j in range(i - 1, -1, -1) if mapping.levels[j].temporal), None)
        if inside is None or mapping.levels[inside].temporal[-1].rank != mapping.levels[i].temporal[0].rank:
            continue
        own, inner = mapping.levels[i].temporal, mapping.levels[inside].temporal
        merged = Loop(own[0].rank, own[0].bound * inner[-1].bound)
        yield _with(mapping, {i: own[1:], inside: (*inner[:-1], merged)})
        yield _with(mapping, {i: (merged, *own[1:]), inside: inner[:-1]})
        for at, loops in ((i, own), (inside, inner)):
            if factorial(len(loops)) <= ORDERS:
                for order in permutations(loops):
                    yield _with(mapping, {at: order})


def _with(mapping: Mapping, loops: dict[int, tuple[Loop, ...]]) -> Mapping:
    levels = [
        LevelMapping(loops.get(i, level.temporal), level.spatial_x, level.spatial_y, level.keep)
        for i, level in enumerate(mapping.levels)
    ]
    return Mapping(tuple(levels))
