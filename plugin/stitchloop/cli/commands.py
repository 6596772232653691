"""The commands of ``stitchloop``, a thin shell over the Python API: one module each, heavy work imported inside."""

from __future__ import annotations

from typing import Annotated

import typer

from stitchloop import __version__
from stitchloop.cli.map import map_command
from stitchloop.cli.model import model
from stitchloop.cli.shim import shim
from stitchloop.cli.stitch import stitch_command
from stitchloop.cli.validate import validate

app = typer.Typer(
    name="stitchloop",
    help="A fusion-aware mapper for Timeloop users.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("map")(map_command)
app.command("model")(model)
app.command("shim")(shim)
app.command("stitch")(stitch_command)
app.command("validate")(validate)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stitchloop {__version__}")
        raise typer.Exit


def _show_content(wanted: bool) -> None:
    if wanted:
        from stitchloop.content import FOLDERS, shipped_names

        for folder in FOLDERS:
            typer.echo("\n".join(f"{folder}/{name}" for name in shipped_names(folder)))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")] = False,
    content: Annotated[
        bool, typer.Option("--content", is_eager=True, callback=_show_content, help="List the shipped files by name.")
    ] = False,
) -> None:
    """Reads Timeloop's YAML files, finds the provably best mapping, writes Timeloop's files.

    Example: stitchloop map nvdla_like problems/resnet18/02_conv2 mappers/edp -o out
    """
