"""The files for Timeloop users are Timeloop's own, to the byte, and can be fed back."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from stitchloop.model import evaluate
from stitchloop.read import Source, load_spec
from stitchloop.spec import Spec
from stitchloop.write.mapping_yaml import format_mapping_yaml, mapping_document
from stitchloop.write.nest_text import format_nest
from stitchloop.write.outputs import write_model_outputs
from stitchloop.write.stats_text import format_stats

DATA = Path(__file__).parent / "data" / "write" / "timeloop_outputs.jsonl.gz"
EXAMPLES = Path(__file__).parents[2] / "shared" / "reference" / "timeloop-examples"
DESIGNS = ("simple_weight_stationary", "eyeriss_like")
with gzip.open(DATA, "rt") as stream:
    CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in map(json.loads, stream)}


def spec_of(case: dict[str, Any]) -> Spec:
    return load_spec(
        [
            Source("arch", case["arch_yaml"]),
            Source("ert", case["ert_yaml"]),
            {"problem": case["problem"]},
            {"mapping": case["mapping"]},
        ]
    )


@pytest.mark.parametrize("name", CASES)
def test_stats_and_nest_equal_what_timeloop_wrote(name: str) -> None:
    case = CASES[name]
    spec = spec_of(case)
    stats = evaluate(spec.workload.einsum, spec.architecture, spec.mapping)
    assert format_stats(spec.workload.einsum, spec.architecture, stats) == case["stats_txt"]
    assert format_nest(spec.workload.einsum, spec.architecture, spec.mapping, stats) == case["map_txt"]


@pytest.mark.parametrize("name", CASES)
def test_map_yaml_reads_back_as_the_same_mapping(name: str) -> None:
    case = CASES[name]
    spec = spec_of(case)
    text = format_mapping_yaml(spec.workload.einsum, spec.architecture, spec.mapping)
    again = load_spec(
        [Source("arch", case["arch_yaml"]), Source("ert", case["ert_yaml"]), {"problem": case["problem"]}, Source("map", text)]
    )
    assert again.mapping == spec.mapping


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the public example designs are not here")
@pytest.mark.parametrize("design", DESIGNS)
def test_map_yaml_is_laid_out_as_timeloop_lays_it_out(design: str) -> None:
    recorded = EXAMPLES / design / "recorded"
    spec = load_spec(
        [recorded / "parsed-processed-input.yaml", recorded / "timeloop-mapper.ERT.yaml", recorded / "timeloop-mapper.map.yaml"]
    )
    written = format_mapping_yaml(spec.workload.einsum, spec.architecture, spec.mapping)
    assert written.rstrip("\n") == (recorded / "timeloop-mapper.map.yaml").read_text().rstrip("\n")


def test_document_and_text_of_a_mapping_agree() -> None:
    import yaml

    spec = spec_of(next(iter(CASES.values())))
    text = format_mapping_yaml(spec.workload.einsum, spec.architecture, spec.mapping)
    assert yaml.safe_load(text)["mapping"] == mapping_document(spec.workload.einsum, spec.architecture, spec.mapping)


def test_pytimeloops_way_of_reading_finds_every_figure(tmp_path: Path) -> None:
    spec = spec_of(next(iter(CASES.values())))
    stats = evaluate(spec.workload.einsum, spec.architecture, spec.mapping)
    write_model_outputs(spec, stats, tmp_path)
    lines = (tmp_path / "timeloop-model.stats.txt").read_text().splitlines()
    head = next(i for i, line in enumerate(lines) if "Computes =" in line)
    assert int(lines[head].split()[-1]) == stats.computes
    assert int([line for line in lines[:head] if "Cycles: " in line][-1].split()[-1]) == stats.cycles
    energies = {name.strip(): float(value) for name, value in (line.rsplit("=", 1) for line in lines[head + 1 :] if "=" in line)}
    parts = sum(value for name, value in energies.items() if name != "Total")
    assert parts == pytest.approx(energies["Total"], rel=1e-4)
    assert energies["Total"] * stats.computes / 1000 == pytest.approx(stats.energy_pJ, rel=1e-4)
