"""``stitchloop validate``: what it reports, what it writes, and how it refuses bad input."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stitchloop.cli.app import main
from stitchloop.shim import write_shims
from stitchloop.validate.result import CaseResult, compare
from stitchloop.validate.run import run_cases
from stitchloop.validate.summary import summarise

SINGLE = Path(__file__).parent / "data" / "single"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line; gives exit status, stdout and stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["stitchloop", "validate", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def some_cases(count: int = 12) -> list[dict[str, Any]]:
    with gzip.open(SINGLE / "fuzz.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line, _ in zip(lines, range(count))]


def write_cases(path: Path, cases: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return path


def test_equal_figures_exit_0_and_leave_a_report(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    cases = some_cases()
    path = write_cases(tmp_path / "cases.jsonl", cases)
    status, out, err = run(path, "-o", tmp_path / "out", "--dump", tmp_path / "deep" / "dump.jsonl")
    assert status == 0, err
    assert f"{len(cases)} of {len(cases)}" in out
    document = json.loads((tmp_path / "out" / "validation.json").read_text())
    assert document["exact"] == document["cases"] == len(cases)
    assert document["invalid"] == sum(not case["expected"]["valid"] for case in cases) > 0
    assert document["quantities"]["cycles"] == {"cases": 5, "r2": 1.0, "max_relative_error": 0.0, "worst": ""}
    assert document["worst"] == []
    page = (tmp_path / "out" / "validation.html").read_text()
    assert "<svg" in page
    assert "Every figure equal" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    dumped = [json.loads(line) for line in (tmp_path / "deep" / "dump.jsonl").read_text().splitlines()]
    assert [entry["id"] for entry in dumped] == [case["id"] for case in cases]
    for entry, case in zip(dumped, cases, strict=True):
        assert set(entry["got"]) >= set(case["expected"])
        if case["expected"]["valid"]:
            assert entry["got"]["energy_pJ"] == pytest.approx(
                case["expected"]["fJ_per_compute"] * case["expected"]["computes"] / 1000, rel=1e-5
            )


def test_a_wrong_figure_exits_1_and_is_named(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    cases = some_cases()
    wrong = next(case for case in cases if case["expected"]["valid"])
    level = next(name for name in wrong["expected"]["levels"] if name != "MAC")
    tensor = next(name for name, value in wrong["expected"]["levels"][level].items() if isinstance(value, dict))
    wrong["expected"]["levels"][level][tensor]["reads"] += 1
    status, out, _ = run(write_cases(tmp_path / "cases.jsonl", cases), "-o", tmp_path)
    assert status == 1
    assert f"levels.{level}.{tensor}.reads" in out
    document = json.loads((tmp_path / "validation.json").read_text())
    assert (document["exact"], document["counts_exact"]) == (len(cases) - 1, len(cases) - 1)
    assert document["worst"][0]["id"] == wrong["id"]


def test_an_invalid_mapping_has_to_be_refused_at_the_same_level(tmp_path: Path) -> None:
    cases = [case for case in some_cases(40) if "couldn't map level B" in case["expected"].get("message", "")][:2]
    right, wrong = cases
    wrong["expected"]["message"] = "ERROR: couldn't map level B9: mapped tile size 1 exceeds buffer capacity 0"
    valid = next(case for case in some_cases() if case["expected"]["valid"])
    valid["expected"] = {"valid": False, "message": right["expected"]["message"]}
    results = run_cases(write_cases(tmp_path / "cases.jsonl", [right, wrong, valid]))
    assert [result.validity_agrees for result in results] == [True, False, False]
    assert summarise(results, "test").validity_agrees == 1


def test_clean_convention_counts_otherwise(run: Callable[..., tuple[int, str, str]]) -> None:
    status, out, _ = run(SINGLE / "fuzz.jsonl.gz", "--convention", "clean")
    assert status == 1
    assert "worst cases" in out


def test_integers_must_be_equal_and_floats_as_printed() -> None:
    expected = {"valid": True, "a": {"reads": 1000000, "energy_pJ": 12.35}, "throttle": 0.5}
    assert compare(expected, {"valid": True, "a": {"reads": 1000000, "energy_pJ": 12.3499}, "throttle": 0.5049}) == ([], 4)
    differences, figures = compare(expected, {"valid": True, "a": {"reads": 1000001, "energy_pJ": 12.36}})
    assert figures == 4
    assert [difference.figure for difference in differences] == ["a.reads", "a.energy_pJ", "throttle"]
    assert [difference.is_count for difference in differences] == [True, False, False]
    assert differences[0].relative == pytest.approx(1e-6)
    assert differences[2].relative == float("inf")


def test_statistics_of_a_quantity() -> None:
    pairs = [(1.0, 1.0), (2.0, 2.0), (3.3, 3.0)]
    results = [CaseResult(f"case-{i}", "single", {}, points={"energy": pair}) for i, pair in enumerate(pairs)]
    agreement = summarise(results, "test").agreements["energy"]
    assert agreement.r2 == pytest.approx(1 - 0.09 / 2)
    assert (agreement.max_relative_error, agreement.worst) == (pytest.approx(0.1), "case-2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cases.jsonl:1: no JSON"),
        ("[1]", "cases.jsonl:1: a list"),
        ('{"id": 1}', "no `problem`"),
        ('\n{"id": 1, "problem": {}, "mapping": [], "expected": 3}', "cases.jsonl:2: `expected` is no object"),
        ('{"id": 1, "problem": {}, "mapping": [], "expected": {}}', "neither `arch` nor `arch_yaml`"),
        ('{"id": 1, "problem": {}, "mapping": [], "expected": {}, "arch": "../../x.yaml"}', "leads out of"),
        ('{"id": 1, "problem": {}, "mapping": [], "expected": {}, "arch": "none.yaml"}', "no such file"),
        ('{"id": 1, "problem": {}, "mapping": [], "expected": {}, "arch_yaml": "a: [", "ert_yaml": "b: 1"}', "1, architecture"),
        ("[" * 100000, "no JSON"),
        ('{"id": NaN}', "NaN is no number"),
        ('{"id": ' + "9" * 5000 + "}", "no JSON"),
    ],
)
def test_bad_input_exits_2_and_says_where(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(text)
    status, _, err = run(path)
    assert status == 2
    assert words in err
    assert "Traceback" not in err


def test_odd_figures_of_the_reference_are_differences(tmp_path: Path) -> None:
    case = next(case for case in some_cases() if case["expected"]["valid"])
    odd = {"valid": True, "cycles": 10**400, "computes": "many", "fJ_per_compute": None, "levels": [1], "new": {"x": 1.5}}
    (result,) = run_cases(write_cases(tmp_path / "cases.jsonl", [{**case, "expected": odd}]))
    assert {difference.figure for difference in result.differences} == {"cycles", "computes", "fJ_per_compute", "levels", "new.x"}
    assert result.points == {}
    assert summarise([result], "test").exact == 0


def test_a_broken_archive_exits_2(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    whole = (SINGLE / "fuzz.jsonl.gz").read_bytes()
    for name, content in (("cut.jsonl.gz", whole[: len(whole) // 2]), ("text.jsonl.gz", b"{}")):
        (tmp_path / name).write_bytes(content)
        status, _, err = run(tmp_path / name)
        assert status == 2
        assert "cannot be read" in err
    assert run(tmp_path / "missing.jsonl")[0] == 2


def test_without_timeloop_the_engine_is_refused(
    run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    status, _, err = run(SINGLE / "fuzz.jsonl.gz", "--engine", "timeloop")
    assert status == 2
    assert "no timeloop-model on PATH" in err


def test_engine_on_path_gives_the_figures(
    run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The shim stands in for the tool: the same files go in and come out."""
    write_shims(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    cases = some_cases(4)
    for case in cases:
        case["expected"] = {"valid": True, "cycles": -1}
    status, out, err = run(write_cases(tmp_path / "cases.jsonl", cases), "--engine", "timeloop")
    assert status == 0, err
    assert "4 cases against timeloop-model" in out


def test_outputs_go_over_no_cases(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """``--dump`` wrote our figures over the reference's own, after all cases had been run."""
    path = write_cases(tmp_path / "validation.json", some_cases(2))
    before = path.read_bytes()
    for switches in (("--dump", path), ("-o", tmp_path)):
        status, _, err = run(path, *switches)
        assert (status, err) == (2, f"error: {path}: this output would overwrite an input file; name another folder with -o\n")
    assert path.read_bytes() == before
    assert run(path, "-o", path / "below")[0] == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"problem": "x"}, ": problem: 'x' where a mapping is needed"),
        ({"mapping": {"type": "fused", "nodes": [5]}, "id": 7}, "case 7: mapping.nodes[0]: 5 where a mapping is needed"),
        ({"arch": "nowhere.yaml", "arch_yaml": None}, "`arch: nowhere.yaml`: no such file"),
        ({"arch": "a\0b", "arch_yaml": None}, "leads out of"),
        ({"id": "\ud800"}, "no JSON"),
        ({"expected": {"valid": True, "cycles": float("inf")}}, "no JSON: Infinity is no number"),
    ],
)
def test_a_bad_case_is_named_with_its_file(
    change: dict[str, Any], words: str, run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = write_cases(tmp_path / "cases.jsonl", [some_cases(1)[0] | change])
    status, _, err = run(path, "-o", tmp_path / "out")
    assert status == 2
    assert err.startswith(f"error: {path}")
    assert words in err


def test_numbers_beyond_double_precision_are_none(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(some_cases(1)[0] | {"expected": {"valid": True, "cycles": 5}}).replace(": 5}", ": 1e999}"))
    assert "1e999 is no number" in run(path)[2]


def test_markup_in_an_id_is_shown_as_it_stands(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    wrong = next(case for case in some_cases() if case["expected"]["valid"])
    wrong["expected"]["cycles"] += 1
    status, out, _ = run(write_cases(tmp_path / "cases.jsonl", [wrong | {"id": "[bold]x[/nope]"}]))
    assert status == 1
    assert out.count("[bold]x[/nope]") >= 2
