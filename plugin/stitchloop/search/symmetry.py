"""Ranks that may trade places: swaps that leave the Einsum and every constraint of a mapspace as they are.

A convolution over a square image is the same with its rows and columns swapped. Such a swap maps every mapping to one of
equal counts, so of spatial factors that it maps to each other one choice suffices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from stitchloop.mapspace.orders import LoopSpace, SpatialSpace
from stitchloop.mapspace.space import Mapspace

Swap = tuple[int, ...]
"""``swap[r]`` is the rank that takes the place of rank r."""

TRIED = 10_000
"""Swaps that are looked at; ten ranks of one size have 9,496."""


def symmetries(space: Mapspace) -> list[Swap]:
    """Swaps of ranks, several pairs at once included, that the mapspace cannot tell from no swap at all.

    All of them but for Einsums of more than ten ranks of one size: to leave some out costs time, and no mapping.
    """
    ranks, sizes = space.einsum.ranks, space.einsum.rank_sizes
    identity = tuple(range(len(ranks)))
    return [swap for swap in islice(_swaps(sizes, identity, 0), TRIED) if swap != identity and _keeps(space, swap)]


def _swaps(sizes: tuple[int, ...], swap: Swap, start: int) -> Iterator[Swap]:
    """Swaps of pairs of ranks of equal size above 1, the first of each pair from ``start`` on."""
    yield swap
    for a in range(start, len(sizes)):
        for b in range(a + 1, len(sizes)):
            if sizes[a] == sizes[b] > 1 and swap[a] == a and swap[b] == b:
                changed = list(swap)
                changed[a], changed[b] = b, a
                yield from _swaps(sizes, tuple(changed), a + 1)


def _keeps(space: Mapspace, swap: Swap) -> bool:
    einsum = space.einsum
    name = {rank: einsum.ranks[other] for rank, other in zip(einsum.ranks, swap)}
    for tensor in einsum.tensors:
        own = sorted(sorted((term.rank, term.coefficient) for term in terms) for terms in tensor.projection)
        swapped = sorted(sorted((name[rank], coefficient) for rank, coefficient in terms) for terms in own)
        if own != swapped:
            return False
    return all(_same_loops(level.temporal, name) and _same_loops(level.spatial, name) for level in space.levels)


def _same_loops(loops: LoopSpace, name: dict[str, str]) -> bool:
    """Whether bounds and order of the loops stay the same when ranks are renamed."""
    if any(loops.factors[rank] != loops.factors[other] for rank, other in name.items()):
        return False
    idle_matters = isinstance(loops, SpatialSpace) and loops.split is not None
    moving = {rank for rank in loops.ranks if idle_matters or loops.factors[rank].high != 1}
    listed = [rank for rank in (*loops.inner, *loops.outer) if rank in moving]
    return all(name[rank] == rank for rank in listed)


def without_twins(table: Any, swaps: list[Swap]) -> Any:
    """Rows of ``table[choices, levels, ranks]`` but for those that a swap maps to an earlier row."""
    for swap in swaps:
        columns = (
            np.concatenate([table[:, i, r], table[:, i, other]]) for i in range(table.shape[1]) for r, other in enumerate(swap)
        )
        values, number = np.unique(numbered(columns, 2 * len(table)), return_inverse=True)
        at = np.full(len(values), len(table))
        at[number[: len(table)]] = np.arange(len(table))
        table = table[at[number[len(table) :]] >= np.arange(len(table))]
    return table


def same_rows(rows: Any) -> Any:
    """``int64[*]``: a number for every row of non-negative ``rows[*, columns]``, the same for equal rows."""
    return numbered(rows.T, len(rows))


def numbered(columns: Iterable[Any], count: int) -> Any:
    """:func:`same_rows` for ``count`` rows that are given column by column."""
    number: Any = np.zeros(count, dtype=np.int64)
    most = 1
    for column in columns:
        span = int(column.max(initial=0)) + 1
        if most * span >= 2**62:
            number = np.unique(number, return_inverse=True)[1]
            most = count
        if most * span >= 2**62:
            column = np.unique(column, return_inverse=True)[1]
            span = count
        number = number * span + column
        most *= span
    return number


def first_of_equal(rows: Any) -> Any:
    """Indices of the first of each set of equal rows, ascending."""
    return np.sort(np.unique(same_rows(rows), return_index=True)[1])
