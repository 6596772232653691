"""What ``stitchloop stitch`` says: the document of ``groups.json`` and the tables of the terminal summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stitchloop.cascade.endtoend import Choice, EndToEnd
from stitchloop.cascade.machine import Machine
from stitchloop.cascade.performance import GroupCost, Performance
from stitchloop.cascade.stitch import Boundary
from stitchloop.cascade.strategies import BASELINES, Evaluated, SpeedOfLight
from stitchloop.cascade.traffic import Move, Volume, moves_of
from stitchloop.text import counted

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

NEARLY, LESS = 0.01, 0.8
"""A grouping that takes so much more time and less than this share of the traffic is worth naming beside the fastest."""
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def bytes_text(count: float) -> str:
    """``1.5 MB`` (powers of ten)."""
    for scale, prefix in _PREFIXES:
        if count >= scale:
            return f"{count / scale:.3g} {prefix}B"
    return f"{count:.3g} B"


def seconds_text(seconds: float) -> str:
    """``12.3 us``."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds * 1e9:.3g} ns" if seconds < float("inf") else "does not fit"


def energy_text(picojoules: float) -> str:
    """``3.4 mJ``."""
    for scale, unit in ((1e12, "J"), (1e9, "mJ"), (1e6, "uJ"), (1e3, "nJ")):
        if picojoules >= scale:
            return f"{picojoules / scale:.4g} {unit}"
    return f"{picojoules:.3g} pJ"


# -- groups.json ----------------------------------------------------------------------------------------------------------


def groups_document(
    evaluated: Evaluated, unfused: Performance, light: SpeedOfLight, choice: Choice | None, asked: str
) -> dict[str, Any]:
    """Everything that the run found, as plain data. Words unless a key says otherwise; ``asked`` is the strategy asked for."""
    stitching, performance = evaluated.stitching, evaluated.performance
    machine = performance.machine
    document: dict[str, Any] = {
        "strategy": stitching.strategy,
        "asked": asked,
        "cascade": stitching.cascade.name,
        "architecture": machine.name,
        "ranks": dict(stitching.cascade.sizes),
        "order": list(stitching.order),
        "reordered": stitching.reordered,
        "merged": [list(node) for node in stitching.nodes if len(node) > 1],
        "groups": [_group_entry(performance, group) for group in performance.groups],
        "boundaries": [_boundary_entry(boundary) for boundary in stitching.boundaries],
        "totals": {
            **_figures(performance),
            "unfused": _figures(unfused),
            "speedup_over_unfused": unfused.seconds / performance.seconds,
            "speed_of_light_seconds": light.seconds,
        },
    }
    if choice is not None:
        document["end_to_end"] = {
            "context": choice.chosen.context,
            "generate": choice.chosen.generated,
            "layers": choice.chosen.layers,
            "chosen": choice.strategy,
            "generation_groups": [list(names) for names in choice.chosen.step.grouping],
            "unfused_seconds": choice.unfused.seconds,
            "strategies": {run.strategy: _run_entry(run) for run in choice.runs},
        }
    return document


def _figures(performance: Performance) -> dict[str, Any]:
    return {
        "seconds": performance.seconds,
        "compute_seconds": performance.compute_seconds,
        "dram_seconds": performance.dram_seconds,
        "dram_words": _volume_entry(performance.volume),
        "energy_pJ": performance.energy_pj,
    }


def _volume_entry(volume: Volume) -> dict[str, float]:
    return {"inter_einsum": volume.inter, "weights": volume.weight, "state": volume.state}


def _run_entry(run: EndToEnd) -> dict[str, Any]:
    return {
        "fits": run.fits,
        "seconds": run.seconds,
        "prefill_seconds": run.prefill_seconds,
        "generation_seconds": run.generation_seconds,
        "energy_pJ": run.energy_pj,
    }


def _group_entry(performance: Performance, group: GroupCost) -> dict[str, Any]:
    moves = moves_of(performance.cascade, group.names, group.plan.spilled)
    return {
        "einsums": list(group.names),
        "seconds": group.seconds,
        "compute_seconds": group.compute_seconds,
        "dram_seconds": group.dram_seconds,
        "bound": group.bound,
        "dram": {
            "reads": {move.tensor: move.words for move in moves if not move.is_write and move.kind != "weight"},
            "writes": {move.tensor: move.words for move in moves if move.is_write},
            "weights": {move.tensor: move.words for move in moves if move.kind == "weight"},
            "words": _volume_entry(group.volume),
            "spilled_words": group.spill_words,
            "read_again_words": group.reread_words,
        },
        "buffer_words": group.buffer_words,
        "partial_sum_words": group.partial_sum_words,
        "energy_pJ": dict(group.energy_pj),
        "partitioning": {
            **partitioning_entry(group),
            "spilled": list(group.plan.spilled),
            "state_kept": group.plan.state_kept,
            "pinned_words": group.plan.pinned_words,
        },
        "costs": [
            {
                "einsums": list(e.node),
                "mode": e.mode,
                "dataflow": e.dataflow or None,
                "points": e.points,
                "operations": e.operations,
                "cycles": e.cycles,
                "utilization": e.utilization,
                "dram_words": e.dram_words,
                "seconds": e.seconds,
            }
            for e in group.einsums
        ],
    }


def partitioning_entry(group: GroupCost) -> dict[str, Any]:
    """How a group is partitioned, and what that costs."""
    return {
        "kind": group.plan.kind,
        "tile": dict(group.plan.tile),
        "tiles": group.plan.tiles,
        "footprint_words": group.plan.footprint_words,
        "dram_words": group.volume.total,
        "seconds": group.seconds,
    }


def baselines_entry(performance: Performance, baselines: Mapping[str, Performance]) -> dict[str, Any]:
    """Published accelerators as they are read here, and the speed-up over each."""
    readings = {baseline.name: baseline.reading for baseline in BASELINES}
    return {
        name: {
            "reading": readings[name],
            "fits": not other.shortfalls,
            "seconds": other.seconds,
            "speedup": other.seconds / performance.seconds,
        }
        for name, other in baselines.items()
    }


def baselines_line(performance: Performance, baselines: Mapping[str, Performance]) -> str:
    """The speed-ups over the baselines on one line."""
    return "over " + ", ".join(f"{name} {_times(other, performance)}" for name, other in baselines.items())


def _times(slow: Performance, fast: Performance) -> str:
    """``5.97x``, or that what is compared with does not run at all."""
    return f"(does not fit: {slow.shortfalls[0].names[0]})" if slow.shortfalls else f"{slow.seconds / fast.seconds:.2f}x"


def _boundary_entry(boundary: Boundary) -> dict[str, Any]:
    return {
        "before": list(boundary.before),
        "after": list(boundary.after),
        "class": str(boundary.fusion_class),
        "cut": boundary.is_cut,
        "reason": boundary.reason,
        "tensors": list(boundary.relation.tensors),
    }


# -- the terminal ---------------------------------------------------------------------------------------------------------


def summary(evaluated: Evaluated, unfused: Performance, light: SpeedOfLight) -> list[RenderableType]:
    """One screen: the groups, why each begins where it does, what crosses DRAM, and totals."""
    from rich.text import Text

    stitching, performance = evaluated.stitching, evaluated.performance
    merged = " ".join("{" + " ".join(node) + "}" for node in stitching.nodes if len(node) > 1)
    sizes = " ".join(f"{rank}={size}" for rank, size in stitching.cascade.sizes.items())
    lines: list[RenderableType] = [
        Text.assemble(
            *((stitching.cascade.name, "bold"), " on ", (performance.machine.name, "bold"), ", strategy "),
            (stitching.strategy, "bold"),
            f": {counted(len(stitching.groups), 'group')} of {counted(len(stitching.order), 'Einsum')}  ({sizes})",
        ),
        f"order: {'changed, ' + ' '.join(stitching.order) if stitching.reordered else 'as given'}"
        + (f"; merged over a shared input: {merged}" if merged else ""),
        _group_table(evaluated),
        _totals(performance, unfused, light),
    ]
    return lines


def _group_table(evaluated: Evaluated) -> Table:
    from rich.table import Table

    performance = evaluated.performance
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    left = ("Einsums", "cut", "reads -> writes", "bound", "tiles")
    for name in ("", *left[:3], "DRAM", "time", "bound", "energy", "tiles"):
        table.add_column(name, justify="left" if name in left else "right", overflow="fold")
    cuts = [None, *evaluated.stitching.cuts]
    for number, (group, cut) in enumerate(zip(performance.groups, cuts), start=1):
        moves = moves_of(performance.cascade, group.names, group.plan.spilled)
        table.add_row(
            str(number),
            _names(group),
            "" if cut is None else _short(cut),
            _crossing(moves),
            bytes_text(group.volume.total * performance.machine.word_bytes),
            seconds_text(group.seconds),
            group.bound if not group.shortfall_words else "does not fit",
            energy_text(sum(group.energy_pj.values())),
            _tiling(group),
        )
    if evaluated.stitching.cuts:
        table.caption = _CUTS
        table.caption_justify = "left"
    return table


_CUTS = "cut: class of the boundary before the group; -X: only before it, +X: only (or again) after it. 2w: two weights"


def _names(group: GroupCost) -> str:
    names = group.names
    return " ".join(names) if len(names) <= 3 else f"{names[0]}..{names[-1]} ({len(names)})"


def _short(cut: Boundary) -> str:
    """The class and why it cuts: the ranks that set both sides apart, or what the reason says that they do not."""
    relation = cut.relation
    text = " ".join(
        [str(cut.fusion_class), *(f"-{r}" for r in relation.extra_producer), *(f"+{r}" for r in relation.extra_consumer)]
    )
    if "not nested" in cut.reason:
        return f"{text}, not nested"
    if "by" in cut.reason and "same group" in cut.reason:
        return f"{text}, {cut.reason.split(' comes from')[0]}"
    return text if "is not allowed by" in cut.reason or cut.reason == "chosen" else f"{text}, {cut.reason}"


def _crossing(moves: Iterable[Move]) -> str:
    moves = tuple(moves)
    reads = " ".join(move.tensor for move in moves if not move.is_write and move.kind != "weight")
    writes = " ".join(move.tensor for move in moves if move.is_write)
    weights = sum(move.kind == "weight" for move in moves)
    return f"{reads}{f' {weights}w' if weights else ''} -> {writes}"


def _tiling(group: GroupCost) -> str:
    plan = group.plan
    tile = " ".join(f"{rank}{size}" for rank, size in plan.tile.items())
    spilled = f", spills {' '.join(plan.spilled)}" if plan.spilled else ""
    state = "" if plan.state_kept else ", state to DRAM"
    return f"{plan.kind}{f' {tile} x{plan.tiles}' if plan.tiles > 1 else ''}{spilled}{state}"


def _totals(performance: Performance, unfused: Performance, light: SpeedOfLight) -> Text:
    from rich.text import Text

    width = performance.machine.word_bytes
    volume, before = performance.volume, unfused.volume
    cut = before.between_einsums / volume.between_einsums if volume.between_einsums else float("inf")
    parts = " + ".join(
        f"{name} {bytes_text(words * width)}"
        for name, words in (("between Einsums", volume.inter), ("weights", volume.weight), ("state", volume.state))
    )
    energy = sum(performance.energy_pj.values())
    source = "" if performance.machine.energy_source else " (no energy table)"
    return Text.assemble(
        (f"layer: {seconds_text(performance.seconds)}", "bold"),
        f", {_times(unfused, performance)} unfused"
        f"{'' if unfused.shortfalls else f' ({seconds_text(unfused.seconds)})'}; speed of light {seconds_text(light.seconds)}; "
        f"computing {seconds_text(performance.compute_seconds)}, moving {seconds_text(performance.dram_seconds)}\n"
        f"DRAM: {bytes_text(volume.total * width)} = {parts}; without weights 1/{cut:.1f} of unfused\n"
        f"energy: {energy_text(energy)}{source}" + (f" = {_energy_parts(performance)}" if energy else ""),
    )


def _energy_parts(performance: Performance) -> str:
    energy = performance.energy_pj
    whole = sum(energy.values())
    return " + ".join(f"{component} {value / whole:.0%}" for component, value in energy.items())


def nearly_as_fast(chosen: Performance, others: Iterable[Performance]) -> Performance | None:
    """Of the other groupings that take at most :data:`NEARLY` more time and move clearly less, the one that moves least."""
    total = chosen.volume.total
    near = [
        other
        for other in others
        if not other.shortfalls and other.seconds <= chosen.seconds * (1 + NEARLY) and other.volume.total < LESS * total
    ]
    return min(near, key=lambda other: other.volume.total, default=None)


def nearly_entry(other: Performance) -> dict[str, Any]:
    """The strategy and its figures for ``groups.json``."""
    return {"strategy": other.strategy, **_figures(other)}


def nearly_line(chosen: Performance, other: Performance) -> str:
    """What the least time costs in traffic."""
    words = other.volume.total
    return (
        f"least time alone was asked for: {other.strategy} takes {other.seconds / chosen.seconds - 1:.2%} longer and moves "
        f"{words / chosen.volume.total:.0%} of the DRAM traffic ({bytes_text(words * other.machine.word_bytes)})"
    )


def machine_line(machine: Machine) -> str:
    """What is modelled, on one line."""
    return (
        f"{machine.arrays} x {machine.rows} x {machine.columns} PEs (2D), {machine.lanes} lanes (1D), "
        f"{machine.clock_hz / 1e9:.3g} GHz, {bytes_text(machine.buffer_words * machine.word_bytes)} {machine.buffer_name}, "
        f"{bytes_text(machine.dram_bytes_per_second)}/s"
    )
