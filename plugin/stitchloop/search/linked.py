"""Finalists under the tool's full count: what link transfers and short wraps make better than the search's count says.

From a few mappings one climbs under the reference model: to other orders of loops, other layouts on X and Y, and factors
moved between loops, as long as that helps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.mapspace.factors import divisors
from stitchloop.mapspace.space import Mapspace
from stitchloop.search.finalists import Finalist, Finalists
from stitchloop.search.improve import other_orders

STEPS = 60
"""How many mappings each climb may try."""


def refine(space: Mapspace, names: Sequence[str], mappings: Sequence[Mapping], deadline: float | None) -> Finalist:
    """The best mapping that climbs from ``mappings`` reach, of which the first is valid.

    Deterministic unless ``deadline`` (``time.perf_counter()``) ends it early.
    """
    finalists = Finalists(space, names)
    for mapping in mappings:
        _climb(space, finalists, finalists.offer(mapping), deadline)
    assert finalists.best is not None
    return finalists.best


def _climb(space: Mapspace, finalists: Finalists, start: Finalist | None, deadline: float | None) -> None:
    """Take the first better neighbour again and again, for as many tries as there are."""
    left = STEPS
    while start is not None:
        values, mapping, _ = start
        start = None
        for other in neighbours(space, mapping):
            finalist = finalists.offer(other)
            left -= finalist is not None
            if not left or (deadline is not None and time.perf_counter() > deadline):
                return
            if finalist is not None and finalist[0] < values:
                start = finalist
                break


def neighbours(space: Mapspace, mapping: Mapping) -> Iterator[Mapping]:
    """Mappings one step away with perfect factors; constraints may be broken."""
    for i, level in enumerate(mapping.levels):
        bounds = {loop.rank: loop for loop in (*level.spatial_x, *level.spatial_y)}
        for x, y in space.levels[i].spatial.layouts(bounds) if len(bounds) > 1 else ():
            yield _with(mapping, {i: replace(level, spatial_x=_loops(bounds, x), spatial_y=_loops(bounds, y))})
    yield from other_orders(mapping)
    for rank in space.einsum.ranks:
        yield from _moved(space, mapping, rank)


def _loops(bounds: dict[str, Loop], ranks: Sequence[str]) -> tuple[Loop, ...]:
    return tuple(bounds[rank] for rank in ranks)


def _moved(space: Mapspace, mapping: Mapping, rank: str) -> Iterator[Mapping]:
    """A factor of one rank moved from one temporal or spatial loop to another place."""
    places = [
        (slot, kind, space.loops(slot).factors[rank])
        for slot in space.slots
        for kind in (("spatial_x", "spatial_y") if slot[1] else ("temporal",))
    ]
    for slot, kind, limits in places:
        i = slot[0]
        own = next((loop.bound for loop in getattr(mapping.levels[i], kind) if loop.rank == rank), 1)
        for factor in divisors(own)[1:]:
            for to, other, most in places:
                if (to, other) == (slot, kind):
                    continue
                j, taken = to[0], _scaled(mapping.levels[i], kind, rank, own // factor, True)
                receiver = taken if i == j else mapping.levels[j]
                had = next((loop.bound for loop in getattr(receiver, other) if loop.rank == rank), 1)
                if to != slot and not (limits.admits(own // factor) and most.admits(had * factor)):
                    continue
                for inner in (True, False) if had == 1 else (True,):
                    yield _with(mapping, {i: taken, j: _scaled(receiver, other, rank, had * factor, inner)})


def _scaled(level: LevelMapping, kind: str, rank: str, bound: int, inner: bool) -> LevelMapping:
    """The level with another bound of one rank's loop, a new loop standing innermost or outermost."""
    loops = getattr(level, kind)
    new = (Loop(rank, bound),) if bound > 1 else ()
    at = next((i for i, loop in enumerate(loops) if loop.rank == rank), None)
    if at is not None:
        return replace(level, **{kind: loops[:at] + new + loops[at + 1 :]})
    return replace(level, **{kind: new + loops if inner else loops + new})


def _with(mapping: Mapping, levels: dict[int, LevelMapping]) -> Mapping:
    return Mapping(tuple(levels.get(i, level) for i, level in enumerate(mapping.levels)))
