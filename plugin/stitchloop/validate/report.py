"""Writes ``validation.json`` and the self-contained page ``validation.html``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from stitchloop.validate.result import CaseResult
from stitchloop.validate.summary import Summary
from stitchloop.write.files import to_json, write_files

NAMES = ("validation.json", "validation.html")


def write_report(summary: Summary, results: Sequence[CaseResult], folder: Path) -> list[Path]:
    """Write both files into ``folder``, which is made when missing; returns their paths."""
    return write_files(folder, dict(zip(NAMES, (to_json(summary.as_json()), render_page(summary, results)), strict=True)))


def render_page(summary: Summary, results: Sequence[CaseResult]) -> str:
    """The page as HTML, with its plots inside."""
    from importlib.resources import files

    import jinja2

    source = files("stitchloop.validate").joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    plot = scatter(results) if summary.agreements else ""
    return environment.from_string(source).render(summary=summary, plot=plot)


def scatter(results: Sequence[CaseResult]) -> str:
    """Ours against the reference for each quantity, as one SVG; cases that are not exact stand out."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for result in results for name in result.points))
    figure = Figure(figsize=(4.6 * len(names), 4.4), layout="constrained")
    FigureCanvasSVG(figure)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        points = [(*result.points[name], result.is_exact) for result in results if name in result.points]
        shown = [(ours, reference, exact) for ours, reference, exact in points if ours > 0 and reference > 0]
        for exact, colour, label in ((True, "#2f6f8f", "every figure equal"), (False, "#c8452f", "something differs")):
            chosen = [(reference, ours) for ours, reference, is_exact in shown if is_exact is exact]
            if chosen:
                label = f"{label} ({len(chosen)})"
                axes.scatter(*zip(*chosen, strict=True), s=9, c=colour, alpha=0.55, linewidths=0, label=label)
        if shown:
            low, high = min(min(o, r) for o, r, _ in shown), max(max(o, r) for o, r, _ in shown)
            axes.plot([low, high], [low, high], color="#9a9a9a", linewidth=0.8, zorder=0)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.legend(frameon=False, fontsize=8, loc="upper left")
        axes.set_title(TITLES.get(name, name), fontsize=11, loc="left")
        axes.set_xlabel("reference", fontsize=9)
        axes.set_ylabel("Stitchloop", fontsize=9)
        axes.set_aspect("equal", adjustable="datalim")
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


TITLES = {"energy": "Energy (pJ)", "cycles": "Cycles", "traffic": "Traffic (words)", "capacity": "Capacity (words)"}
