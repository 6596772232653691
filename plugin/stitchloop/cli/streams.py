"""Standard streams that a closed pipe, a missing terminal or a poor encoding cannot break."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


@contextmanager
def steady_streams() -> Iterator[None]:
    """While it lasts, stdout and stderr exist, write ``?`` for what their encoding lacks, and outlive their readers.

    Outputs go to files; that nobody reads the summary (``| head -1``) changes neither them nor the exit status.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _steady(sys.stdout), _steady(sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def _steady(stream: TextIO | None) -> Any:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    return _Steady(stream)


class _Steady:
    """A text stream; what is written after its reader has gone is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
