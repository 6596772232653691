"""The exact search: the true optimum of a mapspace of one Einsum."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
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

Surveyed = tuple[kernels.Plan, Any, Any, Any, bool]
"""A plan; for every vector of spatial factors its constants, bounds on the goals and floors; whether the constants are exact."""

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
        """Whether it comes before a mapping with these goals and number; of equal ones the first."""
        mine, other = tuple(self.goals), tuple(goals)
        return mine < other or (mine == other and self.index < index)

    def could_yield_to(self, bounds: Any, index: int) -> bool:
        """Whether a mapping with goals no lower than ``bounds`` might come before it."""
        return not self.precedes(bounds, index)


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
    """Every combination of keep sets that keeps each tensor somewhere, and something where a least utilization is asked."""
    names = [tensor.name for tensor in space.einsum.tensors]
    options = []
    for level, own in space.named():
        filled = level.capacity is not None and level.capacity * max(level.min_utilization, own.min_utilization) > 0
        options.append([keep for keep in own.tensors.sets() if keep or not filled])
    for chosen in product(*options):
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
        self.eye = np.eye(len(self.machine.weights))
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
        sets = list(keep_sets(self.space)) if self.choices else []
        plans: dict[int, Surveyed] = {}
        blocks = [(k, at) for k in range(len(sets)) for at in range(0, len(self.choices), BLOCK)]
        for k, keeps in enumerate(sets):
            plan = build_plan(build_program(self.space, keeps), len(self.space.levels))
            plans[k] = (plan, *self._survey(plan))
            exact = exact and plans[k][4]
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

    def _survey(self, plan: kernels.Plan) -> tuple[Any, Any, bool]:
        """Constants and floors of every vector of spatial factors."""
        tables = build_tables(self.space, self.machine, plan, 1)
        constants = np.zeros((len(self.choices), len(self.machine.weights)))
        floors, bounds = np.zeros_like(constants), np.zeros((len(self.choices), labels.GOALS))
        exact = scan.survey(self.machine, plan, tables, self.task, self.bounds, constants, floors, bounds)
        return constants, bounds, floors, exact

    def _bound(
        self, plan: kernels.Plan, tables: kernels.Tables, space: scan.Space, choice: Any, constants: Any, floors: Any, bounds: Any,
        found: Incumbent, index: int,
    ) -> tuple[int, Any, Any]:  # fmt: skip
        """Raise the bounds of one choice by its least cost in the primary metric: (status, goals and loops of the nest found)."""
        machine, task = self.machine, self.task
        nodes = scan.lay(machine, plan, tables, choice, constants)
        mix = self.eye[task.primary]
        scale = scan.scale_of(task, tables)
        sums = floors.copy()
        for relaxed in (True, False) if len(plan.slides) else (False,):
            least = scan.price(machine, plan, tables, space, mix, nodes, relaxed, space.slots)
            if least == np.inf:
                bounds[:] = np.inf
                return scan.EMPTY, None, None
            sums[task.primary] = max(sums[task.primary], least)
            labels.rate(scale, sums, sums[kernels.ENERGY], bounds)
            if not found.could_yield_to(bounds, index):
                return scan.DROPPED, None, None
        goals, loops = self._walk(plan, tables, space)
        return scan.OPEN if tuple(bounds) < tuple(goals) else scan.CLOSED, goals, loops

    def _scan_all(self, plans: dict[int, Surveyed], blocks: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], Any]]:
        """Scan all blocks on the threads, in order; the incumbent at the time of submission goes with each."""
        spare: dict[int, list[Any]] = {}

        def work(k: int, at: int, best: Any, index: int) -> Any:
            choices = self.bounds[at : at + BLOCK]
            plan, constants, bounds, floors, _ = plans[k]
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
            bounds = bounds[at : at + BLOCK].copy()
            first = k * len(self.choices) + at
            found = Incumbent(best, index)
            for c, choice in enumerate(choices):
                if not found.could_yield_to(bounds[c], first + c):
                    continue
                status[c], goals, loops = self._bound(
                    plan, *tables, choice, constants[at + c], floors[at + c], bounds[c], found, first + c
                )
                if goals is not None and not found.precedes(goals, first + c):
                    found = Incumbent(goals, first + c, choice=self.choices[at + c], loops=loops)
            stock.append((nodes, *tables))
            return status, bounds, found

        with ThreadPoolExecutor(self.threads) as pool:
            pending: dict[Future[Any], tuple[int, int]] = {}
            queue = iter(blocks)
            try:
                while True:
                    while len(pending) < self.threads:
                        block = self._next(queue, plans)
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

    def _next(self, queue: Iterator[tuple[int, int]], plans: dict[int, Surveyed]) -> tuple[int, int] | None:
        """The next block in which any floor may precede the incumbent."""
        mine = tuple(self.incumbent.goals)
        for k, at in queue:
            if any(tuple(floor) <= mine for floor in plans[k][2][at : at + BLOCK]):
                return k, at
        return None

    def _walk(self, plan: kernels.Plan, tables: kernels.Tables, space: scan.Space) -> tuple[Any, Any]:
        """(goals, loops) of a cheapest nest in the mixture that the slots hold."""
        metrics = len(self.machine.weights)
        for m in range(metrics):
            kernels.mix_metrics(self.machine, plan, tables, self.eye[m], space.singles[m])
        sums, loops, goals = np.zeros(metrics), np.zeros((LOOPS, 3), dtype=np.int64), np.zeros(labels.GOALS)
        length = kernels.walk(
            self.machine, plan, tables, space.rates, space.singles, space.payments, space.slots, sums, loops
        )  # fmt: skip
        labels.rate(scan.scale_of(self.task, tables), sums, sums[kernels.ENERGY], goals)
        return goals, loops[:length].copy()

    def _take(self, sets: list[KeepSets], k: int, at: int, result: Any) -> None:
        status, bounds, found = result
        for c in range(len(status)):
            if status[c] == scan.OPEN:
                self.open.append((tuple(bounds[c]), k * len(self.choices) + at + c, k, at + c))
        if found.choice is not None and not self.incumbent.precedes(found.goals, found.index):
            found.keeps = sets[k]
            self.incumbent = found

    def _resolve_all(self, sets: list[KeepSets], plans: dict[int, Surveyed]) -> str:
        """Label search for the vectors whose optimum the scan left open, in order of their bounds."""
        self.open.sort(reverse=True)
        while self.open:
            bound, index, k, c = self.open[-1]
            if self.incumbent.precedes(np.array(bound), index):
                self.open.clear()
                break
            if self.deadline is not None and time.perf_counter() > self.deadline:
                return "time limit"
            found = self.resolve(plans[k][0], plans[k][1][c], self.bounds[c], index)
            self.open.pop()
            if found is not None:
                goals, loops = found
                self.incumbent = Incumbent(goals, index, sets[k], self.choices[c], loops)
            if self.progress is not None:
                self.progress(0.95, float(self.incumbent.goals[0]), float(bound[0]))
        return ""

    def resolve(self, plan: kernels.Plan, constants: Any, choice: Any, index: int) -> tuple[Any, Any] | None:
        """The optimum for one vector of spatial factors if it precedes the incumbent: (goals, loops).

        Costs-to-go in mixtures of metrics bound the goals and give candidates; the label search settles what they leave.
        """
        tables, space = self.workspace(plan, choice[None])
        machine, task = self.machine, self.task
        nodes = scan.lay(machine, plan, tables, choice, constants)
        metrics = len(machine.weights)
        eye = self.eye
        for m in range(metrics):
            kernels.mix_metrics(machine, plan, tables, eye[m], space.singles[m])
        scale = scan.scale_of(task, tables)
        active = [m for m in range(1, task.resources + 1) if self._most(plan, tables, space.singles[m], nodes, m) > scale.cycles]
        tracked = np.array([kernels.ENERGY, *active, *self.metrics_counted], dtype=np.int64)
        best, holder = self.incumbent.goals.copy(), self.incumbent.index
        answer: tuple[Any, Any] | None = None
        mixes, slots, costs, roots, points = [], [], [], [], []
        queue = [eye[m] for m in tracked]
        if len(active) > 1:
            queue.append(eye[active].sum(axis=0) / len(active))
        rounds = 0
        while True:
            if not queue:
                mix = self._next_mix(points, active, scale, rounds)
                if mix is None:
                    break
                queue.append(mix)
                rounds += 1
            mix = queue.pop(0)
            table = np.empty_like(space.slots)
            scan.price(machine, plan, tables, space, mix, nodes, False, table)
            if len(mixes) < len(tracked):
                costs.append(space.payments[:, :nodes].copy())
            mixes.append(mix)
            slots.append(table)
            roots.append(table[plan.root, 0])
            sums, loops, goals = np.zeros(metrics), np.zeros((LOOPS, 3), dtype=np.int64), np.zeros(labels.GOALS)
            length = kernels.walk(machine, plan, tables, space.rates, space.singles, space.payments, table, sums, loops)
            labels.rate(scale, sums, sums[kernels.ENERGY], goals)
            points.append((sums[kernels.ENERGY], max((sums[m] + scale.constant[m] for m in active), default=0.0), sums.copy()))
            if scan.precedes(goals, index, best, holder):
                best[:], holder = goals, index
                answer = goals.copy(), loops[:length].copy()
            if len(mixes) >= len(tracked):
                bounds, lower = np.zeros(metrics), np.zeros(labels.GOALS)
                bounds[tracked] = roots[: len(tracked)]
                labels.bound_goals(scale, np.array(mixes), np.array(roots), len(tracked), bounds, lower)
                if not scan.precedes(lower, index, best, holder) or tuple(lower) == tuple(best):
                    return answer
        return self._label(
            plan, tables, space, scale, tracked, np.array(costs), np.array(mixes), np.array(slots), nodes, best, index, answer
        )

    def _label(
        self, plan: kernels.Plan, tables: kernels.Tables, space: scan.Space, scale: Any, tracked: Any, costs: Any, mixes: Any,
        slots: Any, nodes: int, best: Any, index: int, answer: tuple[Any, Any] | None,
    ) -> tuple[Any, Any] | None:  # fmt: skip
        size = LABELS
        ties = answer is None and index < self.incumbent.index
        loops = np.zeros((LOOPS, 3), dtype=np.int64)
        while True:
            pool, links = np.empty((size, len(tracked))), np.empty((size, 5), dtype=np.int32)
            heads = np.empty((len(plan.slot_ops), nodes), dtype=np.int32)
            limit = best.copy()
            found, made, sufficed = labels.search_labels(
                self.machine, plan, tables, scale, tracked, space.singles, costs, mixes, slots, nodes, heads, pool, links,
                limit, ties, loops,
            )  # fmt: skip
            self.labels_made += made
            if sufficed:
                break
            size *= 4
        return (limit, loops[:found].copy()) if found >= 0 else answer

    def _next_mix(self, points: list[Any], active: list[int], scale: Any, rounds: int) -> Any:
        """Energy and a resource, weighed so that the last two nests on either side cost the same; None when there is no more."""
        if not active or rounds >= 6:
            return None
        metrics = len(self.machine.weights)
        energies = scale.energy + scale.leakage * scale.cycles + np.array([point[0] for point in points])
        cycles = np.maximum(scale.cycles, [point[1] for point in points])
        binding = max(active, key=lambda m: points[0][2][m] + scale.constant[m])
        weight = energies[0] / cycles[0] * (1.0, 0.3, 3.0, 0.1, 10.0, 0.03)[rounds]
        mix = np.zeros(metrics)
        mix[binding] = weight
        mix[kernels.ENERGY] = 1.0
        return mix

    def _most(self, plan: kernels.Plan, tables: kernels.Tables, rates: Any, nodes: int, metric: int) -> float:
        """An upper bound on a resource's cycles over all nests."""
        total = float(tables.constant[metric])
        for q, child in enumerate(plan.transfer_child):
            fits = tables.fits[child, :nodes] if child >= 0 else np.ones(nodes, dtype=np.bool_)
            if rates[q, 7:10].any() and fits.any():
                share, reads = tables.share[q, :nodes][fits], tables.reads[q, :nodes][fits]
                fills, again = np.maximum(share - rates[q, 5], 0.0), np.maximum(reads - rates[q, 6], 0.0)
                total += float((rates[q, 7] * fills + rates[q, 8] * again + rates[q, 9] * reads).max())
        return total


def build_mapping(space: Mapspace, incumbent: Incumbent) -> Mapping:
    """The mapping of an incumbent: loops of one rank at one level are merged at the innermost of them.

    Where all tensors were paid before a level the search took its ranks in no particular order; they are put into the
    order that the permutation asks for, which costs nothing.
    """
    assert incumbent.choice is not None
    ranks = space.einsum.ranks
    levels = []
    for i, level in enumerate(space.levels):
        bounds: dict[int, int] = {}
        for at, rank, bound in incumbent.loops:
            if at == i:
                bounds[int(rank)] = bounds.get(int(rank), 1) * int(bound)
        x, y = lay_out(level.spatial, incumbent.choice.bounds[i])
        temporal = level.temporal
        listed = (*temporal.inner, *temporal.outer)
        zone = {rank: (2, listed.index(rank)) if rank in temporal.outer else (0, listed.index(rank)) for rank in listed}
        loops = sorted((Loop(ranks[r], bound) for r, bound in bounds.items()), key=lambda loop: zone.get(loop.rank, (1, 0)))
        levels.append(LevelMapping(tuple(loops), x, y, incumbent.keeps[i]))
    return Mapping(tuple(levels))
