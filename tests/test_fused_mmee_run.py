"""``stitchloop map`` on lists of Einsums: files, summary, content, and what the reference model says to the written tree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stitchloop.content import content_root
from stitchloop.errors import InputError
from stitchloop.fused.map import map_fused
from stitchloop.fused.model_command import UNPLACED
from stitchloop.fused.model_command import run as run_model
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.reference import evaluate_fused
from stitchloop.fused.run import run
from stitchloop.read import load_spec

ROOT = content_root()
PROBLEMS = sorted(path for folder in ("attention", "mlp", "conv_chain") for path in (ROOT / "problems" / folder).glob("*.yaml"))


def spec_of(problem: Path, **variables: str):
    return load_spec([ROOT / "arch" / "nvdla_like.yaml", problem], {name: str(value) for name, value in variables.items()})


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_shipped_problems_are_mapped(problem):
    """The reference model counts the same buffer demand, and the same traffic but for halo restarts."""
    result = map_fused(spec_of(problem), FusedOptions(("edp",), perfect=True, unfused=False, pareto=()))
    assert result.certificate.optimal
    counted = evaluate_fused(result.shape.workload, result.tree, "sound", compare=False)
    figures = result.best.figures
    assert counted.capacity[1] == figures.buffer_demand <= result.machine.capacity
    moved = counted.accesses(0)
    assert moved <= figures.dram
    assert moved == figures.dram or "conv" in problem.parent.name


def test_sequence_length_is_a_variable():
    short, long = (
        map_fused(spec_of(ROOT / "problems/attention/gpt3_6_7b.yaml", tokens=n), FusedOptions(perfect=True, unfused=False))
        for n in (512, 131072)
    )
    assert long.best.figures.operations == 256**2 * short.best.figures.operations
    assert long.shape.copies == 32


def test_files_and_summary(tmp_path):
    spec = spec_of(ROOT / "problems/attention/bert_base.yaml", tokens=197)
    summary = run(spec, tmp_path, FusedOptions(("edp",), softmax="added", pareto=("energy", "latency")))
    assert {path.name for path in tmp_path.iterdir()} == {"fused-problem.yaml", "fused-mapping.yaml", "stats.json", "result.json"}
    text = summary.text
    said = ("keeps a block of", "Optimal (proved)", "fused is", "Pareto front", "softmax: 10 operations", "wrote fused-problem")
    for words in said:
        assert words in text
    result, stats = (json.loads((tmp_path / name).read_text()) for name in ("result.json", "stats.json"))
    assert result["optimal"] is True
    assert result["value"] == pytest.approx(stats["edp_J_cycle"])
    assert stats["softmax_cycles"] > 0
    assert stats["fused"]["convention"] == "sound"
    again = load_spec([tmp_path / "fused-problem.yaml", tmp_path / "fused-mapping.yaml"])
    counted = evaluate_fused(again.workload, again.fused_mapping, "sound", compare=False)
    assert counted.capacity[1] == stats["buffer_words"]
    assert counted.accesses(0) == stats["dram_words"]


def test_what_model_says_of_a_written_tree_is_a_lower_bound_and_said_to_be(tmp_path):
    """Figures differed from those of the search without a word."""
    run(spec_of(ROOT / "problems/attention/bert_base.yaml"), tmp_path, FusedOptions(("edp",), softmax="added"))
    tree = load_spec([ROOT / "arch" / "nvdla_like.yaml", tmp_path / "fused-problem.yaml", tmp_path / "fused-mapping.yaml"])
    text = " ".join(run_model(tree, tmp_path / "again").text.split())
    mapped, again = (json.loads((tmp_path / name / "stats.json").read_text()) for name in (".", "again"))
    assert mapped["energy_pJ"] > again["energy_pJ"]
    assert mapped["cycles"] > again["cycles"]
    assert f"energy: at least {again['energy_pJ'] / 1e6:.6g} uJ; cycles: at least {again['cycles']:,}" in text
    assert UNPLACED in text
    assert text.endswith("wrote stats.json to " + str(tmp_path / "again"))


def test_missing_parts_are_named():
    spec = spec_of(ROOT / "problems/mlp/768_64_384_64.yaml")
    with pytest.raises(InputError, match="no architecture section"):
        map_fused(replace(spec, architecture=None))
    with pytest.raises(InputError, match="no problem section"):
        map_fused(replace(spec, workload=None))
