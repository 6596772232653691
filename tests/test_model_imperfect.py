"""Imperfect mappings: the closed form against an explicit loop-by-loop simulation."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod

import pytest

from model_random import SHAPES, random_architecture, random_einsum, random_mapping
from model_simulator import InstanceCounts, Simulation
from stitchloop.architecture import Architecture
from stitchloop.mapping import Mapping
from stitchloop.model import CLEAN, Counting, Evaluator
from stitchloop.model.bypass import Counts, Kept
from stitchloop.model.performance import access_energy
from stitchloop.workload import Einsum

WRAPS_RELOAD = replace(CLEAN, name="wraps reload", wraps_keep_overlap=False)


def assert_as_simulated(einsum: Einsum, architecture: Architecture, mapping: Mapping, counting: Counting) -> None:
    simulation = Simulation(einsum, architecture, mapping, counting.wraps_keep_overlap)
    evaluator = Evaluator(einsum, architecture, counting)
    counted = evaluator.count(mapping)
    stats = evaluator.evaluate(mapping)
    assert simulation.computes_and_cycles() == (stats.computes, stats.compute.cycles)
    assert counted.instances == tuple(len(simulation.working(level)) for level in range(-1, len(architecture.levels)))
    for tensor, kept_at in zip(einsum.tensors, counted.tensors, strict=True):
        levels = sorted(kept_at)
        for child, level in zip([-1, *levels], levels):
            simulated = simulation.tensor(tensor, level, child, level == levels[-1])
            kept = kept_at[level]
            where = (tensor.name, architecture.levels[level].name, mapping)
            assert _counts(kept.counts) == simulated[0], where
            assert max(s.capacity for s in simulated) == kept.counts.capacity, where
            assert kept.counts.reads == max(s.reads for s in simulated), where
            assert _energy(architecture, level, kept) == pytest.approx(
                sum(_energy_of(architecture, level, s) for s in simulated), rel=1e-12
            ), where


def _counts(counts: Counts) -> InstanceCounts:
    return InstanceCounts(counts.reads, counts.fills, counts.updates, counts.capacity)


def _energy(architecture: Architecture, level: int, kept: Kept) -> float:
    at = architecture.levels[level]
    return sum(access_energy(counts, at.energy, at.block_size, many) for many, counts in kept.kinds)


def _energy_of(architecture: Architecture, level: int, counts: InstanceCounts) -> float:
    at = architecture.levels[level]
    return access_energy(Counts(0, 0, counts.reads, counts.fills, counts.updates, 0), at.energy, at.block_size, 1)


@pytest.mark.parametrize("counting", [CLEAN, WRAPS_RELOAD], ids=lambda counting: counting.name)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("imperfect", [True, False], ids=["imperfect", "perfect"])
def test_closed_form_equals_simulation(shape: str, counting: Counting, imperfect: bool) -> None:
    rng = random.Random(f"{shape} {counting.name} {imperfect}")
    tried = 0
    while tried < 15:
        einsum = random_einsum(rng, shape, 8)
        architecture = random_architecture(rng, 4)
        mapping = random_mapping(rng, einsum, architecture, imperfect=imperfect, most_elements=8)
        if padded_points(mapping) <= 300 and mapping.is_perfect != imperfect:
            assert_as_simulated(einsum, architecture, mapping, counting)
            tried += 1


def padded_points(mapping: Mapping) -> int:
    """Iterations with every loop at its bound: what the simulation runs through."""
    return prod(loop.bound for level in mapping.levels for loop in level.temporal + level.spatial)
