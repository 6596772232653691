"""The table of ``diagnostics: true``: level by level, what mappings need at least and may use at most, and the limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from stitchloop.mapspace.factors import bounds_of, covered
from stitchloop.mapspace.orders import SpatialSpace
from stitchloop.mapspace.space import Mapspace


@dataclass(frozen=True)
class LevelDiagnosis:
    """One level, each figure for itself: over all factorisations that the constraints admit, other levels' limits aside.

    Attributes
    ----------
    capacity : int or None
        Words that the level holds.
    least_words, most_words : int
        Words of the tensors that it has to keep, or may keep, at the smallest and at the largest tile.
    fanout : int
        Instances below one instance.
    least_instances, most_instances : int
        Instances that spatial loops use at least, and at most on this fan-out.
    keep, free : str
        Tensors that it has to keep, and that it may keep.
    verdict : str
        ``ok``; ``tight`` when some mappings exceed a limit here; ``impossible`` when all do.
    """

    level: str
    capacity: int | None
    least_words: int
    most_words: int
    fanout: int
    least_instances: int
    most_instances: int
    keep: str
    free: str
    verdict: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def diagnose(mapspace: Mapspace) -> list[LevelDiagnosis]:
    """One :class:`LevelDiagnosis` per level, outermost first as users read a hierarchy."""
    einsum = mapspace.einsum
    choices = {rank: _choices(mapspace, rank) for rank in einsum.ranks}
    found = []
    for index, (level, space) in enumerate(mapspace.named()):
        keep, free = space.tensors.keep, space.tensors.keep | frozenset(space.tensors.free)
        extents = {rank: tiles for rank, (_, tiles) in ((rank, choices[rank][index]) for rank in einsum.ranks)}
        bounds = {rank: spatial for rank, (spatial, _) in ((rank, choices[rank][index]) for rank in einsum.ranks)}
        least = sum(einsum.tensor(name).volume({rank: tiles[0] for rank, tiles in extents.items()}) for name in keep)
        most = sum(einsum.tensor(name).volume({rank: tiles[-1] for rank, tiles in extents.items()}) for name in free)
        fitting = list(_fitting(space.spatial, bounds))
        capacity = None if level.is_fanout else level.capacity
        if not fitting or (capacity is not None and least > capacity):
            verdict = "impossible"
        else:
            all_fit = len(fitting) == prod(len(some) for some in bounds.values())
            verdict = "ok" if all_fit and (capacity is None or most <= capacity) else "tight"
        fewest = prod(some[0] for some in bounds.values())
        kept, maybe = ", ".join(sorted(keep)), ", ".join(space.tensors.free)
        fanout = space.spatial.fanout
        found.append(
            LevelDiagnosis(level.name, capacity, least, most, fanout, fewest, max(fitting, default=0), kept, maybe, verdict)
        )
    return found[::-1]


def _choices(mapspace: Mapspace, rank: str) -> list[tuple[list[int], list[int]]]:
    """Per level, the spatial bounds that the rank may have there, and the lengths of its tiles, both ascending."""
    size, limits, imperfect = mapspace.einsum.sizes[rank], mapspace.limits(rank), mapspace.imperfect
    reached = [{size}]
    for limit in limits:
        reached.append({covered(left, bound) for left in reached[-1] for bound in bounds_of(left, limit, imperfect)})
    completed = [{1}]
    steps: list[list[int]] = []
    for limit, lefts in zip(reversed(limits), reversed(reached[:-1])):
        pairs = [(left, bound) for left in lefts for bound in bounds_of(left, limit, imperfect)]
        right = [(left, bound) for left, bound in pairs if covered(left, bound) in completed[-1]]
        steps.append(sorted({bound for _, bound in right}))
        completed.append({left for left, _ in right})
    steps, completed = steps[::-1], completed[::-1]
    return [(steps[slot], sorted(covered(size, left) for left in completed[slot + 2])) for slot in range(0, len(limits), 2)]


def _fitting(space: SpatialSpace, bounds: Mapping[str, Sequence[int]]) -> Iterator[int]:
    """Products of the spatial bounds that fit the fan-out in some layout, one for each choice of bounds."""
    ranks = list(bounds)

    def deeper(chosen: dict[str, int]) -> Iterator[int]:
        if len(chosen) == len(ranks):
            if space.fits(chosen):
                yield prod(chosen.values())
            return
        rank = ranks[len(chosen)]
        for bound in bounds[rank]:
            if prod(chosen.values()) * bound <= space.fanout:
                yield from deeper({**chosen, rank: bound})

    return deeper({})
