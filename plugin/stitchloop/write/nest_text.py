"""``timeloop-mapper.map.txt``: the loop nest with tile sizes, as Timeloop draws it."""

from __future__ import annotations

from collections.abc import Iterator

from stitchloop.architecture import Architecture
from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.stats import Stats
from stitchloop.workload import Einsum


def format_loop(loop: Loop, axis: str = "") -> str:
    """``for M in [0:4)``, with the last pass of an imperfect loop and the axis of a spatial one."""
    last = "" if loop.is_perfect else f",{loop.residual}"
    return f"for {loop.rank} in [0:{loop.bound}{last})" + (f" (Spatial-{axis})" if axis else "")


def outer_to_inner(level: LevelMapping) -> Iterator[str]:
    """The loops of one level as lines, outermost first: temporal, then Y, then X."""
    yield from (format_loop(loop) for loop in reversed(level.temporal))
    yield from (format_loop(loop, "Y") for loop in reversed(level.spatial_y))
    yield from (format_loop(loop, "X") for loop in reversed(level.spatial_x))


def format_nest(einsum: Einsum, architecture: Architecture, mapping: Mapping, stats: Stats) -> str:
    """The whole loop nest: one heading per level with the tile of each kept tensor in words, then its loops."""
    lines: list[str] = []
    depth, dashes, blank_due = 0, "", False
    for level, level_mapping in reversed(list(zip(architecture.levels, mapping.levels, strict=True))):
        if blank_due:
            lines.append("")
        heading = f"{level.name} [ {_tiles(einsum, level.name, level_mapping, stats)}] "
        lines.append(heading)
        dashes, blank_due = "-" * (len(heading) - 1), False
        for line in outer_to_inner(level_mapping):
            if dashes:
                lines.append(dashes)
            lines.append("| " + "  " * depth + line)
            depth, dashes, blank_due = depth + 1, "", True
    if dashes:
        lines.append(dashes)
    lines.append("| " + "  " * depth + "<< Compute >>")
    return "\n".join(lines) + "\n"


def _tiles(einsum: Einsum, level_name: str, level: LevelMapping, stats: Stats) -> str:
    words = ""
    for tensor in einsum.tensors:
        if tensor.name in level.keep:
            size = stats.levels[level_name].tensors[tensor.name].capacity
            words += f"{tensor.name}:{size} ({size}) "
    return words
