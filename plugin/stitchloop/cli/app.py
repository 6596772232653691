"""The program ``stitchloop``: runs a command; users' errors and interruptions become one sentence and an exit status.

The commands are loaded inside :func:`main`, so that an interruption finds it at work from the first moments on.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> None:
    """Run the command line; users' errors become one sentence on stderr and the exit status of their kind."""
    try:
        try:
            _run()
        except KeyboardInterrupt:
            _fail("interrupted before there was a result", 130)
    except SystemExit as exit:
        _leave(exit.code if isinstance(exit.code, int) else int(exit.code is not None))
        raise


def _run() -> None:
    from stitchloop.cli.signals import INTERRUPTED, interruptible
    from stitchloop.errors import StitchloopError

    with interruptible(whole_process=True):
        from stitchloop.cli.commands import app
        from stitchloop.cli.streams import steady_streams

        try:
            with steady_streams():
                app()
        except SystemExit as exit:
            if exit.code == INTERRUPTED:  # typer's answer to an interruption
                raise KeyboardInterrupt from None
            raise
        except StitchloopError as error:
            _fail(str(error), error.exit_status)
        except MemoryError:
            _fail("not enough memory; give smaller sizes, or --memory-limit", 2)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            _fail(f"{place}{error.strerror or error}; free the place, or name another", 2)


def _leave(status: int) -> None:
    """End the process at once when an interrupted search has left threads at work, in the middle of a compilation perhaps."""
    import os
    import threading

    search = sys.modules.get("stitchloop.search.exact")
    if search is not None and any(thread.name.startswith(search.THREADS) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _fail(sentence: str, status: int) -> NoReturn:
    from stitchloop.cli.streams import steady_streams
    from stitchloop.text import printable

    with steady_streams():
        print(f"error: {printable(sentence)}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
