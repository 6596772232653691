"""Exported groups of a small Mamba layer: the figures that LoopTree gave for them, tensor by tensor.

The layer has the 24 Einsums of ``problems/mamba`` at B=2, I=4, E=8, D=16, N=2, R=2, F=2; groups are those of the greedy
strategies.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from stitchloop.fused.reference import evaluate_fused
from stitchloop.read import load_spec

with gzip.open(Path(__file__).parent / "data" / "cascade" / "looptree_groups.jsonl.gz", "rt") as stream:
    CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in map(json.loads, stream)}


@pytest.mark.parametrize("name", CASES)
def test_traffic_and_operations_are_looptrees(name: str) -> None:
    case = CASES[name]
    spec = load_spec([{"problem": case["problem"]}, {"mapping": case["mapping"]}])
    found = evaluate_fused(spec.workload, spec.fused_mapping, "looptree", compare=False).as_json()
    for part in ("reads", "writes"):
        assert {key: words for key, words in found[part].items() if words} == case["expected"][part]
    assert found["operations"] == case["expected"]["ops"]


def test_every_greedy_strategy_is_covered() -> None:
    einsums = {name: len(case["problem"]) for name, case in CASES.items()}
    assert einsums["mamba-small-full-01"] >= 24
    assert {name.rsplit("-", 1)[0].removeprefix("mamba-small-") for name in CASES} == {"ri", "ri+rsb", "ri+rsb+rsp", "full"}
