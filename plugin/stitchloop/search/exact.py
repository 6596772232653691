"""The exact search: the true optimum of a mapspace of one Einsum."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.mapspace.space import Mapspace
from stitchloop.search import kernels, labels, scan
from stitchloop.search.machine import build_machine, build_plan, build_tables, slide_values
from stitchloop.search.objectives import completed, counted_level
from stitchloop.search.program import build_program
from stitchloop.search.spatial import SpatialChoice, lay_out, spatial_choices

BLOCK = 32
"""Vectors of spatial factors that a thread treats before it hears of better incumbents."""

LOOPS = 256
"""Most loops of a nest; a nest has at most ranks x levels."""

LABELS = 200_000
"""First size of the label search's work space; it is enlarged when it does not suffice."""

KeepSets = tuple[frozenset[str], ...]


@dataclass
class Incumbent:
    """The best mapping so far: figures, number (equal figures are decided by it), and how to build it."""

    goals: Any
    index: int = 1 << 62
    keeps: KeepSets = ()
    choice: SpatialChoice | None = None
    loops: Any = None

    @property
    def exists(self) -> bool:
        return self.choice is not None

    def precedes(self, goals: Any, index: int) -> bool:
        mine, other = tuple(self.goals), tuple(goals)
        return mine < other or (mine == other and self.index < index)


@dataclass
class Outcome:
    """What the search of a mapspace found, and what it proved."""

    incumbent: Incumbent
    names: tuple[str, ...]
    bound: tuple[float, ...]
    """Proved lower bound of the goals over the whole mapspace."""
    finished: bool
    treated: int
    labels: int = 0
    seconds: float = 0.0
    stopped_by: str = ""
    exact_words: bool = True
    """Whether the count of the search is exact, not a lower bound of it (see :func:`stitchloop.search.kernels.count_constants`)."""


def keep_sets(space: Mapspace) -> Iterator[KeepSets]:
    """Every combination of keep sets that keeps each tensor somewhere."""
    names = [tensor.name for tensor in space.einsum.tensors]
    for chosen in product(*(list(level.tensors.sets()) for level in space.levels)):
        if all(any(name in keep for keep in chosen) for name in names):
            yield chosen


class Search:
    """One mapspace, one list of objectives; :meth:`run` searches it.

    Parameters
    ----------
    space : Mapspace
        With perfect factors.
    objectives : sequence of str
        Lexicographic; completed by the tie-breaks of :mod:`stitchloop.search.objectives`.
    threads : int, optional
        The answer does not depend on it.
    deadline : float, optional
        ``time.perf_counter()`` at which to stop with what there is.
    progress : callable, optional
        Called with (share done, best, lower bound) of the first objective.
    """

    def __init__(
        self,
        space: Mapspace,
        objectives: Sequence[str],
        threads: int | None = None,
        deadline: float | None = None,
        memory_limit_mb: float | None = None,
        progress: Callable[[float, float, float], None] | None = None,
    ) -> None:
        self.space, self.names = space, completed(objectives)
        self.threads = max(1, threads or os.cpu_count() or 1)
        self.deadline, self.memory_limit_mb, self.progress = deadline, memory_limit_mb, progress
        architecture = space.architecture
        levels = [counted_level(name, architecture) for name in self.names]
        counted = sorted({level for level in levels if level is not None})
        self.machine, self.resources = build_machine(space, counted)
        first_counted = 1 + len(self.resources)
        goals = []
        for name, level in zip(self.names, levels):
            if name == "energy":
                goals.append(labels.GOAL_ENERGY)
            elif name == "delay":
                goals.append(labels.GOAL_CYCLES)
            elif name == "edp":
                goals.append(labels.GOAL_EDP)
            elif level is not None:
                goals.append(labels.GOAL_METRIC + first_counted + counted.index(level))
        self.metrics_counted = range(first_counted, first_counted + len(counted))
        self.goals = np.zeros(labels.GOALS, dtype=np.int64)
        self.goals[: len(goals)] = goals
        primary = kernels.ENERGY if goals[0] < labels.GOAL_METRIC else goals[0] - labels.GOAL_METRIC
        compute = space.einsum.computes * architecture.compute.energy.compute
        leak = np.array([0.0 if level.is_fanout else level.energy.leak for level in architecture.levels])
        self.task = scan.Task(self.goals, len(self.resources), primary, compute, leak)
        self.choices = sorted(spatial_choices(space), key=lambda choice: -choice.used)
        self.bounds = np.array([choice.bounds for choice in self.choices], dtype=np.int64)
        self.incumbent = Incumbent(np.full(labels.GOALS, np.inf))
        self.open: list[tuple[tuple[float, ...], int, int, int]] = []
        self.labels_made = 0

    # -- work space ---------------------------------------------------------------------------------------------------

    def workspace(self, plan: kernels.Plan, choices: Any) -> tuple[kernels.Tables, scan.Space]:
        """Tables large enough for all of ``choices``."""
        nodes = self.nodes(choices)
        tables = build_tables(self.space, self.machine, plan, nodes)
        transfers, payments = len(plan.transfer_tensor), len(plan.pay_first)
        metrics = len(self.machine.weights)
        space = scan.Space(
            np.zeros((transfers, 10)),
            np.zeros((metrics, transfers, 10)),
            np.zeros((payments, nodes)),
            np.zeros(slide_values(self.machine, plan, nodes)),
            np.zeros((len(plan.slot_ops), nodes)),
        )
        return tables, space

    def nodes(self, choices: Any) -> int:
        """Most nodes of the lattices of ``choices``."""
        rests = self.machine.size // choices.prod(axis=1)
        most = 0
        for rest in np.unique(rests, axis=0):
            nodes = 1
            for r, left in enumerate(rest):
                own = self.machine.divisors[r, : self.machine.divisor_count[r]]
                nodes *= int(np.count_nonzero(left % own == 0))
            most = max(most, nodes)
        return most

    # -- search -------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Search the mapspace."""
        start = time.perf_counter()
        treated, stopped, exact = 0, "", True
        sets = list(keep_sets(self.space))
        plans: dict[int, kernels.Plan] = {}
        blocks = [(k, at) for k in range(len(sets)) for at in range(0, len(self.choices), BLOCK)] if self.choices else []
        for k, keeps in enumerate(sets):
            plans[k] = build_plan(build_program(self.space, keeps), len(self.space.levels))
        left: set[tuple[int, int]] = set(blocks)
        try:
            for (k, at), result in self._scan_all(plans, blocks):
                self._take(sets, k, at, result)
                left.discard((k, at))
                treated += len(result[0])
                if self.progress is not None:
                    self.progress(0.9 * treated / (len(self.choices) * len(sets)), float(self.incumbent.goals[0]), 0.0)
                if self.deadline is not None and time.perf_counter() > self.deadline:
                    stopped = "time limit"
                    break
            if not stopped:
                stopped = self._resolve_all(sets, plans)
        except KeyboardInterrupt:
            stopped = "interrupted"
        remaining = [bound for bound, *_ in self.open if bound < tuple(self.incumbent.goals)]
        bound = min([tuple(self.incumbent.goals), *remaining])
        if left:
            bound = (0.0,) * labels.GOALS
        return Outcome(
            self.incumbent, self.names, bound, not stopped, treated, self.labels_made, time.perf_counter() - start, stopped, exact
        )

    def _scan_all(self, plans: dict[int, kernels.Plan], blocks: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], Any]]:
        """Scan all blocks on the threads, in order; the incumbent at the time of submission goes with each."""
        spare: dict[int, list[Any]] = {}

        def work(k: int, at: int, best: Any, index: int) -> Any:
            choices = self.bounds[at : at + BLOCK]
            plan = plans[k]
            nodes = self.nodes(choices)
            stock = spare.setdefault(k, [])
            tables = None
            for i, (capacity, *own) in enumerate(stock):
                if capacity >= nodes:
                    stock.pop(i)
                    tables = own
                    nodes = capacity
                    break
            if tables is None:
                stock.clear()
                tables = list(self.workspace(plan, choices))
            status = np.zeros(len(choices), dtype=np.int64)
            bounds = np.zeros((len(choices), labels.GOALS))
            loops = np.zeros((LOOPS, 3), dtype=np.int64)
            first = k * len(self.choices) + at
            count, best_index, chosen = scan.scan(
                self.machine, plan, *tables, self.task, choices, first, best, index, status, bounds, loops
            )
            stock.append((nodes, *tables))
            return status, bounds, best, best_index, chosen, loops[:count]

        with ThreadPoolExecutor(self.threads) as pool:
            pending: dict[Future[Any], tuple[int, int]] = {}
            queue = iter(blocks)
            try:
                while True:
                    while len(pending) < self.threads:
                        block = next(queue, None)
                        if block is None:
                            break
                        pending[pool.submit(work, *block, self.incumbent.goals.copy(), self.incumbent.index)] = block
                    if not pending:
                        return
                    done, _ = wait(pending, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield pending.pop(future), future.result()
            finally:
                for future in pending:
                    future.cancel()

    def _take(self, sets: list[KeepSets], k: int, at: int, result: Any) -> None:
        status, bounds, goals, index, chosen, loops = result
        for c in range(len(status)):
            if status[c] == scan.OPEN:
                self.open.append((tuple(bounds[c]), k * len(self.choices) + at + c, k, at + c))
        if chosen >= 0 and not self.incumbent.precedes(goals, index):
            self.incumbent = Incumbent(goals, index, sets[k], self.choices[at + chosen], loops)

    def _resolve_all(self, sets: list[KeepSets], plans: dict[int, kernels.Plan]) -> str:
        """Label search for the vectors whose optimum the scan left open, in order of their bounds."""
        while self.open:
            self.open.sort(reverse=True)
            bound, index, k, c = self.open[-1]
            if self.incumbent.precedes(np.array(bound), index):
                self.open.clear()
                break
            if self.deadline is not None and time.perf_counter() > self.deadline:
                return "time limit"
            found = self.resolve(plans[k], self.bounds[c], index)
            self.open.pop()
            if found is not None:
                goals, loops = found
                self.incumbent = Incumbent(goals, index, sets[k], self.choices[c], loops)
            if self.progress is not None:
                self.progress(0.95, float(self.incumbent.goals[0]), float(bound[0]))
        return ""

    def resolve(self, plan: kernels.Plan, choice: Any, index: int) -> tuple[Any, Any] | None:
        """The optimum for one vector of spatial factors if it precedes the incumbent: (goals, loops)."""
        tables, space = self.workspace(plan, choice[None])
        machine, task = self.machine, self.task
        kernels.count_constants(machine, plan, choice, tables)
        nodes = kernels.lay_lattice(machine, choice, tables)
        kernels.count_words(machine, plan, choice, tables, nodes)
        metrics = len(machine.weights)
        for m in range(metrics):
            mix = np.zeros(metrics)
            mix[m] = 1.0
            kernels.mix_metrics(machine, plan, tables, mix, space.singles[m])
        scale = scan.scale_of(task, tables)
        active = [m for m in range(1, task.resources + 1) if self._most(plan, tables, space.singles[m], nodes, m) > scale.cycles]
        tracked = np.array([kernels.ENERGY, *active, *self.metrics_counted], dtype=np.int64)
        best = self.incumbent.goals.copy()
        beaten = best.copy()
        mixes = self._mixes(tracked, active, scale)
        payments, slots = space.payments, np.zeros((len(mixes), *space.slots.shape))
        costs = np.zeros((len(tracked), len(plan.pay_first), nodes))
        sums, loops = np.zeros(metrics), np.zeros((LOOPS, 3), dtype=np.int64)
        answer: tuple[Any, Any] | None = None
        goals = np.zeros(labels.GOALS)
        for x, mix in enumerate(mixes):
            kernels.mix_metrics(machine, plan, tables, mix, space.rates)
            kernels.value_payments(plan, tables, space.rates, nodes, payments)
            kernels.value_slides(machine, plan, tables, space.rates, nodes, space.slides)
            kernels.run_program(plan, machine, tables, 0.0, nodes, payments, space.slides, slots[x])
            if x < len(tracked):
                costs[x] = payments[:, :nodes]
            length = kernels.walk(machine, plan, tables, space.rates, space.singles, payments, slots[x], sums, loops)
            if length >= 0:
                labels.rate(scale, sums, sums[kernels.ENERGY], goals)
                if scan.precedes(goals, index, best, self.incumbent.index if answer is None else index):
                    best[:] = goals
                    answer = goals.copy(), loops[:length].copy()
        beaten[:] = best
        size = LABELS
        while True:
            pool, links = np.zeros((size, len(tracked))), np.zeros((size, 5), dtype=np.int32)
            heads = np.zeros((len(plan.slot_ops), nodes), dtype=np.int32)
            best[:] = beaten
            ties = answer is None and index < self.incumbent.index
            found, made, sufficed = labels.search_labels(
                machine,
                plan,
                tables,
                scale,
                tracked,
                space.singles,
                costs,
                mixes,
                slots,
                nodes,
                heads,
                pool,
                links,
                best,
                ties,
                loops,
            )
            self.labels_made += made
            if sufficed:
                break
            size *= 4
        if found >= 0:
            answer = best.copy(), loops[:found].copy()
        return answer

    def _most(self, plan: kernels.Plan, tables: kernels.Tables, rates: Any, nodes: int, metric: int) -> float:
        """An upper bound on a resource's cycles over all nests."""
        total = float(tables.constant[metric])
        for q, child in enumerate(plan.transfer_child):
            fits = tables.fits[child, :nodes]
            if rates[q, 7:10].any() and fits.any():
                share, reads = tables.share[q, :nodes][fits], tables.reads[q, :nodes][fits]
                fills, again = np.maximum(share - rates[q, 5], 0.0), np.maximum(reads - rates[q, 6], 0.0)
                total += float((rates[q, 7] * fills + rates[q, 8] * again + rates[q, 9] * reads).max())
        return total

    def _mixes(self, tracked: Any, active: list[int], scale: Any) -> Any:
        """The tracked metrics one by one, the active resources together, and energy with each and with all of them."""
        metrics = len(self.machine.weights)
        mixes = [np.eye(metrics)[m] for m in tracked]
        if active:
            together = np.zeros(metrics)
            together[active] = 1.0 / len(active)
            if len(active) > 1:
                mixes.append(together)
            energy = max(scale.energy * 1.2, 1.0)
            price = energy / max(scale.cycles, 1.0)
            for weight in (price * 0.5, price, price * 2.0):
                for resources in [np.eye(metrics)[m] for m in active] + ([together] if len(active) > 1 else []):
                    mix = weight * resources
                    mix[kernels.ENERGY] = 1.0
                    mixes.append(mix)
        return np.array(mixes)


def build_mapping(space: Mapspace, incumbent: Incumbent) -> Mapping:
    """The mapping of an incumbent: loops of one rank at one level are merged at the innermost of them."""
    assert incumbent.choice is not None
    ranks = space.einsum.ranks
    levels = []
    for i, level in enumerate(space.levels):
        bounds: dict[int, int] = {}
        for at, rank, bound in incumbent.loops:
            if at == i:
                bounds[int(rank)] = bounds.get(int(rank), 1) * int(bound)
        x, y = lay_out(level.spatial, incumbent.choice.bounds[i])
        levels.append(LevelMapping(tuple(Loop(ranks[r], bound) for r, bound in bounds.items()), x, y, incumbent.keeps[i]))
    return Mapping(tuple(levels))
