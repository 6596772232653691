"""``stitchloop map``: finds the best mapping of one Einsum, of a fused list of Einsums, of a cascade, or of many layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stitchloop.cli.options import (
    Files,
    FrontendCompatible,
    OutputFolder,
    Variables,
    console,
    given_path,
    one_of,
    parse_variables,
    positive,
    read_spec,
    show_warnings,
)
from stitchloop.errors import InputError

if TYPE_CHECKING:
    from stitchloop.spec import Spec
    from stitchloop.write.summary import Summary

FUSED = "Fused work (a list of Einsums)"
CASCADE = "Cascades"
NETWORK = "Whole networks"
LIMITS = "Limits"
ABLATIONS = ("ordering", "buffer", "full", "flash-attention-2", "flat", "tileflow")
STRATEGIES = ("none", "ri", "ri+rsb", "ri+rsb+rsp", "full", "optimal")


def map_command(
    files: Files,
    output: OutputFolder = Path("."),
    settings: Variables = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="edp, energy, delay, last-level-accesses, accesses-LEVEL (fused: energy, latency, edp, dram, buffer); "
            "several, by commas, the first deciding."
        ),
    ] = None,
    pareto: Annotated[str | None, typer.Option(help="Also the Pareto front of two or three objectives, by commas.")] = None,
    imperfect: Annotated[bool, typer.Option("--imperfect", help="Admit factors that do not divide the rank sizes.")] = False,
    compare: Annotated[bool, typer.Option("--compare", help="Also show what 200 valid random mappings reach.")] = False,
    diagnostics: Annotated[
        bool, typer.Option("--diagnostics", help="Show what the constraints leave each level, and what forbids mappings.")
    ] = False,
    frontend_compatible: FrontendCompatible = False,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which the best so far is returned, with its gap.", rich_help_panel=LIMITS)
    ] = None,
    memory_limit: Annotated[float | None, typer.Option(help="MiB that the search may use.", rich_help_panel=LIMITS)] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads; the answer is the same on any number.", rich_help_panel=LIMITS)
    ] = None,
    softmax: Annotated[
        str, typer.Option(help="Softmax between two Einsums: none, added (to the time) or overlapped.", rich_help_panel=FUSED)
    ] = "none",
    softmax_ops: Annotated[float, typer.Option(help="Operations of softmax per element.", rich_help_panel=FUSED)] = 10.0,
    softmax_lanes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Operations of softmax per cycle; one for each array column if left out.", rich_help_panel=FUSED
        ),
    ] = None,
    stationarity: Annotated[
        str, typer.Option(help="Options inside the array that each Einsum may choose from, by commas.", rich_help_panel=FUSED)
    ] = "WS,IS,OS",
    arrays: Annotated[
        str,
        typer.Option(
            help="Several arrays: split one head along a common rank, free to split any, or heads apart.", rich_help_panel=FUSED
        ),
    ] = "split",
    reconfigurable: Annotated[
        bool, typer.Option("--reconfigurable", help="Choose the array's logical shape for each Einsum.", rich_help_panel=FUSED)
    ] = False,
    perfect: Annotated[
        bool, typer.Option("--perfect", help="Only tile sizes that divide the rank sizes.", rich_help_panel=FUSED)
    ] = False,
    ablation: Annotated[
        str,
        typer.Option(help="A smaller mapspace: ordering, buffer, flash-attention-2, flat or tileflow.", rich_help_panel=FUSED),
    ] = "full",
    capacity: Annotated[
        int | None, typer.Option(min=1, help="Words of buffer instead of the architecture's.", rich_help_panel=FUSED)
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="optimal, or a greedy strategy: none, ri, ri+rsb, ri+rsb+rsp, full.", rich_help_panel=CASCADE)
    ] = "optimal",
    layers: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            parser=given_path,
            help="Map every problem of a folder, or of a list of files (one path a line).",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Layers mapped at the same time.", rich_help_panel=NETWORK)] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler that maps the layers.", rich_help_panel=NETWORK)
    ] = None,
) -> None:
    """Find the best mapping, with proof.

    Example: stitchloop map nvdla_like problems/resnet18/02_conv2 mappers/edp -o out
    """
    _check_choices(softmax, arrays, ablation, strategy)
    positive("--time-limit", time_limit)
    positive("--memory-limit", memory_limit)
    changes = {
        "time_limit": time_limit,
        "memory_limit_mb": memory_limit,
        "num_threads": threads,
        "imperfect": imperfect or None,
        "diagnostics": diagnostics or None,
    }
    if layers is not None:
        _ignored("whole networks", {"--pareto": pareto, "--compare": compare, "--diagnostics": diagnostics})
        _map_layers(files, layers, output, settings, frontend_compatible, objective, changes, jobs, scheduler)
        return
    spec = read_spec(files, settings, frontend_compatible)
    if spec.cascade is not None:
        _ignored("cascades", {"--imperfect": imperfect, "--compare": compare, "--diagnostics": diagnostics})
        from stitchloop.cascade.map import run as run_cascade

        summary = run_cascade(_with_options(spec, objective, pareto, changes, named=True), output, strategy)
    elif spec.workload is not None and len(spec.workload.einsums) > 1:
        if imperfect and perfect:
            raise InputError("--perfect", "together with --imperfect", "give one of them; fused work is imperfect by itself")
        _ignored("fused work", {"--compare": compare, "--diagnostics": diagnostics, "--memory-limit": memory_limit})
        spec = _with_options(spec, objective, pareto, changes, named=True)
        fused = {
            "softmax": softmax,
            "softmax_ops": softmax_ops,
            "softmax_lanes": softmax_lanes,
            "stationarity": tuple(dict.fromkeys(name.strip().upper() for name in stationarity.split(",") if name.strip())),
            "arrays": arrays,
            "reconfigurable": reconfigurable,
            "perfect": perfect or (spec.options.perfect and not imperfect),
            "ablation": ablation,
            "capacity": capacity,
        }
        summary = _map_fused(spec, output, fused)
    else:
        summary = _map_one(_with_options(spec, objective, pareto, changes), output, compare)
    summary.show(console())


def _ignored(what: str, given: dict[str, Any]) -> None:
    """Warn of options that were given and change nothing."""
    show_warnings(tuple(f"{name} has no meaning for {what} and is ignored" for name, value in given.items() if value))


def _check_choices(softmax: str, arrays: str, ablation: str, strategy: str) -> None:
    """Misspelt choices are refused also where the input does not use them."""
    one_of("--softmax", softmax, ("none", "added", "overlapped"))
    one_of("--arrays", arrays, ("split", "heads", "free"))
    one_of("--ablation", ablation, ABLATIONS)
    one_of("--strategy", strategy, STRATEGIES)


def _with_options(spec: Spec, objective: str | None, pareto: str | None, changes: dict[str, Any], named: bool = False) -> Spec:
    """Options of the command line win over the mapper section. ``named``: objectives are checked by who uses them."""
    from stitchloop.options import METRICS
    from stitchloop.read.options import parse_metrics

    def parsed(text: str | None, origin: str) -> tuple[str, ...] | None:
        if text is None:
            return None
        if named:
            names = [name.strip().lower() for name in text.split(",") if name.strip()]
            if not names:
                raise InputError(origin, "no objective", "name one, such as edp")
            return tuple(dict.fromkeys(METRICS.get(name, name) for name in names))
        return parse_metrics(text, spec.architecture, origin)

    changes = changes | {"metrics": parsed(objective, "--objective"), "pareto": parsed(pareto, "--pareto")}
    return replace(spec, options=replace(spec.options, **{name: value for name, value in changes.items() if value is not None}))


def _map_one(spec: Spec, output: Path, compare: bool) -> Summary:
    from stitchloop.cli.progress import search_progress
    from stitchloop.cli.run import MapSwitches, run_map

    with search_progress() as progress:
        return run_map(spec, output, MapSwitches(compare=compare, progress=progress))


def _map_fused(spec: Spec, output: Path, switches: dict[str, Any]) -> Summary:
    from stitchloop.cli.signals import interruptible
    from stitchloop.fused.map import options_of
    from stitchloop.fused.run import run as run_fused

    with interruptible():
        return run_fused(spec, output, replace(options_of(spec), **switches))


def _map_layers(
    files: list[Path],
    layers: Path,
    output: Path,
    settings: list[str] | None,
    frontend_compatible: bool,
    objective: str | None,
    changes: dict[str, Any],
    jobs: int | None,
    scheduler: str | None,
) -> None:
    from stitchloop.cli.progress import layers_progress
    from stitchloop.content import resolve
    from stitchloop.layers import TABLES, find_layers
    from stitchloop.network import map_layers
    from stitchloop.read.options import parse_metrics
    from stitchloop.write.files import refuse_inputs
    from stitchloop.write.network_summary import network_summary

    refuse_inputs(output, TABLES, [layers, *files])
    metrics = None if objective is None else parse_metrics(objective, None, "--objective")
    given = {name: value for name, value in (changes | {"metrics": metrics}).items() if value is not None}
    with layers_progress() as progress:
        report = map_layers(
            find_layers(resolve(layers)),
            [resolve(file) for file in files],
            output,
            jobs=jobs,
            scheduler=scheduler,
            threads=changes["num_threads"],
            variables=parse_variables(settings),
            frontend_compatible=frontend_compatible,
            override=lambda options: replace(options, **given),
            progress=progress,
        )
    network_summary(report, output).show(console())
    if report.failed or report.interrupted:
        raise typer.Exit(1)
