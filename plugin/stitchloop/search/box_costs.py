"""What transfers cost at least in boxes of spatial bounds; the argument stands in :mod:`stitchloop.search.imperfect_bound`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from stitchloop.search.imperfect_bound import ImperfectBound

SAFE = 1.0 - 1e-12
"""Doubles are rounded down by this much before they count as bounds."""

Prices = tuple[float, float, float]
"""Of one word: read, fill, update."""

Chain = tuple[frozenset[int], ...]
"""For each kept tensor the ranks that its run goes over."""


@dataclass(frozen=True)
class Metric:
    """Prices of one word at every level: (read, fill, update). ``per_instance``: the words of one instance count."""

    weights: tuple[Prices, ...]
    per_instance: bool = False


def _greatest(table: list[Any], low: Any, high: Any) -> Any:
    """The greatest entry from ``low`` to ``high``, counted from 1, by two windows whose length is a power of two."""
    step = np.floor(np.log2(high - low + 1)).astype(np.int64)
    found = np.zeros(len(low))
    for power in np.unique(step):
        at = step == power
        found[at] = np.maximum(table[power][low[at] - 1], table[power][high[at] - 2**power])
    return found


class BoxCosts:
    """Costs of one batch of boxes ``low <= bounds <= high[boxes, levels, ranks]``, for all metrics of ``bound``."""

    def __init__(self, bound: ImperfectBound, low: Any, high: Any) -> None:
        self.bound, self.low, self.high = bound, low, high.astype(float)
        sizes, levels = bound.sizes, low.shape[1]
        outside = np.ones((len(low), len(sizes)), dtype=np.int64)
        most_outside = np.ones((len(low), len(sizes)))
        working, self.most_outside = [], []
        for i in range(levels - 1, -1, -1):
            working.append(outside)
            self.most_outside.append(most_outside.prod(axis=1))
            here = low[:, i]
            outside = np.where(outside > 1, 1 + (outside - 1) * here, here)
            most_outside = most_outside * self.high[:, i]
        self.working = working[::-1]
        """int64[levels][boxes, ranks]: instances that work along each rank, at least."""
        self.all_working = outside
        self.most_outside = self.most_outside[::-1]
        self.copies = [
            [self._irrelevant(self.high[:, i + 1 :].prod(axis=1), t) for t in range(len(bound.shapes))] for i in range(levels)
        ]
        self.sharing: dict[tuple[int, int, int], Any] = {}
        self.working_copies: dict[tuple[int, int], Any] = {}
        self.known: dict[tuple[int, tuple[tuple[int, int], ...]], Any] = {}

    def _irrelevant(self, numbers: Any, t: int) -> Any:
        others = [r for r in range(numbers.shape[1]) if r not in self.bound.shapes[t].relevant]
        return numbers[:, others].prod(axis=1)

    def feasible(self) -> Any:
        """Whether ranks are long enough for the low ends."""
        return (self.all_working <= self.bound.sizes).all(axis=1)

    def goals(self, wanted: list[int]) -> Any:
        bound = self.bound
        bound.rated += len(self.low) * len(wanted)
        goals = np.full((len(self.low), max(1, len(bound.kept)), len(bound.objectives)), np.inf)
        if wanted:
            costs = np.stack([self._costs(bound.served[k]) for k in wanted], axis=1)
            goals[:, wanted] = self.rate(costs).transpose(1, 0, 2)
        goals[~self.feasible()] = np.inf
        return goals

    def rate(self, costs: Any) -> Any:
        """``float64[..., objectives]`` from ``costs[metrics, ...]``; last is the axis of boxes, or of tiles in the only box."""
        bound, goals = self.bound, []
        cycles = np.maximum(self.least_cycles, np.zeros(costs.shape[1:]))
        for m in bound.throttles:
            cycles = np.maximum(cycles, np.ceil(costs[m] * SAFE))
        energy = bound.compute + costs[0]
        for i, leak in bound.leaks:
            energy = energy + leak * self.working[i].prod(axis=1) * cycles
        for g, name in enumerate(bound.objectives):
            by_name = {"energy": energy * SAFE, "delay": cycles, "edp": energy * SAFE * 1e-12 * cycles}
            goals.append(by_name[name] if name in by_name else costs[bound.throttles.stop + g] * SAFE)
        return np.stack(goals, axis=-1)

    @cached_property
    def least_cycles(self) -> Any:
        """Cycles of the compute units, at least."""
        bound = self.bound
        units = bound.space.architecture.compute.instances
        least = np.ceil(bound.sizes / self.high.prod(axis=1) * SAFE).prod(axis=1)
        busy = np.minimum(self.high.prod(axis=(1, 2)), units) * self._filling()
        return np.maximum(least, np.ceil(bound.volume / busy * SAFE))

    def _filling(self) -> Any:
        """The greatest share of the instances in use that works on average: ``n / (s * ceil(n / s))`` along each rank."""
        share = np.ones(len(self.low))
        for r, size in enumerate(map(int, self.bound.sizes)):
            if size > 1:
                widest = len(self.bound.fillings[r][0])
                low = np.minimum(self.low[:, :, r].prod(axis=1), widest)
                high = np.minimum(self.high[:, :, r].prod(axis=1), widest).astype(np.int64)
                share = share * _greatest(self.bound.fillings[r], low, high)
        return share

    def _costs(self, transfers: dict[int, list[tuple[int, int]]]) -> Any:
        """``float64[metrics, boxes]``: the sum over the transfers into every level, and into the compute units."""
        total = np.zeros((len(self.bound.metrics), len(self.low)))
        for level, served in transfers.items():
            key = level, tuple(served)
            if key not in self.known:
                if level < 0:
                    self.known[key] = self.computed(served)
                else:
                    self.known[key] = self._least_costs(level, served)
            total = total + self.known[key]
        return total

    def _scale(self, metric: Metric, level: int) -> Any:
        return 1.0 / self.most_outside[level] if metric.per_instance else 1.0

    def _shared(self, t: int, child: int, parent: int, with_others: bool = True) -> Any:
        """How many children one read may serve, over the fan-outs between ``child`` and ``parent``."""
        key = t, child, parent
        if key not in self.sharing:
            self.sharing[key] = self._sharing(t, child, parent, with_others)
        return self.sharing[key]

    def _sharing(self, t: int, child: int, parent: int, with_others: bool) -> Any:
        shape, shared = self.bound.shapes[t], np.ones(len(self.low))
        for i in range(child + 1, parent + 1):
            if self.bound.space.levels[i].spatial.fanout == 1:
                continue
            here = self.high[:, i]
            if with_others:
                shared = shared * self._irrelevant(here, t)
            if shape.is_bounded:
                for expression in shape.sums:
                    along = here[:, [rank for rank, _ in expression]]
                    shared = shared * along.prod(axis=1) / along.max(axis=1)
            else:
                shared = shared * here[:, sorted(shape.relevant)].prod(axis=1)
        return shared

    def computed(self, served: list[tuple[int, int]]) -> Any:
        """What the compute units read and update: one word per point, shared by those below one instance of the level."""
        bound, total = self.bound, np.zeros((len(self.bound.metrics), len(self.low)))
        for t, level in served:
            shape = bound.shapes[t]
            inside = self.high[:, : level + 1].prod(axis=1)
            passes = self._irrelevant(np.ceil(bound.sizes / inside * SAFE), t)
            own = float(prod(int(bound.sizes[r]) for r in shape.relevant))
            words = np.maximum(passes * own / self._shared(t, -1, level, with_others=False), bound.touched[t])
            first = bound.words[t] * self.copies[level][t]
            for m, metric in enumerate(bound.metrics):
                read, _, update = metric.weights[level]
                cost = read * words
                if shape.is_output:
                    cost = update * words + (read * np.maximum(words - first, 0.0) if shape.is_plain else 0.0)
                total[m] += cost * self._scale(metric, level)
        return total

    def _caps(self, level: int) -> Any:
        """Points along each rank per pass, at most, when the run goes over the whole rank: see 1. and 3. above."""
        return self.bound.sizes / np.maximum(self.working[level] - 1, 1)

    def least_tile(self, metric: Metric, level: int, served: list[tuple[int, int]]) -> Any:
        """Extents of the tile for which the bound of the first box is least."""
        caps, least = self._caps(level), None
        prices = [self._price(metric, t, level, parent)[0] for t, parent in served]
        for chain, densities, extents in self.bound.rows(level, tuple(t for t, _ in served), self.still(level)[0][0]):
            weights = [price / caps[:, sorted(run)].prod(axis=1) for price, run in zip(prices, chain)]
            costs = densities @ np.array(weights)[:, 0]
            if least is None or costs.min() < least[0]:
                least = costs.min(), extents[int(costs.argmin())]
        return None if least is None else least[1]

    def still(self, level: int) -> tuple[list[frozenset[int]], Any]:
        """Summed ranks without temporal loops outside the level, being spread whole: all such sets, and the one of each box."""
        summed = sorted({rank for shape in self.bound.shapes for expression in shape.sums for rank, _ in expression})
        spread = self.working[level][:, summed] >= self.bound.sizes[summed]
        patterns, number = np.unique(spread, axis=0, return_inverse=True)
        return [frozenset(r for r, own in zip(summed, pattern) if own) for pattern in patterns], number.ravel()

    def _least_costs(self, level: int, served: list[tuple[int, int]]) -> Any:
        kept = tuple(t for t, _ in served)
        sums = any(self.bound.shapes[t].sums for t in kept)
        patterns, number = self.still(level) if sums else ([frozenset[int]()], np.zeros(len(self.low), dtype=np.int64))
        found = np.zeros((len(self.bound.metrics), len(self.low)))
        for i, pattern in enumerate(patterns):
            rows = [row[:2] for row in self.bound.rows(level, kept, pattern)]
            found = np.where(number == i, self.level_costs(level, served, rows), found)
        return found

    def level_costs(self, level: int, served: list[tuple[int, int]], rows: list[tuple[Chain, Any]], each: bool = False) -> Any:
        """``float64[metrics, boxes]``: the least that transfers into ``level`` cost over the rows of all chains.

        With ``each``, ``float64[metrics, rows]`` for the only box, the least over the chains.
        """
        bound, caps = self.bound, self._caps(level)
        count = len(rows[0][1]) if each else len(self.low)
        total = np.full((len(bound.metrics), count), np.inf)
        for m, metric in enumerate(bound.metrics):
            if not any(any(metric.weights[i]) for i in (level, *(parent for _, parent in served))):
                total[m] = 0.0
                continue
            prices = [self._price(metric, t, level, parent) for t, parent in served]
            first = sum((price[1] for price in prices), np.zeros(len(self.low)))
            least = sum((price[2] for price in prices), np.zeros(len(self.low)))
            for chain, densities in rows:
                weights = [price[0] * bound.volume / caps[:, sorted(run)].prod(axis=1) for price, run in zip(prices, chain)]
                moved = densities @ np.array(weights)
                total[m] = np.minimum(total[m], moved[:, 0] if each else moved.min(axis=0))
            total[m] = np.maximum(total[m] - first, least)
        return total

    def _copies(self, t: int, child: int) -> Any:
        if (t, child) not in self.working_copies:
            self.working_copies[t, child] = self._irrelevant(self.working[child].astype(float), t)
        return self.working_copies[t, child]

    def _price(self, metric: Metric, t: int, child: int, parent: int) -> tuple[Any, Any, Any]:
        """Cost of a word into ``child``; what first reads of an output save; the cost of moving every touched word once."""
        shape, bound = self.bound.shapes[t], self.bound
        shared = self._shared(t, child, parent)
        read, _, update = (weight * self._scale(metric, parent) for weight in metric.weights[parent])
        fill = metric.weights[child][1] * self._scale(metric, child)
        copies = self._copies(t, child)
        nothing = np.zeros(len(self.low))
        if not shape.is_output:
            return read / shared + fill + nothing, nothing, bound.touched[t] * (read + fill * copies) + nothing
        if not shape.is_plain:
            return update / shared + nothing, nothing, bound.touched[t] * update + nothing
        first = bound.words[t] * (fill * self.copies[child][t] + read * self.copies[parent][t])
        return (read + update) / shared + fill, first + nothing, bound.touched[t] * update + nothing
