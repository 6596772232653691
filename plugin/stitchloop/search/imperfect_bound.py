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
2. A rank that T has is covered once in each of these passes. Where two ranks are summed, a step of the innermost moving loop
   brings at least what slides in. A wrap can rest only where loops of both ranks make up for each other, and only after such
   a step, onto a tile no longer than the one before it: half of the points count then, all of them otherwise. Tensors that
   sum more ranks, or repeat one, count with the words that they touch.
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

from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from stitchloop.architecture import Level
from stitchloop.mapspace.space import Mapspace
from stitchloop.search.box_costs import SAFE, BoxCosts, Chain, Metric, Prices
from stitchloop.search.machine import touched_words
from stitchloop.search.nest import KeepSets, keep_sets
from stitchloop.search.objectives import counted_level
from stitchloop.search.tile_grid import Shape, hull, largest_tiles, passes_of


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
        self.touched = [float(touched_words(tensor, einsum.sizes)) for tensor in einsum.tensors]
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
        boxes = BoxCosts(self, spatial[None], spatial[None])
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
        boxes = BoxCosts(self, spatial[None], spatial[None])
        total = np.zeros((len(self.metrics), extents.shape[1]))
        for level, served in self.transfers(keeps).items():
            if level < 0:
                total = total + boxes.computed(served)
            else:
                kept = tuple(t for t, _ in served)
                total = total + boxes.level_costs(
                    level, served, self.chained(kept, extents[level], boxes.still(level)[0][0]), each=True
                )
        return boxes.rate(total)

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
        return BoxCosts(self, low, high).goals(wanted)

    def _delays(self, low: Any, high: Any, wanted: list[int]) -> Any:
        """Cycles: where one keep set leaves no bandwidth behind the compute units, no other one is better."""
        first = self.favourite if self.favourite in wanted else wanted[0]
        boxes = BoxCosts(self, low, high)
        goals = boxes.goals([first])
        settled = goals[:, first, 0] <= boxes.least_cycles
        goals[np.ix_(settled, wanted)] = boxes.least_cycles[settled, None, None]
        goals[settled, first] *= SAFE
        if not settled.all():
            goals[~settled] = BoxCosts(self, low[~settled], high[~settled]).goals(wanted)
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
