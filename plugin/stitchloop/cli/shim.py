"""``stitchloop shim``: puts executables with Timeloop's names into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stitchloop.cli.options import given_path


def shim(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", parser=given_path, help="Folder for the executables; put it first on PATH.")
    ],
) -> None:
    """Write executables named timeloop-mapper and timeloop-model that run Stitchloop.

    Example: stitchloop shim ~/shims && PATH=~/shims:$PATH python my_timeloop_script.py
    """
    from stitchloop.shim import write_shims

    for path in write_shims(directory):
        typer.echo(f"wrote {path}")
    typer.echo(f"Put {directory} first on PATH: export PATH={directory.resolve()}:$PATH")
