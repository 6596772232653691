"""The cascade drawn as a graph, its Einsums coloured by fusion group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.stitch import Stitching
from stitchloop.text import counted

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float]

_ACROSS, _DOWN = 1.25, 0.95
"""Inches between columns and rows."""
_CARRIED = "#b03060"
_BENDS = tuple(sign * size / 20 for size in range(8) for sign in (1, -1))
_WIDEST = 32
"""Columns side by side; longer cascades go on below, as lines of a text do."""


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
    columns = 1.2 + max(column for column, _ in places.values())
    figure = Figure(figsize=(max(5.0, columns * _ACROSS), 1.5))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    group_of = {name: n for n, group in enumerate(stitching.groups) for name in group.einsums} if stitching else {}
    top, bottom = _draw_edges(axes, cascade, places, group_of)
    axes.set_xlim(-0.6, columns - 0.6)
    axes.set_ylim(bottom + 0.6, top - 0.6)
    figure.set_size_inches(figure.get_size_inches()[0], max(1.5, (bottom - top + 1.2) * _DOWN))
    _draw_nodes(axes, cascade, places, group_of)
    axes.set_title(_title(cascade, stitching), fontsize=13)
    axes.set_axis_off()
    return figure


def _title(cascade: Cascade, stitching: Stitching | None) -> str:
    name = cascade.name.replace("$", r"\$")
    if stitching is None:
        return f"{name}: {counted(len(cascade.einsums), 'Einsum')}"
    groups, einsums = counted(len(stitching.groups), "fusion group"), counted(len(cascade.einsums), "Einsum")
    return f"{name}, {stitching.strategy}: {groups} of {einsums}"


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
    return _wrapped({name: (float(columns[name]), rows[name]) for name in columns})


def _wrapped(places: Mapping[str, Point]) -> dict[str, Point]:
    """The same places in bands of at most :data:`_WIDEST` columns, one below the other."""
    found: dict[str, Point] = {}
    lowest = 0.0
    for band in range(int(max(column for column, _ in places.values())) // _WIDEST + 1):
        members = {name: (x - band * _WIDEST, y) for name, (x, y) in places.items() if x // _WIDEST == band}
        top, bottom = min(y for _, y in members.values()), max(y for _, y in members.values())
        found |= {name: (x, y - top + lowest) for name, (x, y) in members.items()}
        lowest += bottom - top + 2
    return {name: found[name] for name in places}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _nearest_free(row: int, taken: set[float]) -> float:
    for distance in range(len(taken) + 1):
        for candidate in (row + distance, row - distance):
            if candidate not in taken:
                return float(candidate)
    raise AssertionError("a free row is never further away than the rows taken")


def _draw_edges(
    axes: Axes, cascade: Cascade, places: Mapping[str, Point], group_of: Mapping[str, int]
) -> tuple[float, float]:
    """Draw the edges with their tensors; the least and the largest row that they or the Einsums reach."""
    import numpy as np

    dots, written = np.array(list(places.values())), np.empty((0, 2))
    reached = [dots[:, 1]]
    labels: dict[tuple[str, str, bool], list[str]] = {}
    for before, after, data in cascade_graph(cascade).edges(data=True):
        labels.setdefault((before, after, data["carried"]), []).append(data["tensor"])
    for (before, after, carried), tensors in labels.items():
        (x0, y0), (x1, y1) = places[before], places[after]
        crosses = bool(group_of) and group_of[before] != group_of[after]
        curve = _curve(dots, (x0, y0), (x1, y1), carried)
        style: dict[str, Any] = {"color": _CARRIED if carried else "#555555", "linewidth": 1.3}
        style["linestyle"] = ":" if carried else "--" if crosses else "-"
        arrow = {"arrowstyle": "-|>", "shrinkA": 21, "shrinkB": 21, "connectionstyle": f"arc3,rad={curve.bend}", **style}
        axes.annotate("", xy=(x1, y1), xytext=(x0, y0), arrowprops=arrow, zorder=1)
        middle = _label_place(curve, np.concatenate([dots, written]), flat=y0 == y1 and not curve.bend)
        written = np.append(written, [middle], axis=0)
        reached.append(curve.points[:, 1])
        box = {"boxstyle": "round,pad=0.08", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
        text = ", ".join(dict.fromkeys(tensors))
        axes.text(*middle, text, fontsize=8, ha="center", va="center", color=style["color"], bbox=box, zorder=2)
    rows = np.concatenate(reached)
    return float(rows.min()), float(rows.max())


@dataclass(frozen=True)
class _Curve:
    """An edge: its curvature, as matplotlib counts it, and points along it (rows of x, y)."""

    bend: float
    points: np.ndarray


def _curve(dots: np.ndarray, start: Point, end: Point, carried: bool) -> _Curve:
    """The edge that bends least of those that run through the fewest other Einsums; one that turns back is bowed."""
    bends = (0.45,) if carried else _BENDS
    others = dots[[tuple(dot) not in (start, end) for dot in dots]]
    curves = [_Curve(bend, _points(start, end, bend)) for bend in bends]
    return min(curves, key=lambda curve: int(_near(curve.points, others, 0.42, 0.4).any(axis=0).sum()))


def _points(start: Point, end: Point, bend: float) -> np.ndarray:
    import numpy as np

    t = np.linspace(0.06, 0.94, 45)[:, None]
    first, last = np.array(start), np.array(end)
    across, down = last - first
    steep = _DOWN / _ACROSS
    return first + t * (last - first) + 2 * t * (1 - t) * np.array([-bend * down * steep, bend * across / steep])


def _near(points: np.ndarray, others: np.ndarray, across: float, down: float) -> np.ndarray:
    """Point by point and other by other: whether they lie within so many columns and rows."""
    import numpy as np

    apart = np.abs(points[:, None, :] - others[None, :, :])
    return (apart[..., 0] < across) & (apart[..., 1] < down)


def _label_place(curve: _Curve, taken: np.ndarray, *, flat: bool) -> Point:
    """The place on an edge, near its middle, that is clear of Einsums and of labels; above a straight edge between neighbours."""
    points = curve.points.copy()
    if flat:
        points[:, 1] -= 0.14
    crowd = _near(points, taken, 0.36, 0.26 if not flat else 0.1).sum(axis=1)
    middle = len(points) // 2
    best = min(range(len(points)), key=lambda at: (crowd[at], abs(at - middle)))
    return float(points[best, 0]), float(points[best, 1])


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
