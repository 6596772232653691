"""The Pareto front over factors that do not divide: exactly counted mappings, none of which another one matches or beats.

Boxes of spatial bounds are dropped when a point is no worse than all their bounds (:mod:`stitchloop.search.imperfect_bound`). For
those that are left, fronts of padded problems are searched and cut; small mapspaces are listed to the end. The front is proved
complete when no box is left and the front of the perfect part is complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stitchloop.errors import InputError
from stitchloop.mapspace.space import Mapspace
from stitchloop.search.finalists import Finalist, Finalists, Points
from stitchloop.search.found import INTERRUPTED
from stitchloop.search.front import search_front
from stitchloop.search.imperfect import CLOSE, ENDLESS, SMALL, ImperfectSearch
from stitchloop.search.imperfect_bound import ImperfectBound
from stitchloop.search.nest import KeepSets, build_mapping
from stitchloop.search.padding import cut, fitted_sizes, guided_sizes, padded
from stitchloop.search.partial_listing import TooMany, candidates
from stitchloop.search.spatial_boxes import Boxes

ROUNDS = 6
"""Rounds of padded problems."""

LOWEST = 12
"""Vectors of spatial bounds in one round."""


def search_imperfect_front(
    mapspace: Mapspace,
    objectives: Sequence[str],
    deadline: float | None,
    memory_limit_mb: float | None,
    threads: int | None,
) -> tuple[tuple[Finalist, ...], bool]:
    """Non-dominated mappings in ascending order of the first objective; whether no further one is possible.

    Perfect mappings of larger mapspaces are settled under the count without links and short wraps, as for one objective.
    """
    search = _Front(mapspace, tuple(objectives), deadline, memory_limit_mb, threads)
    try:
        complete = search.run()
    except KeyboardInterrupt:
        complete = False
    return tuple(search.points.points), complete


class _Front:
    def __init__(
        self,
        mapspace: Mapspace,
        objectives: tuple[str, ...],
        deadline: float | None,
        memory_limit_mb: float | None,
        threads: int | None,
    ) -> None:
        self.mapspace, self.objectives = mapspace, objectives
        self.deadline, self.memory, self.threads = deadline, memory_limit_mb, threads
        self.points = Points(objectives)
        self.finalists = Finalists(mapspace, objectives, self.points)
        self.measure = ImperfectBound(mapspace, objectives)
        self.tried: set[tuple[Any, ...]] = set()
        self.perfect_complete = False

    def run(self) -> bool:
        """Whether the front was proved complete."""
        for name in (*self.objectives, "edp"):
            search = ImperfectSearch(self.mapspace, (name,), self.deadline, self.memory, self.threads, None, self.points)
            if search.run() == INTERRUPTED:
                return False
        self.perfect_complete = self._perfect_front()
        self.boxes = Boxes(self.mapspace, self._goals, lambda: self.measure.rated)
        for _ in range(ROUNDS):
            if not self._open() or self._late():
                break
            self._halve()
            self._round()
        if self._open() and not self._late() and self.mapspace.size <= SMALL:
            self._list()
        return not self._open() and self.perfect_complete

    def _late(self) -> bool:
        return bool(self.points.points) and self.deadline is not None and time.perf_counter() > self.deadline

    def _perfect_front(self) -> bool:
        perfect = replace(self.mapspace, imperfect=False)
        front = search_front(perfect, self.objectives, self.deadline, self.memory)
        for nest in front.nests:
            self.finalists.offer(build_mapping(perfect, nest))
        return front.complete

    # -- boxes --------------------------------------------------------------------------------------------------------

    def _goals(self, low: Any, high: Any, active: Any) -> Any:
        """A key, infinite where a point is no worse than all bounds, and the bounds."""
        bounds = self.measure.goals(low, high, active)
        return np.concatenate([self._keys(bounds)[..., None], bounds], axis=-1)

    def _keys(self, bounds: Any) -> Any:
        keys = np.log1p(bounds).sum(axis=-1)
        for values, _, _ in self.points.points:
            keys = np.where((np.array(values) * (1.0 - CLOSE) <= bounds).all(axis=-1), np.inf, keys)
        return keys

    def _open(self) -> int:
        """Boxes that may hold a further point."""
        self.boxes.values[..., 0] = self._keys(self.boxes.values[..., 1:])
        self.boxes.drop(float("inf"))
        return len(self.boxes.low)

    def _halve(self) -> None:
        self.boxes.settle(LOWEST, float("inf"), self.deadline)

    def _round(self) -> None:
        """Search the fronts of padded problems for the vectors of spatial bounds that promise most."""
        for spatial, values in self.boxes.vectors(LOWEST):
            keeps = self.measure.kept[int(values[:, 0].argmin())]
            tiles = self.measure.tiles(spatial, keeps)
            options = [guided_sizes(self.mapspace.einsum.rank_sizes, spatial, tiles)]
            options.append(fitted_sizes(self.mapspace.einsum.rank_sizes, spatial))
            for sizes in dict.fromkeys(options):
                self._search_padded(spatial, keeps, sizes)
                if self._late():
                    return

    def _search_padded(self, spatial: Any, keeps: KeepSets, sizes: tuple[int, ...]) -> None:
        key = spatial.tobytes(), keeps, sizes
        if key in self.tried:
            return
        self.tried.add(key)
        try:
            own = padded(self.mapspace, sizes, spatial, keeps)
        except InputError:
            return
        for nest in search_front(own, self.objectives, self.deadline, self.memory).nests:
            self.finalists.offer(cut(self.mapspace, build_mapping(own, nest)))

    # -- listing ------------------------------------------------------------------------------------------------------

    def _list(self) -> None:
        """List what no point rules out; boxes are dropped when that comes to an end."""
        if not self.boxes.settle(ENDLESS, float("inf"), self.deadline, ENDLESS):
            return
        hopeless: Callable[[Any], bool] = lambda goals: bool(np.isinf(self._keys(goals[None])[0]))  # noqa: E731
        for low, values in zip(self.boxes.low, self.boxes.values):
            for keeps, own in zip(self.measure.kept, values):
                if hopeless(own[1:]):
                    continue
                try:
                    for mapping in candidates(self.measure, low, keeps, hopeless):
                        self.finalists.offer(mapping)
                        if self._late():
                            return
                except TooMany:
                    return
        self.boxes.values[..., 0] = np.inf
        self.boxes.drop(float("inf"))
