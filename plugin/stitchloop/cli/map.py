"""``stitchloop map``: finds the best mapping of one Einsum, of a fused list of Einsums, or of a cascade."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stitchloop.cli.options import Files, FrontendCompatible, OutputFolder, Variables, console, read_spec

if TYPE_CHECKING:
    from stitchloop.options import MapperOptions


def map_command(
    files: Files,
    output: OutputFolder = Path("."),
    settings: Variables = None,
    objective: Annotated[
        str | None, typer.Option(help="edp, energy, delay, last-level-accesses or accesses-LEVEL; several, by commas, in order.")
    ] = None,
    pareto: Annotated[str | None, typer.Option(help="Pareto front of two or three objectives, by commas.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which the best so far is returned, with its gap.")
    ] = None,
    memory_limit: Annotated[float | None, typer.Option(help="MiB that the search may use.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads; the answer is the same on any number.")] = None,
    imperfect: Annotated[bool, typer.Option("--imperfect", help="Admit factors that do not divide the rank sizes.")] = False,
    compare: Annotated[bool, typer.Option("--compare", help="Also show what 500 valid random mappings reach.")] = False,
    frontend_compatible: FrontendCompatible = False,
) -> None:
    """Find the best mapping, with proof.

    Example: stitchloop map arch/nvdla_like problems/gemm.yaml mappers/edp.yaml -o out
    """
    spec = read_spec(files, settings, frontend_compatible)
    changes = {
        "metrics": _metrics(objective),
        "pareto": _metrics(pareto),
        "time_limit": time_limit,
        "memory_limit_mb": memory_limit,
        "num_threads": threads,
        "imperfect": imperfect or None,
    }
    spec = replace(spec, options=_override(spec.options, changes))
    from stitchloop.cli.progress import search_progress
    from stitchloop.cli.run import MapSwitches, run_map

    with search_progress() as progress:
        summary = run_map(spec, output, MapSwitches(compare=compare, progress=progress))
    summary.show(console())


def _override(options: MapperOptions, changes: dict[str, Any]) -> MapperOptions:
    """Options of the command line win over the mapper section of the files."""
    given = {name: value for name, value in changes.items() if value is not None}
    return replace(options, **given)


def _metrics(text: str | None) -> tuple[str, ...] | None:
    from stitchloop.read.mapper import parse_metrics

    return None if text is None else parse_metrics(text)
