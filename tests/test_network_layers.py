"""Whole networks: identical layers once, failures apart, tables, and resumption after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from asyncio import CancelledError
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from commands import run
from network_cases import SHARED, at_the_outermost_level, map_all, moody, noted, write_gemm
from stitchloop.errors import InputError
from stitchloop.layers import find_layers, layer_key, layer_names
from stitchloop.network import RECORD, LayerRow, _fetched, map_layers
from stitchloop.read import load_spec
from stitchloop.result import Result
from stitchloop.write.network_summary import network_summary

EXAMPLES = Path(__file__).parents[2] / "shared" / "reference" / "timeloop-examples"


@pytest.fixture
def searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in notes its searches."""
    log = tmp_path / "searches.log"
    log.touch()
    monkeypatch.setenv("SEARCHES", str(log))
    return log


def test_identical_layers_are_mapped_once(tmp_path: Path, searches: Path) -> None:
    layers = tmp_path / "layers"
    write_gemm(layers / "a.yaml", 4, 2, 3)
    write_gemm(layers / "b.yaml", 4, 2, 3, name="other", order="K, M, N")
    write_gemm(layers / "c.yaml", 4, 2, 6)
    report = map_all(layers, tmp_path / "out", noted)
    assert searches.read_text().splitlines() == ["4x2x3", "4x2x6"]
    assert [(row.layer, row.same_as, row.einsum) for row in report.rows] == [
        ("a", None, "gemm"),
        ("b", "a", "other"),
        ("c", None, "gemm"),
    ]
    assert report.rows[0].energy_pJ == report.rows[1].energy_pJ
    assert (report.searched, report.resumed, report.failed) == (2, 0, ())
    for name in "abc":
        stats = json.loads((tmp_path / "out" / name / "stats.json").read_text())
        assert stats["computes"] == (48 if name == "c" else 24)
        assert (tmp_path / "out" / name / "timeloop-mapper.map.yaml").is_file()


def test_tables_and_totals(tmp_path: Path) -> None:
    layers = tmp_path / "layers"
    for m in (2, 3, 2):
        write_gemm(layers / f"m{m}_{len(list(layers.glob('*')) if layers.exists() else [])}.yaml", m, 2, 3)
    report = map_all(layers, tmp_path / "out")
    csv, parquet = pl.read_csv(tmp_path / "out" / "layers.csv"), pl.read_parquet(tmp_path / "out" / "layers.parquet")
    assert csv.columns == parquet.columns == list(LayerRow.__annotations__)
    assert csv["energy_pJ"].to_list() == parquet["energy_pJ"].to_list() == [row.energy_pJ for row in report.rows]
    assert parquet["mapspace_size"].to_list() == [str(2**80)] * 3
    totals = json.loads((tmp_path / "out" / "network.json").read_text())
    assert totals == report.totals
    assert totals["computes"] == 12 + 18 + 12
    assert totals["energy_pJ"] == pytest.approx(sum(csv["energy_pJ"]))
    written = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_file())
    assert f"wrote {', '.join(written)} and a folder per mapped layer" in network_summary(report, tmp_path / "out").text


def test_a_failing_layer_stops_no_other(tmp_path: Path) -> None:
    """A layer without a mapping, one that crashes, one that kills its process, one that cannot be read."""
    layers = tmp_path / "layers"
    for index, (m, n) in enumerate([(4, 2), (5, 1), (5, 2), (5, 3), (6, 2)]):
        write_gemm(layers / f"l{index}.yaml", m, n, 2)
    (layers / "l9.yaml").write_text("problem: [")
    report = map_all(layers, tmp_path / "out", moody, jobs=2)
    assert [row.status for row in report.rows] == ["mapped", "failed", "failed", "failed", "mapped", "failed"]
    errors = [row.error or "" for row in report.failed]
    for error, words in zip(errors, ("too small by 3 words", "ZeroDivisionError", "process was killed", "l9.yaml"), strict=True):
        assert words in error
    assert not (tmp_path / "out" / "l3" / RECORD).exists()
    assert pl.read_csv(tmp_path / "out" / "layers.csv")["error"].null_count() == 2


def test_resumes_without_mapping_again(tmp_path: Path, searches: Path) -> None:
    layers, out = tmp_path / "layers", tmp_path / "out"
    write_gemm(layers / "a.yaml", 4, 2, 3)
    write_gemm(layers / "c.yaml", 2, 2, 3)
    first = map_all(layers, out, noted)
    write_gemm(layers / "b.yaml", 4, 2, 3)
    (out / "c" / "stats.json").unlink()
    second = map_all(layers, out, noted)
    assert searches.read_text().splitlines() == ["4x2x3", "2x2x3", "2x2x3"]
    assert (second.searched, second.resumed) == (1, 1)
    assert second.rows[1].same_as == "a"
    assert second.rows[0] == first.rows[0]
    assert (out / "b" / "timeloop-mapper.map.yaml").read_bytes() == (out / "a" / "timeloop-mapper.map.yaml").read_bytes()
    write_gemm(layers / "a.yaml", 4, 4, 3)
    assert map_all(layers, out, noted).rows[0].computes == 48
    (out / "a" / RECORD).write_text("{")
    assert map_all(layers, out, noted).searched == 1


def test_killed_at_any_moment(tmp_path: Path, searches: Path) -> None:
    """SIGKILL in the middle: what stands is whole, and the next run maps only what was not finished."""
    layers, out = tmp_path / "layers", tmp_path / "out"
    for m in range(1, 7):
        write_gemm(layers / f"m{m}.yaml", m, 2, 2)
    script = Path(__file__).parent / "network_cases.py"
    process = subprocess.Popen(
        [sys.executable, str(script), str(layers), str(out)], env={**os.environ, "SEARCHES": str(searches)}
    )
    deadline = time.monotonic() + 30
    while not (out / "m2" / RECORD).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for path in out.rglob("*.json"):
        json.loads(path.read_text())
    finished = {path.parent.name for path in out.glob(f"*/{RECORD}")}
    assert 2 <= len(finished) < 6
    searches.write_text("")
    report = map_all(layers, out, noted)
    assert report.resumed == len(finished)
    assert len(searches.read_text().splitlines()) == report.searched == 6 - len(finished)
    assert all(row.status == "mapped" for row in report.rows)


def test_interrupted_keeps_what_is_finished(tmp_path: Path) -> None:
    layers, out = tmp_path / "layers", tmp_path / "out"
    for m in (2, 3):
        write_gemm(layers / f"m{m}.yaml", m, 2, 2)

    def stop(done: int, count: int, row: LayerRow) -> None:
        raise KeyboardInterrupt

    report = map_layers(sorted(layers.glob("*")), SHARED, out, jobs=1, progress=stop, map_layer=at_the_outermost_level)
    assert report.interrupted
    assert [row.status for row in report.rows] == ["mapped", "interrupted"]
    assert pl.read_csv(out / "layers.csv")["status"].to_list() == ["mapped", "interrupted"]


def test_maps_with_the_real_search(tmp_path: Path) -> None:
    layers = tmp_path / "layers"
    write_gemm(layers / "a.yaml", 4, 2, 3)
    write_gemm(layers / "b.yaml", 8, 2, 3)
    report = map_layers(find_layers(layers), SHARED, tmp_path / "out", jobs=1)
    assert all(row.optimal and row.gap == 0 for row in report.rows)
    assert int(report.rows[0].mapspace_size or 0) > 100


def test_keys_tell_what_matters(tmp_path: Path) -> None:
    def key(*inputs: object, **sizes: int) -> str:
        spec = load_spec([*inputs, write_gemm(tmp_path / "p.yaml", **{"m": 4, "n": 2, "k": 3, **sizes})])  # type: ignore[list-item]
        return layer_key(spec)

    plain = key(*SHARED)
    threads = {"mapper": {"version": 0.4, "num_threads": 7}}
    assert key(*SHARED, threads) == plain
    energy = {"mapper": {"version": 0.4, "optimization_metrics": ["energy"]}}
    others = [key(*SHARED, m=8), key(*SHARED, energy), key(SHARED[0].with_name("tiny_constrained.yaml"), SHARED[1])]
    assert len({plain, *others}) == 4
    command = (
        "import sys; from stitchloop.read import load_spec; from stitchloop.layers import layer_key; "
        "print(layer_key(load_spec(sys.argv[1:])))"
    )
    problem = write_gemm(tmp_path / "p.yaml", 4, 2, 3)
    for seed in "12":
        out = subprocess.run(
            [sys.executable, "-c", command, *map(str, SHARED), str(problem)], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        assert out.stdout.strip() == plain


def test_finds_layers(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", ".hidden.yaml", "notes.txt"):
        (tmp_path / name).write_text("problem: {}")
    assert [path.name for path in find_layers(tmp_path)] == ["a.yml", "b.yaml"]
    listing = tmp_path / "notes.txt"
    listing.write_text("b.yaml  # the first\n\na.yml\nb.yaml\n")
    assert [path.name for path in find_layers(listing)] == ["b.yaml", "a.yml", "b.yaml"]
    (tmp_path / "list.yaml").write_text("- a.yml\n- b.yaml\n")
    assert [path.name for path in find_layers(tmp_path / "list.yaml")] == ["a.yml", "b.yaml"]
    assert find_layers(tmp_path / "b.yaml") == [tmp_path / "b.yaml"]
    assert layer_names([tmp_path / "x" / "a.yaml", tmp_path / "y" / "a.yaml", tmp_path / "y" / "a.yaml"]) == [
        "x_a",
        "y_a",
        "y_a_2",
    ]
    assert layer_names([Path("../..hid den.yaml.jinja2")]) == ["hid_den"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("missing.yaml\n", "missing.yaml, which does not exist"),
        ("\n# nothing\n", "an empty list"),
        (b"\xff\xfe\x00", "not a text file"),
    ],
)
def test_bad_lists(tmp_path: Path, content: str | bytes, words: str) -> None:
    listing = tmp_path / "list.txt"
    listing.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=words):
        find_layers(listing)
    with pytest.raises(InputError, match="No such file"):
        find_layers(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="without YAML files"):
        find_layers(tmp_path / "empty")


def test_shared_inputs_with_a_problem_of_their_own(tmp_path: Path) -> None:
    own = write_gemm(tmp_path / "own.yaml", 2, 2, 2)
    layers = tmp_path / "layers"
    write_gemm(layers / "a.yaml", 4, 2, 3)
    report = map_layers(find_layers(layers), [*SHARED, own], tmp_path / "out", jobs=1, map_layer=at_the_outermost_level)
    assert "a problem of their own" in (report.rows[0].error or "")


def test_a_scheduler_needs_dask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    layer = write_gemm(tmp_path / "a.yaml", 2, 2, 2)
    with pytest.raises(InputError, match=r"stitchloop\[cluster\]"):
        map_layers([layer], SHARED, tmp_path / "out", scheduler="tcp://127.0.0.1:1")


@pytest.mark.parametrize("address", ["", "nonsense", "inproc://x", "tcp://127.0.0.1:1", "127.0.0.1:99999999"])
def test_a_bad_scheduler_is_one_sentence(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty address mapped on this machine; others took half a minute and ended in Dask's own traceback."""
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=None, as_completed=None))
    layer = write_gemm(tmp_path / "a.yaml", 2, 2, 2)
    with pytest.raises(InputError) as caught:
        map_layers([layer], SHARED, tmp_path / "out", scheduler=address)
    assert str(caught.value.place) == "--scheduler"


def test_a_lost_scheduler_fails_layers_only() -> None:
    """It ended in a traceback, and no table was written."""

    class Lost:
        def result(self) -> tuple[str, str]:
            raise CancelledError("scheduler-connection-lost\nmore")

    assert _fetched(Lost()) == "the cluster gave no answer: CancelledError: scheduler-connection-lost"


def test_pipes_and_folders_are_no_layers(tmp_path: Path) -> None:
    """A named pipe in the folder was waited for, for ever."""
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "broken.yaml").symlink_to(tmp_path / "nowhere")
    write_gemm(tmp_path / "gemm.yaml", 2, 2, 2)
    assert [path.name for path in find_layers(tmp_path)] == ["broken.yaml", "gemm.yaml"]


def test_the_tables_go_over_no_list_and_no_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of layers called layers.csv was replaced by the table; a layer called so kept it from being written."""
    write_gemm(tmp_path / "a.yaml", 2, 2, 2)
    (tmp_path / "layers.csv").write_bytes(b"\xef\xbb\xbfa.yaml\n")
    names = str(tmp_path / "layers.csv")
    assert [path.name for path in find_layers(tmp_path / "layers.csv")] == ["a.yaml"]
    assert run(monkeypatch, "map", *map(str, SHARED), "--layers", names, "-o", str(tmp_path)) == 2
    assert (tmp_path / "layers.csv").read_bytes().endswith(b"a.yaml\n")
    assert layer_names([tmp_path / "layers.csv.yaml"]) == ["layers.csv_2"]


def test_an_interrupted_network_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Iterator[tuple[str, Result]]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("stitchloop.network._on_cores", interrupted)
    write_gemm(tmp_path / "layers" / "a.yaml", 2, 2, 2)
    assert run(monkeypatch, "map", *map(str, SHARED), "--layers", str(tmp_path / "layers"), "-o", str(tmp_path / "out")) == 1
    assert "interrupted" in (tmp_path / "out" / "layers.csv").read_text()


def test_on_a_dask_cluster(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    for m in (2, 3, 5):
        write_gemm(tmp_path / "layers" / f"m{m}.yaml", m, 2, 2)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster:
        report = map_layers(
            find_layers(tmp_path / "layers"), SHARED, tmp_path / "out", scheduler=cluster.scheduler_address, map_layer=moody
        )
    assert [row.status for row in report.rows] == ["mapped", "mapped", "failed"]
    assert "ZeroDivisionError" in (report.rows[2].error or "")
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        map_layers(find_layers(tmp_path / "layers"), SHARED, tmp_path / "fresh", scheduler="tcp://127.0.0.1:1", map_layer=moody)


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the public example designs are not here")
def test_layers_take_the_place_of_a_templates_problem(tmp_path: Path) -> None:
    shapes = [EXAMPLES / "layer_shapes" / "resnet18" / f"{number:02}.yaml" for number in (1, 2, 5)]
    report = map_layers(
        shapes, [EXAMPLES / "top.yaml.jinja2"], tmp_path, jobs=1, variables={"architecture": "eyeriss_like"},
        map_layer=at_the_outermost_level,
    )  # fmt: skip
    assert report.rows[0].computes == 64 * 64 * 3 * 3 * 56 * 56
    assert report.rows[1].same_as == "01"


def test_options_without_effect_on_a_network_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stitchloop.network._on_cores", lambda work, *_: ((key, "no search") for key, _ in work))
    write_gemm(tmp_path / "layers" / "a.yaml", 2, 2, 2)
    switches = ("--layers", str(tmp_path / "layers"), "--pareto", "energy,delay", "-o", str(tmp_path / "out"))
    assert run(monkeypatch, "map", *map(str, SHARED), *switches) == 1
    assert capsys.readouterr().err == "warning: --pareto has no meaning for whole networks and is ignored\n"
