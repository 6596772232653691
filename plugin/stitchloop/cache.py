"""What is kept on disk from one run to the next, in the user's cache folder. Nothing depends on it: it is made again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_directory() -> Path:
    """The user's cache folder for this package, by the platform's custom; ``STITCHLOOP_CACHE`` overrides it."""
    given = os.environ.get("STITCHLOOP_CACHE")
    if given:
        return Path(given)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "stitchloop"


def fetch(name: str) -> bytes | None:
    """What :func:`keep` has kept under a name."""
    try:
        return (cache_directory() / name).read_bytes()
    except (OSError, RuntimeError):  # the latter without a home
        return None


def keep(name: str, content: bytes) -> None:
    """Keep something under a name that says all that it depends on; a folder that cannot be written to is left alone."""
    from stitchloop.write.files import write_atomically

    try:
        folder = cache_directory()
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, content)
    except (OSError, RuntimeError):
        return
