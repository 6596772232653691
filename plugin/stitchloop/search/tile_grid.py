"""Largest tiles that fit a level, when extents need not divide rank sizes, and how densely tensors are moved in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stitchloop.workload import Einsum, Tensor

CELLS = 150_000
"""Most cells of a grid of extents."""

ROWS = 4096
"""Rows above which those that no price can prefer are looked for by hulls."""


@dataclass(frozen=True)
class Shape:
    """A tensor's index expressions over ranks longer than 1, coefficients without sign.

    Attributes
    ----------
    is_plain : bool
        No expression sums ranks, and no rank occurs twice.
    is_bounded : bool
        Expressions sum at most two ranks, and no rank occurs twice; of other tensors only touched words are counted.
    """

    is_output: bool
    expressions: tuple[tuple[tuple[int, int], ...], ...]
    relevant: frozenset[int]
    is_plain: bool
    is_bounded: bool

    @classmethod
    def of(cls, einsum: Einsum, tensor: Tensor) -> Shape:
        expressions, seen = [], []
        for terms in tensor.projection:
            merged: dict[int, int] = {}
            for term in terms:
                if einsum.sizes[term.rank] > 1:
                    rank = einsum.ranks.index(term.rank)
                    merged[rank] = merged.get(rank, 0) + term.coefficient
            expressions.append(tuple((rank, abs(c)) for rank, c in merged.items() if c))
            seen += [rank for rank, c in merged.items() if c]
        longest = max(map(len, expressions), default=0)
        alone = len(seen) == len(set(seen))
        return cls(tensor.is_output, tuple(expressions), frozenset(seen), alone and longest <= 1, alone and longest <= 2)

    @property
    def sums(self) -> list[tuple[tuple[int, int], ...]]:
        """The expressions of several ranks."""
        return [expression for expression in self.expressions if len(expression) > 1]

    def volume(self, extents: Any) -> Any:
        """Words of the boxes of tiles with ``extents[*, ranks]``."""
        words = np.ones(len(extents))
        for expression in self.expressions:
            words = words * _length(expression, extents)
        return words

    def density(self, extents: Any, sizes: Any, still: frozenset[int] = frozenset()) -> Any:
        """Words moved per point and pass over the ranks that the tensor has, for tiles of at most these extents, at least.

        A tile can slide along, and rest after, ranks only that are longer than it and have temporal loops: not ``still``.
        """
        if not self.is_bounded:
            return np.zeros(len(extents))
        sums = self.sums
        if not sums:
            return np.ones(len(extents))
        moving = [[(extents[:, rank] < sizes[rank]) & (rank not in still) for rank, _ in expression] for expression in sums]
        whole = [_least(expression, extents, None) for expression in sums]
        anew = [_least(expression, extents, own) for expression, own in zip(sums, moving)]
        least = np.full(len(extents), np.inf)
        for x in range(len(sums)):
            part = anew[x]
            for y in range(len(sums)):
                part = part * whole[y] if y != x else part
            least = np.minimum(least, part)
        rests = np.any([np.all(own, axis=0) for own in moving], axis=0)
        return np.where(rests, 0.5, 1.0) * least


def _length(expression: tuple[tuple[int, int], ...], extents: Any) -> Any:
    return 1.0 + sum((c * (extents[:, rank] - 1.0) for rank, c in expression), np.zeros(len(extents)))


def _least(expression: tuple[tuple[int, int], ...], extents: Any, moving: Any) -> Any:
    """The least words per point over all smaller tiles: all of a tile, or what a slide along a moving rank brings.

    Both are monotone in each extent.
    """
    (a, by_a), (b, by_b) = expression
    least = np.full(len(extents), np.inf)
    for own_a in (np.ones(len(extents)), extents[:, a].astype(float)):
        for own_b in (np.ones(len(extents)), extents[:, b].astype(float)):
            words = 1.0 + by_a * (own_a - 1.0) + by_b * (own_b - 1.0)
            if moving is not None:
                words = np.minimum(words, np.where(moving[0], by_a * own_a, np.inf))
                words = np.minimum(words, np.where(moving[1], by_b * own_b, np.inf))
            least = np.minimum(least, words / (own_a * own_b))
    return least


def passes_of(size: Any, extents: Any) -> Any:
    """Tiles of these extents that cover a rank."""
    return -(-size // extents)


def largest_tiles(sizes: Any, shapes: list[Shape], capacity: int | None, least: Any, most: Any) -> Any:
    """``int64[*, ranks]``: extents such that every tile that fits is covered by one with no fewer words per pass.

    Extents of a rank fall into cells of equal passes, coarser ones where there would be too many. Every cell in which the
    smallest tile fits is covered by the largest extents of one of the cells returned.
    """
    if capacity is None or not shapes:
        return most[None, :].astype(np.int64)
    used = sorted({r for shape in shapes for r in shape.relevant})
    if not used:
        return most[None, :].astype(np.int64)
    edges = [_edges(int(sizes[r]), int(least[r]), int(most[r])) for r in used]
    while np.prod([float(len(own)) for own in edges]) / max(map(len, edges)) > CELLS:
        longest = max(range(len(used)), key=lambda k: len(edges[k]))
        edges[longest] = edges[longest][::2]
    last = max(range(len(used)), key=lambda k: len(edges[k]))
    others = [k for k in range(len(used)) if k != last]
    grid = np.meshgrid(*(np.arange(len(edges[k])) for k in others), indexing="ij") if others else []
    cells = np.zeros((grid[0].size if others else 1, len(used)), dtype=np.int64)
    for k, numbers in zip(others, grid):
        cells[:, k] = numbers.ravel()

    def fits(numbers: Any) -> Any:
        extents = np.ones((len(numbers), len(sizes)), dtype=np.int64)
        for k, r in enumerate(used):
            extents[:, r] = edges[k][numbers[:, k]]
        return sum(shape.volume(extents) for shape in shapes) <= capacity

    cells = cells[fits(cells)]
    step = 1 << max(0, len(edges[last]) - 1).bit_length()
    while step:
        trial = cells.copy()
        trial[:, last] += step
        inside = trial[:, last] < len(edges[last])
        trial[:, last] = np.minimum(trial[:, last], len(edges[last]) - 1)
        cells[:, last] = np.where(inside & fits(trial), trial[:, last], cells[:, last])
        step //= 2
    for k in others:
        trial = cells.copy()
        trial[:, k] = np.minimum(trial[:, k] + 1, len(edges[k]) - 1)
        cells = cells[(trial[:, k] == cells[:, k]) | ~fits(trial)]
    extents = np.repeat(most[None, :].astype(np.int64), len(cells), axis=0)
    for k, r in enumerate(used):
        ends = np.append(edges[k][1:] - 1, most[r])
        extents[:, r] = ends[cells[:, k]]
    return extents


def _edges(size: int, least: int, most: int) -> Any:
    """The smallest extents of each number of passes, from ``least`` on, ascending."""
    found, extent = [], least
    while extent <= most:
        found.append(extent)
        passes = -(-size // extent)
        extent = (size - 1) // (passes - 1) + 1 if passes > 1 else most + 1
    return np.array(found, dtype=np.int64)


def hull(rows: Any) -> Any:
    """Indices of rows among which the least is found for all non-negative weights."""
    moving = [c for c in range(rows.shape[1]) if (rows[:, c] != rows[0, c]).any()]
    if not moving:
        return np.zeros(1, dtype=np.int64)
    if len(moving) == 1:
        return rows[:, moving[0]].argmin()[None]
    if len(moving) == 2:
        return _lower_chain(rows[:, moving[0]], rows[:, moving[1]])
    _, first = np.unique(rows, axis=0, return_index=True)
    order = first[np.argsort(rows[first].sum(axis=1), kind="stable")]
    if len(order) > ROWS:
        return order
    own, best = rows[order], np.ones(len(order), dtype=np.bool_)
    for i in range(len(own)):
        if best[i]:
            worse = (own >= own[i]).all(axis=1)
            worse[i] = False
            best &= ~worse
    return order[best]


def _lower_chain(xs: Any, ys: Any) -> Any:
    """Indices of the lower left part of the convex hull of points."""
    chain: list[int] = []
    for i in np.lexsort((ys, xs)):
        if chain and ys[i] >= ys[chain[-1]]:
            continue
        while len(chain) > 1:
            a, b = chain[-2], chain[-1]
            if (xs[b] - xs[a]) * (ys[i] - ys[a]) - (ys[b] - ys[a]) * (xs[i] - xs[a]) > 0:
                break
            chain.pop()
        chain.append(int(i))
    return np.array(chain)
