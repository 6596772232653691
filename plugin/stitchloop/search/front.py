"""The Pareto front of two or three objectives over a mapspace, proved complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stitchloop.mapspace.space import Mapspace
from stitchloop.search import labels, scan
from stitchloop.search.exact import Search
from stitchloop.search.nest import Incumbent
from stitchloop.search.settle import workspace


@dataclass(frozen=True)
class Front:
    """Nests that no other one matches or beats in every objective, in ascending order of the first."""

    nests: tuple[Incumbent, ...]
    complete: bool


def search_front(
    space: Mapspace, objectives: Sequence[str], deadline: float | None = None, memory_limit_mb: float | None = None
) -> Front:
    """Every point of the Pareto front of ``objectives``, with the first nest that reaches it.

    Vectors of spatial factors are taken in their fixed order. One is dropped when a point of the front so far is no worse
    than its bounds in every objective; else a nest of least energy, if it meets the bounds, is its only point; else the
    label search lists its points.
    """
    search = Search(space, objectives, deadline=deadline, memory_limit_mb=memory_limit_mb, complete=False)
    front = np.zeros((0, labels.GOALS))
    nests: list[Incumbent] = []

    def add(nest: Incumbent) -> None:
        nonlocal front, nests
        if any((row <= nest.goals).all() for row in front):
            return
        kept = [i for i, row in enumerate(front) if not (nest.goals <= row).all()]
        nests = [nests[i] for i in kept] + [nest]
        front = np.array([other.goals for other in nests])

    try:
        complete = _walk(search, add, lambda: front, deadline)
    except KeyboardInterrupt:
        complete = False
    return Front(_sorted(nests), complete)


def _walk(search: Search, add: Callable[[Incumbent], None], points: Callable[[], Any], deadline: float | None) -> bool:
    """Give ``add`` every nest that belongs to the front; whether none is missing. ``points()``: goals of the front so far."""
    space, complete = search.space, True
    for start in range(0, len(search.every), search.portion):
        search.load(start)
        for k, survey in enumerate(search.surveyor.survey(search.sets, search.choices)):
            own: tuple[int, Any] | None = None
            for c in range(len(search.choices)):
                if _hopeless(points(), survey.bounds[c]):
                    continue
                if deadline is not None and len(points()) and time.perf_counter() > deadline:
                    return False
                nodes = search.nodes(search.choices[c][None])
                if own is None or own[0] < nodes:
                    own = nodes, workspace(space, search.machine, search.surveyor.plan(survey.keeps), nodes)
                index = search.index(k, c)
                unbeaten = Incumbent(np.full(labels.GOALS, np.inf))
                status, goals, loops = search.least(survey, own[1], c, unbeaten, index)
                if status == scan.EMPTY or _hopeless(points(), survey.bounds[c]):
                    continue
                if goals is not None:
                    add(Incumbent(goals, index, survey.keeps, search.choice(c), loops))
                if _hopeless(points(), survey.bounds[c]):
                    continue
                if not survey.exact[c]:
                    complete = False
                    continue
                settler = search.settler(survey, c)
                for weights in settler.first_mixes():
                    found = settler.mix(weights)
                    if found is not None:
                        add(Incumbent(found[0], index, survey.keeps, search.choice(c), found[1]))
                survey.bounds[c] = np.maximum(survey.bounds[c], settler.bounds())
                if _hopeless(points(), survey.bounds[c]):
                    continue
                for weights in settler.later_mixes():
                    found = settler.mix(weights)
                    if found is not None:
                        add(Incumbent(found[0], index, survey.keeps, search.choice(c), found[1]))
                front = points()
                listed = settler.search(np.full(labels.GOALS, np.inf), False, front, len(front), search.most_bytes // 2)
                if listed is None:
                    complete = False
                    continue
                for row, path in zip(listed[0], listed[1]):
                    if path is not None:
                        add(Incumbent(row.copy(), index, survey.keeps, search.choice(c), path))
    return complete


def _hopeless(front: Any, bounds: Any) -> bool:
    """Whether some point of the front is no worse than ``bounds`` in every objective."""
    return bool(len(front)) and bool((front <= bounds).all(axis=1).any())


def _sorted(nests: list[Incumbent]) -> tuple[Incumbent, ...]:
    return tuple(sorted(nests, key=lambda nest: tuple(nest.goals)))


__all__ = ["Front", "search_front"]
