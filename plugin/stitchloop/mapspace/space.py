"""The mapspace of one Einsum on one architecture: every choice that constraints leave open, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, combinations

from stitchloop.architecture import Architecture, Level
from stitchloop.constraints import Constraints
from stitchloop.errors import Place
from stitchloop.mapping import Mapping
from stitchloop.mapspace.factors import FactorRange
from stitchloop.mapspace.orders import LoopSpace, SpatialSpace
from stitchloop.workload import Einsum


@dataclass(frozen=True)
class KeepSpace:
    """Which tensors one level keeps: ``keep`` always, ``bypass`` never, ``free`` either way."""

    keep: frozenset[str] = frozenset()
    bypass: frozenset[str] = frozenset()
    free: tuple[str, ...] = ()

    def sets(self) -> Iterator[frozenset[str]]:
        """Every set of kept tensors."""
        some = chain.from_iterable(combinations(self.free, count) for count in range(len(self.free) + 1))
        return (self.keep | frozenset(chosen) for chosen in some)

    def admits(self, kept: frozenset[str]) -> bool:
        return self.keep <= kept <= self.keep | frozenset(self.free)


@dataclass(frozen=True)
class LevelSpace:
    """What one level may do. ``min_utilization`` is the least share of its capacity that kept tiles fill together."""

    temporal: LoopSpace
    spatial: SpatialSpace
    tensors: KeepSpace
    min_utilization: float = 0.0
    remove_sequential_factors: bool = False
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Mapspace:
    """All mappings of ``einsum`` on ``architecture`` that the constraints admit, valid on the hardware or not.

    As in Timeloop's mapper, a mapspace is the product of

    - *factorisations*: for each rank a bound in every slot (the spatial and the temporal loops of every level), whose
      product is the rank's size (``imperfect``: see :mod:`stitchloop.mapspace.factors`). Fan-out levels have no temporal
      loops; levels above a single child have no spatial ones.
    - *permutations* of the loops of each slot;
    - *spatial splits*: the first positions of a spatial permutation lie on X, the rest on Y, so that each rank lies
      wholly on X or wholly on Y of a fan-out;
    - *keep sets*: a tensor that is neither in ``keep`` nor in ``bypass`` of a storage level is tried both ways there.
      Only the outermost storage level keeps everything unless it is told to bypass; fan-outs keep nothing.

    Loops of bound 1 are dropped, so their order makes no difference. ``min_parallelism``/``max_parallelism`` bound the share
    of all compute units in use. Limits on products - parallelism, utilisation, the fan-outs themselves, sequential
    factors - narrow none of the choices above; :meth:`contains` checks them, and the reference model checks capacity.
    """

    einsum: Einsum
    architecture: Architecture
    levels: tuple[LevelSpace, ...]
    imperfect: bool = False
    min_parallelism: float = 0.0
    max_parallelism: float = 1.0
    constraints: Constraints | None = field(default=None, compare=False)

    @cached_property
    def slots(self) -> tuple[tuple[int, bool], ...]:
        """(level, is spatial), inner to outer, the spatial slot of a level before its temporal one."""
        return tuple((index, spatial) for index in range(len(self.levels)) for spatial in (True, False))

    def loops(self, slot: tuple[int, bool]) -> LoopSpace:
        """The loop space of a slot."""
        level = self.levels[slot[0]]
        return level.spatial if slot[1] else level.temporal

    def limits(self, rank: str) -> tuple[FactorRange, ...]:
        """The admissible bounds of a rank, one range per slot."""
        return tuple(self.loops(slot).factors[rank] for slot in self.slots)

    def named(self) -> Iterator[tuple[Level, LevelSpace]]:
        """Each architecture level with what it may do, inner to outer."""
        return zip(self.architecture.levels, self.levels, strict=True)

    @cached_property
    def size(self) -> int:
        """How many mappings the mapspace holds; see :func:`stitchloop.mapspace.count.count_mappings`."""
        from stitchloop.mapspace.count import count_mappings

        return count_mappings(self)

    def contains(self, mapping: Mapping) -> str | None:
        """None when all constraints and fan-outs admit the mapping, else the first violation as a sentence."""
        from stitchloop.mapspace.membership import violation

        return violation(self, mapping)

    def enumerate_mappings(self, fitting: bool = False) -> Iterator[Mapping]:
        """Every mapping, one after another; with ``fitting``, without those whose spatial loops exceed a fan-out."""
        from stitchloop.mapspace.enumeration import enumerate_mappings

        return enumerate_mappings(self, fitting)

    def sample_mappings(self, seed: int = 0) -> Iterator[Mapping]:
        """Endless random mappings of the mapspace, the same for the same seed."""
        from stitchloop.mapspace.sampling import sample_mappings

        return sample_mappings(self, seed)
