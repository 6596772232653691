"""Loops, strides and tiles of one mapping: section "Levels and loops" of the counting rules.

Ranks are numbered as the Einsum lists them. A displacement of a tile, one number per tensor rank, is packed into one
integer (see :class:`Form`), so that comparing two displacements is comparing two integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from stitchloop.mapping import Loop, Mapping
from stitchloop.workload import Einsum, Tensor

Extents = Sequence[int]
"""Length of a tile along each rank of the Einsum."""


class Trip(NamedTuple):
    """One loop of the nest; ``stride`` is the step along ``rank`` that one iteration makes."""

    rank: int
    bound: int
    stride: int


@dataclass(frozen=True)
class Form:
    """A tensor's projection in numbers.

    Attributes
    ----------
    terms : tuple of tuple of (int, int)
        Per tensor rank: (rank of the Einsum, coefficient).
    steps : tuple of tuple of (int, int)
        Per rank of the Einsum: (tensor rank, coefficient).
    packed : tuple of int
        Per rank of the Einsum: the displacement of a step of 1, packed. Tensor rank r counts in units of ``radix[r]``, wide
        enough that displacements of up to twice the tensor's extents stay apart; ``radix[-1]`` is above them all.
    """

    name: str
    is_output: bool
    terms: tuple[tuple[tuple[int, int], ...], ...]
    steps: tuple[tuple[tuple[int, int], ...], ...]
    packed: tuple[int, ...]
    radix: tuple[int, ...]

    @classmethod
    def of(cls, einsum: Einsum, tensor: Tensor) -> Form:
        """The form of ``tensor``; equal ranks in one sum are merged."""
        terms: list[tuple[tuple[int, int], ...]] = []
        for sum_of_terms in tensor.projection:
            merged: dict[int, int] = {}
            for term in sum_of_terms:
                index = einsum.ranks.index(term.rank)
                merged[index] = merged.get(index, 0) + term.coefficient
            terms.append(tuple((rank, coefficient) for rank, coefficient in merged.items() if coefficient))
        steps = tuple(
            tuple((r, c) for r, expression in enumerate(terms) for rank, c in expression if rank == index)
            for index in range(len(einsum.ranks))
        )
        radix = [1]
        for expression in terms:
            radix.append(radix[-1] * 4 * (1 + sum(abs(c) * (einsum.rank_sizes[rank] - 1) for rank, c in expression)))
        packed = tuple(sum(c * radix[r] for r, c in along) for along in steps)
        return cls(tensor.name, tensor.is_output, tuple(terms), steps, packed, tuple(radix))

    def lengths(self, extents: Extents) -> list[int]:
        """Length along each tensor rank of the box that a tile of the iteration space touches."""
        lengths = []
        for expression in self.terms:
            length = 1
            for rank, c in expression:
                length += (extents[rank] - 1) * (c if c > 0 else -c)
            lengths.append(length)
        return lengths

    def volume(self, extents: Extents) -> int:
        """Words of that box, dense also over the gaps of a stride."""
        return prod(self.lengths(extents))

    def unpack(self, displacement: int) -> list[int]:
        """The displacement along each tensor rank."""
        moves = []
        for unit in self.radix[-2::-1]:
            move = (displacement + unit // 2) // unit
            moves.append(move)
            displacement -= move * unit
        return moves[::-1]


@dataclass(frozen=True)
class Nest:
    """The loops of a mapping with their strides, and the tiles that they make, level by level, inner to outer."""

    temporal: tuple[tuple[Trip, ...], ...]
    spatial_x: tuple[tuple[Trip, ...], ...]
    spatial_y: tuple[tuple[Trip, ...], ...]
    spatial_tiles: tuple[tuple[int, ...], ...]
    """Extents over a level's spatial loops and everything inside, without its temporal loops."""
    tiles: tuple[tuple[int, ...], ...]
    """Extents over all loops of a level and everything inside."""

    @classmethod
    def of(cls, ranks: Sequence[str], sizes: Sequence[int], mapping: Mapping) -> Nest:
        """Lay out the loops of ``mapping``; ``KeyError`` when a loop runs over a rank that the Einsum has not.

        The loops of an imperfect mapping have to be :func:`~stitchloop.model.radix.effective`; tiles are then the largest.
        """
        index = {rank: k for k, rank in enumerate(ranks)}
        extents = [1] * len(index)

        def trips(loops: Iterable[Loop]) -> tuple[Trip, ...]:
            laid = []
            for loop in loops:
                rank = index[loop.rank]
                if loop.bound != 1:
                    laid.append(Trip(rank, loop.bound, extents[rank]))
                    extents[rank] *= loop.bound
            return tuple(laid)

        temporal, xs, ys, spatial_tiles, tiles = [], [], [], [], []
        for level in mapping.levels:
            xs.append(trips(level.spatial_x))
            ys.append(trips(level.spatial_y))
            spatial_tiles.append(tuple(map(min, extents, sizes)))
            temporal.append(trips(level.temporal))
            tiles.append(tuple(map(min, extents, sizes)))
        return cls(tuple(temporal), tuple(xs), tuple(ys), tuple(spatial_tiles), tuple(tiles))

    @cached_property
    def spatial(self) -> tuple[tuple[Trip, ...], ...]:
        """X before Y, as the tool numbers the elements."""
        return tuple(x + y for x, y in zip(self.spatial_x, self.spatial_y, strict=True))

    @cached_property
    def fanout(self) -> tuple[int, ...]:
        """Used children under one instance of each level."""
        return tuple(prod(trip.bound for trip in trips) for trips in self.spatial)

    @cached_property
    def used_x(self) -> tuple[int, ...]:
        """Columns in use at each level, and last, those of the compute units: see :attr:`instances`."""
        return _outside([prod(trip.bound for trip in trips) for trips in self.spatial_x])

    @cached_property
    def used_y(self) -> tuple[int, ...]:
        """Rows in use, as :attr:`used_x`."""
        return _outside([prod(trip.bound for trip in trips) for trips in self.spatial_y])

    @cached_property
    def instances(self) -> tuple[int, ...]:
        """Used instances: of the compute units first (index 0), then of level i at index i + 1."""
        return _outside(list(self.fanout))

    @cached_property
    def cycles(self) -> int:
        """Iterations of all temporal loops: cycles of the compute units."""
        return prod(trip.bound for trips in self.temporal for trip in trips)


def _outside(factors: list[int]) -> tuple[int, ...]:
    """Products of all factors at and outside each index, and 1 beyond the last."""
    products = [1]
    for factor in reversed(factors):
        products.append(products[-1] * factor)
    return tuple(reversed(products))
