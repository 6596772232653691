"""Vectors of spatial factors: every way to use the fan-outs that makes a difference to the counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from stitchloop.mapping import Loop
from stitchloop.mapspace.factors import divisors
from stitchloop.mapspace.orders import SpatialSpace
from stitchloop.mapspace.space import Mapspace

ROWS = 20_000
"""Choices that are gathered before they are packed."""

Bounds = tuple[int, ...]
"""One bound per rank of the Einsum."""


@dataclass(frozen=True)
class SpatialChoice:
    """Spatial bounds of every level, ``bounds[level][rank]``."""

    bounds: tuple[Bounds, ...]

    @property
    def used(self) -> int:
        """Compute units in use."""
        return prod(prod(level) for level in self.bounds)


def level_bounds(space: SpatialSpace, sizes: tuple[int, ...]) -> list[Bounds]:
    """Every vector of bounds that one fan-out admits: within its constraints, its instances, and X and Y."""
    most = space.fanout if space.max_used is None else min(space.fanout, space.max_used)
    found: list[Bounds] = []

    def extend(chosen: tuple[int, ...], used: int) -> None:
        rank = len(chosen)
        if rank == len(sizes):
            if used >= space.min_used and _fits(space, chosen):
                found.append(chosen)
            return
        limits = space.factors[space.ranks[rank]]
        for bound in divisors(sizes[rank]):
            if used * bound > most:
                break
            if limits.admits(bound):
                extend((*chosen, bound), used * bound)

    extend((), 1)
    return found


def _fits(space: SpatialSpace, bounds: Bounds) -> bool:
    looped = {rank: bound for rank, bound in zip(space.ranks, bounds) if bound > 1}
    return any(True for _ in space.partitions(looped))


def lay_out(space: SpatialSpace, bounds: Bounds) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """(loops on X, loops on Y), innermost first, of one admissible layout of ``bounds``; always the same one."""
    looped = {rank: bound for rank, bound in zip(space.ranks, bounds) if bound > 1}
    for x, y in space.layouts(looped):
        if prod(looped[r] for r in x) <= space.fanout_x and prod(looped[r] for r in y) <= space.fanout_y:
            return tuple(Loop(r, looped[r]) for r in x), tuple(Loop(r, looped[r]) for r in y)
    raise ValueError(f"no layout of {looped} fits the fan-out {space.fanout_x} x {space.fanout_y}")


def stages(space: Mapspace) -> list[list[int]]:
    """Levels with spatial loops, in groups between which nothing is kept and nothing is looped over in time.

    Only the product of the bounds of such a group matters to a tensor whose ranks stand alone in its index expressions.
    """
    groups: list[list[int]] = []
    previous = None
    for i, level in enumerate(space.levels):
        if level.spatial.fanout == 1:
            if previous is not None and _is_inert(space, i):
                continue
            previous = None
            continue
        if previous is not None and _is_inert(space, i - 1, but_for_spatial=True):
            groups[-1].append(i)
        else:
            groups.append([i])
        previous = i
    return groups


def _is_inert(space: Mapspace, index: int, but_for_spatial: bool = False) -> bool:
    level = space.levels[index]
    still = all(limits.high == 1 for limits in level.temporal.factors.values())
    return still and not level.tensors.keep and not level.tensors.free and (but_for_spatial or level.spatial.fanout == 1)


def spatial_choices(space: Mapspace) -> Iterator[SpatialChoice]:
    """Every choice of spatial bounds, one of each set of choices with equal counts, in a fixed order."""
    sizes = space.einsum.rank_sizes
    together = _summed(space)
    options: list[list[tuple[Bounds, ...]]] = []
    groups = stages(space)
    for group in groups:
        seen: dict[object, tuple[Bounds, ...]] = {}
        for chosen in product(*(level_bounds(space.levels[i].spatial, sizes) for i in group)):
            merged = tuple(prod(bounds) for bounds in zip(*chosen))
            if any(size % bound for size, bound in zip(sizes, merged)):
                continue
            apart = tuple(
                (i, tuple(bounds[r] for r in ranks))
                for ranks in together
                for i, bounds in zip(group, chosen)
                if sum(bounds[r] > 1 for r in ranks) > 1
            )
            seen.setdefault((merged, apart), chosen)
        options.append(list(seen.values()))
    total = space.architecture.compute.instances
    idle = tuple(1 for _ in sizes)
    for picked in product(*options):
        merged = tuple(prod(bounds) for bounds in zip(*(bounds for chosen in picked for bounds in chosen))) or idle
        if any(size % bound for size, bound in zip(sizes, merged)):
            continue
        used = prod(merged)
        if not space.min_parallelism <= used / total <= max(space.max_parallelism, 1 / total):
            continue
        levels = [idle] * len(space.levels)
        for group, chosen in zip(groups, picked):
            for i, bounds in zip(group, chosen):
                levels[i] = bounds
        yield SpatialChoice(tuple(levels))


def spatial_table(space: Mapspace) -> np.ndarray[Any, Any]:
    """All choices as ``int32[choices, levels, ranks]``, those that use most compute units first."""
    shape = len(space.levels), len(space.einsum.ranks)
    parts, rows = [np.zeros((0, *shape), dtype=np.int32)], []
    for choice in spatial_choices(space):
        rows.append(choice.bounds)
        if len(rows) == ROWS:
            parts.append(np.array(rows, dtype=np.int32))
            rows = []
    if rows:
        parts.append(np.array(rows, dtype=np.int32))
    table = np.concatenate(parts)
    used = table.astype(np.int64).prod(axis=(1, 2))
    return table[np.argsort(-used, kind="stable")]


def _summed(space: Mapspace) -> list[tuple[int, ...]]:
    """Sets of ranks that one index expression of a tensor, or one tensor with a repeated rank, takes together."""
    einsum = space.einsum
    groups = set()
    for tensor in einsum.tensors:
        expressions = [frozenset(einsum.ranks.index(term.rank) for term in terms) for terms in tensor.projection]
        if sum(map(len, expressions)) > len(frozenset().union(*expressions)):
            groups.add(tuple(sorted(frozenset().union(*expressions))))
        groups |= {tuple(sorted(ranks)) for ranks in expressions if len(ranks) > 1}
    return sorted(groups)
