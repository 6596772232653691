"""Mapping a cascade: the best contiguous groups for an objective, each group's LoopTree files, and totals."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from stitchloop.cascade.choose import Point, front, undominated
from stitchloop.cascade.evaluate import Model
from stitchloop.cascade.machine import machine_of
from stitchloop.cascade.map import map_cascade, run
from stitchloop.cascade.merge import merge_shared_inputs
from stitchloop.cascade.read import load_cascade
from stitchloop.cascade.specs import group_specs
from stitchloop.cascade.stitch import STRATEGIES, stitch
from stitchloop.cascade.strategies import evaluate
from stitchloop.errors import InputError, NoMapping
from stitchloop.fused.reference import evaluate_fused
from stitchloop.read.spec import load_spec

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def spec():
    return load_spec([ROOT / "problems/mamba/mamba-370m.yaml", ROOT / "arch/mambalaya.yaml"], {"sequence": "4096"})


def with_metrics(spec, *metrics):
    return replace(spec, options=replace(spec.options, metrics=metrics))


def test_files_of_a_mapped_cascade(spec, tmp_path):
    summary = run(with_metrics(spec, "edp"), tmp_path, strategy="ri")
    assert "12 groups of 24 Einsums" in summary.text
    groups = json.loads((tmp_path / "groups.json").read_text())
    result = json.loads((tmp_path / "result.json").read_text())
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert groups["strategy"] == "ri"
    assert [entry["einsums"] for entry in result["mapping"]["groups"]] == [entry["einsums"] for entry in groups["groups"]]
    assert not result["optimal"]
    assert "was asked for" in result["reason"]
    assert result["value"] == pytest.approx(stats["energy_pJ"] * groups["totals"]["seconds"])
    assert stats["all_layers"]["energy_pJ"] == pytest.approx(48 * stats["energy_pJ"])
    assert sum(group["energy_pJ"] for group in stats["groups"]) == pytest.approx(stats["energy_pJ"])
    assert sum(group["dram_words"] for group in stats["groups"]) == pytest.approx(sum(stats["dram_words"].values()))
    assert stats["computes"] == sum(spec.cascade.operations(einsum.name) for einsum in spec.cascade.einsums)
    assert any("the function rsqrt is not expressed" in note for note in result["notes"])


def test_group_files_can_be_read_and_evaluated_again(spec, tmp_path):
    run(spec, tmp_path, strategy="ri+rsb")
    folders = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    assert [path.name for path in folders] == [f"group-{n:02d}" for n in range(1, 9)]
    for folder in folders:
        again = load_spec([folder / "fused-problem.yaml", folder / "fused-mapping.yaml"])
        document = json.loads((folder / "fused.json").read_text())
        stats = evaluate_fused(again.workload, again.fused_mapping, compare=False)
        assert stats.capacity[1] == document["buffer_words"]
        assert document["fits"]
        for row in document["traffic"]:
            counts = stats.writes if row["direction"] == "write" else stats.reads
            words = sum(
                n for (target, tensor, einsum), n in counts.items() if (target, tensor) == (0, row["tensor"]) and einsum != "last"
            )
            assert words == row["words"]
    text = (tmp_path / "group-07" / "fused-problem.yaml").read_text()
    assert "# E17 reads H[b, i-1, d, n] of the step before: the initial state H0 stands for it" in text


def test_specs_equal_what_is_written(spec):
    stitching = stitch(spec.cascade, "ri+rsb+rsp")
    for group in group_specs(spec.cascade, [g.nodes for g in stitching.groups], 2**24):
        assert group.document()["counted_otherwise_by_looptree"] == []
        assert {Path(name).name for name in group.files()} == {"fused-problem.yaml", "fused-mapping.yaml", "fused.json"}


@pytest.fixture(scope="module")
def greedy(spec):
    """Costs of every greedy strategy."""
    model = Model(spec.cascade, machine_of(spec.architecture))
    points = []
    for strategy in STRATEGIES:
        point = Point()
        for stop, cost in enumerate(evaluate(model, strategy).performance.groups, start=1):
            point = point.then(stop, cost)
        points.append(point)
    return points


@pytest.mark.parametrize("objective", ["delay", "energy", "edp", "last-level-accesses"])
def test_optimal_is_least_of_the_strategies(spec, greedy, objective):
    best = map_cascade(with_metrics(spec, objective))
    assert best.certificate.optimal
    assert best.certificate.lower_bound == best.values[0]
    assert all(best.values[0] <= point.value(objective) * (1 + 1e-12) for point in greedy)


def test_pareto_front(spec):
    asked = replace(spec, options=replace(spec.options, metrics=("delay",), pareto=("latency", "energy")))
    result = map_cascade(asked)
    document = result.as_json()
    assert document["pareto_objectives"] == ["latency", "energy"]
    front_ = [tuple(entry["values"]) for entry in document["pareto"]]
    assert front_[0][0] == result.values[0]
    assert [latency for latency, _ in front_] == sorted(latency for latency, _ in front_)
    assert [energy for _, energy in front_] == sorted((energy for _, energy in front_), reverse=True)


def test_front_against_all_groupings():
    """Every contiguous grouping of a short cascade, one by one."""
    cascade = load_cascade(ROOT / "problems/cascades/attention.yaml", {"sequence": 2048, "heads": 4})
    model = Model(cascade, machine_of(load_spec([ROOT / "arch/mambalaya.yaml"]).architecture))
    nodes = merge_shared_inputs(cascade)
    points = []
    for count in range(len(nodes)):
        for cuts in combinations(range(1, len(nodes)), count):
            point, start, before = Point(), 0, None
            for stop in (*cuts, len(nodes)):
                cost = model.group(nodes[start:stop], before)
                if cost.shortfall_words:
                    break
                point, start, before = point.then(stop, cost), stop, nodes[stop - 1]
            else:
                points.append(point)
    for costs in (("seconds",), ("seconds", "energy_pj"), ("seconds", "energy_pj", "dram_words")):
        found, expected = front(model, nodes, costs), undominated(points, costs)
        values = [{tuple(round(p.value(cost), 12) for cost in costs) for p in some} for some in (found, expected)]
        assert values[0] == values[1]


def test_undominated_points():
    points = [Point((n,), costs) for n, costs in enumerate([(1, 5, 0), (2, 4, 0), (2, 6, 0), (3, 4, 0), (4, 1, 0), (1, 5, 0)])]
    assert [p.ends for p in undominated(points, ("seconds", "energy_pj"))] == [(0,), (1,), (4,)]


def test_faults(spec):
    with pytest.raises(InputError, match="objective 'area' for a cascade; use delay"):
        map_cascade(with_metrics(spec, "area"))
    with pytest.raises(InputError, match="use optimal, none, ri"):
        map_cascade(spec, "best")
    with pytest.raises(InputError, match="no cascade"):
        map_cascade(replace(spec, cascade=None))
    with pytest.raises(InputError, match="`architecture` section is missing"):
        map_cascade(replace(spec, architecture=None))


def test_too_small_a_buffer_is_an_answer(spec):
    levels = tuple(
        replace(level, depth=1) if getattr(level, "name", "") == "GlobalBuffer" else level for level in spec.architecture.levels
    )
    small = replace(spec, architecture=replace(spec.architecture, levels=levels))
    if machine_of(small.architecture).buffer_words > 4096:
        pytest.skip("the buffer's capacity is held elsewhere")
    with pytest.raises(NoMapping, match="does not fit"):
        map_cascade(small)
