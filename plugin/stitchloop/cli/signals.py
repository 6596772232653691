"""Ctrl-C and SIGTERM: a search returns its best so far, a second one ends it at once, and neither ends in a traceback."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""Exit status after Ctrl-C or SIGTERM when there was nothing to return."""

REPEATED = 1.0
"""Seconds within which further signals are taken for the same one: wrappers pass on what the terminal has sent already."""

SHOW_CURSOR = "\x1b[?25h"
"""What a terminal needs when a progress bar that hides its cursor is cut short."""


class _Interrupt:
    """A signal handler that raises :class:`KeyboardInterrupt`, once for signals that come close together.

    With ``whole_process`` the next one ends the process: threads may be at work that take long to notice the first. Outputs
    are whole even then (:mod:`stitchloop.write.files`).
    """

    def __init__(self, whole_process: bool) -> None:
        self._whole_process = whole_process
        self._answered: float | None = None

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._answered is not None and now - self._answered < REPEATED:
            return
        if self._answered is not None and self._whole_process:
            if sys.stderr is not None and sys.stderr.isatty():
                sys.stderr.write(SHOW_CURSOR)
                sys.stderr.flush()
            os._exit(INTERRUPTED)
        self._answered = now
        raise KeyboardInterrupt


@contextmanager
def interruptible(whole_process: bool = False) -> Iterator[None]:
    """While it lasts, Ctrl-C and SIGTERM raise :class:`KeyboardInterrupt`; inside another one it changes nothing.

    Ctrl-C stays ignored where the caller ignores it (``nohup``, background jobs). Threads other than the main one get no
    signals, so there it does nothing. With ``whole_process`` a second signal ends the process.
    """
    if isinstance(signal.getsignal(signal.SIGTERM), _Interrupt):
        yield
        return
    handler = _Interrupt(whole_process)
    try:
        before = {signal.SIGTERM: signal.signal(signal.SIGTERM, handler)}
    except ValueError:
        yield
        return
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
