"""Finite sets of integers as sorted, disjoint, non-touching intervals ``((start, stop), ...)``.

A dense tile is one interval; the image of a tile under a stride that leaves gaps is several. All operations are exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Points: TypeAlias = tuple[tuple[int, int], ...]

EMPTY: Points = ()
ORIGIN: Points = ((0, 1),)

MOST_PIECES = 200_000
"""Intervals of a set, or different iterations of a loop, that are looked at one by one."""


class NotSeparable(Exception):
    """The counts of a tree are no products over axes, or have too many parts; it must be stepped through."""


def check_pieces(count: int) -> None:
    """Raises :class:`NotSeparable` where ``count`` things would have to be looked at one by one."""
    if count > MOST_PIECES:
        raise NotSeparable(f"{count} parts along one dimension")


def interval(size: int) -> Points:
    """``[0, size)``."""
    return ((0, size),) if size > 0 else EMPTY


def normalized(intervals: Iterable[tuple[int, int]]) -> Points:
    """The union of intervals in any order, which may overlap or touch."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(intervals):
        if start >= stop:
            continue
        if merged and start <= merged[-1][1]:
            if stop > merged[-1][1]:
                merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return tuple(merged)


def size(points: Points) -> int:
    return sum(stop - start for start, stop in points)


def shifted(points: Points, by: int) -> Points:
    return points if by == 0 else tuple((start + by, stop + by) for start, stop in points)


def union(one: Points, other: Points) -> Points:
    if not one or one == other:
        return other
    return normalized((*one, *other)) if other else one


def intersection(one: Points, other: Points) -> Points:
    if one == other:
        return one
    common, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        start, stop = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < stop:
            common.append((start, stop))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(common)


def difference(one: Points, other: Points) -> Points:
    """What is in ``one`` and not in ``other``."""
    if not other or not one:
        return one
    rest, j = [], 0
    for start, stop in one:
        while j < len(other) and other[j][1] <= start:
            j += 1
        at = j
        while at < len(other) and other[at][0] < stop:
            if other[at][0] > start:
                rest.append((start, other[at][0]))
            start = max(start, other[at][1])
            at += 1
        if start < stop:
            rest.append((start, stop))
    return tuple(rest)


def repeated(points: Points, step: int, count: int) -> Points:
    """The union of ``count`` copies, each ``step`` further than the last."""
    if count <= 1 or step == 0 or not points:
        return points
    span = abs(step)
    if all(stop - start >= span for start, stop in points):
        low, high = min(0, step * (count - 1)), max(0, step * (count - 1))
        return normalized((start + low, stop + high) for start, stop in points)
    check_pieces(count * len(points))
    return normalized((start + i * step, stop + i * step) for i in range(count) for start, stop in points)


def weighted_sum(terms: Iterable[tuple[int, Points]]) -> Points:
    """``{c1*x1 + c2*x2 + ... : xi in the i-th set}`` for ``(ci, i-th set)``; ``{0}`` for no term."""
    total = ORIGIN
    for coefficient, points in sorted(terms, key=lambda term: abs(term[0])):
        pieces: list[tuple[int, int]] = []
        for start, stop in points:
            pieces += shifted(repeated(total, coefficient, stop - start), coefficient * start)
        total = normalized(pieces)
    return total
