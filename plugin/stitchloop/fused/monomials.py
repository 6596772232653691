"""Monomials over tile variables, and the order between them that holds for every tiling.

A tiling gives each rank its size ``X``, its tile extent ``G`` and its trip count ``D = ceil(X / G)``. Every variable is a
linear form of these (an :class:`Extent`), so that a halo such as ``G + R - 1`` is one more variable and never breaks the
product form. A metric is a sum of monomials; a monomial is a product of extents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple, TypeAlias


class Extent(NamedTuple):
    """``tile*G + full*X + trips*D + own*D' + constant`` of one rank.

    ``D'`` is the trip count of an Einsum that loops over its own, wider range ``R = stride*(X-1) + window`` in steps of
    ``stride*(G-1) + window`` words: ``D' = ceil(R / step) <= D``.
    """

    rank: int
    tile: int = 0
    full: int = 0
    trips: int = 0
    own: int = 0
    constant: int = 0
    stride: int = 0
    window: int = 0

    @property
    def in_steps(self) -> tuple[int, ...]:
        """Coefficients over variables that are free and not negative.

        With ``G = 1 + g``, ``D' = 1 + t``, ``D = D' + e`` and ``X = G + D - 1 + z`` (a size is at least its tile and one word
        for each further trip) the coefficients belong to ``1, g, t, e, z``.
        """
        x, d, o = self.full, self.trips, self.own
        return (self.tile + x + d + o + self.constant, self.tile + x, x + d + o, x + d, x)

    def at_most(self, other: Extent) -> bool:
        """Whether this extent is proved at most ``other`` for every tiling."""
        if self.own and other.own and (self.stride, self.window) != (other.stride, other.window):
            return False
        return all(a <= b for a, b in zip(self.in_steps, other.in_steps, strict=True))


def tile_extent(rank: int, stride: int = 1, window: int = 1) -> Extent:
    """``stride*(G-1) + window``: what one tile touches."""
    return Extent(rank, tile=stride, constant=window - stride)


def full_extent(rank: int, stride: int = 1, window: int = 1) -> Extent:
    """``stride*(X-1) + window``: what the whole rank touches."""
    return Extent(rank, full=stride, constant=window - stride)


def trip_count(rank: int) -> Extent:
    """``D``: trips of the rank's outermost loop."""
    return Extent(rank, trips=1)


Monomial: TypeAlias = tuple[tuple[Extent, int], ...]
"""Extents with their exponents, sorted; the empty tuple is 1."""

ONE: Monomial = ()


def product(extents: Iterable[Extent]) -> Monomial:
    """The monomial that multiplies the given extents."""
    return tuple(sorted(Counter(extents).items()))


def times(*monomials: Monomial) -> Monomial:
    """Product of monomials."""
    exponents: Counter[Extent] = Counter()
    for monomial in monomials:
        for extent, exponent in monomial:
            exponents[extent] += exponent
    return tuple(sorted(exponents.items()))


def ranks_of(monomial: Monomial) -> frozenset[int]:
    return frozenset(extent.rank for extent, _ in monomial)


@lru_cache(maxsize=1 << 16)
def at_most(small: Monomial, large: Monomial) -> bool:
    """Whether ``small <= large`` for every tiling: rank by rank, each extent of ``small`` below one of its own in ``large``.

    Extents are at least 1 for every tiling, so that what is left over in ``large`` only enlarges it.
    """
    return all(_part_at_most(_part(small, rank), _part(large, rank)) for rank in ranks_of(small))


def _part(monomial: Monomial, rank: int) -> tuple[Extent, ...]:
    return tuple(extent for extent, exponent in monomial if extent.rank == rank for _ in range(exponent))


def _part_at_most(small: tuple[Extent, ...], large: tuple[Extent, ...]) -> bool:
    if len(small) > len(large):
        return False
    return any(all(a.at_most(b) for a, b in zip(small, choice)) for choice in permutations(large, len(small)))
