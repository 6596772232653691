"""The performance model of a cascade on a machine, group by group; what several groups share is worked out once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from stitchloop.cascade.candidates import Candidates
from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.compute import Work, array_work, ideal_work, lane_work
from stitchloop.cascade.cost import cost_of
from stitchloop.cascade.expression import Access
from stitchloop.cascade.machine import Machine
from stitchloop.cascade.merge import Node
from stitchloop.cascade.partition import Pipeline, Tiles, equations_of, is_array_node, pipeline_of, tiles_of
from stitchloop.cascade.performance import DETAILED, GroupCost, Performance, Settings


class Model:
    """Evaluates groups of one cascade on one machine.

    Parameters
    ----------
    cascade : Cascade
    machine : Machine
    settings : Settings
    """

    def __init__(self, cascade: Cascade, machine: Machine, settings: Settings = DETAILED) -> None:
        self.cascade, self.machine, self.settings = cascade, machine, settings
        self._tilings: dict[object, Tiles] = {}
        self._works: dict[object, Work] = {}
        self._tile_words: dict[object, np.ndarray] = {}
        self._seconds: dict[tuple[tuple[Node, ...], bool], float] = {}
        self._groups: dict[tuple[tuple[Node, ...], bool], GroupCost] = {}
        self._pipelines: dict[tuple[Node, ...], Pipeline] = {}

    def at_context(self, steps: int) -> Model:
        """The same model for so many steps (1 is one generated token) of the first iterative rank and of those of its size."""
        now = self.cascade.sizes
        ranks = self.cascade.iterative_ranks
        sizes = {rank: steps for rank in ranks if now[rank] == now[ranks[0]]}
        other = Model(self.cascade.with_sizes(sizes), self.machine, self.settings)
        other._pipelines = self._pipelines
        return other

    def evaluate(self, groups: Iterable[Sequence[Node]], strategy: str = "") -> Performance:
        """A whole grouping: each group a sequence of nodes, in order."""
        costs: list[GroupCost] = []
        before: Node | None = None
        for group in groups:
            costs.append(self.group(tuple(group), before))
            before = group[-1]
        return Performance(strategy, self.cascade, self.machine, tuple(costs))

    def group(self, nodes: tuple[Node, ...], before: Node | None = None) -> GroupCost:
        """One group, with the partitioning that takes the least time (then the least traffic).

        ``before`` is the node that runs just before it and leaves the array in its mode.
        """
        key = (nodes, self._switches(nodes, before))
        if key not in self._groups:
            self._groups[key] = cost_of(self._candidates(*key))
        return self._groups[key]

    def partitionings(self, nodes: tuple[Node, ...], before: Node | None = None) -> tuple[GroupCost, ...]:
        """The best of each kind of partitioning of a group that fits, fastest first."""
        candidates = self._candidates(nodes, self._switches(nodes, before))
        found = [cost_of(candidates, chosen) for chosen in candidates.best_of_kind().values()]
        return tuple(sorted(found, key=lambda cost: cost.seconds))

    def group_seconds(self, nodes: tuple[Node, ...], before: Node | None = None) -> float:
        """Time of one group alone; infinite where the buffer is too small."""
        key = (nodes, self._switches(nodes, before))
        if key not in self._seconds:
            candidates = self._candidates(*key)
            self._seconds[key] = float("inf") if candidates.shortfall else candidates.best[1] / self.machine.clock_hz
        return self._seconds[key]

    def _switches(self, nodes: tuple[Node, ...], before: Node | None) -> bool:
        if before is None or not self.machine.shared_array:
            return False
        return is_array_node(self.cascade, before) != is_array_node(self.cascade, nodes[0])

    def _candidates(self, nodes: tuple[Node, ...], switches: bool) -> Candidates:
        if nodes not in self._pipelines:
            self._pipelines[nodes] = pipeline_of(self.cascade, nodes)
        return Candidates(self, self._pipelines[nodes], switches)

    def tiles(self, pipeline: Pipeline) -> Tiles:
        """Candidate tilings of a pipeline; one tile of everything where capacity does not count."""
        least = self.settings.least_tiles if len(pipeline.segments) > 1 else 1
        ranks = pipeline.tile_ranks if self.settings.capacity else ()
        key = (ranks, pipeline.lockstep, least)
        if key not in self._tilings:
            self._tilings[key] = tiles_of(self.cascade, ranks, pipeline.lockstep, least)
        return self._tilings[key]

    def work(self, node: Node, tiles: Tiles) -> Work:
        """Cycles and array accesses of one node for every candidate tiling."""
        key = (node, id(tiles))
        if key not in self._works:
            equations = equations_of(self.cascade, node)
            if is_array_node(self.cascade, node):
                work = array_work(self.cascade, equations, self.machine, tiles.sizes) if self.settings.array else None
            else:
                work = lane_work(equations, self.machine, tiles.sizes) if self.settings.functions else None
            self._works[key] = work or ideal_work(equations, self.machine, tiles.sizes)
        return self._works[key]

    def tile_words(self, tensor: str, tiles: Tiles) -> np.ndarray:
        """Words of one tile of a tensor, as wide as any access needs it (halo included)."""
        key = (tensor, id(tiles))
        if key not in self._tile_words:
            self._tile_words[key] = tiles.words(self._accesses[tensor])
        return self._tile_words[key]

    @cached_property
    def words(self) -> Mapping[str, int]:
        """Words of each whole tensor."""
        return {tensor.name: self.cascade.words(tensor.name) for tensor in self.cascade.tensors}

    @cached_property
    def _accesses(self) -> dict[str, list[Access]]:
        found: dict[str, list[Access]] = {}
        for einsum in self.cascade.einsums:
            for access in (*einsum.inputs, *einsum.outputs):
                found.setdefault(access.tensor, []).append(access)
        return found
