"""The looptree convention equals the recorded figures of LoopTree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stitchloop.fused.check import checked
from stitchloop.fused.reference.counts import counts
from stitchloop.fused.rules import CONVENTIONS
from stitchloop.fused.simulate import simulate
from stitchloop.read.fields import Field
from stitchloop.read.looptree import read_fused_mapping, read_workload
from stitchloop.validate.cases import read_cases
from stitchloop.validate.fused import run_fused_case

CASES = {case["id"]: case for case in read_cases(Path(__file__).parent / "data" / "fused" / "looptree.jsonl.gz")}


def structure_of(case: dict[str, Any]) -> Any:
    workload = read_workload(Field(case["problem"]))
    return checked(workload, read_fused_mapping(Field(case["mapping"]), workload))


@pytest.mark.parametrize("id_", CASES)
def test_figures_equal_the_recorded_ones(id_: str) -> None:
    case = CASES[id_]
    result = run_fused_case(case)
    assert result.differences == ()
    for quantity in ("capacity", "reads", "writes", "ops"):
        assert result.got[quantity].keys() == case["expected"][quantity].keys()
    if not case.get("capacity_is_below_maximum"):
        assert result.got["capacity"] == case["expected"]["capacity"]


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_stepping_through_the_recorded_trees_gives_the_same_figures(convention: str) -> None:
    rules = CONVENTIONS[convention]  # type: ignore[index]
    compared = 0
    for case in list(CASES.values())[::4]:
        structure = structure_of(case)
        if sum(einsum.computes for einsum in structure.workload.einsums) > 800:
            continue
        closed, stepped = counts(structure, rules), simulate(structure, rules)
        for quantity in ("capacity", "varies", "reads", "writes", "operations"):
            assert getattr(closed, quantity) == getattr(stepped, quantity), (case["id"], quantity)
        compared += 1
    assert compared > 40
