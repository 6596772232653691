"""The Pareto front of two or three objectives over a mapspace, proved complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stitchloop.mapspace.space import Mapspace
from stitchloop.search import labels, scan
from stitchloop.search.exact import Search, Workplace
from stitchloop.search.nest import Incumbent
from stitchloop.search.settle import Settler

BLOCK = 16
"""Choices that are treated between two looks at which others have become hopeless."""


@dataclass(frozen=True)
class Front:
    """Nests that no other one matches or beats in every objective, in ascending order of the first."""

    nests: tuple[Incumbent, ...]
    complete: bool


def search_front(
    space: Mapspace, objectives: Sequence[str], deadline: float | None = None, memory_limit_mb: float | None = None
) -> Front:
    """Every point of the Pareto front of ``objectives``, with the first nest that reaches it.

    Vectors of spatial factors with a low product of bounds come first. One is dropped when a point of the front so far is no
    worse than its bounds in every objective; else a nest of least energy, if it meets the bounds, is its only point; else the
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
    complete = True
    for start in range(0, len(search.every), search.portion):
        search.enter(start)
        for survey in search.surveys:
            search.surveyor.raise_bounds(survey, np.full(labels.GOALS, np.inf))
        bounds = np.concatenate([survey.bounds for survey in search.surveys])
        used = int(np.count_nonzero(search.goals != labels.NONE))
        left = np.argsort(bounds[:, :used].prod(axis=1), kind="stable")
        while len(left := left[~_hopeless(points(), bounds[left])]):
            for pair in left[:BLOCK]:
                if deadline is not None and len(points()) and time.perf_counter() > deadline:
                    return False
                k, c = divmod(int(pair), len(search.choices))
                complete &= _treat(search, k, c, add, points)
            left = left[BLOCK:]
    return complete


def _treat(search: Search, k: int, c: int, add: Callable[[Incumbent], None], points: Callable[[], Any]) -> bool:
    """Give ``add`` every nest of one choice that belongs to the front; False where bounds alone are known."""
    survey, index = search.surveys[k], search.index(k, c)
    unbeaten = Incumbent(np.full(labels.GOALS, np.inf))

    def offer(goals: Any, loops: Any) -> None:
        add(Incumbent(goals, index, survey.keeps, search.choice(c), loops))

    def hopeless() -> bool:
        return bool(_hopeless(points(), survey.bounds[c][None])[0])

    if hopeless():
        return True
    status, goals, loops = search.least(survey, Workplace(search, int(search.sizes[c])), c, unbeaten, index)
    if status == scan.EMPTY or hopeless():
        return True
    if goals is not None:
        offer(goals, loops)
    if hopeless():
        return True
    if not survey.exact[c] and search.elides_by_bounds:
        return False
    ways = [_treat_way(search, settler, survey.bounds[c], offer, points) for settler in search.settlers(survey, c)]
    return all(ways)


def _treat_way(
    search: Search, settler: Settler, bounds: Any, offer: Callable[[Any, Any], None], points: Callable[[], Any]
) -> bool:
    """Give ``offer`` the nests of one way in which the counts of a choice may turn out; False when memory does not suffice."""
    for mixes in (settler.first_mixes, settler.later_mixes):
        for weights in mixes():
            found = settler.mix(weights)
            if found is not None:
                offer(*found)
            if settler.is_empty:
                return True
        bounds = np.maximum(bounds, settler.bounds())
        if _hopeless(points(), bounds[None])[0]:
            return True
    front = points()
    listed = settler.search(np.full(labels.GOALS, np.inf), False, front, len(front), search.most_bytes // 2)
    if listed is None:
        return False
    for row, path in zip(listed[0], listed[1]):
        if path is not None:
            offer(row.copy(), path)
    return True


def _hopeless(front: Any, bounds: Any) -> Any:
    """For which rows of ``bounds`` some point of the front is no worse in every objective."""
    found: Any = np.zeros(len(bounds), dtype=np.bool_)
    for point in front:
        found |= (point <= bounds).all(axis=1)
    return found


def _sorted(nests: list[Incumbent]) -> tuple[Incumbent, ...]:
    return tuple(sorted(nests, key=lambda nest: tuple(nest.goals)))


__all__ = ["Front", "search_front"]
