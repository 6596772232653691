"""Floors under what the outermost level moves, the same for every choice of spatial factors.

Let v be the outermost level above a fan-out. Turn the spatial loops of a nest into temporal ones at the innermost end of the same
levels. Tiles at v and outside hold the same words as before, and the steps of all loops outside are the same. So

- of a tensor that v or a level between v and the outermost keeps, the outermost level moves the same words;
- of any other that a level k inside v keeps, it delivers for each step outside v at least the words of v's tile that v's
  last tile does not hold. If a temporal loop between k and v indexes the tensor, then nothing outlasts a step: the tensor is
  paid at v at once. Else v's tile is spread over the instances of k inside v, so it fits into all of them together. In both
  cases it costs no less than if v kept it. That takes tiles without gaps: index expressions with steps of one, each rank in
  one of them. (Under the tool's full count it holds for tensors without sums of ranks only: neighbours pass on words of the
  others.)

Hence the least over all nests without spatial loops, with free temporal loops wherever there were spatial ones, and with the
transfers and capacities inside v left out, is a floor. One lattice gives it for all choices.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from stitchloop.mapspace.factors import ANY, ONE
from stitchloop.mapspace.orders import LoopSpace, SpatialSpace
from stitchloop.mapspace.space import Mapspace
from stitchloop.search import scan
from stitchloop.search.arrays import Machine
from stitchloop.search.floors import sums_ranks
from stitchloop.search.machine import build_plan
from stitchloop.search.nest import KeepSets
from stitchloop.search.program import build_program
from stitchloop.search.settle import workspace
from stitchloop.search.slides import EXACT
from stitchloop.search.wraps import loosen
from stitchloop.workload import Tensor

MOST_BYTES = 2**26
"""Most memory for one lattice's table of costs; there is no floor beyond it."""


class Outermost:
    """Floors under the metric that the first goal grows with, if only the outermost level counts in it, by keep sets.

    ``full``: under the tool's full count.
    """

    def __init__(self, space: Mapspace, machine: Machine, task: scan.Task, full: bool) -> None:
        levels = [level if level.spatial.fanout == 1 else replace(level, **_still(space)) for level in space.levels]
        self.space, self.full, self.machine = replace(space, levels=tuple(levels)), full, machine
        last = len(levels) - 1
        inside, outside = machine.weights[:, :last].any(axis=(1, 2)), machine.weights[:, last].any(axis=1)
        self.metric = task.primary
        self.counts = bool(outside[self.metric]) and not inside[self.metric]
        self.widest = max(i for i, level in enumerate(space.levels) if i == 0 or level.spatial.fanout > 1)
        self.movable = frozenset(
            tensor.name
            for t, tensor in enumerate(space.einsum.tensors)
            if not machine.is_diagonal[t] and not _has_gaps(tensor) and not (full and sums_ranks(machine, t))
        )
        self.fanouts = [level.spatial.fanout for level in space.levels]
        self.known: dict[Any, float] = {}

    def floor(self, keeps: KeepSets) -> tuple[frozenset[str], float]:
        """Tensors, and what the outermost level moves of them at least."""
        if not self.counts:
            return frozenset(), 0.0
        own, outer = [frozenset[str]() for _ in keeps], frozenset[str]()
        for i in range(len(keeps) - 2, self.widest - 1, -1):
            own[i], outer = keeps[i] - outer, outer | keeps[i]
        own[-1] = keeps[-1]
        spread = frozenset().union(*keeps[: self.widest]) & self.movable & keeps[-1] - outer
        free = next((i for i in range(self.widest, len(keeps) - 1) if not own[i]), None)
        if free is None:
            spread = frozenset()
        else:
            own[free] = spread
        tensors = outer & keeps[-1] | spread
        room = {name: self._room(keeps, name) for name in sorted(spread)}
        key = (*own, tuple(room.items()))
        if tensors and key not in self.known:
            ways = [frozenset(resting) for n in range(len(room) + 1) for resting in combinations(room, n)]
            found = [self._least(tuple(own), free, {name: room[name] for name in way}, spread - way) for way in ways]
            self.known[key] = min(found) * (1.0 - 1e-12)
        return tensors, self.known.get(key, 0.0)

    def _room(self, keeps: KeepSets, name: str) -> float:
        """Words of a tensor that all instances of the outermost level inside ``widest`` that keeps it hold together."""
        level = max(i for i, keep in enumerate(keeps[: self.widest]) if name in keep)
        return float(self.machine.capacity[level] * prod(self.fanouts[level + 1 : self.widest + 1]))

    def _least(self, keeps: KeepSets, level: int | None, room: dict[str, float], at_once: frozenset[str]) -> float:
        """The least cost where ``level`` has nothing but ``room`` for some tensors, and others are paid at once."""
        capacity = self.machine.capacity.copy()
        if level is not None:
            capacity[level] = np.inf
        machine = self.machine._replace(least=np.zeros_like(capacity), capacity=capacity)
        plan, nodes = build_plan(build_program(self.space, keeps, at_once), len(keeps)), int(machine.divisor_count.prod())
        if len(plan.slot_ops) * nodes * 8 > MOST_BYTES:
            return 0.0
        tables, space = workspace(self.space, machine, plan, nodes, self.full)
        choice, mix = np.ones((len(keeps), len(machine.size)), dtype=np.int64), np.eye(len(machine.weights))[self.metric]
        scan.lay(machine, plan, tables, choice, np.zeros(len(mix)))
        for t, tensor in enumerate(self.space.einsum.tensors):
            if tensor.name in room:
                tables.leave[level, tables.tile[level, t] > room[tensor.name]] = np.inf
        if self.full:
            loosen(machine, plan, tables, choice, [0] * len(keeps), nodes)
        return scan.price(machine, plan, tables, space, mix, nodes, EXACT, space.slots)


def _has_gaps(tensor: Tensor) -> bool:
    """Whether an index expression has steps above one."""
    return any(abs(term.coefficient) > 1 for terms in tensor.projection for term in terms)


def _still(space: Mapspace) -> dict[str, Any]:
    """A level without spatial loops, and with any temporal ones."""
    ranks = space.einsum.ranks
    spatial = SpatialSpace(ranks, dict.fromkeys(ranks, ONE), free=ranks)
    return {"temporal": LoopSpace(ranks, dict.fromkeys(ranks, ANY), free=ranks), "spatial": spatial}
