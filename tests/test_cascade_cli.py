"""``stitchloop stitch`` from the outside."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest import mock

import pytest

from stitchloop.cli.app import main
from stitchloop.cli.stitch import parse_bytes
from stitchloop.errors import InputError

FIGURES = {"cascade.png", "speedups.png", "traffic.png", "roofline.png", "utilization.png", "end-to-end.png"}
GROUPS = {
    "ri": ["1 2 3", "4", "5", "6 8", "7", "9 10", "11 12 13", "14", "15", "16 17 18 19 20 21", "22 23", "24"],
    "ri+rsb": ["1 2 3 4", "5", "6 8", "7 9 10", "11 12 13", "14 15", "16 17 18 19 20 21 22 23", "24"],
    "ri+rsb+rsp": ["1 2 3 4 5 6 8", "7 9 10 11 12 13", "14 15 16 17 18 19 20 21 22 23 24"],
    "full": ["1 2 3 4 5 6 8 7 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24"],
}


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str) -> Done:
    """The command in this process, as the console script calls it."""
    out, err = io.StringIO(), io.StringIO()
    environment = mock.patch.dict("os.environ", {"COLUMNS": "150"})
    status = 0
    with (
        environment,
        mock.patch.object(sys, "argv", ["stitchloop", "stitch", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            status = int(stop.code or 0)
    return Done(status, out.getvalue(), err.getvalue())


def groups_of(folder):
    return json.loads((folder / "groups.json").read_text())


def test_the_module_runs_as_a_program(tmp_path):
    command = [sys.executable, "-m", "stitchloop.cli.app", "stitch", "mamba-370m", "nothing", "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: nothing")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("strategy", list(GROUPS))
def test_groups_and_boundaries(tmp_path, strategy):
    done = run("mamba-2.8b", "mambalaya", "--strategy", strategy, "--no-figures", "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = groups_of(tmp_path)
    assert found["strategy"] == strategy
    assert [" ".join(name[1:] for name in group["einsums"]) for group in found["groups"]] == GROUPS[strategy]
    cuts = [boundary for boundary in found["boundaries"] if boundary["cut"]]
    assert len(cuts) == len(found["groups"]) - 1
    assert all(boundary["class"] in ("RI", "RSb", "RSp", "RD") for boundary in found["boundaries"])
    assert all(boundary["reason"] for boundary in cuts)
    assert set(found["baselines"]) == {"MARCA-like", "MARCA-like (SSM)", "Geens-like", "Geens-like (fine)"}
    assert found["totals"]["seconds"] == pytest.approx(sum(group["seconds"] for group in found["groups"]))


def test_everything_is_drawn_and_nothing_is_left_over(tmp_path):
    done = run(
        "mamba-370m", "mambalaya", "--strategy", "auto", "--context", "512", "--generate", "32", "-o", str(tmp_path / "new")
    )
    assert done.returncode == 0, done.stderr
    written = {path.name for path in (tmp_path / "new").iterdir()}
    assert {"groups.json", *FIGURES} <= written
    assert not [name for name in written if name.startswith(".")]
    for name in FIGURES:
        assert (tmp_path / "new" / name).read_bytes().startswith(b"\x89PNG")
    found = groups_of(tmp_path / "new")
    runs = {name: entry["seconds"] for name, entry in found["end_to_end"]["strategies"].items()}
    assert found["end_to_end"]["chosen"] == found["strategy"]
    assert runs[found["strategy"]] <= min(runs.values()) * (1 + 1e-5)
    assert "strategy guide" in done.stdout
    assert "reads -> writes" in done.stdout


def test_what_crosses_dram_and_the_spills_are_named(tmp_path):
    done = run("mamba-2.8b", "mambalaya", "--strategy", "full", "--buffer", "2MB", "--no-figures", "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (group,) = groups_of(tmp_path)["groups"]
    assert "RX" in group["partitioning"]["spilled"]
    assert {"OUTprev", "LEXprev", "H0", "RX"} <= set(group["dram"]["reads"])
    assert {"LEX", "OUT", "Hlast", "RX"} <= set(group["dram"]["writes"])
    kinds = [entry["kind"] for entry in group["partitioning"]["alternatives"]]
    assert kinds[0] == group["partitioning"]["kind"]
    assert len(set(kinds)) == len(kinds) > 1
    assert "spills" in done.stdout


def test_why_less_fusion_wins_is_shown_with_its_evidence(tmp_path):
    done = run("mamba-2.8b", "mambalaya", "--strategy", "ri", "--why", "--no-figures", "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "pipelines in 8+ tiles" in done.stdout
    assert "weights that do not stay are read again" in " ".join(done.stdout.split())


def test_ideal_settings_reach_the_reference_output(tmp_path):
    run("mamba-370m", "mambalaya", "--strategy", "ri", "--ideal", "--no-figures", "--set", "sequence=65536", "-o", str(tmp_path))
    assert groups_of(tmp_path)["totals"]["seconds"] / (64 * 65536) * 1e9 == pytest.approx(99.9, rel=0.01)


def test_merging_can_be_switched_off(tmp_path):
    run("mamba-370m", "mambalaya", "--strategy", "none", "--no-merge", "--no-figures", "-o", str(tmp_path))
    found = groups_of(tmp_path)
    assert len(found["groups"]) == 24
    assert found["merged"] == []


@pytest.mark.parametrize("name", ["nvdla_like", "tpu_like", "h100_like"])
def test_other_architectures(tmp_path, name):
    done = run("attention", name, "--strategy", "auto", "--no-figures", "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "energy" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("nothing", "mambalaya"), 2, "mamba-370m"),
        (("mamba-370m", "nothing"), 2, "nvdla_like"),
        (("missing.yaml", "mambalaya"), 2, "missing.yaml"),
        (("mamba-370m", "mambalaya", "--strategy", "best"), 2, "ri+rsb"),
        (("mamba-370m", "mambalaya", "--buffer", "much"), 2, "32MB"),
        (("mamba-370m", "mambalaya", "--set", "a"), 2, "NAME=VALUE"),
        (("attention", "mambalaya", "--context", "8"), 2, "iterative"),
        *((("mamba-370m", "mambalaya", option, "9" * 20), 2, f"{option}: ") for option in ("--context", "--generate", "--tiles")),
        (("mamba-370m", "mambalaya", "--buffer", "64", "--strategy", "full"), 1, "GlobalBuffer"),
    ],
)
def test_errors_are_one_sentence_and_a_status(tmp_path, arguments, status, words):
    done = run(*arguments, "--no-figures", "-o", str(tmp_path / "out"))
    assert done.returncode == status
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_architecture_without_a_buffer_is_refused(tmp_path):
    text = "architecture: {version: 0.4, nodes: [!Component {name: DRAM, class: DRAM, attributes: {width: 64, datawidth: 16}}, "
    text += "!Component {name: MAC, class: intmac}]}\n"
    (tmp_path / "bare.yaml").write_text(text)
    done = run("mamba-370m", str(tmp_path / "bare.yaml"), "--no-figures", "-o", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "buffer" in done.stderr


@pytest.mark.parametrize(("text", "size"), [("1048576", 2**20), ("512KB", 2**19), ("1.5 MiB", 3 * 2**19), ("1gb", 2**30)])
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1e9", "3 TB", "9" * 40])
def test_bad_sizes(text):
    with pytest.raises(InputError):
        parse_bytes(text)
