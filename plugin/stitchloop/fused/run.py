"""``stitchloop map`` on a list of Einsums: search, files, and the summary that a person reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stitchloop.fused.map import map_fused
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.reference import FusedStats, evaluate_fused
from stitchloop.fused.result import FusedResult, Grouped
from stitchloop.read.energy import require_energy
from stitchloop.spec import Spec
from stitchloop.text import counted
from stitchloop.write.files import to_json, write_files
from stitchloop.write.fused import fused_files
from stitchloop.write.summary import Summary, certificate_text, wrote

if TYPE_CHECKING:
    from rich.console import RenderableType

UNITS = {"energy": "pJ", "latency": "cycles", "edp": "J*cycle", "dram": "words", "buffer": "words"}

SHOWN = 14
"""Points of a front that the summary shows."""


def run(spec: Spec, output_dir: Path, options: FusedOptions | None = None) -> Summary:
    """Map the Einsums of ``spec`` fused; write ``fused-problem.yaml``, ``fused-mapping.yaml``, ``stats.json``, ``result.json``.

    Raises
    ------
    InputError, NoMapping
        As :func:`stitchloop.fused.map.map_fused`; also where the architecture has no energies.
    """
    if spec.architecture is not None:
        require_energy(spec.architecture)
    result = map_fused(spec, options)
    workload = result.shape.workload
    assert workload is not None
    stats = evaluate_fused(workload, result.tree, "sound")
    contents: dict[str, str | bytes] = {
        **fused_files(workload, result.tree),
        "stats.json": to_json(stats_document(result, stats)),
        "result.json": to_json(result_document(result)),
    }
    written = write_files(output_dir, contents, spec.files)
    return Summary((*shown(result, stats), wrote(written)))


def stats_document(result: FusedResult, stats: FusedStats) -> dict[str, Any]:
    """``stats.json``: the reported figures, and what the reference model of fused mappings counts for the same tree."""
    return {**result.stats_json(), "fused": stats.as_json()}


def result_document(result: FusedResult) -> dict[str, Any]:
    """``result.json``; the mapping also as LoopTree's nodes."""
    from stitchloop.write.fused import fused_mapping_document

    document = result.as_json()
    document["mapping"]["looptree"] = fused_mapping_document(result.tree)
    return json.loads(json.dumps(document))


def shown(result: FusedResult, stats: FusedStats) -> tuple[RenderableType, ...]:
    """Loop nest, energy by part, figures, certificate, comparison, front, remarks."""
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(result.nest + "\n"),
        _energies(result),
        Text(_figures(result)),
        certificate_text(result.options.objectives, result.best.values(result.options.objectives), result.certificate),
        Text(_comparison(result)),
    ]
    if result.pareto:
        parts.append(_front(result))
    notes = [*result.notes, *(f"LoopTree counts otherwise: {difference}" for difference in stats.differences[:4])]
    if len(stats.differences) > 4:
        notes.append(f"stats.json has {counted(len(stats.differences) - 4, 'more such difference')}")
    parts += [Text(f"note: {note}") for note in notes]
    return tuple(parts)


def _energies(result: FusedResult) -> RenderableType:
    from rich.table import Table

    energies, total = result.best.figures.energies, result.best.figures.energy
    table = Table(title="Energy by part", title_justify="left", box=None, pad_edge=False)
    for name in ("part", "uJ", "share", ""):
        table.add_column(name, justify="right" if name in ("uJ", "share") else "left")
    for name, energy in energies.items():
        if energy or name != "softmax":
            share = energy / total if total else 0.0
            table.add_row(name, f"{energy / 1e6:,.3f}", f"{share:.1%}", "█" * round(40 * share))
    return table


def _figures(result: FusedResult) -> str:
    f, m = result.best.figures, result.machine
    bound = f"{m.dram_name} bandwidth" if f.dram_cycles > f.compute_cycles else "compute"
    recomputed = [f"{name} x{factor:.3g}" for name, factor in f.recompute_factor.items() if factor != 1]
    compulsory = result.shape.compulsory * result.shape.copies
    lines = [
        f"\nCycles {f.cycles:,} ({f.cycles * m.cycle_seconds * 1e6:,.2f} us; bound by {bound}), energy {f.energy / 1e6:,.3f} uJ, "
        f"EDP {f.edp:.3e} J*cycle, utilization {f.utilization(m):.2%}, {f.operations:,} operations.",
        f"{m.dram_name} traffic {f.dram:,} words ({f.dram * m.word_bits / 8e6:,.3f} MB; {f.dram / compulsory:.3g} times the "
        f"compulsory {compulsory:,}). {m.buffer_name} demand {f.buffer_demand:,} of {m.capacity:,} words.",
        "Recomputed: " + ", ".join(recomputed) + "." if recomputed else "Nothing is computed twice.",
    ]
    return "\n".join(lines) + "\n"


def _comparison(result: FusedResult) -> str:
    lines = []
    name, u, g = result.options.objectives[0], result.unfused, result.grouping
    if u is not None:
        verdict = _verdict(result.value, u.objective(name), "fused", "unfused")
        lines.append(f"Unfused, each Einsum at its own best: {_total(u, name)}. By {name} {verdict}.")
    if g is not None and len(g.names) > 1:
        verdict = _verdict(result.value, g.objective(name), "all fused", "this grouping")
        lines.append(f"Best grouping: {g.text}: {_total(g, name)}. By {name} {verdict}.")
    elif g is not None:
        lines.append("No grouping of the chain into shorter fused groups is better.")
    return "\n".join([*lines, ""])


def _total(grouped: Grouped, name: str) -> str:
    value = f"{grouped.objective(name):,.6g} {UNITS[name]}"
    return f"{value}, energy {grouped.energy / 1e6:,.3f} uJ, {grouped.cycles:,} cycles, DRAM {grouped.dram:,} words"


def _verdict(one: float, other: float, first: str, second: str) -> str:
    if one == other:
        return "both are equal"
    better, ratio = (first, other / one if one else 0.0) if one < other else (second, one / other if other else 0.0)
    return f"{better} is {ratio:.3g} times better" if ratio else f"{better} is better"


def _front(result: FusedResult) -> RenderableType:
    from rich.table import Table

    names = result.options.pareto
    table = Table(title=f"Pareto front: {counted(len(result.pareto), 'point')}", title_justify="left", box=None, pad_edge=False)
    for name in (*(f"{name} [{UNITS[name]}]" for name in names), "recomputes"):
        table.add_column(name, justify="right")
    shown = result.pareto
    if len(shown) > SHOWN:
        step = (len(shown) - 1) / (SHOWN - 1)
        shown = tuple(shown[round(at * step)] for at in range(SHOWN))
    for point in shown:
        recomputes = any(factor != 1 for factor in point.figures.recompute_factor.values())
        table.add_row(*(f"{value:,.6g}" for value in point.values(names)), "yes" if recomputes else "")
    return table
