"""Output files are written whole or not at all, and never over an input."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stitchloop.errors import InputError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path`` through a temporary file beside it, so that a reader never sees half of it."""
    data = content.encode() if isinstance(content, str) else content
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_folder(directory: Path) -> None:
    """Raise :class:`InputError` when the output folder could not be made or written to; makes nothing."""
    try:
        nearest = next(folder for folder in (directory, *directory.absolute().parents) if folder.exists())
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise _no_folder(directory, error) from None


def make_folder(directory: Path) -> None:
    """Make the output folder and those above it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _no_folder(directory, error) from None


def _no_folder(directory: Path, error: OSError) -> InputError:
    return InputError(str(directory), f"the output folder cannot be made ({error.strerror})", "name another with -o")


def refuse_inputs(directory: Path, names: Iterable[str], inputs: Iterable[str | Path]) -> None:
    """Raise :class:`InputError` when an output of one of ``names`` would take the place of an input."""
    protected = {Path(name).resolve() for name in inputs}
    for name in names:
        if (directory / name).resolve() in protected:
            raise InputError(str(directory / name), "this output would overwrite an input file", "name another folder with -o")


def write_files(directory: Path, contents: Mapping[str, str | bytes], inputs: Iterable[str | Path] = ()) -> list[Path]:
    """Write all ``contents`` (name to text) into ``directory``, which is made when missing; no interruption parts them.

    Raises
    ------
    InputError
        When the folder cannot be made, or when one of the files is an input of the run.
    """
    make_folder(directory)
    refuse_inputs(directory, contents, inputs)
    try:
        with signals_held():
            for name, content in contents.items():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                write_atomically(directory / name, content)
    except OSError as error:
        raise InputError(str(directory), f"cannot write there ({error.strerror})", "name another folder with -o") from None
    return [directory / name for name in contents]


@contextmanager
def signals_held() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until it ends, so that the files of one run stay together."""
    held: list[int] = []
    try:
        before = {number: signal.signal(number, lambda n, _: held.append(n)) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # only the main thread gets signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for again in dict.fromkeys(held):
            signal.raise_signal(again)


def to_json(document: Any) -> str:
    """JSON text as the project writes it: two spaces of indent, keys in their order, a final newline."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
