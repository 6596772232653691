"""The mapspace against Timeloop's exhaustive runs: its mapping is in ours, and brute force finds one that is no worse."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mapspace_cases import matvec, two_levels
from stitchloop.constraints import Constraints, FactorConstraint, LevelConstraints, LoopConstraint
from stitchloop.mapspace import Mapspace, build_mapspace
from stitchloop.model import evaluate
from stitchloop.read import load_spec
from stitchloop.search.exhaustive import exhaustive, exhaustive_front
from stitchloop.search.objectives import value_of
from stitchloop.spec import Spec

DATA = Path(__file__).parent / "data" / "optimum"
CASES = {case["id"]: case for case in map(json.loads, (DATA / "cases.jsonl").read_text().splitlines())}


def read(case: dict[str, Any]) -> tuple[Spec, Mapspace]:
    documents = [{"problem": case["problem"]}, case["timeloop_mapping"]]
    spec = load_spec([DATA / case["arch"], DATA / case["ert"], *documents])
    assert spec.workload is not None
    assert spec.architecture is not None
    return spec, build_mapspace(spec.workload.einsum, spec.architecture, spec.constraints, spec.options)


@pytest.mark.parametrize("name", CASES)
def test_holds_timeloops_mapping(name: str) -> None:
    case = CASES[name]
    spec, mapspace = read(case)
    assert spec.mapping is not None
    assert mapspace.contains(spec.mapping) is None
    stats = evaluate(mapspace.einsum, mapspace.architecture, spec.mapping)
    assert stats.cycles == case["expected"]["cycles"]
    assert stats.energy_pJ == pytest.approx(case["expected"]["energy_pJ"], rel=1e-4)


@pytest.mark.parametrize("name", ["gemm288-energy", "matvec1612-energy", "gemm442-bypass-energy", "conv-energy"])
def test_brute_force_is_no_worse(name: str) -> None:
    case = CASES[name]
    spec, mapspace = read(case)
    assert spec.mapping is not None
    metrics = tuple(case["optimization_metrics"])
    found = exhaustive(mapspace, metrics)
    assert found is not None
    assert found.listed <= mapspace.size
    recorded = evaluate(mapspace.einsum, mapspace.architecture, spec.mapping)
    assert found.values <= tuple(value_of(metric, recorded) for metric in metrics)


def test_lexicographic_lists_and_fronts() -> None:
    mapspace = build_mapspace(matvec(4, 6), two_levels(8))
    best = {
        metrics: exhaustive(mapspace, metrics) for metrics in (("delay",), ("energy",), ("delay", "energy"), ("energy", "delay"))
    }
    values = {metrics: optimum.values for metrics, optimum in best.items() if optimum is not None}
    front = exhaustive_front(mapspace, ("delay", "energy"))
    assert values["delay", "energy"] == front[0]
    assert values["energy", "delay"] == front[-1][::-1]
    assert values["delay",] == front[0][:1]
    assert values["energy",] == front[-1][1:]
    assert all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(front))


def test_none_where_nothing_is_valid() -> None:
    """A matrix-vector product with a row of A in a buffer of two words."""
    architecture = two_levels(2)
    whole = LoopConstraint((FactorConstraint("K", "=", 6),))
    constraints = Constraints((LevelConstraints(whole, keep=frozenset("A")), LevelConstraints()))
    assert exhaustive(build_mapspace(matvec(4, 6), architecture, constraints), ("energy",)) is None
