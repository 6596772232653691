"""Lower bounds on all imperfect mappings that use given spatial bounds.

They hold for perfect ones as well, but for link transfers and short wraps, which only those have.

Why they hold
-------------
Take a level k, its largest tile with extents e, and a tensor T that it keeps. Count the words that all instances of k get per
point of the iteration space: their *density*. Let P be the place in the nest where the run of temporal loops ends, from k
outwards, that T does not index.

1. A rank r that T does not have is passed ``ceil(n / e)`` times if no loop of it is in the run, whatever is cut short: the
   pairs of instance and pass tile the rank. If its loops are in the run there is at least one pass per working instance: a
   passes where spatial loops make a instances work.
2. A rank that T has is covered once in each of these passes. Where several ranks are summed, a step of the innermost moving
   loop brings at least what slides in; a wrap can only rest if it follows such a step onto a tile at least as long, so half
   of the points count.
3. A cut loop may run once only; T then rests across it, as if the loop were not there. Only the rank's last tile, no longer
   than the others, sees this. For that tile, a tensor without the rank that has the loop in its run pays one pass for at most
   ``n / ceil(n / e)`` points, as much as in the nest without the loop, and at least ``max(1, a - 1)`` passes are left for the
   other points. So the cost of a mapping is no less than a mean, weighted by points, of costs of nests without cut loops,
   whose tiles are no larger and in which a run over a whole rank makes that many passes; the least over such nests bounds it.
4. Of all nests one whose runs go over whole ranks costs the child's level least: what is left to choose is which rank comes
   first, and next, until all kept tensors are indexed (:func:`chains`). The least over the chains and over all extents that
   fit bounds what level k gets; such bounds of different levels add up.
5. One read of the parent serves at most as many children as have the same tile.

Spatial bounds come as boxes ``low <= bounds <= high``: sharing is counted at the high end, passes of instances at the low end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from stitchloop.architecture import Level
from stitchloop.mapspace.space import Mapspace
from stitchloop.search.machine import touched
from stitchloop.search.nest import KeepSets, keep_sets
from stitchloop.search.objectives import counted_level
from stitchloop.search.tile_grid import Shape, hull, largest_tiles, passes_of

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


def chains(relevant: list[frozenset[int]], ranks: range) -> set[Chain]:
    """What runs of tensors can go over: ranks are looped over whole, one after another, until every tensor is indexed."""
    found: set[Chain] = set()

    def go(alive: frozenset[int], done: frozenset[int], runs: dict[int, frozenset[int]]) -> None:
        free = frozenset(r for r in ranks if not any(r in relevant[t] for t in alive))
        done |= free
        if not alive or all(r in done for r in ranks):
            found.add(tuple(runs.get(t, done - relevant[t]) for t in range(len(relevant))))
            return
        for rank in ranks:
            if rank not in done:
                over = [t for t in alive if rank in relevant[t]]
                go(alive.difference(over), done | {rank}, runs | {t: done - relevant[t] for t in over})

    go(frozenset(range(len(relevant))), frozenset(), {})
    return found


class ImperfectBound:
    """Bounds on objectives over boxes of spatial bounds.

    Parameters
    ----------
    space : Mapspace
    objectives : sequence of str
        Energy, delay, EDP, accesses; see :mod:`stitchloop.search.objectives`.
    """

    def __init__(self, space: Mapspace, objectives: tuple[str, ...]) -> None:
        einsum, architecture = space.einsum, space.architecture
        self.space, self.objectives = space, objectives
        self.sizes = np.array(einsum.rank_sizes, dtype=np.int64)
        self.volume = float(prod(einsum.rank_sizes))
        self.shapes = [Shape.of(einsum, tensor) for tensor in einsum.tensors]
        self.touched = [float(prod(touched(terms, einsum.sizes) for terms in tensor.projection)) for tensor in einsum.tensors]
        self.words = [float(einsum.size_of(tensor)) for tensor in einsum.tensors]
        self.kept = list(keep_sets(space))
        self.served = [self.transfers(keeps) for keeps in self.kept]
        self.counted = [counted_level(name, architecture) for name in objectives]
        self.metrics, self.throttles = self._metrics()
        self.compute = einsum.computes * architecture.compute.energy.compute
        self.leaks = [
            (i, level.energy.leak) for i, level in enumerate(architecture.levels) if not level.is_fanout and level.energy.leak
        ]
        self.favourite = self.rated = 0
        self._rows: dict[tuple[int, tuple[int, ...], frozenset[int]], list[tuple[Chain, Any, Any]]] = {}

    def _metrics(self) -> tuple[list[Metric], range]:
        levels = self.space.architecture.levels
        nothing = (0.0, 0.0, 0.0)
        energy = tuple(nothing if level.is_fanout else _per_word(level) for level in levels)
        wanted = set(self.objectives)
        metrics = [Metric(energy if wanted & {"energy", "edp"} else (nothing,) * len(levels))]
        leaks = any(level.energy.leak for level in levels)
        paced = "delay" in wanted or "edp" in wanted or ("energy" in wanted and leaks)
        for i, level in enumerate(levels if paced else ()):
            for bandwidth, kinds in (
                (level.read_bandwidth, (1.0, 0.0, 0.0)),
                (level.write_bandwidth, (0.0, 1.0, 1.0)),
                (level.shared_bandwidth, (1.0, 1.0, 1.0)),
            ):
                if bandwidth and not level.is_fanout:
                    own = kinds[0] / bandwidth, kinds[1] / bandwidth, kinds[2] / bandwidth
                    metrics.append(Metric(tuple(own if k == i else nothing for k in range(len(levels))), True))
        throttles = range(1, len(metrics))
        for counted in self.counted:
            one = (1.0, 1.0, 1.0)
            metrics.append(Metric(tuple(one if k == counted else nothing for k in range(len(levels)))))
        return metrics, throttles

    # -- tiles --------------------------------------------------------------------------------------------------------

    @cached_property
    def extents(self) -> list[tuple[Any, Any]]:
        """Least and greatest extents of each level's tile that factor constraints leave."""
        found = []
        limits = [self.space.limits(rank) for rank in self.space.einsum.ranks]
        for level in range(len(self.space.levels)):
            least, most = [], []
            for size, own in zip(map(int, self.sizes), limits):
                inside, outside = own[: 2 * level + 2], own[2 * level + 2 :]
                most.append(_product(size, [limit.high for limit in inside]))
                least.append(-(-size // _product(size, [limit.high for limit in outside])))
            found.append((np.array(least), np.maximum(np.array(most), np.array(least))))
        return found

    def rows(self, level: int, kept: tuple[int, ...], still: frozenset[int]) -> list[tuple[Chain, Any, Any]]:
        """Per chain: densities of the kept tensors (columns) in the tiles (rows) that may be best, and the tiles' extents.

        ``still`` are summed ranks without temporal loops outside the level.
        """
        if (level, kept, still) not in self._rows:
            shapes = [self.shapes[t] for t in kept]
            capacity = self.space.architecture.levels[level].capacity
            most = largest_tiles(self.sizes, shapes, capacity, *self.extents[level])
            found = []
            for chain, densities in self.chained(kept, most, still) if len(most) else ():
                best = hull(densities)
                found.append((chain, densities[best], most[best]))
            self._rows[level, kept, still] = found
        return self._rows[level, kept, still]

    @cached_property
    def fillings(self) -> list[list[Any]]:
        """Per rank, in tables of the greatest over 1, 2, 4, ... neighbours: the share of s instances that works on average."""
        tables = []
        units = self.space.architecture.compute.instances
        for size in map(int, self.sizes):
            widest = min(size, units)
            spread = np.arange(1, widest + 1)
            table = [size / (spread * -(-size // spread))]
            while 2 ** len(table) <= widest:
                half = 2 ** (len(table) - 1)
                table.append(np.maximum(table[-1][:-half], table[-1][half:]))
            tables.append(table)
        return tables

    def tiles(self, spatial: Any, keeps: KeepSets) -> list[Any]:
        """Extents of every level's tile for which the bound is least in energy, or else in the first metric; None if any do.

        They are the smallest of as many passes. ``spatial[levels, ranks]`` are the spatial bounds.
        """
        boxes = _Boxes(self, spatial[None], spatial[None])
        found: list[Any] = [None] * len(self.space.levels)
        for level, served in self.transfers(keeps).items():
            if level >= 0:
                metric = next((m for m in self.metrics if any(any(own) for own in m.weights)), self.metrics[0])
                extents = boxes.least_tile(metric, level, served)
                found[level] = None if extents is None else passes_of(self.sizes, passes_of(self.sizes, extents))
        return found

    def transfers(self, keeps: KeepSets) -> dict[int, list[tuple[int, int]]]:
        """By child level, -1 for the compute units: (tensor, parent level)."""
        by_level: dict[int, list[tuple[int, int]]] = {}
        for t, tensor in enumerate(self.space.einsum.tensors):
            own = [i for i, keep in enumerate(keeps) if tensor.name in keep]
            by_level.setdefault(-1, []).append((t, own[0]))
            for child, parent in pairwise(own):
                by_level.setdefault(child, []).append((t, parent))
        return by_level

    def of_tiles(self, spatial: Any, keeps: KeepSets, extents: Any) -> Any:
        """``float64[tilings, objectives]`` for some spatial bounds and keep sets; ``extents[levels, tilings, ranks]``."""
        boxes = _Boxes(self, spatial[None], spatial[None])
        total = np.zeros((len(self.metrics), extents.shape[1]))
        for level, served in self.transfers(keeps).items():
            if level < 0:
                total = total + boxes._computed(served)
            else:
                kept = tuple(t for t, _ in served)
                total = total + boxes.level_costs(
                    level, served, self.chained(kept, extents[level], boxes.still(level)[0][0]), each=True
                )
        return boxes._rate(total)

    def chained(self, kept: tuple[int, ...], extents: Any, still: frozenset[int]) -> list[tuple[Chain, Any]]:
        """Per chain: densities of the kept tensors (columns) in tiles of these extents (rows); see :meth:`rows`."""
        found = []
        for chain in chains([self.shapes[t].relevant for t in kept], range(len(self.sizes))):
            columns = []
            for t, run in zip(kept, chain):
                density = self.shapes[t].density(extents, self.sizes, still)
                for r in range(len(self.sizes)):
                    if r not in self.shapes[t].relevant and r not in run:
                        density = density * passes_of(self.sizes[r], extents[:, r]) / self.sizes[r]
                columns.append(np.maximum(density, self.touched[t] / self.volume if not run else 0.0))
            found.append((chain, np.stack(columns, axis=1)))
        return found

    # -- boxes --------------------------------------------------------------------------------------------------------

    def goals(self, low: Any, high: Any, active: Any = None) -> Any:
        """``float64[boxes, keep sets, objectives]`` for spatial bounds between ``low`` and ``high[boxes, levels, ranks]``.

        ``active`` says which keep sets are asked for; the others count as infinite.
        """
        wanted = [k for k in range(len(self.kept)) if active is None or active[k]]
        if self.objectives == ("delay",) and len(wanted) > 1:
            return self._delays(low, high, wanted)
        return _Boxes(self, low, high).goals(wanted)

    def _delays(self, low: Any, high: Any, wanted: list[int]) -> Any:
        """Cycles: where one keep set leaves no bandwidth behind the compute units, no other one is better."""
        first = self.favourite if self.favourite in wanted else wanted[0]
        boxes = _Boxes(self, low, high)
        goals = boxes.goals([first])
        settled = goals[:, first, 0] <= boxes.least_cycles
        goals[np.ix_(settled, wanted)] = boxes.least_cycles[settled, None, None]
        goals[settled, first] *= SAFE
        if not settled.all():
            goals[~settled] = _Boxes(self, low[~settled], high[~settled]).goals(wanted)
            self.favourite = int(np.bincount(goals[~settled, :, 0].argmin(axis=1)).argmax())
        return goals


def _per_word(level: Level) -> Prices:
    energy, block = level.energy, level.block_size
    return energy.read / block, energy.write / block, energy.update / block


def _product(size: int, highs: list[int | None]) -> int:
    """The product of upper limits, none of which counts above ``size``."""
    total = 1
    for high in highs:
        total = min(size, total * min(size, high or size))
    return total


def _greatest(table: list[Any], low: Any, high: Any) -> Any:
    """The greatest entry from ``low`` to ``high``, counted from 1, by two windows whose length is a power of two."""
    step = np.floor(np.log2(high - low + 1)).astype(np.int64)
    found = np.zeros(len(low))
    for power in np.unique(step):
        at = step == power
        found[at] = np.maximum(table[power][low[at] - 1], table[power][high[at] - 2**power])
    return found


class _Boxes:
    """One batch of boxes."""

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
            goals[:, wanted] = self._rate(costs).transpose(1, 0, 2)
        goals[~self.feasible()] = np.inf
        return goals

    def _rate(self, costs: Any) -> Any:
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
                    self.known[key] = self._computed(served)
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

    def _computed(self, served: list[tuple[int, int]]) -> Any:
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
