"""Faults that hostile use of the commands once found, one test each."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import stitchloop
from commands import ARCH, GEMM, MAPPING, run
from stitchloop.errors import InputError, InvalidMapping, NoMapping, Obstacle, Place, StitchloopError


def shell(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in ``folder``; ``$S`` is the command, ``$IN`` a full set of inputs of ``model``."""
    given = {"S": f"{sys.executable} -m stitchloop.cli.app", "IN": f"{ARCH} {GEMM} {MAPPING}"}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env={**os.environ, **given, **environment}, capture_output=True, text=True,
        encoding="utf-8", errors="replace", timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        "$S model $IN | true; exit ${PIPESTATUS[0]}",
        "$S model $IN >&-",
        "$S model $IN <&- >&- 2>&-",
        "PYTHONIOENCODING=ascii $S model $IN",
    ],
)
def test_no_reader_and_no_utf8_change_neither_files_nor_status(command: str, tmp_path: Path) -> None:
    done = shell(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "stats.json").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    done = shell("$S model $IN > /dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: No space left on device")


def test_a_bad_output_folder_is_refused_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stitchloop.search.map_einsum", lambda *_, **__: pytest.fail("searched"))
    assert run(monkeypatch, "map", ARCH, GEMM, "-o", "/dev/null/x") == 2
    assert "the output folder cannot be made" in capsys.readouterr().err
    precious = tmp_path / "timeloop-mapper.map.yaml"
    precious.write_text(Path(MAPPING).read_text())
    assert run(monkeypatch, "map", ARCH, GEMM, str(precious), "-o", str(tmp_path)) == 2
    assert "would overwrite an input file" in capsys.readouterr().err


def test_an_invalid_mapping_in_the_input_does_not_fail_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "mapping.yaml"
    bad.write_text("mapping:\n- {target: RF, type: temporal, factors: [M=8, N=4, K=8], permutation: [M, N, K]}\n")
    assert run(monkeypatch, "map", ARCH, GEMM, str(bad), "-o", str(tmp_path / "out")) == 0
    assert "the mapping in the input is invalid" in capsys.readouterr().out
    assert (tmp_path / "out" / "result.json").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--time-limit", value) for value in ("0", "-1", "nan", "inf")),
        *(("--memory-limit", value) for value in ("-5", "nan", "inf")),
        *((option, "foo") for option in ("--softmax", "--arrays", "--ablation", "--strategy")),
    ],
)
def test_limits_and_choices_are_checked_whether_used_or_not(
    option: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "map", ARCH, GEMM, option, value, "-o", str(tmp_path)) == 2
    assert option in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_convention_is_checked_for_a_single_einsum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "model", ARCH, GEMM, MAPPING, "--convention", "foo", "-o", str(tmp_path)) == 2


def test_a_file_without_cases_validates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "none.jsonl").write_text("\n")
    assert run(monkeypatch, "validate", str(tmp_path / "none.jsonl")) == 2


def test_a_missing_file_of_cases_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "validate", str(tmp_path / "nope")) == 2
    assert capsys.readouterr().err.count("nope") == 1


def test_shims_in_an_impossible_place_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "shim", "/dev/null/x") == 2
    (tmp_path / "timeloop-model").mkdir()
    assert run(monkeypatch, "shim", str(tmp_path)) == 2
    assert not (tmp_path / "timeloop-mapper").exists()
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        InputError(Place("a.yaml", ("x", 1), 3), "factor 3", "write 4"),
        InvalidMapping("too large", kind="capacity", level="RF", size=3, limit=2),
        NoMapping("none", (Obstacle("capacity", "RF", 3, 2, "RF is too small"),)),
    ],
)
def test_errors_come_back_from_other_processes(error: StitchloopError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize(
    "wrong",
    [
        {"output_dir": None},
        {"output_dir": ARCH},
        {"extra_input_files": "a.yaml"},
        {"extra_args": "--compare"},
        {"dump_intermediate_to": "/dev/null/x"},
    ],
)
def test_calls_with_wrong_arguments_are_input_errors(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError):
        stitchloop.call_model(**{"specification": [ARCH, GEMM, MAPPING], "output_dir": str(tmp_path)} | wrong)


def test_figures_per_area_without_an_area(tmp_path: Path) -> None:
    stats = replace(stitchloop.call_model([ARCH, GEMM, MAPPING], str(tmp_path)), per_component_area={})
    assert stats.computes_per_second_per_square_meter == float("inf")


def test_figures_beyond_double_precision_are_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"R{number}" for number in range(20)]
    sizes = ", ".join(f"{name}: {2**60}" for name in names)
    projection = ", ".join(f"[[{name}]]" for name in names)
    spaces = (
        f"[{{name: A, projection: [{projection}]}}, {{name: B, projection: [[[R0]]]}}, "
        "{name: Z, projection: [], read_write: true}]"
    )
    problem, mapping = tmp_path / "problem.yaml", tmp_path / "mapping.yaml"
    problem.write_text(
        f"problem: {{shape: {{name: x, dimensions: [{', '.join(names)}], data_spaces: {spaces}}}, instance: {{{sizes}}}}}\n"
    )
    factors = ", ".join(f"{name}={2**60}" for name in names)
    mapping.write_text(f"mapping:\n- {{target: DRAM, type: temporal, factors: [{factors}]}}\n")
    assert run(monkeypatch, "model", ARCH, str(problem), str(mapping), "-o", str(tmp_path / "out")) == 2
    assert "largest number of double precision" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        {"log_to": 3},
        {"log_to": "nowhere/log.txt"},
        {"log_to": "."},
        {"log_to": GEMM},
        {"dump_intermediate_to": 5},
        {"dump_intermediate_to": GEMM},
        {"environment": {"A": 1}},
        {"extra_args": 5},
        {"output_dir": ""},
        {"log_to": io.StringIO(), "return_proc": True},
    ],
)
def test_calls_say_what_is_wrong_before_the_search(
    wrong: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs and dumps went over inputs, or failed with raw errors after the search."""
    monkeypatch.chdir(tmp_path)
    before = Path(GEMM).read_text()
    with pytest.raises(InputError):
        stitchloop.call_mapper([ARCH, GEMM], **({"output_dir": "out"} | wrong))
    assert Path(GEMM).read_text() == before


@pytest.mark.parametrize("option", ["-o", "--layers"])
def test_an_empty_path_is_not_the_current_folder(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``-o "$UNSET"`` wrote into the current folder, ``--layers ""`` mapped all that is in it."""
    assert run(monkeypatch, "map", ARCH, GEMM, option, "") == 2


@pytest.mark.parametrize(
    ("sizes", "switches", "words"),
    [
        ("M: 1000000000000000003, N: 4, K: 8", (), "problem.instance.M: size 1000000000000000003"),
        ("M: 1000000007, N: 2, K: 3", ("--imperfect",), "problem.instance.M: size 1000000007"),
        ("M: 2147483648, N: 2147483648, K: 4", (), "problem.instance: 18446744073709551616 computes"),
    ],
)
def test_sizes_beyond_counting_are_refused_at_once(
    sizes: str,
    switches: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They took minutes to factor, and then no mapping was said to be valid."""
    problem = tmp_path / "gemm.yaml"
    problem.write_text(Path(GEMM).read_text().replace("M: 8, N: 4, K: 8", sizes))
    assert run(monkeypatch, "map", ARCH, str(problem), *switches, "-o", str(tmp_path / "out")) == 2
    error = capsys.readouterr().err
    assert f"{problem}: {words}" in error
    assert "are mapped" in error


def test_names_like_markup_are_shown_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A level called ``[/b]`` ended in a traceback of the terminal library, after the search."""
    files = []
    for path in (ARCH, str(Path(ARCH).with_suffix(".ERT.yaml")), GEMM, MAPPING):
        files.append(tmp_path / Path(path).name)
        text = Path(path).read_text().replace("name: GLB", "name: '[/b]'").replace(".GLB[", ".[/b][")
        files[-1].write_text(text.replace("name: A,", "name: '[bold]',").replace("[A, B, Z]", "['[bold]', B, Z]"))
    out = str(tmp_path / "out")
    for command, given in (("map", files[:3]), ("model", files)):
        switches = ("--diagnostics", "--pareto", "energy,accesses-[/b]") if command == "map" else ()
        assert run(monkeypatch, command, *map(str, given), *switches, "-o", out) == 0
        shown = capsys.readouterr().out
        assert "[/b]" in shown
        assert "[bold]:" in shown


def test_control_signs_reach_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = tmp_path / "gemm.yaml"
    for old, new in (("name: gemm", 'name: "a\\e[2J"'), ("version: 0.4", '"\\e[2J": 0')):
        problem.write_text(Path(GEMM).read_text().replace(old, new))
        assert run(monkeypatch, "map", ARCH, str(problem), "-o", str(tmp_path / "out")) == 2
        assert "\x1b" not in capsys.readouterr().err


def test_names_in_quotes_are_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fused work whose names stood in quotes was searched and then could not be written."""
    from stitchloop.content import resolve

    written = []
    for quote in ("", "'"):
        problem = tmp_path / "pair.yaml"
        text = resolve("problems/attention/bert_base").read_text()
        problem.write_text(text.replace("Scores", f"{quote}Scores{quote}").replace("name: S,", f"name: {quote}S{quote},"))
        assert run(monkeypatch, "map", "nvdla_like", str(problem), "-o", str(tmp_path / "out")) == 0
        written.append([(tmp_path / "out" / name).read_text() for name in ("fused-problem.yaml", "fused-mapping.yaml")])
    assert written[0] == written[1]
