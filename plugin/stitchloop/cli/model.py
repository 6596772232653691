"""``stitchloop model``: evaluates the given mapping, as timeloop-model does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stitchloop.cli.options import Files, FrontendCompatible, OutputFolder, Variables, console, one_of, read_spec


def model(
    files: Files,
    output: OutputFolder = Path("."),
    settings: Variables = None,
    frontend_compatible: FrontendCompatible = False,
    convention: Annotated[
        str, typer.Option(help="For fused mappings: `sound`, or `looptree` for that tool's own figures.")
    ] = "sound",
) -> None:
    """Evaluate a mapping.

    Example: stitchloop model arch.yaml problem.yaml mapping.yaml -o out
    """
    one_of("--convention", convention, ("sound", "looptree"))
    spec = read_spec(files, settings, frontend_compatible)
    if spec.fused_mapping is not None:
        from stitchloop.fused.model_command import run as run_fused

        run_fused(spec, output, convention).show(console())
        return
    from stitchloop.cli.run import run_model

    run_model(spec, output).show(console())
