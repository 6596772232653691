"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stitchloop.errors import InputError
from stitchloop.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from stitchloop.spec import Spec


def given_path(text: str | Path) -> Path:
    """A path of the command line. An empty one, as an unset shell variable leaves it, would mean the current folder."""
    if not str(text).strip():
        raise typer.BadParameter("an empty path")
    return Path(text)


Files = Annotated[
    list[Path],
    typer.Argument(
        help="Timeloop YAML files, or names of shipped ones, in any order; Jinja2 files are rendered.", show_default=False
    ),
]
OutputFolder = Annotated[
    Path, typer.Option("-o", "--output", metavar="PATH", parser=given_path, help="Folder for the outputs; made when missing.")
]
Variables = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A variable for Jinja2 files; repeatable.")
]
FrontendCompatible = Annotated[
    bool, typer.Option("--frontend-compatible", help="Read permutations as pytimeloop's front end does: unlisted ranks first.")
]


def parse_variables(settings: list[str] | None) -> dict[str, str]:
    """``['A=1']`` to ``{'A': '1'}``; :class:`InputError` on anything else."""
    variables = {}
    for setting in settings or ():
        name, sign, value = setting.partition("=")
        if not sign or not name.isidentifier():
            raise InputError("--set", f"`{setting}`", "write --set NAME=VALUE")
        variables[name] = value
    return variables


def one_of(option: str, value: str, choices: Iterable[str]) -> None:
    """:class:`InputError` when ``value`` is none of ``choices``."""
    if value not in (known := list(choices)):
        raise InputError(option, f"'{value}'", f"use one of {', '.join(known)}")


def positive(option: str, value: float | None) -> None:
    """:class:`InputError` when a limit is given that is no finite number above 0."""
    if value is not None and not 0 < value < float("inf"):
        raise InputError(option, f"{value:g}", "give a number above 0, or leave the limit out")


def read_spec(files: list[Path], settings: list[str] | None, frontend_compatible: bool) -> Spec:
    """Load the files, and show what the reader remarks on stderr."""
    from stitchloop.content import resolve
    from stitchloop.read import load_spec

    spec = load_spec([resolve(file) for file in files], parse_variables(settings), frontend_compatible=frontend_compatible)
    show_warnings(spec.warnings)
    return spec


def show_warnings(sentences: tuple[str, ...]) -> None:
    for sentence in sentences:
        typer.echo(f"warning: {printable(sentence)}", err=True)


def console(stderr: bool = False) -> Console:
    """The screen; 110 columns where the output is no terminal. Names from inputs are shown as they are, brackets and all."""
    import sys

    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, markup=False, width=None if stream.isatty() else 110)
