"""The last word on small mapspaces: every mapping through the reference model, links and wraps included.

Spatial bounds with keep sets are skipped as a whole when a lower bound of the model's count does not precede the incumbent:
the least cost of a nest whose words are those of :mod:`stitchloop.search.wraps`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from stitchloop.errors import InvalidMapping
from stitchloop.mapping import Mapping
from stitchloop.mapspace.space import Mapspace
from stitchloop.model import TIMELOOP, Evaluator
from stitchloop.search import labels, scan
from stitchloop.search.arrays import ENERGY, Plan
from stitchloop.search.exact import Search
from stitchloop.search.finalists import Finalist, Finalists, Points
from stitchloop.search.floors import fanouts_outside
from stitchloop.search.found import INTERRUPTED, TIME_LIMIT, Found
from stitchloop.search.machine import build_plan, mixes_signs
from stitchloop.search.nest import KeepSets
from stitchloop.search.objectives import value_of
from stitchloop.search.program import build_program
from stitchloop.search.settle import workspace
from stitchloop.search.slides import EXACT
from stitchloop.search.wraps import loosen


def list_mappings(mapspace: Mapspace, names: Sequence[str], found: Found | None, deadline: float | None) -> Found | None:
    """The best mapping of a small mapspace under the tool's own count; ``found`` is the incumbent.

    Of equal mappings the incumbent, then the first listed.
    """
    evaluator, bounds = Evaluator(mapspace.einsum, mapspace.architecture, TIMELOOP), Bounds(mapspace, names)
    best = None if found is None else (_values(names, found), found.mapping, found.stats)
    evaluated, stopped = 0 if found is None else found.evaluated, ""
    try:
        for mapping in mapspace.enumerate_mappings(fitting=True):
            if best is not None and bounds.of(mapping)[0] > best[0][0] * (1 + 1e-12):
                continue
            if best is not None and deadline is not None and time.perf_counter() > deadline:
                stopped = TIME_LIMIT
                break
            if mapspace.contains(mapping) is not None:
                continue
            evaluated += 1
            try:
                stats = evaluator.evaluate(mapping)
            except InvalidMapping:
                continue
            values = tuple(value_of(name, stats) for name in names)
            if best is None or values < best[0]:
                best = values, mapping, stats
    except KeyboardInterrupt:
        if best is None:
            raise
        stopped = INTERRUPTED
    if best is None:
        return None
    return Found(best[1], best[2], 0.0 if stopped else best[0][0], evaluated, TIMELOOP.name, stopped)


def list_front(mapspace: Mapspace, names: Sequence[str], deadline: float | None) -> tuple[list[Finalist], bool]:
    """The Pareto front of a small mapspace under the tool's own count, and whether it is complete."""
    front, bounds = Points(names), Bounds(mapspace, names)
    finalists = Finalists(mapspace, names, front)
    try:
        for mapping in mapspace.enumerate_mappings(fitting=True):
            if front.match(bounds.of(mapping)):
                continue
            if deadline is not None and front.points and time.perf_counter() > deadline:
                return front.points, False
            finalists.offer(mapping)
    except KeyboardInterrupt:
        return front.points, False
    return front.points, True


def _values(names: Sequence[str], found: Found) -> tuple[float, ...]:
    return tuple(value_of(name, found.stats) for name in names)


class Bounds:
    """Lower bounds of the objectives under the tool's count for spatial bounds with keep sets; each is computed once."""

    def __init__(self, mapspace: Mapspace, names: Sequence[str]) -> None:
        self.search = Search(
            mapspace, names, complete=False, every=np.zeros((0, len(mapspace.levels), len(mapspace.einsum.ranks)))
        )
        self.scales = [1e-12 if name == "edp" else 1.0 for name in names]
        self.unknown = mixes_signs(mapspace.einsum)
        self.known: dict[Any, list[float]] = {}
        self.plans: dict[KeepSets, tuple[Plan, Any]] = {}

    def of(self, mapping: Mapping) -> list[float]:
        """Bounds for the mapping's spatial bounds and keep sets."""
        spatial = tuple(tuple(sorted((loop.rank, loop.bound) for loop in level.spatial)) for level in mapping.levels)
        keeps = tuple(level.keep for level in mapping.levels)
        key = spatial, keeps
        if self.unknown:
            return [0.0] * len(self.scales)
        if key not in self.known:
            self.known[key] = self._bound(spatial, keeps)
        return self.known[key]

    def _bound(self, spatial: Any, keeps: KeepSets) -> list[float]:
        search, space = self.search, self.search.space
        machine, ranks = search.machine, space.einsum.ranks
        choice = np.ones((len(space.levels), len(ranks)), dtype=np.int64)
        for i, loops in enumerate(spatial):
            for rank, bound in loops:
                choice[i, ranks.index(rank)] = bound
        if keeps not in self.plans:
            if not all(any(tensor.name in keep for keep in keeps) for tensor in space.einsum.tensors):
                return [np.inf]
            plan = build_plan(build_program(space, keeps), len(space.levels))
            self.plans[keeps] = plan, workspace(space, machine, plan, int(machine.divisor_count.prod()), True)
        plan, (tables, own) = self.plans[keeps]
        nodes = scan.lay(machine, plan, tables, choice, np.zeros(len(search.eye)))
        scan.count_base(machine, plan, tables, choice)
        loosen(machine, plan, tables, choice, fanouts_outside(space), nodes)
        scale, sums, goals = scan.scale_of(search.task, tables), np.zeros(len(search.eye)), np.zeros(labels.GOALS)
        for m in (ENERGY, *range(1, search.task.resources + 1), *search.counted):
            sums[m] = scan.price(machine, plan, tables, own, search.eye[m], nodes, EXACT, own.slots)
        if not np.isfinite(sums[ENERGY]):
            return [np.inf]
        labels.rate(scale, sums, sums[ENERGY], goals)
        return [float(goal) * unit for goal, unit in zip(goals, self.scales)]
