"""Groupings: the optimum, the baselines, the speed of light, the choice for a run, and what makes less fusion win."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade_machines import machine, mamba, shipped
from cascade_strategies import random_cascade
from stitchloop.cascade import optimum
from stitchloop.cascade.endtoend import GUIDE, Runs, guide
from stitchloop.cascade.evaluate import Model
from stitchloop.cascade.mechanisms import MECHANISMS, generation_findings
from stitchloop.cascade.optimum import best_grouping, floors, optimal
from stitchloop.cascade.performance import IDEAL, Settings
from stitchloop.cascade.stitch import STRATEGIES, stitch
from stitchloop.cascade.strategies import ALL_STRATEGIES, around_state, evaluate, speed_of_light
from stitchloop.errors import InputError, NoMapping


def brute_force(model: Model, nodes) -> float:
    """Least time over all ways to cut the nodes."""
    best = float("inf")
    for count in range(len(nodes)):
        for cuts in combinations(range(1, len(nodes)), count):
            edges = (0, *cuts, len(nodes))
            groups = [nodes[a:b] for a, b in pairwise(edges)]
            found = model.evaluate(groups)
            best = min(best, float("inf") if found.shortfalls else found.seconds)
    return best


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_dynamic_programming_equals_brute_force(seed, small):
    cascade = random_cascade(seed, 7).with_sizes({"I": 20, "M": 128, "K": 96, "N": 32})
    model = Model(cascade, machine("nvdla_like").with_buffer(2**13 if small else 2**19))
    nodes = tuple((einsum.name,) for einsum in cascade.einsums)
    found = best_grouping(model, nodes)
    assert (float("inf") if found.shortfalls else found.seconds) == pytest.approx(brute_force(model, nodes))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["mambalaya", "tpu_like"]))
def test_the_optimum_never_loses_to_greedy(seed, name):
    cascade = random_cascade(seed, 9).with_sizes({"I": 30, "M": 100, "K": 50})
    model = Model(cascade, machine(name))
    best = optimal(model)[1].seconds
    assert all(best <= evaluate(model, strategy).performance.seconds * (1 + 1e-12) for strategy in STRATEGIES)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["mambalaya", "h100_like", "tpu_like"]))
def test_no_group_is_faster_than_its_floor(seed, name):
    cascade = random_cascade(seed, 8).with_sizes({"I": 30, "M": 100, "K": 50})
    nodes = tuple((einsum.name,) for einsum in cascade.einsums)
    for chosen in (Settings(), IDEAL):
        model = Model(cascade, machine(name), chosen)
        for stop in (3, 8):
            for start, floor in zip(range(stop - 1, -1, -1), floors(model, nodes, stop), strict=True):
                assert floor * (1 - 1e-9) <= model.group(nodes[start:stop]).seconds


def test_long_cascades_have_bounded_groups_or_a_greedy_grouping(monkeypatch):
    monkeypatch.setattr(optimum, "EXACT_UP_TO", 12)
    monkeypatch.setattr(optimum, "LONGEST_GROUP", 4)
    model = Model(random_cascade(3, 20).with_sizes({"I": 100, "M": 64}), machine("nvdla_like"))
    best = optimal(model)[1]
    greedy = [evaluate(model, strategy).performance for strategy in STRATEGIES]
    assert best.seconds <= min(found.seconds for found in greedy)
    bounded = best_grouping(model, tuple((name,) for name in stitch(model.cascade, "none").order), 4)
    assert max(len(group.nodes) for group in bounded.groups) <= 4
    assert best.seconds <= bounded.seconds


@pytest.mark.parametrize(("model", "steps"), [("370m", 2048), ("2.8b", 1), ("2.8b", 777)])
@pytest.mark.parametrize("words", [2**19, 2**24])
def test_the_optimum_of_mamba_never_loses_to_greedy(model, steps, words):
    found = Model(mamba(model, steps), machine().with_buffer(words))
    stitching, best = optimal(found)
    assert all(best.seconds <= evaluate(found, strategy).performance.seconds for strategy in STRATEGIES)
    assert sorted(stitching.order, key=lambda name: int(name[1:])) == [f"E{n}" for n in range(1, 25)]
    assert all(boundary.reason for boundary in stitching.cuts)


def test_nothing_beats_the_speed_of_light():
    for cascade in (mamba("370m", 512), mamba("2.8b", 1)):
        light = speed_of_light(cascade, machine()).seconds
        assert light <= optimal(Model(cascade, machine(), IDEAL))[1].seconds * (1 + 1e-9)
        assert light <= optimal(Model(cascade, machine()))[1].seconds


def test_without_merging_the_shared_input_is_read_twice():
    cascade = mamba("370m", 256)
    merged, plain = (evaluate(Model(cascade, machine(), IDEAL), "none", merge=merge).performance for merge in (True, False))
    assert (len(merged.groups), len(plain.groups)) == (21, 24)
    assert plain.volume.inter - merged.volume.inter == 64 * 256 * (1024 + 2 * 2048)


def test_geens_like_fuses_the_state_space_part_alone():
    groups = [" ".join(name for node in group for name in node) for group in around_state(mamba("370m", 8), "ri")]
    assert "E16 E17 E18 E19 E20 E21" in groups
    assert len(groups) == 16
    assert len(around_state(mamba("370m", 8), "none")) == 21


# -- whole runs -----------------------------------------------------------------------------------------------------------


def test_the_choice_is_the_fastest_run():
    choice = Runs(mamba("370m", 2048), machine()).choose(1024, 64)
    assert choice.chosen.seconds <= min(run.seconds for run in choice.runs) * (1 + 1e-5)
    assert choice.chosen.seconds < choice.unfused.seconds
    assert {run.strategy for run in choice.runs} == set(ALL_STRATEGIES)


def test_a_small_buffer_changes_the_choice():
    greedy = ALL_STRATEGIES[:-1]
    cascade = mamba("2.8b", 2048)
    large = Runs(cascade, machine()).choose(2048, 64, greedy).strategy
    small = Runs(cascade, machine().with_buffer(2**18)).choose(2048, 64, greedy).strategy
    assert (large, small) == ("full", "ri+rsb")


def test_a_cascade_without_an_iterative_rank_has_no_context():
    with pytest.raises(InputError, match="no iterative rank"):
        Runs(shipped("attention"), machine())


def test_a_buffer_for_nothing_names_level_and_shortfall():
    with pytest.raises(NoMapping, match="GlobalBuffer") as caught:
        Runs(mamba("370m", 8), machine().with_buffer(8)).choose(8, 0)
    (obstacle,) = caught.value.obstacles
    assert obstacle.needed > obstacle.limit == 16


# -- generation -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def findings():
    return {model: {f.mechanism.name: f for f in generation_findings(mamba(model, 1), machine())} for model in ("370m", "2.8b")}


@pytest.mark.parametrize("model", ["370m", "2.8b"])
def test_as_modelled_more_fusion_never_loses_in_generation(findings, model):
    names = (
        "ideal settings",
        "as modelled",
        "outputs stay in the array",
        "a switch drains the array",
    )
    for name in names:
        steps = findings[model][name].steps
        assert [step.seconds for step in steps] == sorted((step.seconds for step in steps), reverse=True)


@pytest.mark.parametrize("model", ["370m", "2.8b"])
def test_pipelines_in_small_tiles_make_ri_the_best_in_generation(findings, model):
    assert findings[model]["pipelines in 8+ tiles"].best.strategy == "ri"
    assert findings[model]["4+ tiles, outputs stay"].best.strategy == "ri"


def test_the_reason_is_weights_read_again_where_they_do_not_stay(findings):
    full = findings["2.8b"]["pipelines in 4+ tiles"].steps[-1].groups[0]
    assert full.plan.tile["B"] <= 16
    assert full.reread_words > 1.5 * 41e6
    assert full.bound == "DRAM"


def test_a_small_buffer_makes_less_fusion_win_in_generation(findings):
    assert findings["2.8b"]["a buffer of 512 KB"].best.strategy == "ri+rsb"
    assert findings["370m"]["a buffer of 512 KB"].best.strategy == "ri+rsb"


def test_ri_loses_nothing_to_small_tiles(findings):
    for found in findings.values():
        ri = [found[m.name].steps[0].seconds for m in MECHANISMS if m.name.startswith("pipelines")]
        assert ri == pytest.approx([found["as modelled"].steps[0].seconds] * len(ri))


def test_the_guide_covers_the_published_cases_with_evidence():
    lines = guide(mamba("2.8b", 2048), machine())
    assert [line.regime for line in lines] == list(GUIDE)
    for line in lines:
        for choice in (line.choice, line.triggered):
            assert choice.speedup(choice.chosen) == pytest.approx(max(choice.speedup(run) for run in choice.runs), rel=1e-5)
    assert lines[0].triggered.strategy == "ri"
    assert [line.choice.strategy for line in lines[2:]] == ["full", "ri+rsb+rsp"]


def test_settings_are_independent_switches():
    cascade = mamba("370m", 300)
    base = evaluate(Model(cascade, machine(), IDEAL), "full").performance.seconds
    for name in ("array", "functions", "capacity", "bandwidth", "overlap", "switches", "stalls"):
        changed = Settings(**{**IDEAL.__dict__, name: True})
        assert evaluate(Model(cascade, machine(), changed), "full").performance.seconds >= base * (1 - 1e-9)
