"""The cascade drawn as a graph, its Einsums coloured by fusion group."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.stitch import Stitching

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float]

_ACROSS, _DOWN = 1.25, 0.95
"""Inches between columns and rows."""
_CARRIED = "#b03060"


def cascade_graph(cascade: Cascade) -> nx.MultiDiGraph:
    """Einsums as nodes and tensors as edges; edge attributes ``tensor`` and ``carried`` (through an iterative rank)."""
    import networkx as nx

    graph: nx.MultiDiGraph = nx.MultiDiGraph()
    graph.add_nodes_from(einsum.name for einsum in cascade.einsums)
    for einsum in cascade.einsums:
        for access in einsum.inputs:
            producer = cascade.tensor(access.tensor).producer
            if producer is not None:
                graph.add_edge(producer, einsum.name, tensor=access.tensor, carried=cascade.is_carried(access))
    return graph


def draw(cascade: Cascade, path: str | Path, stitching: Stitching | None = None) -> None:
    """Write a picture (PNG, SVG or PDF by the file's ending).

    Solid arrows stay inside a group, dashed ones cross DRAM, dotted red ones carry state to the next step of an iterative
    rank.
    """
    figure = figure_of(cascade, stitching)
    figure.savefig(path, dpi=110, bbox_inches="tight", facecolor="white")


def figure_of(cascade: Cascade, stitching: Stitching | None = None) -> Figure:
    """The picture as a matplotlib figure."""
    from matplotlib.figure import Figure

    places = _layout(cascade)
    columns, rows = (1.2 + max(axis) - min(axis) for axis in zip(*places.values(), strict=True))
    figure = Figure(figsize=(max(5.0, columns * _ACROSS), max(1.5, rows * _DOWN)))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(-0.6, columns - 0.6)
    lowest = min(row for _, row in places.values())
    axes.set_ylim(lowest + rows - 0.6, lowest - 0.6)
    group_of = {name: n for n, group in enumerate(stitching.groups) for name in group.einsums} if stitching else {}
    _draw_edges(axes, cascade, places, group_of)
    _draw_nodes(axes, cascade, places, group_of)
    axes.set_title(_title(cascade, stitching), fontsize=13)
    axes.set_axis_off()
    return figure


def _title(cascade: Cascade, stitching: Stitching | None) -> str:
    if stitching is None:
        return f"{cascade.name}: {len(cascade.einsums)} Einsums"
    count = len(stitching.groups)
    return (
        f"{cascade.name}, {stitching.strategy}: {count} fusion group{'s' if count != 1 else ''} of {len(cascade.einsums)} Einsums"
    )


def _layout(cascade: Cascade) -> dict[str, Point]:
    """Column by longest path from the inputs, row beside the mean row of what an Einsum reads."""
    columns: dict[str, int] = {}
    for einsum in cascade.einsums:
        columns[einsum.name] = max((columns[before] + 1 for before in cascade.predecessors[einsum.name]), default=0)
    rows: dict[str, float] = {}
    for column in range(max(columns.values()) + 1):
        members = [einsum.name for einsum in cascade.einsums if columns[einsum.name] == column]
        wanted = {name: _mean([rows[before] for before in cascade.predecessors[name]]) for name in members}
        taken: set[float] = {rows[name] for name in rows if columns[name] == column}
        for name in sorted(members, key=lambda name: (wanted[name], members.index(name))):
            rows[name] = _nearest_free(round(wanted[name]), taken)
            taken.add(rows[name])
    return {name: (float(columns[name]), rows[name]) for name in columns}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _nearest_free(row: int, taken: set[float]) -> float:
    for distance in range(len(taken) + 1):
        for candidate in (row + distance, row - distance):
            if candidate not in taken:
                return float(candidate)
    raise AssertionError("a free row is never further away than the rows taken")


def _draw_edges(axes: Axes, cascade: Cascade, places: Mapping[str, Point], group_of: Mapping[str, int]) -> None:
    labels: dict[tuple[str, str, bool], list[str]] = {}
    for before, after, data in cascade_graph(cascade).edges(data=True):
        labels.setdefault((before, after, data["carried"]), []).append(data["tensor"])
    for (before, after, carried), tensors in labels.items():
        (x0, y0), (x1, y1) = places[before], places[after]
        crosses = bool(group_of) and group_of[before] != group_of[after]
        bend = _bend(places, (x0, y0), (x1, y1), carried)
        style: dict[str, Any] = {"color": _CARRIED if carried else "#555555", "linewidth": 1.3}
        style["linestyle"] = ":" if carried else "--" if crosses else "-"
        arrow = {"arrowstyle": "-|>", "shrinkA": 21, "shrinkB": 21, "connectionstyle": f"arc3,rad={bend}", **style}
        axes.annotate("", xy=(x1, y1), xytext=(x0, y0), arrowprops=arrow, zorder=1)
        steep, above = _DOWN / _ACROSS, 0.14 if y0 == y1 and not bend else 0.0
        middle = ((x0 + x1) / 2 - bend * (y1 - y0) / 2 * steep, (y0 + y1) / 2 + bend * (x1 - x0) / 2 / steep - above)
        box = {"boxstyle": "round,pad=0.08", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
        text = ", ".join(dict.fromkeys(tensors))
        axes.text(*middle, text, fontsize=8, ha="center", va="center", color=style["color"], bbox=box, zorder=2)


def _bend(places: Mapping[str, Point], start: Point, end: Point, carried: bool) -> float:
    """Curvature of an edge: straight between neighbours, bowed where it would run through other Einsums or turns back."""
    if carried or end[0] <= start[0]:
        return 0.45
    between = [p for p in places.values() if start[0] < p[0] < end[0]]
    slope = (end[1] - start[1]) / (end[0] - start[0])
    hit = any(abs(start[1] + slope * (x - start[0]) - y) < 0.35 for x, y in between)
    return 0.28 if hit and end[0] - start[0] < 4 else 0.18 if hit else 0.0


def _draw_nodes(axes: Axes, cascade: Cascade, places: Mapping[str, Point], group_of: Mapping[str, int]) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    colours = [*colormaps["Set3"].colors, *colormaps["tab20"].colors[1::2]]  # type: ignore[attr-defined]
    for einsum in cascade.einsums:
        x, y = places[einsum.name]
        face = colours[group_of[einsum.name] % len(colours)] if group_of else "#dce6f2"
        heavy = 2.2 if einsum.is_gemm else 0.9
        outputs = ", ".join(einsum.output_tensors)
        text = einsum.name if einsum.name == outputs else f"{einsum.name}\n{outputs}"
        box = {"boxstyle": "round,pad=0.4", "facecolor": face, "edgecolor": "#333333", "linewidth": heavy}
        axes.text(x, y, text, fontsize=9, ha="center", va="center", bbox=box, zorder=3)
    groups = sorted(set(group_of.values()))
    handles = [Patch(facecolor=colours[n % len(colours)], edgecolor="#333333", label=f"group {n + 1}") for n in groups]
    if handles:
        axes.legend(
            handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=min(12, len(handles)), fontsize=8, frameon=False
        )
