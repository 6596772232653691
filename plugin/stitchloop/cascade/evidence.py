"""Why a strategy was chosen: tables of whole runs, of the strategy guide and of single costs, with what they show in words."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from stitchloop.cascade.endtoend import TRIGGER_TILES, Choice, GuideLine
from stitchloop.cascade.mechanisms import COSTLY_SWITCH, UNDER_USE, Finding
from stitchloop.cascade.report import bytes_text, energy_text, seconds_text
from stitchloop.text import counted

if TYPE_CHECKING:
    from rich.table import Table


def end_to_end_table(choice: Choice) -> Table:
    """The same run under every strategy."""
    from rich.table import Table

    chosen = choice.chosen
    title = f"{counted(chosen.layers, 'layer')}, context {chosen.context:,}, {counted(chosen.generated, 'token')} generated"
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold", title=title, title_justify="left")
    table.caption, table.caption_justify = f"speed-ups over unfused ({choice.unfused.strategy})", "left"
    for name in ("strategy", "prefill", "generation", "total", "speed-up", "energy", ""):
        table.add_column(name, justify="left" if name in ("strategy", "") else "right")
    for run in choice.runs:
        if not run.fits:
            table.add_row(run.strategy, *("-" * 5), "does not fit")
            continue
        table.add_row(
            run.strategy, seconds_text(run.prefill_seconds), seconds_text(run.generation_seconds), seconds_text(run.seconds),
            f"{choice.speedup(run):.2f}x" if choice.unfused.fits else "-", energy_text(run.energy_pj),
            "chosen" if run.strategy == choice.strategy else "",
        )  # fmt: skip
    return table


def guide_table(lines: list[GuideLine]) -> Table:
    """The strategy guide with its evidence."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold", title="strategy guide", title_justify="left")
    for name in ("case", "published", "this model", "speed-ups", f"{TRIGGER_TILES}+ tiles", "speed-ups"):
        table.add_column(name)
    for line in lines:
        cells = []
        for choice in (line.choice, line.triggered):
            runs = [run for run in choice.runs if run.strategy != "none"]
            cells += [choice.strategy, " ".join(f"{choice.speedup(run):.2f}" if run.fits else "-" for run in runs)]
        table.add_row(line.regime.name, f"{line.regime.published} {line.regime.published_speedup}", *cells)
    order = ", ".join(run.strategy for run in lines[0].choice.runs if run.strategy != "none")
    table.caption = (
        f"speed-ups over {lines[0].choice.unfused.strategy}: {order}; {TRIGGER_TILES}+ tiles: each pipeline cut into as many"
    )
    table.caption_justify = "left"
    return table


def guide_text(lines: list[GuideLine]) -> str:
    """What the guide found for long generation; empty where its buffer fits no strategy."""
    line = next((line for line in lines if line.regime.generated > line.regime.context), None)
    if line is None:
        return ""
    modelled, triggered = (
        [(run.strategy, run.seconds) for run in choice.runs if run.fits and run.strategy != "none"]
        for choice in (line.choice, line.triggered)
    )
    return _generation_text("in long generation", modelled, triggered)


def findings_text(findings: list[Finding]) -> str:
    """What the findings say of one generated token."""
    times = {f.mechanism.name: [(step.strategy, step.seconds) for step in f.steps if not step.shortfalls] for f in findings}
    text = _generation_text("at one token a step", times["as modelled"], times[f"pipelines in {TRIGGER_TILES}+ tiles"])
    kept = [name for name in (UNDER_USE, COSTLY_SWITCH) if _ranked(times[name]) == _ranked(times["as modelled"])]
    return text + (f" That {' or '.join(kept)} changes no order." if kept else "")


def _generation_text(where: str, modelled: list[tuple[str, float]], triggered: list[tuple[str, float]]) -> str:
    return (
        f"As modelled, {_loser(modelled)} {where}; with each pipeline in {TRIGGER_TILES}+ tiles, as where consumers are "
        f"triggered tile by tile, {_loser(triggered)}. A fused group that runs in several tiles, for that reason or in a small "
        "buffer, splits the batch: weights that do not stay are read again, and segments fill and drain per tile. Groups of one "
        "segment, as ri mostly makes them, lose nothing."
    )


def _loser(times: list[tuple[str, float]]) -> str:
    """Whether a more permissive strategy is slower than one before it."""
    for (before, fast), (after, slow) in pairwise(times):
        if slow > fast * (1 + 1e-6):
            return f"more fusion loses from {after} on ({slow / fast - 1:+.1%} over {before})"
    return "more fusion never loses"


def _ranked(times: list[tuple[str, float]]) -> list[str]:
    return [name for name, _ in sorted(times, key=lambda pair: pair[1])]


def findings_table(findings: list[Finding], title: str = "one generated token in one layer, us (speed-up over unfused)") -> Table:
    """One generated token under one changed assumption at a time."""
    from rich.table import Table

    names = [step.strategy for step in findings[0].steps]
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold", title=title, title_justify="left")
    for name in ("assumption", *names, "best", "read again"):
        table.add_column(name, justify="left" if name in ("assumption", "best") else "right", overflow="fold")
    for finding in findings:
        last = finding.steps[-1]
        again = sum(group.reread_words for group in last.groups) * last.machine.word_bytes
        cells = [
            "-" if step.shortfalls else f"{step.seconds * 1e6:.1f} ({finding.speedup(step):.2f})" for step in finding.steps
        ]
        best = finding.best.strategy if finding.best is not None else "none fits"
        table.add_row(finding.mechanism.name, *cells, best, bytes_text(again) if again else "")
    table.caption, table.caption_justify = f"read again: weights and state of {names[-1]}, per step", "left"
    return table
