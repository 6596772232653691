"""Tile sizes of one rank, and the values of every variable for each of them: the columns of the boundary matrix."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from stitchloop.fused.monomials import Extent

Tiles: TypeAlias = "list[tuple[np.ndarray, np.ndarray]]"


class Passes(NamedTuple):
    """Passes over a rank that ``lanes`` array lanes take side by side, summed over the tiles that an Einsum runs through.

    ``rank`` -1 stands for whole ranks alone. ``scale`` points of whole ranks come with each point of the rank. ``lanes`` of
    several numbers nest. The tiles hold ``stride*(G-1) + window`` points; ``own``: the Einsum's own loop cuts its range in
    such steps; ``keeps``: tiles after the first hold only what is new. ``exact`` admits only lane counts that divide the
    tile.
    """

    rank: int
    lanes: tuple[int, ...]
    scale: int = 1
    stride: int = 1
    window: int = 1
    own: bool = False
    keeps: bool = False
    exact: bool = False


Variable: TypeAlias = Extent | Passes


class Axis:
    """Candidate tile sizes of one rank.

    Attributes
    ----------
    rank, size : int
    tiles, trips : ndarray of int64
        Tile extent ``G``, ascending, and trip count ``D``.
    """

    def __init__(self, rank: int, size: int, tiles: np.ndarray) -> None:
        self.rank, self.size = rank, size
        self.tiles = np.asarray(tiles, dtype=np.int64)
        self.trips = -(-size // self.tiles)

    def __len__(self) -> int:
        return len(self.tiles)

    def values(self, variable: Variable) -> np.ndarray:
        """Exact values of a variable for every tile size."""
        if isinstance(variable, Passes):
            return sum(
                (count * passes(sizes, variable) for sizes, count in self._tile_kinds(variable)), np.zeros_like(self.tiles)
            )
        value = variable.tile * self.tiles + variable.full * self.size + variable.trips * self.trips + variable.constant
        if variable.own:
            reach = variable.stride * (self.size - 1) + variable.window
            value = value + variable.own * -(-reach // (variable.stride * (self.tiles - 1) + variable.window))
        return value

    def _tile_kinds(self, v: Passes) -> Tiles:
        """Sizes and numbers of the tiles that an Einsum runs through."""
        a, b = v.stride, v.window - v.stride
        if v.own:
            reach, step = a * self.size + b, a * self.tiles + b
            trips = -(-reach // step)
            return [(step, trips - 1), (reach - (trips - 1) * step, np.ones_like(step))]
        one = np.ones_like(self.tiles)
        rest = self.size - (self.trips - 1) * self.tiles
        if not v.keeps or b <= 0:
            return [(a * self.tiles + b, self.trips - 1), (a * rest + b, one)]
        several = (self.trips > 1).astype(np.int64)
        first = np.where(self.trips > 1, self.tiles, rest)
        return [(a * first + b, one), (a * self.tiles, np.maximum(self.trips - 2, 0)), (a * rest, several)]

    def pick(self, index: np.ndarray) -> Axis:
        return Axis(self.rank, self.size, self.tiles[index])


def passes(points: np.ndarray, variable: Passes) -> np.ndarray:
    """Passes over ``points * scale`` points."""
    if not variable.exact:
        lanes = int(np.prod(variable.lanes))
        return -(-points * variable.scale // lanes)
    distinct, inverse = np.unique(points, return_inverse=True)
    counts = [int(p) * variable.scale // lanes_used(int(p) * variable.scale, variable.lanes) for p in distinct]
    return np.array(counts, dtype=np.int64)[inverse]


@lru_cache(maxsize=1 << 14)
def lanes_used(points: int, lanes: tuple[int, ...]) -> int:
    """The largest product of nested factors, each within its lanes, that divides ``points``."""
    if not lanes or points == 0:
        return 1
    return max(d * lanes_used(points // d, lanes[1:]) for d in divisors(points) if d <= lanes[0])


@lru_cache(maxsize=1 << 12)
def divisors(number: int) -> tuple[int, ...]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)})) if number else ()


def perfect_axis(rank: int, size: int) -> Axis:
    """All divisors of the size."""
    return Axis(rank, size, np.array(divisors(size)))


def imperfect_axis(rank: int, size: int, variables: Iterable[Variable]) -> Axis:
    """The tile sizes that can be of use: no smaller one has as few trips and as few of everything that ``variables`` count.

    The smallest tile of each trip count is among them (about ``2*sqrt(size)``); others join where array lanes divide them better.
    """
    axis = Axis(rank, size, _within_classes(rank, size))
    # Variables that grow with the tile are smallest at the class's smallest tile; only falling ones can favour a larger one.
    useful = np.zeros(len(axis), dtype=bool)
    ceiling = 1 << 40
    useful[_first_of_each(axis.trips)] = True
    for variable in variables:
        if isinstance(variable, Extent) and not variable.own:
            continue
        key = axis.values(variable) + ceiling * axis.trips
        lowest = np.minimum.accumulate(key)
        useful[1:] |= key[1:] < lowest[:-1]
    return axis.pick(np.flatnonzero(useful))


def _within_classes(rank: int, size: int) -> np.ndarray:
    return np.arange(1, size + 1, dtype=np.int64)


def _first_of_each(trips: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.concatenate(([True], trips[1:] != trips[:-1])))
