"""The two sides of the matrix evaluator: templates (everything but the bounds) and tilings (the bounds).

A mapspace falls apart into *patterns*: which slots have a loop of bound > 1 over which rank. Within a pattern every template
meets every tiling, and every pair is one mapping (or several that differ in what no count sees: the order of spatial
loops, and of temporal ones that no tensor tells apart).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.mapspace.factors import factorizations
from stitchloop.mapspace.space import Mapspace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Columns = NDArray[np.int64]
    """Bounds, one row per slot and rank (slot-major), one column per tiling."""

Pattern = tuple[frozenset[str], ...]
"""The ranks that have a loop, slot by slot."""


@dataclass(frozen=True)
class Template:
    """One choice of everything but the bounds, for the tilings of one pattern.

    Attributes
    ----------
    orders : tuple of tuple of str
        Per level, the ranks of its temporal loops, innermost first.
    on_x, on_y : tuple of frozenset of str
        Per level, the ranks of its spatial loops along X and along Y.
    keeps : tuple of frozenset of str
        Per level, the tensors that it keeps.
    """

    orders: tuple[tuple[str, ...], ...]
    on_x: tuple[frozenset[str], ...]
    on_y: tuple[frozenset[str], ...]
    keeps: tuple[frozenset[str], ...]


def templates(mapspace: Mapspace, pattern: Pattern) -> list[Template]:
    """All templates of a pattern. Layouts that differ only in the order of spatial loops are one template."""
    orders, sides = [], []
    for index, level in enumerate(mapspace.levels):
        spatial, temporal = pattern[2 * index], pattern[2 * index + 1]
        orders.append(list(level.temporal.orders(temporal)))
        sides.append([(x, spatial - x) for x in level.spatial.x_sets(spatial)])
    keeps = [list(level.tensors.sets()) for level in mapspace.levels]
    return [
        Template(order, tuple(x for x, _ in side), tuple(y for _, y in side), kept)
        for order in product(*orders)
        if _follows(mapspace, order)
        for side in product(*sides)
        for kept in product(*keeps)
    ]


def _follows(mapspace: Mapspace, orders: tuple[tuple[str, ...], ...]) -> bool:
    """Whether the orders obey ``remove_sequential_factors``."""
    below: tuple[str, ...] = ()
    for level, order in zip(mapspace.levels, orders, strict=True):
        if level.remove_sequential_factors and order and below and below[-1] == order[0]:
            return False
        below = order or below
    return True


def tilings(mapspace: Mapspace, columns: int = 4096) -> Iterator[tuple[Pattern, Columns]]:
    """All tilings, pattern by pattern, at most ``columns`` at a time; perfect bounds only.

    Tilings whose spatial bounds exceed a fan-out, or miss a bound on parallelism, are left out.
    """
    import numpy as np

    ranks = mapspace.einsum.ranks
    by_rank = [_grouped(mapspace, rank) for rank in ranks]
    for looped in product(*(groups.items() for groups in by_rank)):
        pattern = tuple(
            frozenset(rank for rank, (mask, _) in zip(ranks, looped) if mask[slot]) for slot in range(len(mapspace.slots))
        )
        groups = [np.array(bounds, dtype=np.int64) for _, bounds in looped]
        count = prod(len(group) for group in groups)
        for first in range(0, count, columns):
            numbers = np.unravel_index(np.arange(first, min(first + columns, count)), [len(group) for group in groups])
            bounds = np.stack([group[number] for group, number in zip(groups, numbers)], axis=2)
            table = bounds.transpose(1, 2, 0).reshape(len(mapspace.slots) * len(ranks), -1)
            fitting = table[:, _parallel(mapspace, table)]
            if fitting.shape[1]:
                yield pattern, fitting


def _grouped(mapspace: Mapspace, rank: str) -> dict[tuple[bool, ...], list[tuple[int, ...]]]:
    """The rank's factorisations by which slots have a bound above 1."""
    groups: dict[tuple[bool, ...], list[tuple[int, ...]]] = {}
    for bounds in factorizations(mapspace.einsum.sizes[rank], mapspace.limits(rank)):
        groups.setdefault(tuple(bound > 1 for bound in bounds), []).append(bounds)
    return groups


def _parallel(mapspace: Mapspace, table: Columns) -> NDArray[np.bool_]:
    """Which columns use as many instances as the fan-outs have and the constraints ask for."""
    import numpy as np

    width = len(mapspace.einsum.ranks)
    right, used = np.ones(table.shape[1], dtype=bool), np.ones(table.shape[1], dtype=np.int64)
    for index, level in enumerate(mapspace.levels):
        here = table[2 * index * width : (2 * index + 1) * width].prod(axis=0)
        most = level.spatial.fanout if level.spatial.max_used is None else level.spatial.max_used
        right &= (here >= level.spatial.min_used) & (here <= most)
        used *= here
    total = mapspace.architecture.compute.instances
    share = used / total
    return right & (share >= mapspace.min_parallelism) & (share <= max(mapspace.max_parallelism, 1 / total))


def mapping_of(mapspace: Mapspace, template: Template, bounds: Columns) -> Mapping:
    """The mapping of a template and one tiling (a vector of bounds), with the first admissible order of spatial loops."""
    ranks = mapspace.einsum.ranks
    levels = []
    for index, level in enumerate(mapspace.levels):
        spatial, temporal = (
            {rank: Loop(rank, int(bounds[(2 * index + half) * len(ranks) + number])) for number, rank in enumerate(ranks)}
            for half in (0, 1)
        )
        x, y = next(
            (x, y)
            for x, y in level.spatial.layouts(template.on_x[index] | template.on_y[index])
            if frozenset(x) == template.on_x[index] and frozenset(y) == template.on_y[index]
        )
        levels.append(
            LevelMapping(
                tuple(temporal[rank] for rank in template.orders[index]),
                tuple(spatial[rank] for rank in x),
                tuple(spatial[rank] for rank in y),
                template.keeps[index],
            )
        )
    return Mapping(tuple(levels))


def split_mapping(mapspace: Mapspace, mapping: Mapping) -> tuple[Template, Columns]:
    """A perfect mapping as its template and its vector of bounds."""
    import numpy as np

    ranks = mapspace.einsum.ranks
    bounds = np.ones(len(mapspace.slots) * len(ranks), dtype=np.int64)
    for number, (index, spatial) in enumerate(mapspace.slots):
        level = mapping.levels[index]
        for loop in level.spatial if spatial else level.temporal:
            bounds[number * len(ranks) + ranks.index(loop.rank)] = loop.bound
    template = Template(
        tuple(tuple(loop.rank for loop in level.temporal) for level in mapping.levels),
        tuple(frozenset(loop.rank for loop in level.spatial_x) for level in mapping.levels),
        tuple(frozenset(loop.rank for loop in level.spatial_y) for level in mapping.levels),
        tuple(level.keep for level in mapping.levels),
    )
    return template, bounds
