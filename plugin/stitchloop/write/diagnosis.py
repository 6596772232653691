"""The table of ``diagnostics: true``, for the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from stitchloop.mapspace.diagnostics import LevelDiagnosis


def diagnosis_table(levels: Sequence[LevelDiagnosis]) -> Table:
    """One row a level: words and instances that mappings need at least and use at most, beside the limits."""
    from rich.table import Table

    table = Table(title="\nDiagnostics: what the constraints leave each level", title_justify="left", box=None, pad_edge=False)
    table.add_column("level")
    for heading in ("words kept", "capacity", "instances", "fan-out"):
        table.add_column(heading, justify="right")
    for heading in ("keeps", "may keep", "verdict"):
        table.add_column(heading)
    for level in levels:
        table.add_row(
            level.level,
            f"{level.least_words:,} to {level.most_words:,}",
            "-" if level.capacity is None else f"{level.capacity:,}",
            f"{level.least_instances:,} to {level.most_instances:,}",
            f"{level.fanout:,}",
            level.keep,
            level.free,
            level.verdict,
        )
    return table
