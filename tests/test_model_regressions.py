"""Random inputs on which the model or its files once differed from Timeloop's, and a sample of those that never did.

``printed.jsonl.gz``: one case a line with ``document`` (the one-file form that Timeloop's executables read) and what they
printed, ``stats`` and ``nest``, or the ``message`` of their refusal (``aborts`` where an assertion of theirs fails).
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from model_random import random_architecture, random_einsum, random_mapping
from stitchloop.model import InvalidMapping, evaluate
from stitchloop.read import load_spec
from stitchloop.spec import Spec
from stitchloop.validate.result import compare
from stitchloop.validate.single import figures
from stitchloop.validate.stats_file import parse_stats
from stitchloop.validate.timeloop import transpiled, without_partitions
from stitchloop.write.mapping_yaml import format_mapping_yaml
from stitchloop.write.nest_text import format_nest
from stitchloop.write.stats_text import format_stats

DATA = Path(__file__).parent / "data" / "model_regressions" / "printed.jsonl.gz"
CASES = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).decode().splitlines()]
VALID = [case for case in CASES if "stats" in case]
INVALID = [case for case in CASES if "message" in case]


def names(cases: list[dict[str, Any]]) -> list[str]:
    return [case["id"] for case in cases]


def read(case: dict[str, Any]) -> tuple[Spec, Any, Any, Any]:
    spec = load_spec([case["document"]])
    assert spec.workload is not None
    assert spec.architecture is not None
    assert spec.mapping is not None
    return spec, spec.workload.einsum, spec.architecture, spec.mapping


@pytest.mark.parametrize("case", VALID, ids=names(VALID))
def test_files_are_timeloops_to_the_last_byte(case: dict[str, Any]) -> None:
    _, einsum, architecture, mapping = read(case)
    stats = evaluate(einsum, architecture, mapping)
    assert format_stats(einsum, architecture, stats) == case["stats"]
    assert format_nest(einsum, architecture, mapping, stats) == case["nest"]


@pytest.mark.parametrize("case", INVALID, ids=names(INVALID))
def test_refusals_are_timeloops(case: dict[str, Any]) -> None:
    _, einsum, architecture, mapping = read(case)
    with pytest.raises(InvalidMapping) as refused:
        evaluate(einsum, architecture, mapping)
    if case["message"] == "aborts":
        assert refused.value.kind == "writeback"
    else:
        assert f"ERROR: {refused.value.message}" == case["message"]


def test_stats_files_are_read_back() -> None:
    """Also where the tool leaves out the compute units, which cost nothing, and levels that keep nothing but leak."""
    without_compute = 0
    for case in VALID:
        _, einsum, architecture, mapping = read(case)
        stats = figures(architecture, evaluate(einsum, architecture, mapping))
        parsed = without_partitions(parse_stats(case["stats"]))
        assert compare(parsed, stats)[0] == []
        without_compute += architecture.compute.name not in parsed["levels"]
    assert without_compute > 0


@pytest.mark.parametrize("case", VALID, ids=names(VALID))
def test_what_timeloop_is_given_says_the_same(case: dict[str, Any]) -> None:
    """The document made for an installed Timeloop holds the same inputs."""
    _, einsum, architecture, mapping = read(case)
    again, second, machine, same = read({"document": transpiled(einsum, architecture, mapping)})
    assert again.warnings == ()
    assert same == mapping
    assert (second.rank_sizes, second.tensors) == (einsum.rank_sizes, einsum.tensors)
    assert evaluate(second, machine, same) == evaluate(einsum, architecture, mapping)


def test_written_loops_that_run_once_are_dropped() -> None:
    """Timeloop refuses an imperfect mapping whose outer loops run once, such as ``K2,1`` outside of everything."""
    import random

    dropped = 0
    for seed in range(60):
        rng = random.Random(seed)
        einsum, architecture = random_einsum(rng, "gemm", 7), random_architecture(rng, 3)
        mapping = random_mapping(rng, einsum, architecture, imperfect=True)
        written = yaml.safe_load(format_mapping_yaml(einsum, architecture, mapping))
        document = transpiled(einsum, architecture, mapping) | written
        _, _, _, reread = read({"document": document})
        dropped += reread != mapping
        outermost = {}
        for level in reread.levels:
            for loop in (*level.spatial, *level.temporal):
                outermost[loop.rank] = loop
        assert all(loop.residual == loop.bound > 1 for loop in outermost.values())
        try:
            assert evaluate(einsum, architecture, reread) == evaluate(einsum, architecture, mapping)
        except InvalidMapping:
            continue
    assert dropped > 5
