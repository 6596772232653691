"""The one-screen summary at the end of a command: loop nest, energy by level, certificate."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stitchloop.architecture import Architecture
from stitchloop.mapping import Mapping
from stitchloop.model.counting import TIMELOOP
from stitchloop.result import Certificate, Result
from stitchloop.stats import PARTIAL_TILES, Stats
from stitchloop.text import counted
from stitchloop.workload import Einsum
from stitchloop.write.nest_text import format_nest

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@dataclass(frozen=True)
class Summary:
    """Parts of a summary, in order; shown on a terminal with colour, or as plain ``text``."""

    parts: tuple[RenderableType, ...]

    @property
    def text(self) -> str:
        from rich.console import Console

        stream = io.StringIO()
        self.show(Console(file=stream, width=110, no_color=True, force_terminal=False, markup=False))
        return stream.getvalue()

    def show(self, console: Console) -> None:
        for part in self.parts:
            console.print(part)


@dataclass(frozen=True)
class Comparison:
    """Another mapping of the same Einsum that the result is held against."""

    name: str
    stats: Stats


def model_summary(einsum: Einsum, architecture: Architecture, mapping: Mapping, stats: Stats) -> Summary:
    """What ``stitchloop model`` shows."""
    return Summary((_nest(einsum, architecture, mapping, stats), _energy_bars(architecture, stats), _totals(architecture, stats)))


def map_summary(einsum: Einsum, architecture: Architecture, result: Result, comparison: Comparison | None = None) -> Summary:
    """What ``stitchloop map`` shows: the model's figures, the certificate, and the comparison when there is one."""
    parts = [
        _nest(einsum, architecture, result.mapping, result.stats),
        _energy_bars(architecture, result.stats),
        _totals(architecture, result.stats),
        certificate_text(result.objective, result.values, result.certificate),
    ]
    if result.pareto:
        parts.append(_pareto_table(result))
    if comparison is not None:
        parts.append(_comparison_text(result.stats, comparison))
    parts.extend(f"note: {note}" for note in result.notes)
    return Summary(tuple(parts))


def certificate_text(objective: tuple[str, ...], values: tuple[float, ...], certificate: Certificate) -> RenderableType:
    """The certificate as sentences: what is proved, over how many mappings, in what time."""
    from rich.text import Text

    c = certificate
    goal = ", then ".join(objective)
    size = f"{c.mapspace_size:,}" if c.mapspace_size < 10**12 else f"{c.mapspace_size:.3e}"
    if c.optimal:
        head, style = "Optimal (proved)", "bold green"
        under = "" if c.counting == TIMELOOP.name else ", under the count below"
        rest = f": no mapping of the {size} in the mapspace has a lower {goal}{under}"
    else:
        head, style = "Not proved optimal", "bold yellow"
        rest = f": {goal} is {values[0]:.6g}, at least {c.lower_bound:.6g} (gap {c.gap(values[0]):.2%}) over {size} mappings" + (
            f"; {c.reason}" if c.reason else ""
        )
    return Text.assemble(
        (head, style), rest + f". Evaluated exactly: {c.evaluated:,}. Time: {c.seconds:.2f} s. Count: {c.counting}."
    )


def wrote(paths: Sequence[Path]) -> RenderableType:
    """The last line of a command: which files it left, and where."""
    from rich.text import Text

    return Text(f"wrote {', '.join(path.name for path in paths)} to {paths[0].parent}")


def scaled(value_pJ: float) -> str:
    """An energy with four digits and the unit that suits it: ``16.52 uJ``."""
    for unit, size in (("J", 1e12), ("mJ", 1e9), ("uJ", 1e6), ("nJ", 1e3)):
        if value_pJ >= size:
            return f"{value_pJ / size:.4g} {unit}"
    return f"{value_pJ:.4g} pJ"


def _nest(einsum: Einsum, architecture: Architecture, mapping: Mapping, stats: Stats) -> RenderableType:
    from rich.text import Text

    return Text(format_nest(einsum, architecture, mapping, stats))


def _energy_bars(architecture: Architecture, stats: Stats) -> RenderableType:
    from rich.table import Table

    rows = [
        (level.name, stats.levels[level.name].energy_pJ) for level in reversed(architecture.levels) if level.name in stats.levels
    ]
    rows.append((architecture.compute.name, stats.compute.energy_pJ))
    table = Table(title="Energy by level", title_justify="left", box=None, pad_edge=False)
    table.add_column("level")
    table.add_column("energy", justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    for name, energy in rows:
        share = energy / stats.energy_pJ if stats.energy_pJ else 0.0
        table.add_row(name, scaled(energy), f"{share:.1%}", "█" * round(40 * share))
    return table


def _totals(architecture: Architecture, stats: Stats) -> RenderableType:
    from rich.text import Text

    time_us = stats.cycles * architecture.cycle_seconds * 1e6
    partial = stats.counting == PARTIAL_TILES
    remark = "\nImperfect factors are counted with exact partial tiles; Timeloop's own figures are off there." if partial else ""
    return Text(
        f"\nCycles {stats.cycles:,} ({time_us:,.2f} us; bound by {stats.binding}), energy {scaled(stats.energy_pJ)}, "
        f"EDP {stats.edp:.3e} J*cycle, utilization {stats.utilization:.2%}, {counted(stats.computes, 'compute')}.{remark}"
    )


UNITS = {"energy": "energy (pJ)", "delay": "delay (cycles)", "edp": "EDP (J*cycle)"}
"""Headings of objectives; the others count words."""


def _pareto_table(result: Result) -> RenderableType:
    from rich.table import Table

    title = f"Pareto front: {counted(len(result.pareto), 'point')}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, min_width=len(title))
    for name in result.pareto_objective:
        table.add_column(UNITS.get(name, f"{name} (words)"), justify="right")
    shown = result.pareto if len(result.pareto) <= 12 else (*result.pareto[:6], *result.pareto[-6:])
    for point in shown:
        table.add_row(*(f"{value:,.6g}" for value in point.values))
    return table


def _comparison_text(stats: Stats, other: Comparison) -> RenderableType:
    from rich.text import Text

    def ratio(theirs: float, ours: float) -> str:
        return f"{theirs / ours:.2f}x" if ours else "-"

    return Text(
        f"Against {other.name}: energy {ratio(other.stats.energy_pJ, stats.energy_pJ)}, "
        f"cycles {ratio(other.stats.cycles, stats.cycles)}, EDP {ratio(other.stats.edp, stats.edp)} (theirs / ours)."
    )
