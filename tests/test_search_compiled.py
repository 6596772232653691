"""Kernels: what machine code takes, what it gives, and how it is kept."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stitchloop.search import compiled
from stitchloop.search.compiled import Flags1, Floats2, Ints1, Shorts2, inner, kernel

FACTOR = 3


@inner
def scaled(number: float, factor: float) -> float:
    return number * factor + FACTOR


@kernel
def gather(flags: Flags1, places: Ints1, small: Shorts2, numbers: Floats2, factor: float, twice: bool, add: int) -> int:
    """Changes ``numbers`` in place; how many it changed."""
    changed = 0
    for k in range(places.shape[0]):
        if flags[k]:
            for c in range(numbers.shape[1]):
                own = scaled(numbers[places[k], c], factor) + small[k % small.shape[0], c] + add
                numbers[places[k], c] = own * 2.0 if twice else own
                changed += 1
    return changed


@pytest.fixture
def arguments() -> list[Any]:
    flags, places = np.array([True, False, True]), np.array([2, 0, 1])
    small, numbers = np.arange(8, dtype=np.int32).reshape(2, 4), np.arange(12.0).reshape(3, 4)
    return [flags, places, small, numbers, 0.5, True, -7]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STITCHLOOP_CACHE", str(tmp_path))
    return tmp_path


def fresh() -> Any:
    return kernel(gather.function)


def test_machine_code_does_what_python_does(arguments: list[Any], folder: Path) -> None:
    expected = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
    assert gather.function(*expected) == fresh()(*arguments) == 8
    np.testing.assert_array_equal(arguments[3], expected[3])


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        (3, np.arange(12.0).reshape(4, 3).T),
        (3, np.arange(12.0)),
        (3, np.arange(12).reshape(3, 4)),
        (2, np.arange(8).reshape(2, 4)),
        (1, [2, 0, 1]),
        (0, None),
        (0, np.zeros(3, dtype=np.int8)),
        (1, np.frombuffer(bytes(25), dtype=np.uint8)[1:].view(np.int64)),
        (1, np.array([2, 0, 1]).astype(np.dtype(np.int64).newbyteorder())),
    ],
    ids=["order", "dimensions", "integers", "long for short", "list", "none", "bytes for flags", "unaligned", "swapped"],
)
def test_arrays_of_another_kind_are_refused(arguments: list[Any], at: int, wrong: Any) -> None:
    arguments[at] = wrong
    before = arguments[3].copy()
    with pytest.raises(TypeError, match="gather"):
        gather(*arguments)
    np.testing.assert_array_equal(arguments[3], before)


def test_every_argument_is_needed(arguments: list[Any]) -> None:
    for few in (arguments[1:], [*arguments, 1], arguments[:4] + arguments[5:]):
        with pytest.raises((TypeError, struct.error, IndexError)):
            gather(*few)


def test_arguments_are_annotated_with_what_they_are() -> None:
    @kernel
    def careless(numbers: Any) -> int:
        return 0

    with pytest.raises(TypeError, match="is annotated"):
        careless(np.zeros(1))


def test_a_damaged_file_is_made_again(arguments: list[Any], folder: Path) -> None:
    assert fresh()(*arguments) == 8
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-5])
    assert compiled._kept(kept.stem) is None
    kept.write_bytes(whole)
    assert compiled._kept(kept.stem) is not None


def test_without_a_folder_to_write_to_kernels_run_all_the_same(
    arguments: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STITCHLOOP_CACHE", str(tmp_path / "file" / "below"))
    assert fresh()(*arguments) == 8


def test_a_signal_waits_until_a_kernel_is_made(arguments: list[Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C was swallowed by a callback of LLVM, which wrote a traceback."""
    from stitchloop.search import translate

    whole = translate.translate

    def interrupted(*given: Any) -> list[bytes]:
        signal.raise_signal(signal.SIGINT)
        return whole(*given)

    monkeypatch.setattr(translate, "translate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fresh()(*arguments)
    assert len(list(folder.iterdir())) == 1


def test_code_is_known_by_all_that_it_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change to what a kernel calls, the code of before was used."""
    before = compiled._digest(gather.function, [])
    assert compiled._digest(gather.function, []) == before
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 4)
    changed = compiled._digest(gather.function, [])
    assert changed != before
    monkeypatch.setattr(sys.modules[__name__], "scaled", inner(lambda number, factor: number / factor))
    assert compiled._digest(gather.function, []) not in (before, changed)


def test_what_numba_is_told_is_part_of_it_or_refused(folder: Path) -> None:
    """Code without optimization was kept for all later runs; where numba may not translate there was a traceback."""
    script = "from stitchloop.search.walk import follow as k; k._link()"

    def run(**settings: str) -> str:
        environment = {**os.environ, **settings}
        return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True).stderr

    assert "InputError: NUMBA_DISABLE_JIT: " in run(NUMBA_DISABLE_JIT="1")
    assert run(NUMBA_OPT="0") == run() == run(NUMBA_DISABLE_JIT="1") == ""
    assert len(list(folder.iterdir())) == 2


def test_numba_is_not_imported_once_kernels_are_on_disk() -> None:
    names = ("lattice.count_words", "prices.fill_rates", "passes.run_program", "walk.follow", "labels.extend_labels")
    loads = "; ".join(f"from stitchloop.search.{name.replace('.', ' import ')} as k; k._link()" for name in names)
    script = f"import sys; {loads}; print('numba' in sys.modules)"
    for _ in range(2):
        run = subprocess.run([sys.executable, "-c", script], env=os.environ, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
