"""The optimum, or the Pareto front, for one vector of spatial factors that its least energy does not settle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stitchloop.mapspace.space import Mapspace
from stitchloop.search import labels, scan
from stitchloop.search.arrays import ENERGY, Machine, Plan, Tables
from stitchloop.search.lattice import price_of_leaving
from stitchloop.search.machine import build_tables
from stitchloop.search.prices import rate_metrics
from stitchloop.search.slides import EXACT
from stitchloop.search.walk import Moves, walk

LABELS = 100_000
"""First size of the label search's work space; it is enlarged when it does not suffice."""

ROUNDS = (1.0, 0.3, 3.0, 0.1, 10.0, 0.03)
"""Prices of the binding resource that are tried, in units of energy per cycle of the least-energy nest."""


def workspace(space: Mapspace, machine: Machine, plan: Plan, nodes: int, full: bool = False) -> tuple[Tables, scan.Space]:
    """Work space of one thread for lattices of up to ``nodes`` nodes; ``full``: for bounds of the tool's full count, too."""
    transfers, payments = len(plan.transfer_tensor), len(plan.pay_first)
    own = scan.Space(
        np.zeros((transfers, 10)),
        np.zeros((len(machine.weights), transfers, 10)),
        np.zeros((payments, nodes)),
        np.zeros((len(plan.slot_ops), nodes)),
    )
    return build_tables(space, machine, plan, nodes, full), own


@dataclass
class Settler:
    """Tables and mixtures for one vector of spatial factors, in the order in which they are made.

    A *mixture* is a weight per metric. Its costs-to-go bound every nest and give one nest that is least in it. ``tracked``
    are the metrics that goals depend on: energy, every resource that may stretch the cycles, and counted accesses.
    """

    machine: Machine
    task: scan.Task
    plan: Plan
    tables: Tables
    space: scan.Space
    nodes: int
    counted: range
    with_buffers: bool = False
    most_bytes: int = 2**29
    mixes: list[Any] = field(default_factory=list)
    costs: list[Any] = field(default_factory=list)
    sums: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        metrics = len(self.machine.weights)
        self.eye = np.eye(metrics)
        rate_metrics(self.machine, self.plan, self.tables.instances, self.tables.partition, self.eye, self.space.singles)
        self.scale = scan.scale_of(self.task, self.tables)
        self.active = [m for m in range(1, self.task.resources + 1) if self._most(m) > self.scale.cycles]
        buffers = [self.machine.buffer_metric] if self.with_buffers else []
        self.tracked = np.array([ENERGY, *self.active, *self.counted, *buffers], dtype=np.int64)
        table = len(self.plan.slot_ops) * self.nodes * 8
        most = max(len(self.tracked), min(len(self.tracked) + 1 + len(ROUNDS), self.most_bytes // table))
        self.tables_of_mixes = np.empty((most, len(self.plan.slot_ops), self.nodes))

    def _most(self, metric: int) -> float:
        """An upper bound on a resource's cycles over all nests: a longer run never moves more words."""
        tables, nodes, rates = self.tables, self.nodes, self.space.singles[metric]
        total = float(tables.constant[metric])
        for q, child in enumerate(self.plan.transfer_child):
            fits: Any = tables.leave[child, :nodes] == 0.0 if child >= 0 else np.ones(nodes, dtype=np.bool_)
            if rates[q, 7:10].any() and fits.any():
                share, reads = tables.share[q, :nodes][fits], tables.reads[q, :nodes][fits]
                fills, again = np.maximum(share - rates[q, 5], 0.0), np.maximum(reads - rates[q, 6], 0.0)
                total += float((rates[q, 7] * fills + rates[q, 8] * again + rates[q, 9] * reads).max())
        return total

    def mix(self, weights: Any) -> tuple[Any, Any] | None:
        """Make the tables of one more mixture: (goals, loops) of a nest that is least in it, None when no nest is valid.

        Nothing is made beyond what the memory limit admits.
        """
        if len(self.mixes) == len(self.tables_of_mixes):
            return None
        table = self.tables_of_mixes[len(self.mixes)]
        least = scan.price(self.machine, self.plan, self.tables, self.space, weights, self.nodes, EXACT, table)
        if len(self.mixes) < len(self.tracked):
            self.costs.append(self.space.payments[:, : self.nodes].copy())
        self.mixes.append(weights)
        if least == np.inf:
            return None
        nest = walk(self.machine, self.plan, self.tables, self.space.singles, self.space.payments, table)
        goals = np.zeros(labels.GOALS)
        labels.fill_goals(self.scale, nest.sums, nest.sums[ENERGY], nest.cycles, goals)
        self.sums.append(nest.sums)
        return goals, nest.loops

    @property
    def is_empty(self) -> bool:
        """Whether no nest is valid, as soon as a mixture is made."""
        return bool(self.mixes) and self.tables_of_mixes[0, self.plan.root, 0] == np.inf

    def bounds(self) -> Any:
        """Bounds on the goals from all mixtures made so far; all tracked metrics must be among them."""
        kinds, metrics = len(self.tracked), np.zeros(len(self.eye))
        roots = self.tables_of_mixes[: len(self.mixes), self.plan.root, 0].copy()
        metrics[self.tracked] = roots[:kinds]
        goals = np.zeros(labels.GOALS)
        labels.bound_goals(self.scale, np.array(self.mixes), roots, kinds, metrics, goals)
        return goals

    def first_mixes(self) -> list[Any]:
        """The tracked metrics one by one, and the active resources together."""
        together = [self.eye[self.active].sum(axis=0) / len(self.active)] if len(self.active) > 1 else []
        return [self.eye[m] for m in self.tracked] + together

    def later_mixes(self) -> list[Any]:
        """Energy with the resource that binds the least-energy nest, at several prices."""
        if not self.active:
            return []
        needed = {m: self.sums[0][m] + self.scale.constant[m] for m in self.active}
        binding = max(self.active, key=lambda m: needed[m])
        energy = self.scale.energy + self.scale.leakage * self.scale.cycles + self.sums[0][ENERGY]
        price = energy / max(self.scale.cycles, needed[binding])
        return [self.eye[ENERGY] + self.eye[binding] * price * factor for factor in ROUNDS]

    def search(self, best: Any, ties: bool, front: Any, size: int, most_bytes: int) -> tuple[Any, list[Any], int] | None:
        """The label search: (goals, [loops]) or, with ``size`` not negative, (front, loops per row); and labels made.

        Of a front the first ``size`` rows are given; their loops are None. Returns None when ``most_bytes`` of work space do
        not suffice.
        """
        capacity, made_in_all = LABELS, 0
        heads = np.empty((len(self.plan.slot_ops), self.nodes), dtype=np.int32)
        by_slot = np.empty(len(self.plan.slot_ops), dtype=np.int32)
        scratch = np.zeros((5, max(labels.GOALS, len(self.eye), len(self.mixes))))
        mixes, slots, costs = np.array(self.mixes), self.tables_of_mixes[: len(self.mixes)], np.array(self.costs)
        plan, tables, rows = self.plan, self.tables, front[: max(size, 0)]
        leave = price_of_leaving(tables, 1.0)
        while capacity * (8 * len(self.tracked) + 20) <= most_bytes:
            pool, links = np.empty((capacity, len(self.tracked))), np.empty((capacity, 5), dtype=np.int32)
            made = labels.extend_labels(
                plan.ops, plan.slot_ops, plan.op_pays, plan.op_slides, plan.spans, plan.root,
                tables.count, tables.stride, tables.value, leave, tables.share, tables.reads, tables.staying,
                *self.scale, self.machine.buffer_metric, self.tracked, self.space.singles[self.tracked], costs, mixes, slots,
                heads, pool, links, by_slot, scratch, best, ties, rows, size >= 0,
            )  # fmt: skip
            made_in_all += capacity if made < 0 else made
            if made >= 0:
                found = ((pool[label], labels.path_to(links, label)) for label in labels.ends(links, by_slot))
                chosen = self._best(found, best, ties) if size < 0 else self._front(found, rows)
                return *chosen, made_in_all
            capacity *= 4
        return None

    def _goals(self, paid: Any, moves: Moves | None) -> Any:
        """Goals of a nest that pays ``paid`` in the tracked metrics; lower bounds on them without its ``moves``."""
        sums, goals = np.zeros(len(self.eye)), np.zeros(labels.GOALS)
        sums[self.tracked] = paid
        if moves is None:
            labels.rate(self.scale, sums, paid[0], goals)
        else:
            cycles = moves.cycles() if self.task.resources else self.scale.cycles
            labels.fill_goals(self.scale, sums, paid[0], cycles, goals)
        return goals

    def _best(self, found: Iterable[tuple[Any, Any]], best: Any, ties: bool) -> tuple[Any, list[Any]]:
        """(goals, [loops]) of the first of the nests that come before ``best`` and all others; with ``ties`` also if equal."""
        loops: list[Any] = []
        for paid, path in found:
            if tuple(self._goals(paid, None)) <= tuple(best):
                moves = Moves(self.machine, self.plan, self.tables, path)
                goals = self._goals(paid, moves)
                if tuple(goals) < tuple(best) or (ties and not loops and tuple(goals) == tuple(best)):
                    best, loops = goals, [moves.nest]
        return best, loops

    def _front(self, found: Iterable[tuple[Any, Any]], front: Any) -> tuple[Any, list[Any]]:
        """(front, loops per row) with the nests added that no other one matches or beats; loops of given rows are None."""
        loops: list[Any] = [None] * len(front)
        for paid, path in found:
            if (front <= self._goals(paid, None)).all(axis=1).any():
                continue
            moves = Moves(self.machine, self.plan, self.tables, path)
            goals = self._goals(paid, moves)
            if not (front <= goals).all(axis=1).any():
                kept = (front < goals).any(axis=1)
                front = np.concatenate([front[kept], goals[None]])
                loops = [own for own, keep in zip(loops, kept) if keep] + [moves.nest]
        return front, loops
