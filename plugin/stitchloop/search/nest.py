"""What a search holds while it runs: the incumbent, and how it becomes a mapping."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.mapspace.space import Mapspace
from stitchloop.search.spatial import SpatialChoice, lay_out

KeepSets = tuple[frozenset[str], ...]

FIRST, LAST = -1, 1 << 62
"""Numbers before and after those of all nests."""


@dataclass
class Incumbent:
    """The best nest so far: goals, number (equal goals are decided by it), and how to build the mapping."""

    goals: Any
    index: int = LAST
    keeps: KeepSets = ()
    choice: SpatialChoice | None = None
    loops: Any = None

    @property
    def exists(self) -> bool:
        return self.choice is not None

    def precedes(self, goals: Any, index: int) -> bool:
        """Whether it comes before a mapping with these goals and number; of equal ones the first."""
        mine, other = tuple(self.goals), tuple(goals)
        return mine < other or (mine == other and self.index < index)

    def could_yield_to(self, bounds: Any, index: int) -> bool:
        """Whether a mapping with goals no lower than ``bounds`` might come before it."""
        return not self.precedes(bounds, index)


def keep_sets(space: Mapspace) -> Iterator[KeepSets]:
    """Every combination of keep sets that keeps each tensor somewhere, and something where a least utilization is asked."""
    names = [tensor.name for tensor in space.einsum.tensors]
    options = []
    for level, own in space.named():
        filled = level.capacity is not None and level.capacity * max(level.min_utilization, own.min_utilization) > 0
        options.append([keep for keep in own.tensors.sets() if keep or not filled])
    for chosen in product(*options):
        if all(any(name in keep for keep in chosen) for name in names):
            yield chosen


def build_mapping(space: Mapspace, nest: Incumbent) -> Mapping:
    """The mapping of a nest: loops of one rank at one level are merged at the innermost of them.

    Where all tensors were paid before a level the search took its ranks in no particular order; they are put into the
    order that the permutation asks for, which costs nothing.
    """
    assert nest.choice is not None
    ranks = space.einsum.ranks
    levels = []
    for i, level in enumerate(space.levels):
        bounds: dict[int, int] = {}
        for at, rank, bound in nest.loops:
            if at == i:
                bounds[int(rank)] = bounds.get(int(rank), 1) * int(bound)
        x, y = lay_out(level.spatial, nest.choice.bounds[i])
        temporal = level.temporal
        listed = (*temporal.inner, *temporal.outer)
        zone = {rank: (2 if rank in temporal.outer else 0, listed.index(rank)) for rank in listed}
        loops = sorted((Loop(ranks[r], bound) for r, bound in bounds.items()), key=lambda loop: zone.get(loop.rank, (1, 0)))
        levels.append(LevelMapping(tuple(loops), x, y, nest.keeps[i]))
    return Mapping(tuple(levels))
