"""What ``stitchloop stitch`` does, apart from the command line: a cascade and a machine in, files and a summary out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stitchloop.cascade import evidence, report
from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.endtoend import UNFUSED, Choice, Runs, guide, no_room
from stitchloop.cascade.evaluate import Model
from stitchloop.cascade.machine import Machine
from stitchloop.cascade.mechanisms import generation_findings
from stitchloop.cascade.merge import Node
from stitchloop.cascade.outputs import write_run
from stitchloop.cascade.performance import DETAILED, Performance, Settings
from stitchloop.cascade.specs import group_files
from stitchloop.cascade.strategies import (
    ALL_STRATEGIES,
    BASELINES,
    OPTIMAL,
    Evaluated,
    baseline,
    evaluate,
    is_recurrent,
    speed_of_light,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

AUTO = "auto"


@dataclass(frozen=True)
class Request:
    """One run of the command.

    ``strategy`` is a greedy strategy, ``optimal`` or ``auto``. ``context`` and ``generate`` ask for a whole run; without them
    the cascade is evaluated as it stands.
    """

    cascade: Cascade
    machine: Machine
    strategy: str = "optimal"
    settings: Settings = DETAILED
    context: int | None = None
    generate: int | None = None
    merge: bool = True
    reorder: bool = True
    figures: bool = True
    why: bool = False
    """Also show which costs make less fusion win at one token a step."""


@dataclass(frozen=True)
class Outcome:
    """The chosen grouping with its figures, what it is compared with, and the whole run where there is one."""

    evaluated: Evaluated
    unfused: Performance
    all: tuple[Performance, ...]
    choice: Choice | None
    runs: Runs | None
    model: Model

    @cached_property
    def baselines(self) -> dict[str, Performance]:
        """The layer under each published baseline; without a recurrence they all fuse nothing, and one stands for them."""
        known = (
            BASELINES
            if any(is_recurrent(self.model.cascade, state.tensor) for state in self.model.cascade.states)
            else BASELINES[:1]
        )
        return {b.name: baseline(self.model, b.name) for b in known}


def run_stitch(request: Request, output: Path) -> list[RenderableType]:
    """Stitch, evaluate, write ``groups.json``, the groups' fused specs and the figures; return what the terminal shows.

    Raises
    ------
    InputError
        A context is asked for and the cascade has no iterative rank; or an output cannot be written.
    NoMapping
        A group of the strategy does not fit in the buffer.
    """
    outcome = solve(request)
    light = speed_of_light(outcome.evaluated.stitching.cascade, request.machine)
    document = report.groups_document(outcome.evaluated, outcome.unfused, light, outcome.choice, request.strategy)
    document["baselines"] = report.baselines_entry(outcome.evaluated.performance, outcome.baselines)
    near = report.nearly_as_fast(outcome.evaluated.performance, outcome.all) if outcome.evaluated.strategy == OPTIMAL else None
    if near is not None:
        document["nearly_as_fast"] = report.nearly_entry(near)
    _add_alternatives(document, outcome)
    files: dict[str, str | bytes] = {}
    stitching = outcome.evaluated.stitching
    files |= group_files(stitching.cascade, [group.nodes for group in stitching.groups], request.machine.buffer_words)
    if request.figures:
        from stitchloop.cascade.plots import figures

        files |= figures(outcome)
    inputs = [request.cascade.source] if request.cascade.source else []
    written = write_run(output, document, files, inputs)
    shown = [report.machine_line(request.machine), *report.summary(outcome.evaluated, outcome.unfused, light)]
    if near is not None:
        shown.append(report.nearly_line(outcome.evaluated.performance, near))
    shown.append(report.baselines_line(outcome.evaluated.performance, outcome.baselines))
    if outcome.choice is not None:
        shown.append(evidence.end_to_end_table(outcome.choice))
    if request.strategy == AUTO and outcome.runs is not None:
        lines = guide(request.cascade, request.machine, request.settings)
        shown += [evidence.guide_table(lines), evidence.guide_text(lines)] if lines else []
    if request.why and outcome.runs is not None:
        findings = generation_findings(request.cascade, request.machine, request.settings)
        shown += [evidence.findings_table(findings), evidence.findings_text(findings)]
    plain = [path.name for path in written if path.parent == output]
    folders = list(dict.fromkeys(path.parent.name for path in written if path.parent != output))
    where = " to ".join(dict.fromkeys((folders[0], folders[-1])))
    return [*shown, f"wrote {', '.join(plain)}, and LoopTree's files in {where}, all in {output}"]


def _add_alternatives(document: dict[str, Any], outcome: Outcome) -> None:
    """What the other kinds of partitioning would cost each group."""
    before: Node | None = None
    for entry, group in zip(document["groups"], outcome.evaluated.performance.groups):
        found = outcome.model.partitionings(group.nodes, before)
        entry["partitioning"]["alternatives"] = [report.partitioning_entry(cost) for cost in found]
        before = group.nodes[-1]


def solve(request: Request) -> Outcome:
    """Everything but the files."""
    runs, choice = None, None
    if request.context is not None or request.generate is not None or request.cascade.iterative_ranks:
        runs = Runs(request.cascade, request.machine, request.settings, merge=request.merge, reorder=request.reorder)
    steps = _steps(request)
    if runs is not None:
        model = runs.model(steps)
        if request.strategy == AUTO or request.context is not None or request.generate is not None:
            choice = runs.choose(steps, request.generate or 0)
    else:
        model = Model(request.cascade, request.machine, request.settings)
    wanted = ALL_STRATEGIES if request.strategy in (AUTO, OPTIMAL) or request.figures else (request.strategy,)
    every = {name: _evaluated(runs, model, name, steps, request) for name in wanted}
    unfused = runs.layer(UNFUSED, steps) if runs is not None else baseline(model, UNFUSED)
    name = request.strategy
    if name == AUTO:
        name = choice.strategy if choice is not None else _fastest(every)
    chosen = every[name]
    if chosen.performance.shortfalls:
        alone = model.evaluate((node,) for node in chosen.stitching.nodes) if name == OPTIMAL else chosen.performance
        raise no_room(alone.shortfalls or chosen.performance.shortfalls, request.machine)
    return Outcome(chosen, unfused, tuple(e.performance for e in every.values()), choice, runs, model)


def _steps(request: Request) -> int:
    """Positions of the layer that the summary shows: the context, else the iterative rank's size."""
    if request.context is not None:
        return request.context
    sizes = [request.cascade.sizes[rank] for rank in request.cascade.iterative_ranks]
    return sizes[0] if sizes else 1


def _evaluated(runs: Runs | None, model: Model, strategy: str, steps: int, request: Request) -> Evaluated:
    if runs is not None:
        return runs.stitched(strategy, steps)
    return evaluate(model, strategy, merge=request.merge, reorder=request.reorder)


def _fastest(every: dict[str, Evaluated]) -> str:
    fitting = {name: e.performance.seconds for name, e in every.items() if not e.performance.shortfalls}
    return min(fitting or every, key=lambda name: (fitting.get(name, float("inf")), list(every).index(name)))
