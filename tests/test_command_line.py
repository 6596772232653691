"""The commands end to end: files in, files and exit statuses out, and nothing of the user's lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import stitchloop
from commands import ARCH, GEMM, MAPPING, SMALL, run
from stitchloop.content import content_root, resolve
from stitchloop.errors import InputError
from stitchloop.text import counted


def test_model_writes_timeloops_files_and_stats_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "model", ARCH, GEMM, MAPPING, "-o", str(tmp_path)) == 0
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert stats["computes"] == 8 * 4 * 8
    assert stats["levels"]["DRAM"]["Z"]["updates"] >= 8 * 4
    text = (tmp_path / "timeloop-model.stats.txt").read_text()
    assert f"Cycles: {stats['cycles']}\n" in text
    assert "Scalar reads (per-instance)" in text
    assert (tmp_path / "timeloop-model.map.txt").read_text().endswith("<< Compute >>\n")


def test_map_finds_what_model_confirms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "map", ARCH, GEMM, "-o", str(tmp_path / "map")) == 0
    result = json.loads((tmp_path / "map" / "result.json").read_text())
    assert result["optimal"]
    assert result["lower_bound"] == result["value"]
    assert yaml.safe_load((tmp_path / "map" / "timeloop-mapper.map.yaml").read_text())["mapping"] == result["mapping"]
    written = str(tmp_path / "map" / "timeloop-mapper.map.yaml")
    assert run(monkeypatch, "model", ARCH, GEMM, written, "-o", str(tmp_path / "model")) == 0
    mapped = (tmp_path / "map" / "timeloop-mapper.stats.txt").read_text()
    assert mapped == (tmp_path / "model" / "timeloop-model.stats.txt").read_text()


def test_map_is_no_worse_than_a_given_mapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "model", ARCH, GEMM, MAPPING, "-o", str(tmp_path / "given")) == 0
    assert run(monkeypatch, "map", ARCH, GEMM, MAPPING, "-o", str(tmp_path / "best")) == 0
    given, best = (json.loads((tmp_path / folder / "stats.json").read_text()) for folder in ("given", "best"))
    assert best["edp_J_cycle"] <= given["edp_J_cycle"]
    assert "Against the mapping in the input" in capsys.readouterr().out


def test_an_invalid_mapping_names_level_size_and_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "mapping.yaml"
    bad.write_text("mapping:\n- {target: RF, type: temporal, factors: [M=8, N=4, K=8], permutation: [M, N, K]}\n")
    assert run(monkeypatch, "model", ARCH, GEMM, str(bad), "-o", str(tmp_path)) == 1
    error = capsys.readouterr().err
    assert "RF" in error
    assert "mapped tile size 128 exceeds buffer capacity" in error
    assert not (tmp_path / "stats.json").exists()


def test_no_valid_mapping_says_what_forbids_it_and_what_would_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arch = tmp_path / "arch.yaml"
    arch.write_text(Path(ARCH).read_text().replace("depth: 8,", "depth: 2,"))
    table = str(SMALL / "arch.ERT.yaml")
    assert run(monkeypatch, "map", str(arch), table, GEMM, "--diagnostics", "-o", str(tmp_path / "out")) == 1
    error = capsys.readouterr().err
    assert "RF" in error
    assert "needs 3 words (A 1, B 1, Z 1), 1 more than its capacity of 2" in error
    assert "raise the capacity of RF to 3 words" in error
    assert "impossible" in error
    assert not (tmp_path / "out").exists()


def test_a_missing_section_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "model", ARCH, GEMM, "-o", str(tmp_path)) == 2
    assert "`mapping` section is missing" in capsys.readouterr().err


def test_outputs_never_overwrite_an_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious = tmp_path / "timeloop-mapper.map.yaml"
    precious.write_text(Path(MAPPING).read_text())
    assert run(monkeypatch, "map", ARCH, GEMM, str(precious), "-o", str(tmp_path)) == 2
    assert precious.read_text() == Path(MAPPING).read_text()
    assert list(tmp_path.iterdir()) == [precious]


def test_shipped_files_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve("nvdla_like") == content_root() / "arch" / "nvdla_like.yaml"
    assert resolve("mappers/edp") == content_root() / "mappers" / "edp.yaml"
    assert resolve("problems/../../secret") == Path("problems/../../secret")
    (tmp_path / "nvdla_like").write_text("mine")
    assert resolve("nvdla_like") == Path("nvdla_like")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("nvdla_lik", "nvdla_like"),
        ("nvdla_like.yml", "nvdla_like"),
        ("problem/resnet18/02_conv2", "problems/resnet18/02_conv2"),
        ("problems/resnet81", "problems/resnet18"),
        ("arch.yaml", None),
    ],
)
def test_a_misspelt_shipped_name_is_guessed(name: str, near: str | None) -> None:
    if near is None:
        assert resolve(name) == Path(name)
        return
    with pytest.raises(InputError, match=f"{name}: no such file; did you mean the shipped '{near}'"):
        resolve(name)


@pytest.mark.parametrize("program", ["timeloop-mapper", "timeloop-model"])
def test_the_shim_answers_as_timeloops_programs_do(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "shim", str(tmp_path / "bin")) == 0
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    files = [ARCH, GEMM] + ([MAPPING] if program == "timeloop-model" else [])
    done = subprocess.run([program, *files, "-o", "out"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Cycles: " in (tmp_path / "out" / f"{program}.stats.txt").read_text()
    assert "ART:" in (tmp_path / "out" / f"{program}.ART.yaml").read_text()
    failed = subprocess.run([program, ARCH], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert failed.returncode == 2
    assert failed.stderr.startswith("ERROR: ")
    assert "Traceback" not in failed.stderr


def test_the_shim_overwrites_no_other_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timeloop-model").write_text("#!/bin/sh\n")
    assert run(monkeypatch, "shim", str(tmp_path)) == 2
    assert (tmp_path / "timeloop-model").read_text() == "#!/bin/sh\n"


def test_call_mapper_and_call_model_take_lists_of_paths(tmp_path: Path) -> None:
    mapped = stitchloop.call_mapper([ARCH, GEMM], str(tmp_path / "map"), log_to=str(tmp_path / "log.txt"))
    assert "Optimal (proved)" in (tmp_path / "log.txt").read_text()
    again = stitchloop.call_model([ARCH, GEMM, str(tmp_path / "map" / "timeloop-mapper.map.yaml")], str(tmp_path / "model"))
    assert again.cycles == mapped.cycles
    assert again.energy == mapped.energy
    assert mapped.latency == mapped.cycles * 1e-9
    assert mapped.percent_utilization == pytest.approx(mapped.computes / 8 / mapped.cycles * 100)
    assert set(mapped.per_component_energy) == {"DRAM", "GLB", "RF", "MAC"}
    assert mapped.mapping.startswith("DRAM [ ")


def test_call_mapper_can_hand_back_its_process(tmp_path: Path) -> None:
    process = stitchloop.call_mapper([ARCH, GEMM], str(tmp_path), log_to=str(tmp_path / "log.txt"), return_proc=True)
    assert process.wait(timeout=60) == 0
    assert (tmp_path / "result.json").exists()


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    heavy = ("numba", "scipy", "polars", "matplotlib", "networkx", "numpy")
    code = f"import sys, stitchloop.cli.commands; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version_and_content_are_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"stitchloop {stitchloop.__version__}\n"
    assert run(monkeypatch, "--content") == 0
    assert "problems/resnet18/02_conv2" in capsys.readouterr().out.splitlines()


def test_python_calls_know_shipped_names(tmp_path: Path) -> None:
    files = ["arch/nvdla_like", "problems/elementwise/multiply", "mappers/energy"]
    mapped = stitchloop.call_mapper(files, str(tmp_path))
    assert mapped.cycles > 0


def test_one_of_a_thing_is_not_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A front said "1 points"."""
    assert run(monkeypatch, "map", ARCH, GEMM, "--pareto", "energy,edp", "-o", str(tmp_path)) == 0
    points = len(json.loads((tmp_path / "result.json").read_text())["pareto"])
    assert f"Pareto front: {counted(points, 'point')} " in capsys.readouterr().out
    assert [counted(count, "point") for count in (0, 1, 2, 1000)] == ["0 points", "1 point", "2 points", "1,000 points"]
    assert run(monkeypatch, "map", ARCH, GEMM, "--pareto", "energy", "-o", str(tmp_path)) == 2
    assert "--pareto: a Pareto front of 1 objective; give two or three" in capsys.readouterr().err


@pytest.mark.parametrize(
    "files",
    [(ARCH, GEMM), ("nvdla_like", "problems/attention/bert_base"), ("mambalaya", "problems/mamba/mamba-370m")],
    ids=["one Einsum", "fused", "cascade"],
)
def test_objectives_have_one_name_each_whatever_is_mapped(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fused work and cascades refused ``EDP`` and ``last_level_accesses``; cascades broke on no objective at all."""
    values = {}
    for name in ("last-level-accesses", "last_level_accesses", "Last-Level-Accesses"):
        assert run(monkeypatch, "map", *files, "--objective", name, "-o", str(tmp_path)) == 0
        values[name] = (json.loads((tmp_path / "result.json").read_text())["value"], "last_level" in capsys.readouterr().out)
    assert set(values.values()) == {(values["last-level-accesses"][0], False)}
    for option, text in (("--objective", ","), ("--objective", "last_level"), ("--pareto", "energy,bogus")):
        assert run(monkeypatch, "map", *files, option, text, "-o", str(tmp_path)) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: {option}: ")
        assert "last_level_accesses" not in error


def test_the_readme_names_every_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It left out ``fused.json`` and ``layer.json``."""
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    layers = tmp_path / "layers.txt"
    layers.write_text(f"{Path(GEMM).resolve()}\n")
    tree = [str(tmp_path / "fused" / name) for name in ("fused-problem.yaml", "fused-mapping.yaml")]
    for folder, *arguments in (
        ("map", "map", ARCH, GEMM),
        ("model", "model", ARCH, GEMM, MAPPING),
        ("layers", "map", ARCH, "--layers", str(layers), "--jobs", "1"),
        ("fused", "map", "nvdla_like", "problems/attention/bert_base"),
        ("tree", "model", *tree),
        ("cascade", "map", "mambalaya", "problems/mamba/mamba-370m"),
        ("stitch", "stitch", "mamba-370m", "mambalaya"),
    ):
        assert run(monkeypatch, *arguments, "-o", str(tmp_path / folder)) == 0
        for path in (tmp_path / folder).rglob("*.*"):
            name = path.name.replace("timeloop-model", "timeloop-mapper")
            assert f"`{name}`" in readme or f"`.{name.partition('.')[2]}`" in readme, path
