"""The progress line of a search: best so far, lower bound and gap. Nothing is shown when stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stitchloop.network import LayerRow


@contextmanager
def search_progress() -> Iterator[Callable[[float, float, float], None] | None]:
    """Yield a callback ``(share_done, best, lower_bound)``, or None when there is no terminal to draw on."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("searching"), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("search", total=1.0, state="")

        def update(share_done: float, best: float, lower_bound: float) -> None:
            gap = (best - lower_bound) / best if best not in (0.0, float("inf")) else float("nan")
            bar.update(task, completed=share_done, state=f"best {best:.6g}  bound {lower_bound:.6g}  gap {gap:.2%}")

        yield update


@contextmanager
def layers_progress() -> Iterator[Callable[[int, int, LayerRow], None] | None]:
    """Yield a callback ``(layers done, layers, row)``, or None when there is no terminal to draw on."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("layers"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[name]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("layers", total=None, name="")

        def update(done: int, total: int, row: LayerRow) -> None:
            bar.update(task, completed=done, total=total, name=row.layer)

        yield update
