"""The one-screen summary of a whole network: a row per layer, then the totals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stitchloop.layers import TABLES
from stitchloop.text import counted
from stitchloop.write.summary import Summary, scaled

if TYPE_CHECKING:
    from stitchloop.network import LayerRow, NetworkReport

SHOWN = 40
"""Rows on the screen; the table file holds all."""


def network_summary(report: NetworkReport, output: Path) -> Summary:
    """What ``stitchloop map --layers`` shows."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("layer", overflow="ellipsis")
    for heading in ("cycles", "energy", "EDP (J*cycle)", "utilization", "seconds"):
        table.add_column(heading, justify="right")
    table.add_column("result")
    for row in report.rows[:SHOWN]:
        table.add_row(*_cells(row))
    totals = report.totals
    hidden = len(report.rows) - SHOWN
    lines = [f"... and {counted(hidden, 'more layer')}"] if hidden > 0 else []
    counts = f"{report.searched} searched, {report.resumed} finished before"
    lines.append(
        f"\n{totals['mapped']} of {counted(len(report.rows), 'layer')} mapped ({counts}): "
        f"{totals['cycles']:,} cycles, {scaled(totals['energy_pJ'])}, {totals['computes']:,} computes."
    )
    if report.interrupted:
        lines.append("Interrupted: the same command goes on where it stopped.")
    lines.extend(f"failed: {row.layer}: {row.error}" for row in report.failed)
    lines.append(f"wrote {', '.join(TABLES)} and a folder per mapped layer to {output}")
    return Summary((table, *(Text(line) for line in lines)))


def _cells(row: LayerRow) -> tuple[str, ...]:
    if row.status != "mapped":
        return row.layer, "", "", "", "", "", row.status
    return (
        row.layer,
        f"{row.cycles or 0:,}",
        scaled(row.energy_pJ or 0.0),
        f"{row.edp_J_cycle or 0.0:.3e}",
        f"{row.utilization or 0.0:.1%}",
        f"{row.seconds or 0.0:.2f}",
        f"as {row.same_as}" if row.same_as else "optimal" if row.optimal else f"gap {row.gap or 0.0:.1%}",
    )
