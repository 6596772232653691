"""The reference model against figures that Timeloop gave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stitchloop.model import CLEAN, TIMELOOP, Counting, Evaluator, InvalidMapping, check, evaluate
from stitchloop.read import load_spec
from stitchloop.validate.cases import read_cases
from stitchloop.validate.result import Difference, compare
from stitchloop.validate.run import run_cases
from stitchloop.validate.single import Inputs, SingleCases, figures
from stitchloop.validate.stats_file import parse_stats

SINGLE = Path(__file__).parent / "data" / "single"
FILES = (SINGLE / "cases.jsonl.gz", SINGLE / "fuzz.jsonl.gz")
EXAMPLES = Path(__file__).parents[2] / "shared" / "reference" / "timeloop-examples"


@cache
def all_inputs() -> dict[str, tuple[Inputs, dict[str, Any]]]:
    """Every reference case, read: its inputs and what Timeloop gave."""
    return {case["id"]: (SingleCases(path).read(case), case["expected"]) for path in FILES for case in read_cases(path)}


def valid_inputs() -> Iterator[Inputs]:
    return (inputs for inputs, expected in all_inputs().values() if expected["valid"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_figure_of_every_case_is_timeloops(path: Path) -> None:
    results = run_cases(path)
    assert len(results) > 100
    assert {result.id: result.differences[:3] for result in results if not result.is_exact} == {}


@pytest.mark.parametrize(
    ("switch", "case"),
    [
        ("links", "no_register-gemm-132"),
        ("links", "three_level-depthwise-1170"),
        ("physical_pitch", "flat16x16-conv_strided-102"),
        ("short_wrap_slides", "no_register-depthwise-170"),
        ("short_wrap_rests", "nvdla_like-conv-90"),
        ("double_shares", "fuzz-20010"),
        ("double_cycles", "flat16x16-depthwise-16"),
    ],
)
def test_each_artefact_is_counted_and_can_be_switched_off(switch: str, case: str) -> None:
    inputs, expected = all_inputs()[case]
    counted = figures(inputs.architecture, evaluate(*_order(inputs), TIMELOOP))
    without = figures(inputs.architecture, evaluate(*_order(inputs), replace(TIMELOOP, **{switch: False})))
    assert compare(expected, counted)[0] == []
    assert compare(expected, without)[0] != []


def test_clean_counting_differs_from_the_tools_only_where_there_are_artefacts() -> None:
    """Without sliding windows, links and rounding there is nothing to clean."""
    for inputs in valid_inputs():
        if all(len(terms) == 1 for tensor in inputs.einsum.tensors for terms in tensor.projection):
            clean, compatible = _counts(inputs, CLEAN), _counts(inputs, replace(TIMELOOP, links=False))
            assert clean == compatible


def test_the_two_closed_forms_agree_on_perfect_mappings() -> None:
    """Loops level by level, and ranks one by one: different derivations of the clean count."""
    for inputs in valid_inputs():
        evaluator = Evaluator(inputs.einsum, inputs.architecture, CLEAN)
        by_levels = evaluator.count(inputs.mapping)
        by_ranks = evaluator.count_exactly(inputs.mapping)
        assert by_levels.tensors == by_ranks.tensors
        assert (by_levels.cycles, by_levels.instances) == (by_ranks.cycles, by_ranks.instances)


def test_check_refuses_what_evaluate_refuses() -> None:
    refused = 0
    for inputs, expected in all_inputs().values():
        if expected["valid"]:
            check(*_order(inputs))
            continue
        refused += 1
        with pytest.raises(InvalidMapping) as evaluated:
            evaluate(*_order(inputs))
        with pytest.raises(InvalidMapping) as checked:
            check(*_order(inputs))
        assert evaluated.value.message == checked.value.message
        assert evaluated.value.kind in ("unkept", "writeback", "instances", "mesh_x", "mesh_y", "capacity")
    assert refused > 50


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the public Timeloop examples are not here")
def test_recorded_mapping_of_a_public_example() -> None:
    differences, compared = _against_recording("simple_weight_stationary")
    assert differences == []
    assert compared > 100


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the public Timeloop examples are not here")
def test_recorded_mapping_with_a_resting_loop_inside_a_sliding_one() -> None:
    """The recording has no halo reuse of Inputs in the buffer, where our reference tool has: older releases end a slide when
    the tile rests in between. Everything else is equal."""
    differences, compared = _against_recording("eyeriss_like")
    assert compared > 90
    assert {difference.figure for difference in differences} == {
        "levels.shared_glb.Inputs.fills",
        "levels.shared_glb.Inputs.energy_pJ",
        "levels.DRAM.Inputs.reads",
        "levels.DRAM.Inputs.energy_pJ",
        "energy_uJ",
        "fJ_per_compute",
    }
    assert all(difference.relative < 0.005 for difference in differences)


def _against_recording(example: str) -> tuple[list[Difference], int]:
    recorded = EXAMPLES / example / "recorded"
    names = ("parsed-processed-input.yaml", "timeloop-mapper.ERT.yaml", "timeloop-mapper.map.yaml")
    spec = load_spec([recorded / name for name in names])
    assert spec.workload is not None
    assert spec.architecture is not None
    assert spec.mapping is not None
    stats = evaluate(spec.workload.einsum, spec.architecture, spec.mapping)
    got = figures(spec.architecture, stats)
    for level, at in stats.levels.items():
        for tensor, s in at.tensors.items():
            got["levels"][level][tensor]["partition"] = s.partition
    return compare(parse_stats((recorded / "timeloop-mapper.stats.txt").read_text()), got)


def _order(inputs: Inputs) -> tuple[Any, Any, Any]:
    return inputs.einsum, inputs.architecture, inputs.mapping


def _counts(inputs: Inputs, counting: Counting) -> Any:
    return Evaluator(inputs.einsum, inputs.architecture, counting).count(inputs.mapping).tensors
