"""Time and energy: the published reference outputs, and what must hold for any machine."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade_machines import machine, mamba, shipped
from cascade_strategies import random_cascade
from stitchloop.cascade.candidates import walk
from stitchloop.cascade.compute import array_work, equation_operations, function_operations, lane_work
from stitchloop.cascade.endtoend import Runs
from stitchloop.cascade.evaluate import Model
from stitchloop.cascade.parse import parse_equation
from stitchloop.cascade.performance import DETAILED, IDEAL, Performance
from stitchloop.cascade.read import read_cascade
from stitchloop.cascade.roofline import attainable, ceilings, einsum_points, group_points
from stitchloop.cascade.strategies import baseline, evaluate, speed_of_light

COLUMNS = ("MARCA-like", "Geens-like", "ri", "ri+rsb", "ri+rsb+rsp", "full")
PREFILL_NS = {"370m": (456.8, 108.9, 99.9, 84.1, 76.6, 73.0), "2.8b": (1353.0, 483.3, 460.7, 421.6, 401.3, 396.8)}
STEP_US = {"370m": (32.78, 14.14, 13.56, 12.79, 11.95, 10.91), "2.8b": (106.05, 59.44, 58.00, 56.07, 53.98, 51.38)}
FUSED = COLUMNS[2:]


def layer(model: Model, name: str) -> Performance:
    return baseline(model, name) if name.endswith("like") else evaluate(model, name).performance


# -- reference outputs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["370m", "2.8b"])
def test_prefill_nanoseconds_per_token_and_layer(name):
    steps = 2**20
    model = Model(mamba(name, steps), machine(), IDEAL)
    found = [layer(model, column).seconds / (64 * steps) * 1e9 for column in COLUMNS]
    assert found == pytest.approx(PREFILL_NS[name], rel=0.01)


@pytest.mark.parametrize("name", ["370m", "2.8b"])
def test_generation_microseconds_per_layer_step(name):
    model = Model(mamba(name, 1), machine(), IDEAL)
    assert [layer(model, column).seconds * 1e6 for column in COLUMNS] == pytest.approx(STEP_US[name], rel=0.01)


def test_published_speedups():
    runs = {name: Runs(mamba(name, 2**20), machine(), IDEAL) for name in ("370m", "2.8b")}

    def mean(strategy: str, context: int, generated: int) -> float:
        return sum(run.speedup(strategy, context, generated) for run in runs.values()) / 2

    over_geens = runs["370m"].layer("Geens-like", 2**20).seconds / runs["370m"].layer("full", 2**20).seconds
    assert mean("full", 2**20, 0) == pytest.approx(4.9, rel=0.1)
    assert over_geens == pytest.approx(1.5, rel=0.05)
    assert runs["2.8b"].speedup("ri", 0, 1) == pytest.approx(1.9, rel=0.05)


def test_end_to_end_is_layers_times_prefill_and_steps():
    runs = Runs(mamba("370m", 2048), machine(), IDEAL)
    run = runs.run("ri", 1024, 7)
    assert run.layers == 48
    assert run.seconds == pytest.approx(48 * (runs.layer("ri", 1024).seconds + 7 * runs.layer("ri", 1).seconds))


# -- invariants -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 512])
def test_details_only_add_time(steps):
    cascade = mamba("2.8b", steps)
    for column in COLUMNS:
        assert layer(Model(cascade, machine()), column).seconds >= layer(Model(cascade, machine(), IDEAL), column).seconds * (
            1 - 1e-9
        )


@pytest.mark.parametrize("steps", [1, 300])
@pytest.mark.parametrize("strategy", FUSED)
def test_more_bandwidth_is_never_slower(steps, strategy):
    cascade, base = mamba("370m", steps), machine()
    machines = [replace(base, dram_words=base.dram_words * factor) for factor in (0.25, 1, 1.5, 4)]
    times = [evaluate(Model(cascade, m), strategy).performance.seconds for m in machines]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(("model", "steps"), [("370m", 1), ("2.8b", 1), ("2.8b", 300)])
@pytest.mark.parametrize("strategy", FUSED)
def test_a_larger_buffer_is_never_worse(model, steps, strategy):
    cascade = mamba(model, steps)
    times = [
        evaluate(Model(cascade, machine().with_buffer(words)), strategy).performance.seconds
        for words in (2**17, 2**18, 3 * 2**18, 2**20, 2**22, 2**24, 2**26)
    ]
    assert all(large <= small * (1 + 1e-6) for small, large in pairwise(times))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["mambalaya", "h100_like", "nvdla_like", "tpu_like"]), st.integers(1, 40))
def test_any_cascade_has_finite_consistent_costs(seed, name, steps):
    cascade = random_cascade(seed, 8).with_sizes({"I": steps, "M": 64, "K": 48})
    for strategy in ("none", "ri+rsb", "full"):
        found = evaluate(Model(cascade, machine(name)), strategy).performance
        light = speed_of_light(cascade, machine(name))
        assert light.dram_seconds * (1 - 1e-9) <= found.seconds < 1
        for group in found.groups:
            assert group.seconds >= max(group.compute_seconds, group.dram_seconds) * (1 - 1e-9)
            assert sum(e.seconds for e in group.einsums) == pytest.approx(group.seconds)
            assert sum(e.dram_words for e in group.einsums) == pytest.approx(group.volume.total)
            assert all(0 < e.utilization <= 1 + 1e-9 for e in group.einsums)
            assert all(energy >= 0 for energy in group.energy_pj.values())


def test_the_einsums_account_for_all_words_with_spills_and_rereads():
    found = evaluate(Model(mamba("2.8b", 2048), machine().with_buffer(2**21)), "full").performance.groups[0]
    assert found.plan.spilled
    assert found.reread_words > 0
    assert sum(e.dram_words for e in found.einsums) == pytest.approx(found.volume.total)
    assert found.dram_seconds == pytest.approx(found.volume.total / machine().dram_words / machine().clock_hz)


@pytest.mark.parametrize("name", ["mambalaya", "h100_like", "nvdla_like", "tpu_like"])
def test_energy_parts_are_those_of_the_table(name):
    m = machine(name)
    found = evaluate(Model(mamba("370m", 64), m), "ri").performance
    assert found.energy_pj["DRAM"] == pytest.approx(found.volume.total * m.dram_pj)
    operations = sum(e.operations for group in found.groups for e in group.einsums)
    assert found.energy_pj["operations"] == pytest.approx(operations * m.operation_pj)
    assert found.energy_pj["leakage"] == pytest.approx(found.seconds * m.clock_hz * m.leak_pj)


def test_points_stay_under_the_roof():
    cascade = mamba("370m", 2048)
    for strategy in ("none", "ri", "full"):
        found = evaluate(Model(cascade, machine()), strategy).performance
        for point in (p for p in group_points(found) if "/" not in p.mode):
            assert point.rate <= attainable(machine(), point.mode, point.intensity) * (1 + 1e-9)
        for point in einsum_points(found):
            assert point.rate <= ceilings(machine())[point.mode] * (1 + 1e-9)


# -- the parts ------------------------------------------------------------------------------------------------------------


def test_walk_equals_one_tile_played_word_by_word():
    generator = np.random.default_rng(1)
    for _ in range(20):
        cycles, words = generator.integers(1, 60, 5).astype(float), generator.integers(0, 120, 5).astype(float)
        window, bandwidth = float(generator.integers(0, 80)), float(generator.integers(1, 5))
        took, lead = walk(cycles[:, None], words[:, None], np.array([window]), bandwidth, np.zeros(1))
        moved = now = 0.0
        for s in range(5):
            needed = words[: s + 1].sum()
            end = max(now + cycles[s], now + max(0.0, needed - moved) / bandwidth)
            moved = min(needed + window, moved + (end - now) * bandwidth)
            moved = max(moved, needed)
            now = end
        assert took[0] == pytest.approx(now)
        assert lead[0] == pytest.approx(moved - words.sum())


def gemm(m: int, n: int, k: int):
    return read_cascade(
        {"ranks": {"M": m, "N": n, "K": k}, "weights": ["W"], "inputs": ["X"], "einsums": ["Y[m,n] = X[m,k] * W[k,n]"]}
    )


@pytest.mark.parametrize("flow", ["OS", "WS", "IS"])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 300, 700), (5, 7, 11), (256, 256, 256), (1000, 96, 2048)])
def test_gemm_cycles_and_accesses_equal_a_walk_over_array_tiles(flow, m, n, k):
    base = replace(machine(), dataflows=(flow,), near_reads=1e18, near_writes=1e18)
    cascade = gemm(m, n, k)
    work = array_work(cascade, cascade.einsums[0].equations, base, {"M": m, "N": n, "K": k})
    load = base.rows * base.columns / base.load_bandwidth
    cycles = reads = writes = 0
    outer = {"OS": (m, n, k), "WS": (k, n, m), "IS": (k, m, n)}[flow]
    for row, column in product(range(ceil(outer[0] / base.rows)), range(ceil(outer[1] / base.columns))):
        rows, columns = min(base.rows, outer[0] - row * base.rows), min(base.columns, outer[1] - column * base.columns)
        cycles += k if flow == "OS" else max(outer[2], load)
        if flow == "OS":
            reads, writes = reads + (rows + columns) * k, writes + rows * columns
        else:
            reads += rows * columns + rows * outer[2] + (columns * outer[2] if row else 0)
            writes += columns * outer[2]
    assert float(work.cycles) == cycles
    assert float(work.reads) == reads
    assert float(work.writes) == writes


def test_merged_gemms_share_the_array_side_by_side():
    cascade, m = mamba("370m", 8), replace(machine(), dataflows=("WS",))
    together = array_work(cascade, [q for n in (11, 12, 13) for q in cascade.einsum(f"E{n}").equations], m, cascade.sizes)
    apart = [array_work(cascade, cascade.einsum(f"E{n}").equations, m, cascade.sizes) for n in (11, 12, 13)]
    assert float(together.cycles) < sum(float(work.cycles) for work in apart)
    assert float(together.points) == sum(float(work.points) for work in apart)


def test_sixty_four_rows_use_a_quarter_of_an_output_stationary_array():
    cascade = mamba("370m", 1)
    for flow, share in (("OS", 0.25), ("WS", 1.0)):
        work = array_work(cascade, cascade.einsum("E6").equations, replace(machine(), dataflows=(flow,)), cascade.sizes)
        assert float(work.points) / (float(work.cycles) * 65536) == pytest.approx(share)


def test_functions_are_counted_in_operations_that_the_elements_have():
    native = machine().functions
    assert function_operations("exp", native) == (0, 1)
    assert function_operations("rsqrt", native) == (1, 2)
    assert function_operations("softplus", native) == (1, 2)
    assert function_operations("silu", frozenset({"mac"})) == (8 + 1 + (8 + 1 + 8) + 1, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Y[m] = X[m,k] * W[m,k]", {("M", "K"): 1}),
        ("Y[m] = sum[k](X[m,k]) / K", {("M", "K"): 1, ("M",): 1}),
        ("Y[m,k] = exp(X[m,k]) * W[m,k]", {("M", "K"): 2}),
        ("Y[m,k] = X[m,k] * exp(Z[m])", {("M", "K"): 1, ("M",): 1}),
        ("Y[m,k] = X[m,k] * 2 * 3", {("M", "K"): 2}),
    ],
)
def test_operators_count_at_the_points_of_their_own_ranks(text, expected):
    found: dict[frozenset[str], int] = {}
    for operation in equation_operations(parse_equation(text, {"m": "M", "k": "K"}), machine().functions):
        found[operation.ranks] = found.get(operation.ranks, 0) + operation.plain + operation.special
    assert {ranks: count for ranks, count in found.items() if count} == {frozenset(ranks): n for ranks, n in expected.items()}


def test_special_functions_wait_for_the_special_lanes():
    equation = parse_equation("Y[m,k] = exp(X[m,k])", {"m": "M", "k": "K"})
    sizes = {"M": 1824.0, "K": 10.0}
    assert float(lane_work([equation], machine("h100_like"), sizes).cycles) == 10


def test_few_points_wait_for_the_pipeline_of_a_recurrence():
    cascade = read_cascade(
        {
            "ranks": {"I": {"size": 1000, "iterative": True}, "D": 64},
            "inputs": ["A", "X"],
            "einsums": ["G[i,d] = A[i,d] * H[i-1,d]", "H[i,d] = G[i,d] + X[i,d]"],
        }
    )
    nodes = tuple((einsum.name,) for einsum in cascade.einsums)
    group = Model(cascade, machine()).group(nodes)
    free = Model(cascade, machine(), replace(DETAILED, stalls=False)).group(nodes)
    assert group.compute_seconds * machine().clock_hz >= 1000 * 2 * 6
    assert free.seconds < group.seconds


def test_separate_units_overlap_and_a_shared_array_does_not():
    cascade = shipped("attention")
    apart = replace(machine(), shared_array=False)
    slow, fast = (evaluate(Model(cascade, m), "ri+rsb+rsp").performance for m in (machine(), apart))
    assert fast.seconds < slow.seconds
