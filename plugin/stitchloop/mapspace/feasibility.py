"""Which tiles can be reached at every level: decides whether any mapping is valid, without listing mappings.

Validity does not depend on the order of loops, so it is decided on tiles: a state is the tile that one instance of a level
holds, its length along each rank. Walking inner to outer, the spatial loops of a level, its temporal loops and its capacity
are one *step* each. A table over all states says which can be reached from inside under the steps so far (forward), or can
be completed to the whole Einsum by the steps outside (backward). One step relaxed, the others as they are, is a meeting of
a forward with a backward table; so a single pass each way answers for all steps.

With imperfect bounds a state is what is left to cover; the tile is taken as the smallest that leaves it, and spatial bounds as
the smallest with their effect: what is found impossible is impossible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from math import prod
from typing import TYPE_CHECKING, Any

from stitchloop.mapspace.count import left_states
from stitchloop.mapspace.factors import FactorRange, bounds_of, covered, divisors
from stitchloop.mapspace.space import Mapspace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Table = NDArray[np.integer[Any]]
    """Per state: 0 when it is out of reach; else the most compute units that a way to it keeps in use, or 1 where the
    machine's parallelism has no lower bound."""


@dataclass(frozen=True)
class Step:
    """One step of the walk: ``kind`` is ``spatial``, ``temporal`` or ``capacity``."""

    kind: str
    index: int


class Axis:
    """The states of one rank, innermost (nothing looped over yet) first."""

    def __init__(self, size: int, imperfect: bool) -> None:
        self.size, self.imperfect = size, imperfect
        lefts = sorted(left_states(size, True), reverse=True) if imperfect else [size // d for d in divisors(size)]
        self.extents = [covered(size, left) for left in lefts]
        self._index = {left: number for number, left in enumerate(lefts)}
        self._lefts = lefts

    def __len__(self) -> int:
        return len(self._lefts)

    def moves(self, bound: int) -> list[tuple[int, int]]:
        """Pairs of states before and after a loop of ``bound``."""
        return [
            (number, self._index[covered(left, bound)])
            for number, left in enumerate(self._lefts)
            if bound <= left and (self.imperfect or left % bound == 0)
        ]

    def bounds(self, limits: FactorRange) -> list[int]:
        """The bounds worth trying within limits."""
        if not self.imperfect:
            return list(bounds_of(self.size, limits, False))
        by_effect = {covered(self.size, bound): bound for bound in reversed(range(limits.low, (limits.high or self.size) + 1))}
        return sorted(bound for bound in by_effect.values() if bound <= self.size)


class Walk:
    """The tables of one mapspace."""

    def __init__(self, mapspace: Mapspace) -> None:
        self.mapspace = mapspace
        self.ranks = mapspace.einsum.ranks
        self.axes = [Axis(size, mapspace.imperfect) for size in mapspace.einsum.rank_sizes]
        self.counts_units = mapspace.min_parallelism > 0
        kinds = ("spatial", "temporal", "capacity")
        self.steps = [Step(kind, index) for index in range(len(mapspace.levels)) for kind in kinds]

    @cached_property
    def forward(self) -> list[Table]:
        """Before each step, and last after all of them: what the steps inside reach."""
        return self._pass(back=False, relaxed=False)

    @cached_property
    def backward(self) -> list[Table]:
        """Before each step, and last after all of them: what the steps outside complete."""
        return self._pass(back=True, relaxed=False)

    @cached_property
    def unlimited(self) -> list[Table]:
        """As :attr:`forward`, when neither the hardware nor bounds on products set limits inside."""
        return self._pass(back=False, relaxed=True)

    @cached_property
    def lifted(self) -> list[Table]:
        """As :attr:`backward`, when neither the hardware nor bounds on products set limits outside."""
        return self._pass(back=True, relaxed=True)

    @property
    def states(self) -> int:
        """How many tiles the tables hold."""
        return prod(len(axis) for axis in self.axes)

    @property
    def most_used(self) -> int:
        """Compute units that mappings keep in use at most; 0 when there are none."""
        return int(self.forward[-1][(-1,) * len(self.axes)])

    def _pass(self, back: bool, relaxed: bool) -> list[Table]:
        tables = [self._corner(-1 if back else 0)]
        for step in reversed(self.steps) if back else self.steps:
            tables.append(self.take(step, tables[-1], back, relaxed))
        return tables[::-1] if back else tables

    @cached_property
    def least_used(self) -> int:
        """Compute units that the machine's least parallelism asks for."""
        total = self.mapspace.architecture.compute.instances
        return next((used for used in range(1, total + 1) if used / total >= self.mapspace.min_parallelism), total)

    @property
    def is_feasible(self) -> bool:
        """Whether a tiling, a keep set and a layout satisfy all limits."""
        return self.most_used >= self.least_used

    def take(self, step: Step, table: Table, back: bool = False, relaxed: bool = False) -> Table:
        """The table on the other side of a step; relaxed, it says only what is in reach."""
        space = self.mapspace.levels[step.index]
        if step.kind == "capacity":
            return table if relaxed else table * self.fitting(step.index)
        if step.kind == "temporal" or relaxed:
            limits = (space.spatial if step.kind == "spatial" else space.temporal).factors
            for axis, rank in enumerate(self.ranks):
                table = self._step_along(table, axis, self.axes[axis].bounds(limits[rank]), back)
            return table
        import numpy as np

        reached, most = np.zeros_like(table), min(space.spatial.fanout, space.spatial.max_used or space.spatial.fanout)
        for bounds, moved in self.spatial_vectors(step.index, table, most, back):
            if prod(bounds.values()) >= space.spatial.min_used and space.spatial.fits(bounds):
                np.maximum(reached, moved * self.units(bounds), out=reached)
        return reached

    def units(self, bounds: dict[str, int]) -> int:
        """By what spatial bounds multiply the compute units in use, where they are counted."""
        return prod(bounds.values()) if self.counts_units else 1

    def spatial_vectors(self, index: int, table: Table, most: int, back: bool = False) -> Iterator[tuple[dict[str, int], Table]]:
        """Spatial bounds of one level, by rank, whose product is at most ``most``, each with the table that it leads to."""
        factors = self.mapspace.levels[index].spatial.factors

        def deeper(axis: int, bounds: dict[str, int], used: int, part: Table) -> Iterator[tuple[dict[str, int], Table]]:
            if axis == len(self.ranks):
                yield bounds, part
                return
            rank = self.ranks[axis]
            for bound in self.axes[axis].bounds(factors[rank]):
                if used * bound <= most:
                    moved = self._step_along(part, axis, [bound], back) if bound > 1 else part
                    if moved.any():
                        yield from deeper(axis + 1, {**bounds, rank: bound}, used * bound, moved)

        return deeper(0, {}, 1, table)

    def words(self, index: int, tensors: frozenset[str]) -> Table:
        """Per state, the words that tiles of ``tensors`` occupy together."""
        import numpy as np

        total = np.zeros([len(axis) for axis in self.axes], dtype=np.int64)
        for name in tensors:
            volume = np.ones_like(total)
            for terms in self.mapspace.einsum.tensor(name).projection:
                length = np.ones_like(total)
                for term in terms:
                    length += abs(term.coefficient) * (self._extents(self.ranks.index(term.rank)) - 1)
                volume *= length
            total += volume
        return total

    def fitting(self, index: int) -> NDArray[np.bool_]:
        """Per state, whether some keep set of the level fills at most its capacity and at least its least utilisation."""
        import numpy as np

        level, space = self.mapspace.architecture.levels[index], self.mapspace.levels[index]
        fits = np.zeros([len(axis) for axis in self.axes], dtype=bool)
        if level.capacity is None or level.is_fanout:
            return ~fits
        free = space.tensors.free
        if space.min_utilization == 0:
            free = ()
        for chosen in chain.from_iterable(combinations(free, count) for count in range(len(free) + 1)):
            words = self.words(index, space.tensors.keep | frozenset(chosen))
            fits |= (words <= level.capacity) & (words >= level.capacity * space.min_utilization)
        return fits

    def state(self, number: int) -> dict[str, int]:
        """The tile of a state by its flat number."""
        import numpy as np

        position = np.unravel_index(number, [len(axis) for axis in self.axes])
        return {rank: axis.extents[int(at)] for rank, axis, at in zip(self.ranks, self.axes, position)}

    def _extents(self, axis: int) -> Any:
        import numpy as np

        shape = [1] * len(self.axes)
        shape[axis] = -1
        return np.array(self.axes[axis].extents, dtype=np.int64).reshape(shape)

    def _corner(self, at: int) -> Table:
        import numpy as np

        kind: Any = np.int64 if self.counts_units else np.int8
        table: Table = np.zeros([len(axis) for axis in self.axes], dtype=kind)
        table[(at,) * len(self.axes)] = 1
        return table

    def _step_along(self, table: Table, axis: int, bounds: list[int], back: bool) -> Table:
        import numpy as np

        source = np.moveaxis(table, axis, 0)
        reached = np.zeros_like(table)
        target = np.moveaxis(reached, axis, 0)
        for bound in bounds:
            for before, after in self.axes[axis].moves(bound):
                start, end = (after, before) if back else (before, after)
                np.maximum(target[end], source[start], out=target[end])
        return reached
