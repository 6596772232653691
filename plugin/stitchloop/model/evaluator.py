"""The reference model of one Einsum on one architecture: one mapping in, Timeloop's figures out."""

from __future__ import annotations

from typing import NamedTuple

from stitchloop.architecture import Architecture
from stitchloop.mapping import Mapping
from stitchloop.model.bypass import Counts, count_levels, distinct_words, floored_partitions
from stitchloop.model.counting import TIMELOOP, Counting
from stitchloop.model.delivery import deliver
from stitchloop.model.performance import access_energy, throttled
from stitchloop.model.spatial import spread
from stitchloop.model.tiles import Form, Nest
from stitchloop.model.validity import check_factors, check_hardware, check_kept
from stitchloop.stats import ComputeStats, LevelStats, Stats, TensorStats
from stitchloop.workload import Einsum


class Counted(NamedTuple):
    """A valid mapping with its counts: per tensor (in the Einsum's order), by level."""

    nest: Nest
    counts: list[dict[int, Counts]]


class Evaluator:
    """Evaluates mappings of ``einsum`` on ``architecture``; holds what does not depend on the mapping.

    Parameters
    ----------
    einsum, architecture
        The workload and the machine, with its ERT.
    counting : Counting
        Which of the tool's artefacts are counted.
    """

    def __init__(self, einsum: Einsum, architecture: Architecture, counting: Counting = TIMELOOP) -> None:
        self.einsum, self.architecture, self.counting = einsum, architecture, counting
        self.forms = tuple(Form.of(einsum, tensor) for tensor in einsum.tensors)

    def evaluate(self, mapping: Mapping) -> Stats:
        """All figures of ``mapping``; raises :class:`~stitchloop.errors.InvalidMapping`."""
        nest, counts = self.count(mapping)
        architecture = self.architecture
        cycles, binding = nest.cycles, architecture.compute.name
        paced = []
        for i, level in enumerate(architecture.levels):
            if level.is_fanout:
                continue
            needed, slowdown = throttled(level, [c[i] for c in counts if i in c], nest.cycles, self.counting)
            if needed > cycles:
                cycles, binding = needed, level.name
            paced.append((i, level, needed, slowdown))
        levels = {}
        total = compute_energy = self.einsum.computes * architecture.compute.energy.compute
        for i, level, needed, slowdown in paced:
            instances = nest.instances[i + 1]
            leakage = level.energy.leak * cycles * instances
            tensors = {}
            level_energy = 0.0
            for form, c in zip(self.forms, counts, strict=True):
                if i in c:
                    energy = access_energy(c[i], level.energy, level.block_size, instances)
                    level_energy += energy + leakage / len(self.forms)
                    n = c[i]
                    tensors[form.name] = TensorStats(
                        n.partition, n.capacity, instances, n.reads, n.fills, n.updates, n.reductions, energy
                    )
                else:
                    level_energy += leakage / len(self.forms)
            total += level_energy
            levels[level.name] = LevelStats(needed, slowdown, leakage, tensors, level_energy)
        computes = self.einsum.computes
        return Stats(
            compute=ComputeStats(computes, nest.instances[0], nest.cycles, compute_energy),
            levels=levels,
            cycles=cycles,
            energy_pJ=total,
            utilization=computes / architecture.compute.instances / cycles,
            edp=total * 1e-12 * cycles,
            binding=binding,
        )

    def count(self, mapping: Mapping) -> Counted:
        """Counts of ``mapping`` without cycles and energy; raises :class:`~stitchloop.errors.InvalidMapping`."""
        check_factors(self.einsum, mapping, self.architecture)
        keeps = [[form.name in level.keep for level in mapping.levels] for form in self.forms]
        check_kept(keeps, self.architecture.compute.name)
        nest = Nest.of(self.einsum.ranks, mapping)
        counts = [self._tensor(form, kept, nest) for form, kept in zip(self.forms, keeps, strict=True)]
        check_hardware(self.architecture, nest, self.forms, keeps)
        return Counted(nest, counts)

    def _tensor(self, form: Form, keeps: list[bool], nest: Nest) -> dict[int, Counts]:
        counting = self.counting
        spreads = []
        for i, level in enumerate(self.architecture.levels):
            delivery = deliver(form, nest, i, counting)
            spreads.append(spread(form, nest.spatial_x[i], nest.spatial_y[i], level.fanout_x, delivery, counting))
        partitions = floored_partitions(form, nest) if counting.floored_partition else distinct_words(form, nest)
        return count_levels(form, keeps, self.architecture.names, nest, spreads, partitions, counting)
