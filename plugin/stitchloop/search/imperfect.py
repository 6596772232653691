"""Search with factors that do not divide: a bound over all mappings, candidates that it points at, and proof where they meet.

1. The perfect part of the mapspace goes through the exact search, which gives its optimum and its bound.
2. Boxes of spatial bounds are halved, lowest bound first (:mod:`stitchloop.search.spatial_boxes`), under a bound on all
   imperfect mappings (:mod:`stitchloop.search.imperfect_bound`).
3. For the spatial bounds and keep sets of the lowest boxes, padded perfect problems are searched exactly, cut back to the true
   sizes (:mod:`stitchloop.search.padding`) and counted with exact partial tiles; the best one climbs to better neighbours.
4. What is left below the incumbent is listed, tiling by tiling, where it is small (:mod:`stitchloop.search.partial_listing`).

The optimum is proved when neither the bound on imperfect mappings nor that on perfect ones lies below it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from math import ceil, isfinite
from typing import Any

import numpy as np

from stitchloop.errors import InputError, NoMapping
from stitchloop.mapspace.space import Mapspace
from stitchloop.model import TIMELOOP
from stitchloop.search.exact import Search
from stitchloop.search.finalists import Finalists, Points
from stitchloop.search.found import INTERRUPTED, TIME_LIMIT, Found
from stitchloop.search.imperfect_bound import ImperfectBound
from stitchloop.search.improve import neighbours
from stitchloop.search.nest import KeepSets, build_mapping
from stitchloop.search.objectives import completed
from stitchloop.search.padding import cut, fitted_sizes, guided_sizes, padded, padded_sizes, smooth_sizes
from stitchloop.search.partial_listing import TooMany, candidates
from stitchloop.search.spatial_boxes import WORK, Boxes

LOWEST = 6
"""Boxes whose padded problems are searched in one round."""

ROUNDS = 3
"""Rounds of padded problems, unless the first ones prove the optimum."""

PADDINGS = 4
"""Padded problems that are searched with all spatial bounds open."""

CHOICES = 400_000
"""Pairs of spatial bounds and keep sets in these problems together."""

CLIMBED = 400
"""Most neighbours that are evaluated."""

LISTED = 400
"""Most mappings that are evaluated in the listing of a mapspace above :data:`SMALL` mappings."""

SMALL = 200_000
"""Mapspaces up to this size are listed to the end."""

ENDLESS = 1 << 62
"""No limit."""

CLOSE = 1e-11
"""Relative differences up to this are rounding."""

PARTIAL = "partial tiles counted exactly"

Progress = Callable[[float, float, float], None]


def search_imperfect(
    mapspace: Mapspace,
    objectives: Sequence[str],
    deadline: float | None,
    memory_limit_mb: float | None,
    threads: int | None,
    progress: Progress | None,
) -> Found | None:
    """The best mapping of an imperfect mapspace that was found, with a bound over all of them; None when none is valid."""
    search = ImperfectSearch(mapspace, objectives, deadline, memory_limit_mb, threads, progress)
    stopped = search.run()
    best = search.finalists.best
    if best is None:
        return None
    bound = min(search.bound, best[0][0])
    proved = bound >= best[0][0] * (1.0 - CLOSE)
    reason = "" if proved else stopped or "imperfect factors: bounded, not proved optimal"
    notes = search.notes if proved else ()
    return Found(best[1], best[2], bound, len(search.finalists.seen), search.counting, reason, notes)


class ImperfectSearch:
    """One search; ``bound`` is what is proved of the first objective, ``finalists`` what was found."""

    def __init__(
        self,
        mapspace: Mapspace,
        objectives: Sequence[str],
        deadline: float | None,
        memory_limit_mb: float | None,
        threads: int | None,
        progress: Progress | None,
        points: Points | None = None,
    ) -> None:
        from stitchloop.search.certify import WITHOUT, counts_as_model

        self.mapspace, self.objectives = mapspace, tuple(objectives)
        self.deadline, self.memory, self.threads, self.progress = deadline, memory_limit_mb, threads, progress
        self.names = completed(objectives)
        self.finalists = Finalists(mapspace, self.names, points)
        self.perfect = replace(mapspace, imperfect=False)
        self.as_model = counts_as_model(mapspace)
        self.counting = f"{TIMELOOP.name if self.as_model else WITHOUT}, {PARTIAL}"
        self.perfect_bound, self.imperfect_bound = 0.0, 0.0
        self.notes: tuple[str, ...] = ()
        self.with_ties = self.names[0] not in ("energy", "edp")
        self.tried: set[tuple[Any, ...]] = set()

    @property
    def bound(self) -> float:
        """Proved of the first objective over all mappings. The bound on imperfect ones holds for all where nothing links."""
        perfect = max(self.perfect_bound, self.imperfect_bound) if self.as_model else self.perfect_bound
        return min(perfect, self.imperfect_bound)

    def run(self) -> str:
        """Search to the end, the deadline or an interruption; why it stopped early, or an empty string.

        Once the first objective is proved, only steps that may improve the others are taken.
        """
        steps = list(self._steps())
        for number, (step, breaks_ties) in enumerate(steps):
            if self._is_proved() and not breaks_ties:
                continue
            try:
                step()
                if self.progress is not None and self.finalists.best is not None:
                    self.progress((number + 1) / len(steps), self.finalists.value, min(self.bound, self.finalists.value))
            except KeyboardInterrupt:
                if self.finalists.best is None:
                    self._any()
                return INTERRUPTED
            if self._late():
                return TIME_LIMIT
        return ""

    def _steps(self) -> Iterator[tuple[Callable[[], None], bool]]:
        """What is done, in order, and whether it may improve other objectives than the first."""
        yield lambda: self._refine(WORK // 10), False
        if self.as_model:
            yield self._round, False
            yield lambda: self._refine(WORK // 5), False
        yield lambda: self._search_perfect(self.deadline), True
        yield self._pad, self.with_ties
        for _ in range(ROUNDS):
            yield self._round, False
            yield self._refine, False
        yield self._break_ties, True
        yield self._climb, True
        yield self._refine, False
        yield self._list, False

    @cached_property
    def measure(self) -> ImperfectBound:
        """The bound on the first objective."""
        return ImperfectBound(self.mapspace, self.names[:1])

    @cached_property
    def boxes(self) -> Boxes:
        """Spatial bounds that may still hold something better."""
        return Boxes(self.mapspace, self.measure.goals, lambda: self.measure.rated)

    def _any(self) -> None:
        """Any mapping, when the search was interrupted before it had one."""
        self._search_perfect(0.0)
        if self.finalists.best is None:
            self._round()

    def _is_proved(self) -> bool:
        return self.finalists.best is not None and self.bound >= self.finalists.value * (1.0 - CLOSE)

    def _late(self) -> bool:
        late = self.deadline is not None and time.perf_counter() > self.deadline
        return late and self.finalists.best is not None

    # -- steps --------------------------------------------------------------------------------------------------------

    def _refine(self, work: int | None = None) -> None:
        bound = self.boxes.refine(self.finalists.value, self.deadline, work)
        whole = self.names[0] == "delay" and isfinite(bound)
        self.imperfect_bound = max(self.imperfect_bound, float(ceil(bound * (1.0 - 1e-9))) if whole else bound)

    def _search_perfect(self, deadline: float | None) -> None:
        """The optimum of the perfect part, with its certificate."""
        from stitchloop.search.certify import search_mapspace

        limit = None if deadline is None else max(0.0, deadline - time.perf_counter())
        try:
            result = search_mapspace(self.perfect, self.objectives, (), limit, self.memory, self.threads)
        except NoMapping:
            self.perfect_bound, self.counting = float("inf"), f"{TIMELOOP.name}, {PARTIAL}"
            return
        self.finalists.offer(result.mapping)
        self.perfect_bound, self.notes = result.certificate.lower_bound, result.notes
        self.counting = f"{result.certificate.counting}, {PARTIAL}"
        if result.certificate.reason == INTERRUPTED:
            raise KeyboardInterrupt

    def _round(self) -> None:
        """Search padded problems for the lowest boxes."""
        self.boxes.drop(self.finalists.value)
        for spatial, keeps in self._promising(self.boxes, self.finalists.value, self.objectives):
            self._search_near(spatial, keeps, self.measure, self.objectives)
            if self._late() or (self.with_ties and self._is_proved()):
                return

    def _break_ties(self) -> None:
        """Search padded problems for the least second objective among spatial bounds that may reach the best of the first."""
        if not self.with_ties:
            return
        most = self.finalists.value * (1.0 + CLOSE)
        measure = ImperfectBound(self.mapspace, self.names[:2])

        def second(low: Any, high: Any, active: Any) -> Any:
            goals = measure.goals(low, high, active)
            return np.where(goals[:, :, :1] <= most, goals[:, :, 1:], np.inf)

        boxes = Boxes(self.mapspace, second, lambda: measure.rated)
        boxes.refine(float("inf"), self.deadline, WORK // 20)
        swapped = self.names[1], self.names[0]
        for spatial, keeps in self._promising(boxes, float("inf"), swapped):
            self._search_near(spatial, keeps, measure, swapped)
            if self._late():
                return

    def _promising(self, boxes: Boxes, value: float, objectives: tuple[str, ...]) -> list[tuple[Any, KeepSets]]:
        """Spatial bounds and keep sets of the lowest boxes that were not tried before."""
        found = []
        for spatial, values in boxes.vectors(LOWEST):
            for k in np.argsort(values[:, 0], kind="stable")[:2]:
                keeps = self.measure.kept[int(k)]
                if values[k, 0] < value and not any(
                    (key[0], key[1], key[3]) == (spatial.tobytes(), keeps, objectives) for key in self.tried
                ):
                    found.append((spatial, keeps))
        return found

    def _search_near(self, spatial: Any, keeps: KeepSets, measure: ImperfectBound, objectives: tuple[str, ...]) -> None:
        """Search padded problems with these spatial bounds and keep sets."""
        sizes = self.mapspace.einsum.rank_sizes
        guided = guided_sizes(sizes, spatial, measure.tiles(spatial, keeps))
        for own in dict.fromkeys((guided, fitted_sizes(sizes, spatial), smooth_sizes(sizes, spatial))):
            key = spatial.tobytes(), keeps, own, objectives
            if key not in self.tried:
                self.tried.add(key)
                with suppress(InputError):
                    self._take(self._exact(padded(self.mapspace, own, spatial, keeps), objectives))

    def _pad(self) -> None:
        """Search padded problems with all spatial bounds open, with all keep sets or with those that promise most."""
        promising = [self.measure.kept[int(values[:, 0].argmin())] for _, values in self.boxes.vectors(LOWEST)][:3]
        if self.finalists.best is not None:
            promising.insert(0, tuple(level.keep for level in self.finalists.best[1].levels))
        left = CHOICES
        for sizes in padded_sizes(self.mapspace)[:PADDINGS]:
            for keeps in (None, *dict.fromkeys(promising)):
                try:
                    search = self._exact(padded(self.mapspace, sizes, None, keeps), self.objectives)
                except InputError:
                    break
                choices = len(search.every) * len(search.sets)
                if choices <= left:
                    left -= choices
                    self._take(search)
                    if keeps is None:
                        break
                if self._late():
                    return

    def _exact(self, own: Mapspace, objectives: tuple[str, ...]) -> Search:
        return Search(own, objectives, self.threads, self.deadline, self.memory)

    def _take(self, search: Search) -> None:
        """Offer the optimum of a padded problem, cut to the true sizes."""
        outcome = search.run()
        if outcome.incumbent.exists:
            self.finalists.offer(cut(self.mapspace, build_mapping(search.space, outcome.incumbent)))
        if outcome.stopped_by == INTERRUPTED:
            raise KeyboardInterrupt

    def _climb(self) -> None:
        """Step from the best mapping to better neighbours, until there is none or enough were evaluated."""
        most = len(self.finalists.seen) + CLIMBED
        best = None
        while self.finalists.best is not None and self.finalists.best is not best:
            best = self.finalists.best
            for mapping in neighbours(self.mapspace, best[1]):
                self.finalists.offer(mapping)
                if len(self.finalists.seen) > most or self._late():
                    return

    def _list(self) -> None:
        """List what is left below the incumbent; the bound is raised if that comes to an end."""
        small = self.mapspace.size <= SMALL
        most = len(self.finalists.seen) + LISTED
        work = ENDLESS if small else self.boxes.made + WORK // 3
        if not self.boxes.settle(ENDLESS, self.finalists.value, self.deadline, work):
            return
        least = self.boxes.least()
        for i in np.argsort(least, kind="stable"):
            for k, keeps in enumerate(self.measure.kept):
                if self.boxes.values[i, k, 0] >= self.finalists.value:
                    continue
                try:
                    for mapping in candidates(self.measure, self.boxes.low[i], keeps, self._hopeless):
                        self.finalists.offer(mapping)
                        if self._late() or not (small or len(self.finalists.seen) < most):
                            return
                except TooMany:
                    return
        self.imperfect_bound = max(self.imperfect_bound, self.finalists.value)

    def _hopeless(self, goals: Any) -> bool:
        return bool(goals[0] >= self.finalists.value)
