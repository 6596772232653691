"""Ctrl-C and SIGTERM at any moment: one sentence, whole outputs, no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stitchloop.cli.signals import interruptible
from stitchloop.write import files


def test_an_interruption_in_the_first_moments_is_no_traceback() -> None:
    """Ctrl-C while the commands were loaded, in the first fifth of a second, ended in a traceback."""
    code = (
        "import os, signal, sys, stitchloop.cli.app as app\n"
        "class AtTyper:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), getattr(signal, sys.argv[1]))\n"
        "sys.meta_path.insert(0, AtTyper())\n"
        "app.main()\n"
    )
    for name in ("SIGINT", "SIGTERM"):
        done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (130, "error: interrupted before there was a result\n")


def test_an_interruption_does_not_part_the_files_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the files were written left some of this run beside some of the run before."""
    whole = files.write_atomically

    def interrupted(path: Path, content: str | bytes) -> None:
        signal.raise_signal(signal.SIGINT)
        whole(path, content)

    monkeypatch.setattr(files, "write_atomically", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write_files(tmp_path, {"a": "1", "b": "2"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_signals_that_come_together_interrupt_once() -> None:
    """A terminal's Ctrl-C that a wrapper passed on as well interrupted what the first had asked for: nothing was written."""
    with interruptible():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)


def test_a_second_signal_ends_a_search_that_is_slow_to_answer() -> None:
    """Ctrl-C while kernels were compiled had to be waited for, however often it was given."""
    code = (
        "import signal, time, sys\n"
        "from stitchloop.cli import signals\n"
        "signals.REPEATED = 0.05\n"
        "with signals.interruptible(whole_process=True):\n"
        "    try:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "    except KeyboardInterrupt:\n"
        "        time.sleep(0.1)\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "        time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_search_interrupted_before_its_first_mapping_gives_a_random_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while kernels were compiled or spatial factors listed ended with nothing, then with a bound of 0."""
    from search_spaces import gemm
    from stitchloop.mapspace import build_mapspace
    from stitchloop.search import exact, search
    from test_search_optimum import nvdla

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    space = build_mapspace(gemm(8, 8, 8), nvdla())
    for objective in ("energy", "delay", "edp"):
        best = search(space, (objective,)).values[0]
        for name in ("spatial_table", "keep_sets"):
            with monkeypatch.context() as patch:
                patch.setattr(exact, name, interrupted)
                result = search(space, (objective,))
            assert space.contains(result.mapping) is None
            assert (result.certificate.optimal, result.certificate.reason) == (False, "interrupted")
            assert 0 < result.certificate.lower_bound <= best <= result.values[0]


def test_an_interruption_after_the_optimum_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while ties were broken, or while the full count was bounded, lost the optimum."""
    from search_spaces import convolution
    from stitchloop.mapspace import build_mapspace
    from stitchloop.search import certify, exact, search
    from test_search_optimum import nvdla

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    space = build_mapspace(convolution(2, 4, 3, 3, 6, 6), nvdla())
    whole = search(space, ("energy",))
    for module, name in ((exact.Search, "_polish"), (certify, "_with_links")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, interrupted)
            result = search(space, ("energy",))
        assert result.values == pytest.approx(whole.values, rel=1e-3)
        assert result.certificate.reason == "interrupted"


def test_an_interruption_between_two_portions_leaves_no_choice_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C before a portion was loaded left that portion out of the bound, which then was above the optimum."""
    import numpy as np

    from search_spaces import convolution
    from stitchloop.mapspace import build_mapspace
    from stitchloop.search.exact import Search
    from test_search_optimum import nvdla

    space = build_mapspace(convolution(2, 4, 3, 3, 6, 6), nvdla())
    whole = Search(space, ("energy",))
    best = whole.run().incumbent
    at = best.index % len(whole.every)
    last = np.ascontiguousarray(np.concatenate([np.delete(whole.every, at, axis=0), whole.every[at : at + 1]]))
    rest, signals = Search._rest, [KeyboardInterrupt]

    def interrupted(search: Search, start: int) -> float:
        if signals and start + search.portion >= len(last):
            raise signals.pop()
        return rest(search, start)

    monkeypatch.setattr(Search, "_rest", interrupted)
    search = Search(space, ("energy",), every=last)
    search.portion = -(-len(last) // 7)
    outcome = search.run()
    assert outcome.stopped_by == "interrupted"
    assert outcome.bound <= best.goals[0]
