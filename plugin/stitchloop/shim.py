"""Executables named as Timeloop's, which answer with Stitchloop: for scripts that call ``timeloop-mapper``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stitchloop.errors import InputError, StitchloopError
from stitchloop.write.files import make_folder, write_atomically

PROGRAMS = {"timeloop-mapper": "map", "timeloop-model": "model"}

_SCRIPT = """#!{python}
# Written by `stitchloop shim`: answers calls of {name} with Stitchloop.
import sys

from stitchloop.shim import main

sys.exit(main({name!r}, sys.argv[1:]))
"""


def write_shims(directory: Path) -> list[Path]:
    """Put the executables into ``directory``. Returns their paths.

    Raises
    ------
    InputError
        When the folder cannot be made, or a file of that name stands there that is not a shim: it is never overwritten.
    """
    make_folder(directory)
    paths = [directory / name for name in PROGRAMS]
    for path in paths:
        if path.is_dir() or (path.exists() and b"`stitchloop shim`" not in path.read_bytes()[:400]):
            raise InputError(str(path), "another program of this name stands here", "name an empty folder")
    for path in paths:
        write_atomically(path, _SCRIPT.format(python=sys.executable, name=path.name))
        path.chmod(0o755)
    return paths


def main(program: str, arguments: list[str]) -> int:
    """Run ``program`` with Timeloop's arguments: YAML files in any order and ``-o DIR``. Returns the exit status."""
    from stitchloop.cli.run import run_map, run_model
    from stitchloop.read import load_spec

    try:
        files, directory = _split(arguments)
        spec = load_spec(files)
        for warning in spec.warnings:
            print(f"WARNING: {warning}", file=sys.stderr)
        summary = run_map(spec, directory) if PROGRAMS[program] == "map" else run_model(spec, directory)
    except StitchloopError as error:
        text = str(error)
        print(text if text.startswith("ERROR") else f"ERROR: {text}", file=sys.stderr)
        return error.exit_status
    print(summary.text)
    return 0


def _split(arguments: list[str]) -> tuple[list[Path], Path]:
    files: list[Path] = []
    directory = Path(os.curdir)
    rest = iter(arguments)
    for argument in rest:
        if argument in ("-o", "--output"):
            directory = Path(next(rest, os.curdir))
        elif argument.startswith("-"):
            raise InputError("the command line", f"argument {argument}", "only YAML files and -o DIR are known")
        else:
            files.append(Path(argument))
    if not files:
        raise InputError("the command line", "no input file", "name the YAML files of architecture, problem and mapper")
    return files, directory
