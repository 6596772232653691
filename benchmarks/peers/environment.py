"""Environments for the peers: a Python 3.12, a virtual environment in the user's cache folder, pip from the package registry."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

INSTALL_SECONDS = 900


@dataclass(frozen=True)
class Peer:
    """A mapper from the package registry: name, requirements with the version that was looked at, module to try."""

    name: str
    requirements: tuple[str, ...]
    module: str


ACCELFORGE = Peer("accelforge", ("accelforge==1.0.467",), "accelforge")
STREAM = Peer("stream", ("stream-dse==2.1.1", "six"), "stream.api")
"""``six`` is imported by a dependency that does not declare it."""


class Unavailable(Exception):
    """Why a peer cannot be run here."""


def cache_folder() -> Path:
    """The benchmark's own folder among the user's caches."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stitchloop-benchmarks"


def python_of(peer: Peer, folder: Path, python: str | None = None) -> Path:
    """The interpreter of a peer's environment, created at first use.

    Raises
    ------
    Unavailable
        Without a Python 3.12, or when the registry cannot be reached.
    """
    home = folder / peer.name
    interpreter = home / "bin" / "python"
    if not interpreter.exists():
        _run(peer, [_base_python(python), "-m", "venv", str(home)])
    check = [str(interpreter), "-c", f"import {peer.module}"]
    try:
        _run(peer, check)
    except Unavailable:
        print(f"installing {peer.name} in {home} (once, a few minutes)", file=sys.stderr)
        _run(peer, [str(interpreter), "-m", "pip", "install", "-q", *peer.requirements])
        _run(peer, check)
    return interpreter


def _run(peer: Peer, command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise Unavailable(f"{peer.name}: '{' '.join(command[1:4])} ...' failed: {last}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{peer.name}: {error}") from error


def _base_python(given: str | None) -> str:
    for candidate in (given,) if given else _candidates():
        probe = [candidate, "-c", "import sys, venv; sys.exit(sys.version_info < (3, 12))"]
        try:
            if subprocess.run(probe, capture_output=True, timeout=60).returncode == 0:
                return candidate
        except OSError:
            continue
    raise Unavailable(f"{given or 'python3.12'} does not run: install Python 3.12 or name one with --python; no peer, no ratio")


def _candidates() -> Iterator[str]:
    """Interpreters on PATH, then the newest of pyenv's (its shim on PATH does not run a version that is not switched on)."""
    yield from ("python3.12", sys.executable)
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from (str(path) for path in sorted(versions.glob("3.12.*/bin/python"), reverse=True))
