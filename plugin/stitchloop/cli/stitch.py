"""``stitchloop stitch``: fusion groups of a cascade on an architecture, their traffic, time and energy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stitchloop.cli.options import OutputFolder, Variables, console, one_of, parse_variables, show_warnings
from stitchloop.errors import InputError

if TYPE_CHECKING:
    from stitchloop.cascade.cascade import Cascade
    from stitchloop.cascade.machine import Machine

CHOICES = ("none", "ri", "ri+rsb", "ri+rsb+rsp", "full", "optimal", "auto")
_UNITS = {"": 1, "b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def stitch_command(
    cascade: Annotated[str, typer.Argument(help="The cascade's YAML file, or the name of a shipped one (mamba-370m).")],
    architecture: Annotated[str, typer.Argument(help="The architecture's YAML file, or the name of a shipped one (mambalaya).")],
    output: OutputFolder = Path("."),
    strategy: Annotated[str, typer.Option(help=f"One of {', '.join(CHOICES)}.")] = "optimal",
    settings: Variables = None,
    context: Annotated[int | None, typer.Option(help="Positions of the iterative rank that prefill reads.", min=1)] = None,
    generate: Annotated[int | None, typer.Option(help="Tokens generated afterwards, one step each.", min=0)] = None,
    buffer: Annotated[str | None, typer.Option(help="Capacity of the on-chip buffer instead of the architecture's: 2MB.")] = None,
    tiles: Annotated[int, typer.Option(help="Run each fused pipeline in at least so many tiles.", min=1)] = 1,
    ideal: Annotated[bool, typer.Option("--ideal", help="Peak throughput, every tensor moved once, perfect overlap.")] = False,
    no_merge: Annotated[bool, typer.Option("--no-merge", help="Do not merge Einsums over a shared input.")] = False,
    no_reorder: Annotated[bool, typer.Option("--no-reorder", help="Keep the given order of Einsums.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Show which costs make less fusion win at one token a step.")] = False,
    no_figures: Annotated[bool, typer.Option("--no-figures", help="Write no pictures.")] = False,
) -> None:
    """Cut a cascade of Einsums into fusion groups, and say what each costs and what crosses DRAM.

    Example: stitchloop stitch mamba-370m mambalaya --strategy auto --context 4096 --generate 256 -o out
    """
    one_of("--strategy", strategy, CHOICES)
    from dataclasses import replace

    from stitchloop.cascade.performance import DETAILED, IDEAL
    from stitchloop.cascade.run import Request, run_stitch
    from stitchloop.read.fields import LARGEST

    for option, count in (("--context", context), ("--generate", generate), ("--tiles", tiles)):
        if count is not None and count > LARGEST:
            raise InputError(option, str(count), f"at most {LARGEST} is possible")
    found, machine = _inputs(cascade, architecture, parse_variables(settings))
    if buffer is not None:
        machine = machine.with_buffer(int(parse_bytes(buffer) / machine.word_bytes))
    request = Request(
        cascade=found,
        machine=machine,
        strategy=strategy,
        settings=IDEAL if ideal else replace(DETAILED, least_tiles=tiles),
        context=context,
        generate=generate,
        merge=not no_merge,
        reorder=not no_reorder,
        figures=not no_figures,
        why=why,
    )
    screen = console()
    for part in run_stitch(request, output):
        screen.print(part)


def parse_bytes(text: str) -> int:
    """``32MB``, ``512 KiB`` or ``1048576``: bytes, in powers of 1024."""
    import re

    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS or not (size := int(float(match[1]) * _UNITS[match[2].lower()])):
        raise InputError("--buffer", f"`{text}`", "give bytes, such as 1048576, 512KB or 32MB")
    return size


def _inputs(cascade: str, architecture: str, variables: dict[str, str]) -> tuple[Cascade, Machine]:
    from stitchloop.cascade.cascade import Cascade
    from stitchloop.cascade.machine import machine_of
    from stitchloop.content import shipped_file
    from stitchloop.read import load_spec

    problem, machine = shipped_file(cascade, "problems", holding="einsums"), shipped_file(architecture, "arch")
    spec = load_spec([problem, machine], variables)
    show_warnings(spec.warnings)
    if not isinstance(spec.cascade, Cascade):
        raise InputError(str(problem), "no cascade", "give a problem with 'ranks' and 'einsums'")
    if spec.architecture is None:
        raise InputError(str(machine), "no architecture", "give a file with an `architecture` section")
    return spec.cascade, machine_of(spec.architecture, machine.stem)
