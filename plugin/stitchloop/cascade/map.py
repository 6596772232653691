"""``stitchloop map`` on a cascade: the best groups for the objective, each group's files, and totals."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stitchloop.cascade import report
from stitchloop.cascade.choose import OBJECTIVES, Point, front, undominated
from stitchloop.cascade.endtoend import UNFUSED, no_room
from stitchloop.cascade.evaluate import Model
from stitchloop.cascade.machine import machine_of
from stitchloop.cascade.optimum import EXACT_UP_TO
from stitchloop.cascade.outputs import write_run
from stitchloop.cascade.performance import Performance
from stitchloop.cascade.specs import GroupSpec, group_specs
from stitchloop.cascade.stitch import STRATEGIES, grouping, stitch
from stitchloop.cascade.strategies import Evaluated, baseline, speed_of_light
from stitchloop.errors import InputError
from stitchloop.result import Certificate
from stitchloop.spec import Spec
from stitchloop.text import counted
from stitchloop.write.files import to_json
from stitchloop.write.summary import Summary

if TYPE_CHECKING:
    from rich.console import RenderableType

OPTIMAL = "optimal"
LONGEST_GROUP = 8
"""Nodes of the longest group that is tried, beside those of the greedy strategies, in cascades that are not solved exactly."""
COUNTING = "cascade performance model; each group partitioned for least time"


@dataclass(frozen=True)
class CascadeResult:
    """The chosen grouping of a cascade.

    Attributes
    ----------
    objective : tuple of str
        The objectives asked for, the first one first; the others break ties.
    values : tuple of float
        In seconds, picojoules, picojoule-seconds or words, of one layer.
    evaluated : Evaluated
    certificate : Certificate
        Over all contiguous groupings of the orders that the greedy strategies run in.
    front_objectives : tuple of str
    front : tuple of Point
        Groupings that no other beats in all of ``front_objectives``.
    specs : tuple of GroupSpec
    """

    objective: tuple[str, ...]
    values: tuple[float, ...]
    evaluated: Evaluated
    unfused: Performance
    certificate: Certificate
    front_objectives: tuple[str, ...]
    front: tuple[Point, ...]
    specs: tuple[GroupSpec, ...]

    def as_json(self) -> dict[str, Any]:
        """The document of ``result.json``."""
        certificate, stitching = self.certificate, self.evaluated.stitching
        return {
            "objective": list(self.objective),
            "value": self.values[0],
            "values": list(self.values),
            "optimal": certificate.optimal,
            "lower_bound": certificate.lower_bound,
            "gap": certificate.gap(self.values[0]),
            "mapspace_size": certificate.mapspace_size,
            "evaluated": certificate.evaluated,
            "seconds": certificate.seconds,
            "counting": certificate.counting,
            "reason": certificate.reason,
            "pareto_objectives": list(self.front_objectives),
            "pareto": [
                {"values": [point.value(name) for name in self.front_objectives], "groups": len(point.ends)}
                for point in self.front
            ],
            "notes": list(dict.fromkeys(note for spec in self.specs for note in spec.mapped.export.not_expressed)),
            "mapping": {
                "order": list(stitching.order),
                "groups": [
                    {"einsums": list(group.einsums), "folder": spec.folder}
                    for group, spec in zip(stitching.groups, self.specs, strict=True)
                ],
            },
        }

    def stats_json(self) -> dict[str, Any]:
        """The document of ``stats.json``: totals of one layer and of all layers, and each group's share."""
        performance = self.evaluated.performance
        cascade, machine = performance.cascade, performance.machine
        points = sum(cascade.operations(name) for name in self.evaluated.stitching.order)
        return {
            "cycles": round(performance.seconds * machine.clock_hz),
            "energy_pJ": sum(performance.energy_pj.values()),
            "computes": points,
            "utilization": performance.compute_seconds / performance.seconds if performance.seconds else 0.0,
            "layers": cascade.layers,
            "all_layers": {
                "seconds": cascade.layers * performance.seconds,
                "energy_pJ": cascade.layers * sum(performance.energy_pj.values()),
                "dram_words": cascade.layers * performance.volume.total,
            },
            "energy_by_component_pJ": performance.energy_pj,
            "dram_words": {
                "inter_einsum": performance.volume.inter,
                "weights": performance.volume.weight,
                "state": performance.volume.state,
            },
            "groups": [
                {
                    "einsums": list(group.names),
                    "seconds": group.seconds,
                    "energy_pJ": sum(group.energy_pj.values()),
                    "dram_words": group.volume.total,
                    "bound": group.bound,
                }
                for group in performance.groups
            ],
        }


def run(spec: Spec, output: Path, strategy: str = OPTIMAL, *, merge: bool = True, reorder: bool = True) -> Summary:
    """Map the cascade of ``spec`` and write ``groups.json``, ``result.json``, ``stats.json`` and each group's folder.

    Raises
    ------
    InputError
        When the cascade or the architecture is missing, or for an objective that a cascade does not have.
    NoMapping
        When some Einsum fits in no group.
    """
    result = map_cascade(spec, strategy, merge=merge, reorder=reorder)
    evaluated, performance = result.evaluated, result.evaluated.performance
    light = speed_of_light(performance.cascade, performance.machine)
    groups = report.groups_document(evaluated, result.unfused, light, None, strategy)
    files: dict[str, str | bytes] = {
        "result.json": to_json(result.as_json()),
        "stats.json": to_json(result.stats_json()),
    }
    files |= {name: text for group in result.specs for name, text in group.files().items()}
    write_run(output, groups, files, spec.files)
    return Summary((*report.summary(evaluated, result.unfused, light), *_lines(result, output)))


def map_cascade(spec: Spec, strategy: str = OPTIMAL, *, merge: bool = True, reorder: bool = True) -> CascadeResult:
    """The grouping of least objective (``optimal``), or the one of a greedy strategy, with each group's files."""
    from stitchloop.cascade.cascade import Cascade

    if not isinstance(spec.cascade, Cascade):
        raise InputError(", ".join(spec.files) or None, "no cascade", "add a problem with `ranks` and `einsums`")
    if spec.architecture is None:
        raise InputError(", ".join(spec.files) or None, "an `architecture` section is missing", "add the file that holds it")
    objective = spec.options.metrics
    front_objectives = spec.options.pareto or objective
    for option, names in (("--objective", objective), ("--pareto", front_objectives)):
        for name in names:
            if name not in OBJECTIVES:
                raise InputError(option, f"objective '{name}' for a cascade", f"use {', '.join(OBJECTIVES)}")
    if strategy not in (OPTIMAL, *STRATEGIES):
        raise InputError("--strategy", f"'{strategy}'", f"use {OPTIMAL}, {', '.join(STRATEGIES)}")
    start = time.perf_counter()
    model = Model(spec.cascade, machine_of(spec.architecture, spec.architecture_file.stem if spec.architecture_file else None))
    if strategy == OPTIMAL:
        evaluated, points, certificate = _best(model, objective, front_objectives, start, merge=merge, reorder=reorder)
    else:
        stitching = stitch(spec.cascade, strategy, merge=merge, reorder=reorder)
        performance = model.evaluate((group.nodes for group in stitching.groups), strategy)
        if performance.shortfalls:
            raise no_room(performance.shortfalls, model.machine)
        evaluated, points = Evaluated(stitching, performance), (_point(performance),)
        seconds = time.perf_counter() - start
        reason = f"the grouping of strategy {strategy} was asked for, not the best one"
        certificate = Certificate(False, 0.0, 1, 1, seconds, COUNTING, reason)
    groups = [group.nodes for group in evaluated.stitching.groups]
    specs = group_specs(spec.cascade, groups, model.machine.buffer_words)
    values = tuple(_point(evaluated.performance).value(name) for name in objective)
    unfused = baseline(model, UNFUSED)
    return CascadeResult(objective, values, evaluated, unfused, certificate, front_objectives, points, specs)


def _best(
    model: Model, objective: tuple[str, ...], front_objectives: tuple[str, ...], start: float, *, merge: bool, reorder: bool
) -> tuple[Evaluated, tuple[Point, ...], Certificate]:
    """The best grouping over all orders, the front over all orders, and what is proved."""
    orders = dict.fromkeys(stitch(model.cascade, name, merge=merge, reorder=reorder).nodes for name in STRATEGIES)
    costs = tuple(cost for name in (*objective, *front_objectives) for cost in OBJECTIVES[name])
    given = next(iter(orders))
    exact = len(given) <= EXACT_UP_TO
    if exact:
        choices = [(nodes, point) for nodes in orders for point in front(model, nodes, costs)]
    else:
        choices = [(given, point) for point in front(model, given, costs, LONGEST_GROUP)]
        for name in STRATEGIES:
            stitching = stitch(model.cascade, name, merge=merge, reorder=reorder)
            performance = model.evaluate((group.nodes for group in stitching.groups), name)
            choices += [] if performance.shortfalls else [(stitching.nodes, _point(performance))]
    if not choices:
        alone = model.evaluate([(node,) for node in given])
        raise no_room(alone.shortfalls, model.machine)
    nodes, point = min(choices, key=lambda choice: tuple(choice[1].value(name) for name in objective))
    groups = point.groups(nodes)
    evaluated = Evaluated(grouping(model.cascade, groups, OPTIMAL), model.evaluate(groups, OPTIMAL))
    size = sum(2 ** (len(order) - 1) for order in orders)
    tried = sum(len(order) * (len(order) + 1) // 2 for order in orders)
    seconds = time.perf_counter() - start
    if exact:
        certificate = Certificate(True, point.value(objective[0]), size, tried, seconds, COUNTING)
    else:
        tried = len(given) * LONGEST_GROUP
        reason = f"more than {EXACT_UP_TO} Einsums: groups of up to {LONGEST_GROUP} and the greedy strategies' were tried"
        certificate = Certificate(False, 0.0, size, tried, seconds, COUNTING, reason)
    return evaluated, undominated([p for _, p in choices], front_objectives), certificate


def _point(performance: Performance) -> Point:
    point = Point()
    stop = 0
    for group in performance.groups:
        stop += len(group.nodes)
        point = point.then(stop, group)
    return point


def _lines(result: CascadeResult, output: Path) -> list[RenderableType]:
    performance, certificate = result.evaluated.performance, result.certificate
    layers = performance.cascade.layers
    lines: list[RenderableType] = []
    if layers > 1:
        energy = report.energy_text(layers * sum(performance.energy_pj.values()))
        lines.append(f"all {layers} layers: {report.seconds_text(layers * performance.seconds)}, {energy}")
    if certificate.optimal:
        lines.append(
            f"least {result.objective[0]} of {counted(certificate.mapspace_size, 'contiguous grouping')} "
            f"({counted(certificate.evaluated, 'group')} evaluated, {certificate.seconds:.2f} s)"
        )
    else:
        lines.append(certificate.reason)
    unfit = [spec.folder for spec in result.specs if not spec.mapped.fits]
    if unfit:
        lines.append(f"LoopTree mappings that exceed the buffer, because LoopTree spills nothing: {', '.join(unfit)}")
    folders = counted(len(result.specs), "group folder")
    lines.append(f"wrote groups.json, result.json, stats.json and {folders} to {output}")
    return lines
