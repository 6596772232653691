"""The reference model of one Einsum on one architecture: one mapping in, Timeloop's figures out."""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

from stitchloop.architecture import Architecture
from stitchloop.errors import InputError
from stitchloop.mapping import Mapping
from stitchloop.model.bypass import Kept, count_levels, first_accesses, floored_partitions
from stitchloop.model.counting import TIMELOOP, Counting
from stitchloop.model.delivery import deliver
from stitchloop.model.imperfect import count_imperfect, passes, working_instances
from stitchloop.model.performance import access_energy, throttled
from stitchloop.model.radix import effective, radices
from stitchloop.model.spatial import spread
from stitchloop.model.tiles import Form, Nest
from stitchloop.model.validity import check_factors, check_hardware, check_kept
from stitchloop.stats import PARTIAL_TILES, ComputeStats, LevelStats, Stats, TensorStats
from stitchloop.workload import Einsum

MANY_ELEMENTS = 2**20
"""Above this many compute units the hardware is checked first, before its elements are looked at one by one."""


def _too_large() -> InputError:
    mend = "give smaller rank sizes or energies, or larger bandwidths"
    return InputError("the model", "cycles, energy or EDP above 1.8e308, the largest number of double precision", mend)


class Counted(NamedTuple):
    """A valid mapping with its counts.

    ``instances`` are those that work: of the compute units first, then of level i at index i + 1. ``tensors`` holds, per
    tensor in the Einsum's order, what is counted at each level that keeps it.
    """

    cycles: int
    instances: tuple[int, ...]
    tensors: list[dict[int, Kept]]
    counting: str


class Evaluator:
    """Evaluates mappings of ``einsum`` on ``architecture``; holds what does not depend on the mapping.

    Parameters
    ----------
    einsum, architecture
        The workload and the machine, with its ERT.
    counting : Counting
        Which of the tool's artefacts are counted. Imperfect mappings are counted with exact partial tiles in any case, of
        the switches only ``wraps_keep_overlap`` and ``double_cycles`` matter there; a mapping is perfect if it is so with
        the bounds that its loops reach.
    """

    def __init__(self, einsum: Einsum, architecture: Architecture, counting: Counting = TIMELOOP) -> None:
        self.einsum, self.architecture, self.counting = einsum, architecture, counting
        self.forms = tuple(Form.of(einsum, tensor) for tensor in einsum.tensors)

    def evaluate(self, mapping: Mapping) -> Stats:
        """All figures of ``mapping``.

        Raises
        ------
        InvalidMapping
            When the hardware or the workload forbids it.
        InputError
            When cycles, energy or EDP exceed the largest double.
        """
        try:
            stats = self._evaluate(mapping)
        except OverflowError:
            raise _too_large() from None
        if not isfinite(stats.edp):
            raise _too_large()
        return stats

    def _evaluate(self, mapping: Mapping) -> Stats:
        counted = self.count(mapping)
        architecture = self.architecture
        cycles, binding = counted.cycles, architecture.compute.name
        paced = []
        for i, level in enumerate(architecture.levels):
            if level.is_fanout:
                continue
            needed, slowdown = throttled(level, [t[i].counts for t in counted.tensors if i in t], counted.cycles, self.counting)
            if needed > cycles:
                cycles, binding = needed, level.name
            paced.append((i, needed, slowdown))
        total = compute_energy = self.einsum.computes * architecture.compute.energy.compute
        levels = {}
        for i, needed, slowdown in paced:
            stats = self._level(i, counted, cycles, needed, slowdown)
            levels[architecture.levels[i].name] = stats
            total += stats.energy_pJ
        computes = self.einsum.computes
        return Stats(
            compute=ComputeStats(computes, counted.instances[0], counted.cycles, compute_energy),
            levels=levels,
            cycles=cycles,
            energy_pJ=total,
            utilization=computes / architecture.compute.instances / cycles,
            edp=total * 1e-12 * cycles,
            binding=binding,
            counting=counted.counting,
        )

    def _level(self, i: int, counted: Counted, cycles: int, needed: int, slowdown: float) -> LevelStats:
        """Energy is added up in the tool's order: per tensor, accesses and a share of the leakage."""
        level = self.architecture.levels[i]
        leakage = level.energy.leak * cycles * counted.instances[i + 1]
        share = leakage / len(self.forms)
        tensors, total = {}, 0.0
        for form, kept_at in zip(self.forms, counted.tensors, strict=True):
            kept = kept_at.get(i)
            if kept is None:
                total += share
                continue
            energy = sum(access_energy(counts, level.energy, level.block_size, many) for many, counts in kept.kinds)
            total += energy + share
            c = kept.counts
            tensors[form.name] = TensorStats(
                c.partition, c.capacity, kept.instances, c.reads, c.fills, c.updates, c.reductions, energy
            )
        return LevelStats(needed, slowdown, leakage, tensors, total)

    def count(self, mapping: Mapping) -> Counted:
        """Counts of ``mapping`` without cycles and energy; raises :class:`~stitchloop.errors.InvalidMapping`."""
        einsum, architecture = self.einsum, self.architecture
        check_factors(einsum, mapping, architecture)
        if not mapping.is_perfect:
            mapping = effective(mapping)
        if not mapping.is_perfect:
            return self.count_exactly(mapping)
        keeps = self._keeps(mapping)
        check_kept(keeps, architecture.compute.name)
        nest = Nest.of(einsum.ranks, einsum.rank_sizes, mapping)
        if nest.instances[0] > MANY_ELEMENTS:
            check_hardware(architecture, nest, self.forms, keeps)
        tensors = [self._tensor(form, kept, nest, mapping) for form, kept in zip(self.forms, keeps, strict=True)]
        check_hardware(architecture, nest, self.forms, keeps)
        return Counted(nest.cycles, nest.instances, tensors, self.counting.name)

    def _keeps(self, mapping: Mapping) -> list[list[bool]]:
        """Per tensor and level, whether the level keeps the tensor."""
        return [[form.name in level.keep for level in mapping.levels] for form in self.forms]

    def _tensor(self, form: Form, keeps: list[bool], nest: Nest, mapping: Mapping) -> dict[int, Kept]:
        counting = self.counting
        spreads = []
        for i, level in enumerate(self.architecture.levels):
            delivery = deliver(form, nest, i, counting)
            spreads.append(spread(form, nest.spatial_x[i], nest.spatial_y[i], level.fanout_x, delivery, counting))
        if counting.floored_partition:
            firsts = floored_partitions(form, nest)
        else:
            firsts = first_accesses(form, keeps, radices(self.einsum.ranks, effective(mapping)), counting)
        return count_levels(form, keeps, self.architecture.names, nest, spreads, firsts, counting)

    def count_exactly(self, mapping: Mapping) -> Counted:
        """Counts with exact partial tiles, of a mapping that may also be perfect; raises as :meth:`count`."""
        einsum, architecture = self.einsum, self.architecture
        keeps = self._keeps(mapping)
        check_factors(einsum, mapping, architecture)
        check_kept(keeps, architecture.compute.name)
        mapping = effective(mapping)
        nest = Nest.of(einsum.ranks, einsum.rank_sizes, mapping)
        check_hardware(architecture, nest, self.forms, keeps)
        digits = radices(einsum.ranks, mapping)
        blocks = [level.block_size for level in architecture.levels]
        tensors = []
        for form, kept in zip(self.forms, keeps, strict=True):
            capacities = [form.volume(tile) for tile in nest.tiles]
            tensors.append(count_imperfect(form, kept, digits, capacities, blocks, self.counting))
        instances = tuple(working_instances(digits, level) for level in range(-1, len(architecture.levels)))
        return Counted(passes(digits), instances, tensors, PARTIAL_TILES)
