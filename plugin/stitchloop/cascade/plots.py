"""The figures of ``stitchloop stitch``: the cascade by groups, speed-ups, traffic, roofline, utilisation, end to end."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from stitchloop.cascade.endtoend import UNFUSED, Choice, Runs
from stitchloop.cascade.performance import EinsumCost, Performance
from stitchloop.cascade.report import seconds_text
from stitchloop.cascade.roofline import Point, ceilings, einsum_points, group_points
from stitchloop.cascade.strategies import ALL_STRATEGIES, BASELINES, OPTIMAL, speed_of_light
from stitchloop.errors import NoMapping

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from stitchloop.cascade.run import Outcome

COLOURS = {
    "none": "#9aa0a6",
    "ri": "#4e79a7",
    "ri+rsb": "#59a14f",
    "ri+rsb+rsp": "#edc948",
    "full": "#e15759",
    OPTIMAL: "#7b4fa3",
    **{b.name: colour for b, colour in zip(BASELINES, ("#9aa0a6", "#c7c7c7", "#bab0ac", "#d7cfc9"))},
}
_LIGHT = ("ri+rsb+rsp", *(b.name for b in BASELINES))
PARTS = (("between Einsums", "inter", "#4e79a7"), ("weights", "weight", "#f28e2b"), ("state", "state", "#76b7b2"))
MODES = {"2D": "#e15759", "1D": "#4e79a7", "1D/2D": "#7b4fa3"}
LONGEST_SIDE = 20000
"""Pixels of a picture's longer side at most."""
CONTEXTS = tuple(2**k for k in range(8, 21, 2))
GENERATED = (0, 16, 64, 256, 1024, 4096, 16384, 65536)


def figures(outcome: Outcome) -> dict[str, bytes]:
    """All figures as PNG, by file name."""
    from stitchloop.cascade.graph import figure_of

    stitching = outcome.evaluated.stitching
    found = {
        "cascade.png": figure_of(stitching.cascade.with_order(stitching.order), stitching),
        "speedups.png": speedups(outcome),
        "traffic.png": traffic(outcome.all),
        "roofline.png": roofline(outcome.evaluated.performance, outcome.unfused),
        "utilization.png": utilization(outcome.evaluated.performance),
    }
    if outcome.runs is not None:
        found["end-to-end.png"] = heat_map(outcome.runs)
    return {name: to_png(figure) for name, figure in found.items()}


def to_png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    dpi = min(110.0, LONGEST_SIDE / max(figure.get_size_inches()))
    figure.savefig(stream, format="png", dpi=dpi, bbox_inches="tight", facecolor="white")
    return stream.getvalue()


def plain(name: str) -> str:
    """A name in a title, shortened where it is long, with no sign taken for mathematics."""
    return (name if len(name) <= 60 else f"{name[:57]}...").replace("$", r"\$")


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def speedups(outcome: Outcome) -> Figure:
    """Bars per scenario: strategies and baselines over the unfused layer; a mark at the speed of light."""
    scenarios = _scenarios(outcome)
    figure = _figure(max(7.0, 3.2 * len(scenarios) + 2), 4.4)
    axes = figure.add_subplot()
    names = list(scenarios[0][1])
    width = 0.84 / len(names)
    for position, name in enumerate(names):
        places = [s + (position - (len(names) - 1) / 2) * width for s in range(len(scenarios))]
        bars = axes.bar(places, [values[name] for _, values, _ in scenarios], width * 0.92, color=COLOURS.get(name), label=name)
        axes.bar_label(bars, fmt="%.2f", fontsize=8, label_type="center", color="black" if name in _LIGHT else "white")
    for s, (_, _, light) in enumerate(scenarios):
        if light:
            axes.plot(
                [s - 0.44, s + 0.44],
                [light, light],
                color="black",
                linewidth=1.2,
                linestyle="--",
                label="speed of light" if not s else None,
            )
    axes.set_xticks(range(len(scenarios)), [title for title, _, _ in scenarios])
    axes.set_ylabel("speed-up over the unfused layer")
    axes.set_title(f"{plain(outcome.evaluated.stitching.cascade.name)} on {plain(outcome.evaluated.performance.machine.name)}")
    axes.margins(y=0.12)
    axes.legend(ncol=4, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12), frameon=False)
    _bare(axes)
    return figure


def _scenarios(outcome: Outcome) -> list[tuple[str, dict[str, float], float | None]]:
    machine = outcome.evaluated.performance.machine
    if outcome.runs is None:
        light = speed_of_light(outcome.evaluated.stitching.cascade, machine)
        values = {
            p.strategy: outcome.unfused.seconds / p.seconds for p in outcome.all if p.strategy != "none" and not p.shortfalls
        }
        return [("one layer", values, outcome.unfused.seconds / light.seconds)]
    runs = outcome.runs
    context = next((runs.cascade.sizes[rank] for rank in runs.cascade.iterative_ranks), 1)
    if outcome.choice is not None:
        context = outcome.choice.chosen.context
    context = context if context > 1 else 2048
    names = [b.name for b in BASELINES if b.name in ("Geens-like",)] + [name for name in ALL_STRATEGIES if name != "none"]
    found: list[tuple[str, dict[str, float], float | None]] = []
    for title, prefill, generated in (
        (f"prefill of {context:,}", context, 0),
        ("one generated token", 0, 1),
        (f"{context:,} and {context // 8 or 1:,} tokens", context, context // 8 or 1),
    ):
        passes = [(steps, count) for steps, count in ((prefill, 1), (1, generated)) if steps and count]
        fastest = sum(count * speed_of_light(runs.model(steps).cascade, machine).seconds for steps, count in passes)
        unfused = runs.run(UNFUSED, prefill, generated).seconds
        fitting = {name: runs.run(name, prefill, generated) for name in names}
        values = {name: unfused / run.seconds if run.fits else 0.0 for name, run in fitting.items()}
        found.append((title, values, unfused / (runs.cascade.layers * fastest)))
    return found


def traffic(performances: tuple[Performance, ...]) -> Figure:
    """Bytes over DRAM by cause: all strategies, and the fused ones alone at a larger scale."""
    figure = _figure(10.5, 3.6)
    panels = figure.subplots(1, 2, width_ratios=(1, 1.25))
    fused = tuple(p for p in performances if p.strategy != "none")
    for axes, shown, title in zip(panels, (performances, fused), ("all strategies", "fused ones, enlarged")):
        names = [p.strategy for p in shown]
        scale, unit = _byte_scale(max(p.volume.total * p.machine.word_bytes for p in shown))
        left = [0.0] * len(shown)
        for label, cause, colour in PARTS:
            sizes = [getattr(p.volume, cause) * p.machine.word_bytes / scale for p in shown]
            axes.barh(names, sizes, left=left, color=colour, label=label, height=0.7)
            left = [a + b for a, b in zip(left, sizes)]
        for row, total in enumerate(left):
            axes.text(total, row, f" {total:.3g}", va="center", fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.14)
        axes.set_xlabel(f"{unit} over DRAM, one layer")
        axes.set_title(title, fontsize=10)
        _bare(axes)
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, frameon=False, ncol=3, loc="outside lower center")
    figure.suptitle(_title(performances[0]), fontsize=11)
    return figure


def _byte_scale(largest: float) -> tuple[float, str]:
    return next(
        ((scale, unit) for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if largest >= scale), (1.0, "B")
    )


def _title(performance: Performance) -> str:
    cascade = performance.cascade
    sizes = ", ".join(f"{rank} = {cascade.sizes[rank]:,}" for rank in cascade.iterative_ranks)
    return f"{plain(cascade.name)} on {plain(performance.machine.name)}" + (f", {sizes}" if sizes else "")


def roofline(performance: Performance, unfused: Performance) -> Figure:
    """Groups of the chosen strategy and the unfused Einsums under the roofs of both modes."""
    figure = _figure(8.6, 5.2)
    axes = figure.add_subplot()
    grouped, single = group_points(performance), [p for p in einsum_points(unfused) if p.intensity < float("inf")]
    machine = performance.machine
    finite = [p.intensity for p in (*grouped, *single) if 0 < p.intensity < float("inf")]
    low, high = (
        min(finite) / 3,
        max([*finite, *(peak / machine.dram_bytes_per_second for peak in ceilings(machine).values())]) * 4,
    )
    for mode, peak in ceilings(machine).items():
        ridge = peak / machine.dram_bytes_per_second
        axes.plot([low, ridge, high], [low * machine.dram_bytes_per_second, peak, peak], color=MODES[mode], linewidth=1.4)
        text = f"{mode} mode, {peak / 1e12:.3g} Tops/s "
        axes.annotate(text, (high, peak), xytext=(0, 9), textcoords="offset points", color=MODES[mode], fontsize=8, ha="right")
    for mode, colour in MODES.items():
        here, mine = [p for p in single if p.mode == mode], [p for p in grouped if p.mode == mode]
        hollow = {"s": 26, "facecolor": "none", "edgecolor": colour, "alpha": 0.55}
        solid = {"s": 62, "color": colour, "edgecolor": "black", "linewidth": 0.6, "zorder": 3}
        _scatter(axes, here, f"unfused Einsum, {mode}", hollow)
        _scatter(axes, mine, f"{performance.strategy} group, {mode}", solid)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(top=3 * max(ceilings(machine).values()))
    axes.set_xlabel("operations per byte over DRAM")
    axes.set_ylabel("operations a second")
    axes.set_title(_title(performance))
    axes.grid(True, which="major", alpha=0.25)
    _label_points(axes, grouped)
    axes.legend(fontsize=8, loc="lower right")
    _bare(axes)
    return figure


def _scatter(axes: Axes, points: list[Point], label: str, style: dict[str, Any]) -> None:
    if points:
        axes.scatter([p.intensity for p in points], [p.rate for p in points], label=label, **style)


def _label_points(axes: Axes, points: list[Point]) -> None:
    """Names beside the points, those that lie together on one label."""
    from math import log10

    clusters: list[list[Point]] = []
    for point in sorted(points, key=lambda p: (p.intensity, p.rate)):
        near = next(
            (c for c in clusters if max(abs(log10(c[0].intensity / point.intensity)), abs(log10(c[0].rate / point.rate))) < 0.12),
            None,
        )
        if near is None:
            clusters.append([point])
        else:
            near.append(point)
    for cluster in clusters:
        text = cluster[0].name if len(cluster) == 1 else ", ".join(p.name.split(":")[0] for p in cluster)
        axes.annotate(text, (cluster[0].intensity, cluster[0].rate), xytext=(6, -11), textcoords="offset points", fontsize=7.5)


def utilization(performance: Performance) -> Figure:
    """Over the time of one layer: how busy PEs and DRAM are in each group; the share of its mode's PEs that each Einsum uses."""
    figure = _figure(11, 5.4)
    panels = figure.subplots(3, 1, sharex=True)
    total = performance.seconds
    start = 0.0
    for number, group in enumerate(performance.groups, start=1):
        share = 100 * group.seconds / total
        busy = (group.compute_seconds / group.seconds, group.dram_seconds / group.seconds)
        for axes, value, colour in zip(panels, busy, ("#59a14f", "#f28e2b")):
            axes.bar(start, min(value, 1.0), share, align="edge", color=colour, edgecolor="white", linewidth=0.8)
        if share > 1.6:
            panels[0].text(start + share / 2, 1.04, str(number), ha="center", fontsize=8)
        _einsum_bars(panels[2], performance, group.einsums, start)
        start += share
    for axes, label in zip(panels, ("computing", "DRAM busy", "PE utilisation")):
        axes.set_ylim(0, 1.18)
        axes.set_yticks((0, 0.5, 1), ("0", "50%", "100%"))
        axes.set_ylabel(label)
        _bare(axes)
    panels[2].set_xlabel(f"share of the layer's time, % (all of it: {seconds_text(total)})")
    panels[2].set_xlim(0, 100)
    from matplotlib.patches import Patch

    handles = [Patch(color=MODES[mode], label=f"{mode} mode") for mode in ("2D", "1D")]
    figure.legend(handles=handles, fontsize=8, ncol=2, frameon=False, loc="outside lower center")
    figure.suptitle(f"{_title(performance)}, strategy {performance.strategy} (group numbers on top)", fontsize=11)
    return figure


def _einsum_bars(axes: Axes, performance: Performance, einsums: tuple[EinsumCost, ...], start: float) -> None:
    peaks = ceilings(performance.machine)
    for einsum in einsums:
        width = 100 * einsum.seconds / performance.seconds
        height = min(1.0, einsum.operations / (peaks[einsum.mode] * einsum.seconds)) if einsum.seconds else 0.0
        axes.bar(start, height, width, align="edge", color=MODES[einsum.mode], edgecolor="white", linewidth=0.6)
        if width > (4 if len(einsum.name) > 4 else 2.2):
            axes.text(start + width / 2, 1.03, einsum.name, ha="center", fontsize=7, rotation=0 if width > 4 else 90, va="bottom")
        start += width


def heat_map(runs: Runs) -> Figure:
    """Speed-up of the fastest greedy strategy over the unfused run, by context and generated tokens."""
    import numpy as np

    choices = [[_fastest_greedy(runs, context, generated) for context in CONTEXTS] for generated in GENERATED]
    values = np.array([[choice.speedup(choice.chosen) if choice else np.nan for choice in row] for row in choices])
    least = np.nanmin(values) if np.isfinite(values).any() else 1.0
    figure = _figure(9.2, 5.6)
    axes = figure.add_subplot()
    floor = min(1.0, least) if least < 1.5 else least - 0.5
    image = axes.imshow(values, origin="lower", aspect="auto", cmap="viridis", vmin=floor)
    middle = sum(image.get_clim()) / 2
    for row, line in enumerate(choices):
        for column, choice in enumerate(line):
            text = f"{values[row, column]:.2f}\n{choice.strategy}" if choice else "does\nnot fit"
            colour = "white" if values[row, column] <= middle else "black"
            axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=colour)
    axes.set_xticks(range(len(CONTEXTS)), [f"$2^{{{context.bit_length() - 1}}}$" for context in CONTEXTS])
    axes.set_yticks(range(len(GENERATED)), [f"{generated:,}" for generated in GENERATED])
    axes.set_xlabel("context")
    axes.set_ylabel("generated tokens")
    where = f"{plain(runs.cascade.name)} on {plain(runs.machine.name)}"
    axes.set_title(f"{where}, end to end: speed-up of the fastest greedy strategy over unfused", fontsize=10)
    figure.colorbar(image, ax=axes, shrink=0.85, label="speed-up")
    return figure


def _fastest_greedy(runs: Runs, context: int, generated: int) -> Choice | None:
    """None where no strategy fits, or where there is no unfused run to compare with."""
    try:
        choice = runs.choose(context, generated, [name for name in ALL_STRATEGIES if name != OPTIMAL])
    except NoMapping:
        return None
    return choice if choice.unfused.fits else None
