"""``stitchloop validate``: compares the models with reference results, or with an installed Timeloop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stitchloop.cli.options import given_path
from stitchloop.text import counted

if TYPE_CHECKING:
    from rich.console import Console

    from stitchloop.validate.summary import Summary


def validate(
    cases: Annotated[Path, typer.Argument(help="Reference cases: a .jsonl or .jsonl.gz file.", show_default=False)],
    dump: Annotated[
        Path | None,
        typer.Option(metavar="PATH", parser=given_path, help="Write our figures of every case here, one JSON object a line."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="PATH",
            parser=given_path,
            help="Folder for validation.json and validation.html; made when missing.",
        ),
    ] = None,
    convention: Annotated[
        Literal["tool", "clean"], typer.Option(help="Count as the reference tool counts, or physically clean.")
    ] = "tool",
    engine: Annotated[
        Literal["reference", "timeloop"], typer.Option(help="Compare with the file's figures, or with timeloop-model on PATH.")
    ] = "reference",
) -> None:
    """Compare the models with reference results.

    Example: stitchloop validate tests/data/single/cases.jsonl.gz -o out
    """
    from stitchloop.cli.options import console
    from stitchloop.validate.report import NAMES, write_report
    from stitchloop.validate.run import run_cases, write_dump
    from stitchloop.validate.summary import summarise
    from stitchloop.write.files import check_folder, refuse_inputs

    for path in (*([dump] if dump is not None else ()), *([output / name for name in NAMES] if output is not None else ())):
        check_folder(path.parent)
        refuse_inputs(path.parent, [path.name], [cases])
    with _progress() as advance:
        results = run_cases(cases, engine=engine, convention=convention, advance=advance)
    reference = "timeloop-model" if engine == "timeloop" else f"the figures in {cases.name}"
    summary = summarise(results, reference)
    if dump is not None:
        write_dump(results, dump)
    if output is not None:
        write_report(summary, results, output)
    show(summary, console())
    if output is not None:
        typer.echo(f"wrote {', '.join(NAMES)} to {output}")
    if not summary.is_exact:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Callable[[], None]]:
    """Yield a callback that counts one case; it draws only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed} cases"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("cases", total=None)
        yield lambda: bar.advance(task)


def show(summary: Summary, console: Console) -> None:
    """The summary on one screen."""
    from rich.table import Table

    console.print(
        f"{counted(summary.cases, 'case')} against {summary.reference}, {summary.seconds_per_case * 1000:.2f} ms a mapping"
    )
    rows = (
        ("cases with every figure equal", summary.exact, summary.cases),
        ("cases with every count equal", summary.counts_exact, summary.cases),
        ("figures equal", summary.figures_equal, summary.figures),
        (f"agree on validity ({summary.invalid} invalid)", summary.validity_agrees, summary.cases),
    )
    for label, part, whole in rows:
        console.print(f"  {label:<36} {part} of {whole}", style=None if part == whole else "red")
    for name, a in summary.agreements.items():
        at = f" in {a.worst}" if a.worst else ""
        r2 = "-" if a.r2 is None else f"{a.r2:.9f}"
        console.print(f"  {name:<36} R2 {r2}, largest relative error {a.max_relative_error:.1e}{at}", soft_wrap=True)
    if summary.worst:
        table = Table("case", "figure", "ours", "reference", box=None, padding=(0, 2, 0, 0))
        for result in summary.worst[:8]:
            first = result.differences[0]
            more = f" (+{len(result.differences) - 1})" if len(result.differences) > 1 else ""
            table.add_row(result.id, first.figure + more, str(first.ours), str(first.reference))
        console.print("\nworst cases:")
        console.print(table)
