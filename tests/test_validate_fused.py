"""``validate`` runs fused reference cases by LoopTree's convention and reports what differs."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from stitchloop.errors import InputError
from stitchloop.validate.cases import read_cases
from stitchloop.validate.fused import run_fused_case
from stitchloop.validate.run import run_cases

PATH = Path(__file__).parent / "data" / "fused" / "looptree.jsonl.gz"
CASES = {case["id"]: case for case in read_cases(PATH)}


def changed(case: dict[str, Any], *keys: str, value: Any) -> dict[str, Any]:
    case = copy.deepcopy(case)
    place: Any = case
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return case


def test_a_file_of_cases_is_exact_by_the_tools_convention(tmp_path: Path) -> None:
    some = list(CASES.values())[::9]
    path = tmp_path / "cases.jsonl.gz"
    with gzip.open(path, "wt") as lines:
        lines.writelines(json.dumps(case) + "\n" for case in some)
    results = run_cases(path)
    assert [result.id for result in results] == [case["id"] for case in some]
    assert all(result.is_exact and result.kind == "fused" and result.figures > 10 for result in results)
    sound = run_cases(path, convention="clean")
    assert not all(result.is_exact for result in sound)


def test_a_capacity_below_ours_is_accepted_only_where_blocks_differ_in_size() -> None:
    low = changed(CASES["pair-7-0"], "expected", "capacity", "1", value=431)
    assert [d.figure for d in run_fused_case(low).differences] == ["capacity.1"]
    assert run_fused_case(changed(CASES["imperfect-8-2"], "expected", "capacity", "1", value=30)).is_exact
    above = changed(CASES["imperfect-8-2"], "expected", "capacity", "1", value=10**6)
    assert [d.figure for d in run_fused_case(above).differences] == ["capacity.1"]


@pytest.mark.parametrize("quantity", ["reads", "writes", "ops"])
def test_a_wrong_count_is_reported(quantity: str) -> None:
    case = CASES["pair-7-0"]
    key, words = next(iter(case["expected"][quantity].items()))
    (difference,) = run_fused_case(changed(case, "expected", quantity, key, value=int(words) + 1)).differences
    assert (difference.figure, difference.ours, difference.reference) == (f"{quantity}.{key}", words, words + 1)


def test_a_case_that_cannot_be_read_is_named() -> None:
    broken = changed(CASES["pair-7-0"], "mapping", "nodes", value=[{"type": "storage", "target": 0}])
    with pytest.raises(InputError, match="case pair-7-0"):
        run_fused_case(broken)
