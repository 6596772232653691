"""Lists every mapping of a mapspace, lazily: the oracle of the searches, for small spaces."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.mapspace.factors import covered, factorizations, residual_of
from stitchloop.mapspace.orders import SpatialSpace
from stitchloop.mapspace.space import Mapspace

Loops = tuple[Loop, ...]


def enumerate_mappings(mapspace: Mapspace, fitting: bool = False) -> Iterator[Mapping]:
    """Every mapping once, in a fixed order: factorisations outermost, then orders and layouts, then keep sets.

    Parameters
    ----------
    fitting : bool
        Leave out mappings whose spatial loops exceed the X or the Y side of a fan-out.
    """
    choices = [list(_bounds(mapspace, rank)) for rank in mapspace.einsum.ranks]
    keep_sets = list(product(*(list(level.tensors.sets()) for level in mapspace.levels)))
    for chosen in product(*choices):
        slots = [{loop.rank: loop for loop in loops if loop.bound > 1} for loops in zip(*chosen, strict=True)]
        for nests in product(*(_nests(mapspace, index, slots, fitting) for index in range(len(mapspace.levels)))):
            for kept in keep_sets:
                yield Mapping(tuple(LevelMapping(*nest, keep) for nest, keep in zip(nests, kept)))


def _bounds(mapspace: Mapspace, rank: str) -> Iterator[tuple[Loop, ...]]:
    """The rank's loop in every slot, bound 1 included."""
    size = mapspace.einsum.sizes[rank]
    for bounds in factorizations(size, mapspace.limits(rank), mapspace.imperfect):
        loops, left = [], size
        for bound in bounds:
            last = residual_of(left, bound)
            loops.append(Loop(rank, bound, 0 if last == bound else last))
            left = covered(left, bound)
        yield tuple(loops)


def _nests(mapspace: Mapspace, index: int, slots: list[dict[str, Loop]], fitting: bool) -> list[tuple[Loops, Loops, Loops]]:
    """(temporal, on X, on Y) loops of one level, in every order and layout."""
    spatial, temporal = slots[2 * index], slots[2 * index + 1]
    space = mapspace.levels[index]
    layouts = [
        (tuple(spatial[rank] for rank in x), tuple(spatial[rank] for rank in y))
        for x, y in space.spatial.layouts(spatial)
        if not fitting or _fits(space.spatial, spatial, x, y)
    ]
    orders = [tuple(temporal[rank] for rank in order) for order in space.temporal.orders(temporal)]
    return [(order, x, y) for order in orders for x, y in layouts]


def _fits(space: SpatialSpace, loops: dict[str, Loop], x: tuple[str, ...], y: tuple[str, ...]) -> bool:
    return prod(loops[r].bound for r in x) <= space.fanout_x and prod(loops[r].bound for r in y) <= space.fanout_y
