"""Groupings to compare: the greedy strategies, the best contiguous one, published baselines, the speed of light."""

from __future__ import annotations

from dataclasses import dataclass

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.compute import volume as rank_volume
from stitchloop.cascade.evaluate import Model
from stitchloop.cascade.machine import Machine
from stitchloop.cascade.merge import Node
from stitchloop.cascade.partition import equations_of, is_array_node
from stitchloop.cascade.performance import Performance
from stitchloop.cascade.stitch import STRATEGIES, Stitching, stitch
from stitchloop.cascade.traffic import Volume, moves_of, volume

OPTIMAL = "optimal"
ALL_STRATEGIES = (*STRATEGIES, OPTIMAL)


@dataclass(frozen=True)
class Evaluated:
    """A grouping with its figures."""

    stitching: Stitching
    performance: Performance

    @property
    def strategy(self) -> str:
        return self.stitching.strategy


def evaluate(model: Model, strategy: str, *, merge: bool = True, reorder: bool = True) -> Evaluated:
    """Stitch the model's cascade by a strategy (``optimal`` too) and evaluate the groups."""
    if strategy == OPTIMAL:
        from stitchloop.cascade.optimum import optimal

        return Evaluated(*optimal(model, merge=merge, reorder=reorder))
    stitching = stitch(model.cascade, strategy, merge=merge, reorder=reorder)
    return Evaluated(stitching, model.evaluate((group.nodes for group in stitching.groups), strategy))


def around_state(cascade: Cascade, strategy: str) -> list[tuple[Node, ...]]:
    """Unfused, but for the group of a strategy that holds the carried state (of Mamba, the SSM part)."""
    fused = stitch(cascade, strategy)
    carriers = {cascade.tensor(s.tensor).producer for s in cascade.states if is_recurrent(cascade, s.tensor)}
    found: list[tuple[Node, ...]] = []
    for group in fused.groups:
        if carriers & set(group.einsums):
            found.append(group.nodes)
        else:
            found += [(node,) for node in group.nodes]
    return found


def is_recurrent(cascade: Cascade, tensor: str) -> bool:
    """Whether some Einsum reads only earlier steps of the tensor, so that its value depends on them."""
    return any(access.tensor == tensor and cascade.is_carried(access) for einsum in cascade.einsums for access in einsum.inputs)


@dataclass(frozen=True)
class Baseline:
    """A published accelerator's grouping, as a reading of what was published about it."""

    name: str
    reading: str
    around: str
    """Strategy whose group with the carried state is fused; ``none`` fuses nothing."""

    def groups(self, cascade: Cascade) -> list[tuple[Node, ...]]:
        return around_state(cascade, self.around)


BASELINES: tuple[Baseline, ...] = (
    Baseline("MARCA-like", "unfused at its best", "none"),
    Baseline("MARCA-like (SSM)", "second reading: the SSM part fused, all else unfused", "ri"),
    Baseline("Geens-like", "unfused but for the fused SSM part", "ri"),
    Baseline(
        "Geens-like (fine)", "second reading: fine-grained tiling, the SSM part with what uses its result at once", "ri+rsb"
    ),
)
"""Both readings of both baselines. The published 4.9x over MARCA needs the first one."""


def baseline(model: Model, name: str) -> Performance:
    """One of :data:`BASELINES` by name."""
    found = next(b for b in BASELINES if b.name == name)
    return model.evaluate(found.groups(model.cascade), name)


@dataclass(frozen=True)
class SpeedOfLight:
    """No schedule is faster: all operations at the peak of their modes, and every word that must cross DRAM, once."""

    compute_seconds: float
    dram_seconds: float
    volume: Volume

    @property
    def seconds(self) -> float:
        return max(self.compute_seconds, self.dram_seconds)


def speed_of_light(cascade: Cascade, machine: Machine) -> SpeedOfLight:
    """The bound of a whole layer: inputs, outputs, weights and states once; both modes at their peak, one operation a point."""
    cycles = {True: 0.0, False: 0.0}
    sizes = {rank: float(size) for rank, size in cascade.sizes.items()}
    for einsum in cascade.einsums:
        is_array = is_array_node(cascade, (einsum.name,))
        points = sum(float(rank_volume(equation.ranks, sizes)) for equation in equations_of(cascade, (einsum.name,)))
        cycles[is_array] += points / (machine.array_pes if is_array else machine.lanes)
    compute = sum(cycles.values()) if machine.shared_array else max(cycles.values())
    words = volume(moves_of(cascade, tuple(einsum.name for einsum in cascade.einsums)))
    return SpeedOfLight(compute / machine.clock_hz, words.total / machine.dram_words / machine.clock_hz, words)
