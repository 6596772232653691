"""Ctrl-C and SIGTERM: a search returns its best so far, and no command ends in a traceback."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

REPEATED = 1.0
"""Seconds within which further signals are taken for the same one: wrappers pass on what the terminal has sent already."""


class _Interrupt:
    """A signal handler that raises :class:`KeyboardInterrupt`, once for signals that come close together."""

    def __init__(self) -> None:
        self._answered = -REPEATED

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._answered >= REPEATED:
            self._answered = now
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """While it lasts, Ctrl-C and SIGTERM raise :class:`KeyboardInterrupt`; inside another one it changes nothing.

    Ctrl-C stays ignored where the caller ignores it (``nohup``, background jobs). Threads other than the main one get no
    signals, so there it does nothing.
    """
    if isinstance(signal.getsignal(signal.SIGTERM), _Interrupt):
        yield
        return
    handler = _Interrupt()
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
