"""Vectors of spatial factors: every way to use the fan-outs that makes a difference to the counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from stitchloop.mapping import Loop
from stitchloop.mapspace.factors import divisors
from stitchloop.mapspace.orders import SpatialSpace
from stitchloop.mapspace.space import Mapspace
from stitchloop.search.symmetry import first_of_equal, symmetries, without_twins

ROWS = 20_000
"""Choices that are made at a time."""

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


def level_bounds(space: SpatialSpace, sizes: tuple[int, ...]) -> Any:
    """Every vector of bounds that one fan-out admits, ``int64[*, ranks]``: within its constraints, its instances, and X and Y."""
    most = space.fanout if space.max_used is None else min(space.fanout, space.max_used)
    found: Any = np.ones((1, 0), dtype=np.int64)
    used: Any = np.ones(1, dtype=np.int64)
    for rank, size in zip(space.ranks, sizes):
        own = np.array([bound for bound in divisors(size) if space.factors[rank].admits(bound) and bound <= most], dtype=np.int64)
        grown = used[:, None] * own[None, :]
        row, column = np.nonzero(grown <= most)
        found, used = np.concatenate([found[row], own[column][:, None]], axis=1), grown[row, column]
    found = found[used >= space.min_used]
    return found[_fits(space, found)]


def _fits(space: SpatialSpace, vectors: Any) -> Any:
    """Which of ``vectors[*, ranks]`` fit on X and Y in some layout that the permutation and the split admit."""
    fits: Any = np.zeros(len(vectors), dtype=np.bool_)
    looped, member = np.unique(vectors > 1, axis=0, return_inverse=True)
    for i, ranks in enumerate(looped):
        those = np.nonzero(member.ravel() == i)[0]
        bounds = vectors[those]
        total = bounds.prod(axis=1)
        own: Any = np.zeros(len(those), dtype=np.bool_)
        for on_x in space.x_sets(frozenset(rank for rank, moves in zip(space.ranks, ranks) if moves)):
            x = bounds[:, [rank in on_x for rank in space.ranks]].prod(axis=1)
            own |= (x <= space.fanout_x) & (total // x <= space.fanout_y)
        fits[those] = own
    return fits


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


def _group_options(space: Mapspace, group: Sequence[int]) -> Any:
    """``int32[*, levels of the group, ranks]``: bounds of a group's levels, the first of each set with equal counts.

    Equal are those with equal products, but for several ranks of a sum that one level spreads together. Among them the one
    that spreads most at level 0 is first: only there do compute units pass on what they share, under the tool's full count.
    """
    sizes, together = np.array(space.einsum.rank_sizes, dtype=np.int64), _summed(space)
    options = np.ones((1, 0, len(sizes)), dtype=np.int32)
    for i in group:
        own = level_bounds(space.levels[i].spatial, space.einsum.rank_sizes).astype(np.int32)[:, None, :]
        before, after = np.repeat(options, len(own), axis=0), np.tile(own, (len(options), 1, 1))
        options = np.concatenate([before, after], axis=1)
        options = options[(sizes % options.astype(np.int64).prod(axis=1) == 0).all(axis=1)]
    if group[0] == 0:
        options = options[np.argsort(-options[:, 0].prod(axis=1), kind="stable")]
    keys = [options.prod(axis=1, dtype=np.int64)]
    for ranks in together:
        bounds = options[:, :, ranks]
        apart = np.where((bounds > 1).sum(axis=2, keepdims=True) > 1, bounds, 0)
        keys.append(apart.reshape(len(options), len(group) * len(ranks)))
    return options[first_of_equal(np.concatenate(keys, axis=1))]


def spatial_table(space: Mapspace) -> Any:
    """Every choice of spatial bounds as ``int32[choices, levels, ranks]``, those that use most compute units first.

    Of choices with equal counts there is one, and of those that a swap of ranks maps to each other the first: see
    :mod:`stitchloop.search.symmetry`.
    """
    sizes = np.array(space.einsum.rank_sizes, dtype=np.int64)
    total = space.architecture.compute.instances
    table = np.ones((1, len(space.levels), len(sizes)), dtype=np.int32)
    for group in stages(space):
        options = _group_options(space, group)
        parts = [table[:0]]
        for start in range(0, len(table), ROWS):
            rows = table[start : start + ROWS]
            for one in np.array_split(options, max(1, len(rows) * len(options) // ROWS)):
                merged = rows.astype(np.int64).prod(axis=1)[:, None] * one.astype(np.int64).prod(axis=1)[None, :]
                row, option = np.nonzero((sizes % merged == 0).all(axis=2))
                grown = rows[row]
                grown[:, group] = one[option]
                parts.append(grown)
        table = np.concatenate(parts)
    used = table.prod(axis=(1, 2), dtype=np.int64)
    share = used / total
    admitted = (space.min_parallelism <= share) & (share <= max(space.max_parallelism, 1 / total))
    table, used = table[admitted], used[admitted]
    return without_twins(table[np.argsort(-used, kind="stable")], symmetries(space))


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
