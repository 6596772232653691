"""The table of ``diagnostics: true``: level by level, what mappings need at least and may use at most, and the limit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from stitchloop.mapspace.feasibility import Walk
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
    walk, found = Walk(mapspace), []
    for index, (level, space) in enumerate(mapspace.named()):
        states = (walk.unlimited[3 * index + 2] > 0) & (walk.lifted[3 * index + 2] > 0)
        keep, free = space.tensors.keep, frozenset(space.tensors.free)
        least, most = int(walk.words(index, keep)[states].min()), int(walk.words(index, keep | free)[states].max())
        vectors = [
            dict(zip(walk.ranks, bounds))
            for bounds, moved in walk.spatial_vectors(index, walk.unlimited[3 * index], relaxed=True)
            if (moved * walk.lifted[3 * index + 1]).any()
        ]
        fitting = [prod(v.values()) for v in vectors if any(True for _ in space.spatial.partitions(v))]
        capacity = None if level.is_fanout else level.capacity
        impossible = not fitting or (capacity is not None and least > capacity)
        tight = len(fitting) < len(vectors) or (capacity is not None and most > capacity)
        found.append(
            LevelDiagnosis(
                level.name,
                capacity,
                least,
                most,
                space.spatial.fanout,
                min(prod(v.values()) for v in vectors),
                max(fitting, default=0),
                ", ".join(sorted(keep)),
                ", ".join(sorted(free)),
                "impossible" if impossible else "tight" if tight else "ok",
            )
        )
    return found[::-1]
