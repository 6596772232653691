"""Other ways to run the same chain: each Einsum alone, or fused in shorter groups with the tensors between them through DRAM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product

from stitchloop.errors import NoMapping
from stitchloop.fused.machine import Machine
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.pair import shape_of
from stitchloop.fused.result import FusedResult, Grouped
from stitchloop.fused.shape import Shape
from stitchloop.fused.sharing import rounds_of, softmax_of
from stitchloop.workload import Workload

LONGEST = 8
"""Einsums in a chain up to which all groupings are compared; beyond, only the Einsums alone are."""

Mapper = Callable[[Shape, Machine, FusedOptions], FusedResult]


@dataclass
class Groupings:
    """The groupings of one chain; every group is mapped once, by ``mapper``."""

    shape: Shape
    machine: Machine
    options: FusedOptions
    mapper: Mapper

    def __post_init__(self) -> None:
        self._known: dict[tuple[int, int], FusedResult | None] = {}

    @property
    def alone(self) -> Grouped | None:
        """Each Einsum for itself; None when one of them fits no buffer."""
        return self._grouped(tuple(range(len(self.shape.structure.ops) + 1)))

    def best(self, whole: FusedResult) -> Grouped | None:
        """The best grouping of a chain of three or more by the first objective, ``whole`` (all fused) among them."""
        count = len(self.shape.structure.ops)
        if not 2 < count <= LONGEST:
            return None
        self._known[0, count] = whole
        found = [grouped for cuts in _cuts(count) if (grouped := self._grouped(cuts)) is not None]
        name = self.options.objectives[0]
        return min(found, key=lambda g: (g.objective(name), len(g.names)), default=None)

    def _grouped(self, cuts: tuple[int, ...]) -> Grouped | None:
        results = [self._group(start, stop) for start, stop in pairwise(cuts)]
        parts = [result for result in results if result is not None]
        if len(parts) < len(results):
            return None
        energy = sum(part.best.figures.energy for part in parts)
        cycles = sum(part.best.figures.cycles for part in parts)
        if cuts[1] == 1:
            elements, softmax = softmax_of(self.shape, self.machine, self.options)
            energy += self.options.softmax_ops * elements * self.shape.copies * self.machine.elementary
            cycles += softmax * rounds_of(self.shape, self.machine, self.options)
        return Grouped(
            tuple(part.shape.einsum_names for part in parts),
            tuple(part.best for part in parts),
            energy,
            cycles,
            sum(part.best.figures.dram for part in parts),
            max(part.best.figures.buffer_demand for part in parts),
        )

    def _group(self, start: int, stop: int) -> FusedResult | None:
        if (start, stop) not in self._known:
            self._known[start, stop] = self._mapped(start, stop)
        return self._known[start, stop]

    def _mapped(self, start: int, stop: int) -> FusedResult | None:
        assert self.shape.workload is not None
        by_name = {einsum.name: einsum for einsum in self.shape.workload.einsums}
        group = Workload(tuple(by_name[name] for name in self.shape.einsum_names[start:stop]))
        softmax = self.options.softmax if start == 0 and stop > 1 else "none"
        options = replace(self.options, softmax=softmax, pareto=(), unfused=False, ablation="full")
        try:
            return self.mapper(shape_of(group), self.machine, options)
        except NoMapping:
            return None


def _cuts(count: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut a chain into groups: the places of the cuts, both ends included."""
    for flags in product((False, True), repeat=count - 1):
        yield (0, *(at for at, flag in enumerate(flags, 1) if flag), count)
