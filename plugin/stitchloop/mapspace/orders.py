"""Orders of loops within one level: which permutations, and which layouts on X and Y, a mapspace holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from math import factorial, prod

from stitchloop.errors import Place
from stitchloop.mapspace.factors import FactorRange


@dataclass(frozen=True)
class LoopSpace:
    """The loops of one kind (temporal or spatial) at one level, innermost first.

    Attributes
    ----------
    ranks : tuple of str
        All ranks of the Einsum, in its order.
    factors : mapping of str to FactorRange
        Admissible bounds, for every rank.
    inner, free, outer : tuple of str
        A partition of the ranks: ``inner`` stand innermost in the order given, ``outer`` outermost in the order given,
        ``free`` between them in any order. Loops of bound 1 are dropped, so they never part two neighbours.
    canonical : bool
        The order of the free loops has no effect on any count (temporal loops of level 0 above a single compute unit),
        so mappings that differ in it only are one mapping: :meth:`orders` lists the Einsum's own order alone, while
        :meth:`admits_order` takes any.
    place : Place
        Where the permutation was given.
    """

    ranks: tuple[str, ...]
    factors: Mapping[str, FactorRange]
    inner: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    outer: tuple[str, ...] = ()
    canonical: bool = False
    place: Place = field(default=Place(), compare=False)

    def orders(self, looped: Iterable[str]) -> Iterator[tuple[str, ...]]:
        """Every order of the loops over the ranks ``looped`` (those of bound > 1)."""
        looped = frozenset(looped)
        inner = tuple(rank for rank in self.inner if rank in looped)
        outer = tuple(rank for rank in self.outer if rank in looped)
        free = tuple(rank for rank in self.free if rank in looped)
        for middle in (free,) if self.canonical else permutations(free):
            yield inner + middle + outer

    def count_orders(self, looped: Iterable[str]) -> int:
        """How many orders :meth:`orders` gives."""
        looped = frozenset(looped)
        return 1 if self.canonical else factorial(sum(rank in looped for rank in self.free))

    def admits_order(self, order: Sequence[str]) -> bool:
        """Whether loops may stand in this order, innermost first."""
        zone = dict.fromkeys(self.inner, 0) | dict.fromkeys(self.free, 1) | dict.fromkeys(self.outer, 2)
        zones = [zone[rank] for rank in order]
        listed = [rank for rank in order if zone[rank] == 0], [rank for rank in order if zone[rank] == 2]
        return (
            zones == sorted(zones)
            and listed[0] == [rank for rank in self.inner if rank in order]
            and listed[1] == [rank for rank in self.outer if rank in order]
        )


@dataclass(frozen=True)
class SpatialSpace(LoopSpace):
    """The spatial loops of one fan-out. X takes the first positions of the permutation, Y the others.

    Attributes
    ----------
    fanout_x, fanout_y : int
        Instances along X and along Y. They limit mappings as the hardware does, not the mapspace: a mapping that is
        too wide is in the mapspace and invalid.
    split : int or None
        Positions of the permutation, ranks of bound 1 included, that lie on X; None is free.
    min_used, max_used : int
        Least and greatest number of instances that spatial loops may use together (parallelism constraints).
    """

    fanout_x: int = 1
    fanout_y: int = 1
    split: int | None = None
    min_used: int = 1
    max_used: int | None = None

    @property
    def fanout(self) -> int:
        return self.fanout_x * self.fanout_y

    def layouts(self, looped: Iterable[str]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Every distinct pair (loops on X, loops on Y), innermost first, of the loops over ``looped``."""
        looped = frozenset(looped)
        if self.split is None:
            for order in self.orders(looped):
                for cut in range(len(order) + 1):
                    yield order[:cut], order[cut:]
            return
        inner, outer = self.fixed_sides(looped)
        free = tuple(rank for rank in self.free if rank in looped)
        for count in self.free_on_x(len(free)):
            for order in permutations(free):
                yield inner[0] + order[:count] + outer[0], inner[1] + order[count:] + outer[1]

    def count_layouts(self, looped: Iterable[str]) -> int:
        """How many layouts :meth:`layouts` gives."""
        looped = frozenset(looped)
        free = sum(rank in looped for rank in self.free)
        cuts = len(looped) + 1 if self.split is None else len(self.free_on_x(free))
        return factorial(free) * cuts

    def partitions(self, looped: Mapping[str, int]) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
        """Every (ranks on X, ranks on Y) of loops with the bounds ``looped`` that fits the fan-out."""
        ranks = frozenset(rank for rank, bound in looped.items() if bound > 1)
        for on_x in self.x_sets(ranks):
            on_y = ranks - on_x
            if prod(looped[r] for r in on_x) <= self.fanout_x and prod(looped[r] for r in on_y) <= self.fanout_y:
                yield on_x, on_y

    def fits(self, looped: Mapping[str, int]) -> bool:
        """Whether loops with the bounds ``looped`` fit the fan-out in some layout."""
        return any(True for _ in self.partitions(looped))

    def widened(self, looped: Mapping[str, int]) -> tuple[int, int]:
        """X and Y of the smallest fan-out that holds loops with the bounds ``looped``, no side narrower than this one's."""
        ranks = frozenset(rank for rank, bound in looped.items() if bound > 1)
        meshes = [
            (max(self.fanout_x, prod(looped[r] for r in on_x)), max(self.fanout_y, prod(looped[r] for r in ranks - on_x)))
            for on_x in self.x_sets(ranks)
        ]
        return min(meshes, key=lambda mesh: (mesh[0] * mesh[1], mesh))

    def admits_layout(self, x: Sequence[str], y: Sequence[str]) -> bool:
        """Whether loops may lie on X and on Y in these orders, innermost first."""
        if not self.admits_order(tuple(x) + tuple(y)):
            return False
        if self.split is None:
            return True
        looped = frozenset(x) | frozenset(y)
        inner, outer = self.fixed_sides(looped)
        on_x = frozenset(inner[0] + outer[0])
        free_x = [rank for rank in x if rank in self.free]
        free = [rank for rank in self.free if rank in looped]
        return frozenset(x) - frozenset(free_x) == on_x and len(free_x) in self.free_on_x(len(free))

    def x_sets(self, looped: frozenset[str]) -> Iterator[frozenset[str]]:
        """Every set of ranks that may lie on X while the others of ``looped`` lie on Y."""
        free = [rank for rank in self.free if rank in looped]
        if self.split is None:
            inner = [rank for rank in self.inner if rank in looped]
            outer = [rank for rank in self.outer if rank in looped]
            yield from (frozenset(inner[:cut]) for cut in range(len(inner)))
            for count in range(len(free) + 1):
                yield from (frozenset(inner) | frozenset(some) for some in combinations(free, count))
            yield from (frozenset(inner + free + outer[:cut]) for cut in range(1, len(outer) + 1))
            return
        inner_sides, outer_sides = self.fixed_sides(looped)
        for count in self.free_on_x(len(free)):
            yield from (frozenset(inner_sides[0] + outer_sides[0] + some) for some in combinations(free, count))

    def fixed_sides(
        self, looped: frozenset[str]
    ) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], tuple[tuple[str, ...], tuple[str, ...]]]:
        """The looped ranks of ``inner`` and of ``outer``, each as (on X, on Y), for the given split."""
        assert self.split is not None
        cut = self.split - len(self.inner) - len(self.free)
        inner = self.inner[: self.split], self.inner[self.split :]
        outer = self.outer[: max(0, cut)], self.outer[max(0, cut) :]
        kept = tuple(tuple(tuple(rank for rank in side if rank in looped) for side in pair) for pair in (inner, outer))
        return (kept[0][0], kept[0][1]), (kept[1][0], kept[1][1])

    def free_on_x(self, looped: int) -> range:
        """How many of ``looped`` free loops may lie on X: the split's positions are filled with idle ranks where needed."""
        assert self.split is not None
        on_x = min(max(self.split - len(self.inner), 0), len(self.free))
        idle = len(self.free) - looped
        return range(max(0, on_x - idle), min(on_x, looped) + 1)
