"""The exact search: the true optimum of a mapspace of one Einsum.

What is searched, and why nothing is lost
-----------------------------------------
Keep sets and spatial bounds are enumerated; everything below holds them fixed. Choices of spatial bounds whose counts are
equal for every nest are taken once (:mod:`stitchloop.search.spatial`), and so are choices that a swap of ranks maps to each
other (:mod:`stitchloop.search.symmetry`). Walk the temporal loops of a nest from the innermost
to the outermost. A *node* is the product of the loops walked so far, rank by rank.

1. *Costs sit on nodes.* A transfer feeds a child level k of tensor T from the next level that keeps T. Above k there first
   comes a run of loops that do not index T, over any number of levels; it ends at a node P. The tile has not moved, so the
   child gets ``tile(P) * (iterations outside P)`` words: both factors depend on P alone. Fills, reads, updates, their
   rounding to vectors and the words elided are functions of these words and of the spatial bounds. If the first loop after
   P slides the tile along a sum of ranks, the words also depend on that loop's rank and bound; then the cost sits on the
   edge. A transfer of the compute units is settled by the spatial bounds, or by the node below one fan-out
   (``Transfers.late``).
2. *Slots.* What matters of the walk so far is the node, the place in the permutations, and which transfers still run: for
   each tensor the last few begun ("unpaid"). A tensor may be paid at any node before a loop indexes it, and has to be paid
   there. So (place, unpaid, node) is a state, payments and loops are edges, and the cost of a nest is the sum along a path.
3. *Every nest is a path of its own cost:* pay each tensor where its run ends. *Every path is a nest of at most its cost:*
   merge the loops of one rank at one level into the innermost of them. A merged loop lies in runs of tensors that it does
   not index (their runs end at larger nodes, so they cost no more), comes after the payments of all that it indexes, and
   slides at least as often as the first of its parts. Paying before a run ends costs no less than at its end, since
   iterations outside shrink along it while the tile stays. Hence the least path costs what the least nest costs.
4. *Constraints* remove edges or nodes: a capacity or a least utilization masks the nodes at which a level may end; bounds on
   factors limit the edges of a rank at a level, taken once per level (the slot remembers which restricted ranks are still
   to come); permutations order the edges.
5. *Least costs* to the end of the nest, in any fixed non-negative mixture of metrics, fill the slots outermost first. A free
   rank's edges to all multiples are a running minimum over its prime factors.
6. *Goals* (energy, cycles, their product, accesses) do not decrease in any metric. A choice of spatial bounds is dropped
   when the goals of lower bounds on its metrics do not precede the incumbent: floors that need no lattice of its own
   (:mod:`stitchloop.search.floors`, :mod:`stitchloop.search.outermost`), by which choices are ordered, then the least cost
   with slides made as cheap as they could ever be, then the exact least cost. If the nest of least cost meets its own
   bound, it is the choice's optimum. Else mixtures bound it and the label search decides (:mod:`stitchloop.search.labels`).
   Where accesses come first, many choices are equal in them. They are whole words; so a mixture in which energy weighs
   little bounds the energy of nests with the least accesses, and what it leaves of a choice decides the tie.
7. *Nested fan-outs.* If fan-outs at several levels spread a sum of ranks over one tensor, the outermost alone is exact on an
   edge. For the others the choice's constants hold bounds, until it is settled: then for every number of different tiles
   apart, at the nodes that have it.
8. *Order.* Choices have fixed numbers; equal goals are decided by them, and a choice is dropped for an equal incumbent only
   if that has the lower number. What other threads have found changes what is dropped, never what is returned.

Energies are compared to 38 bits, eleven digits. Cycles of complete nests are rounded in the tool's order of operations.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any

import numpy as np

from stitchloop.errors import InvalidMapping
from stitchloop.mapspace.factors import divisors
from stitchloop.mapspace.space import Mapspace
from stitchloop.model import Counting, Evaluator
from stitchloop.search import labels, scan
from stitchloop.search.arrays import ENERGY, Plan, Tables
from stitchloop.search.constants import bounded_spreads, spread_nodes
from stitchloop.search.found import INTERRUPTED, TIME_LIMIT
from stitchloop.search.machine import build_machine
from stitchloop.search.nest import FIRST, Incumbent, build_mapping, keep_sets
from stitchloop.search.objectives import completed, counted_level, value_of
from stitchloop.search.prices import rate_metrics
from stitchloop.search.settle import Settler, workspace
from stitchloop.search.slides import EXACT, NEAREST
from stitchloop.search.spatial import SpatialChoice, spatial_table
from stitchloop.search.surveys import Surveyed, Surveyor, may_precede
from stitchloop.search.walk import walk
from stitchloop.search.wraps import loosen
from stitchloop.stats import Stats

BLOCK = 32
"""Most vectors of spatial factors that a thread treats before it hears of better incumbents."""

WORK = 4_000_000
"""Operations times nodes that a block of several vectors stands for at most."""

ALONE = 100_000
"""Operations times nodes of a lattice up to which one thread is quicker than several, which wait for the interpreter."""

SHORT = 1_000_000_000
"""Operations times nodes of all lattices of a search that takes about a second, at most."""

LIGHT = 0.1
"""What the energy of the computes weighs in words, where energy breaks ties of accesses."""

ROUNDING = 2e-14
"""Relative error of a price, at most: some sixty terms of one sign, each of a few operations."""

THREADS = "stitchloop-search"
"""What the names of the search's threads begin with."""

TASTE = 2
"""Vectors that are tried for every combination of keep sets before all others, those with the lowest bounds."""

MEMORY = "memory limit"
"""Why a search did not settle everything."""

BOUNDED = "an output has sums of ranks, or a rank twice: which of its first reads are elided is bounded, not exact"

WITHOUT_SHORT_WRAPS = Counting("search", links=False, short_wrap_slides=False, short_wrap_rests=False)
"""For choices whose constants are bounds: what a nest found there costs at most."""

Progress = Callable[[float, float, float], None]


@dataclass(frozen=True)
class Outcome:
    """What the search of a mapspace found, and what it proved."""

    incumbent: Incumbent
    bound: float
    """Proved lower bound of the first goal over the whole mapspace."""
    stopped_by: str
    """Empty when the incumbent is proved to be the optimum."""
    treated: int
    """Vectors of spatial factors, over all keep sets, that are settled."""
    labels: int


class Workplace:
    """Work space of one thread for lattices of up to ``nodes`` nodes, by plan."""

    def __init__(self, search: Search, nodes: int) -> None:
        self.search, self.nodes = search, nodes
        self.made: list[tuple[Plan, tuple[Tables, scan.Space]]] = []

    def at(self, plan: Plan) -> tuple[Tables, scan.Space]:
        """The work space for a plan, made the first time."""
        for known, made in self.made:
            if known is plan:
                return made
        search = self.search
        self.made.append((plan, workspace(search.space, search.machine, plan, self.nodes, search.full)))
        return self.made[-1][1]


class Search:
    """One mapspace, one list of objectives.

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
    memory_limit_mb : float, optional
        MiB of work space; 1024 when not given.
    progress : callable, optional
        Called with (share done, best, lower bound) of the first objective.
    every : int32[choices, levels, ranks], optional
        The choices of spatial factors, where they are known.
    full : bool
        Search the least bound under the tool's full count, link transfers and short wraps included, instead of the least
        value under the search's own: see :mod:`stitchloop.search.wraps`.
    """

    def __init__(
        self,
        space: Mapspace,
        objectives: Sequence[str],
        threads: int | None = None,
        deadline: float | None = None,
        memory_limit_mb: float | None = None,
        progress: Progress | None = None,
        complete: bool = True,
        every: Any = None,
        full: bool = False,
    ) -> None:
        self.space, self.names = space, completed(objectives) if complete else tuple(objectives)
        self.threads = max(1, threads or os.cpu_count() or 1)
        self.deadline, self.progress, self.full = deadline, progress, full
        self.most_bytes = int((memory_limit_mb or 1024.0) * 2**20)
        architecture = space.architecture
        levels = [counted_level(name, architecture) for name in self.names]
        counted = sorted({level for level in levels if level is not None})
        self.machine, resources = build_machine(space, counted)
        self.eye = np.eye(len(self.machine.weights))
        self.counted = range(1 + len(resources), 1 + len(resources) + len(counted))
        kinds = {"energy": labels.GOAL_ENERGY, "delay": labels.GOAL_CYCLES, "edp": labels.GOAL_EDP}
        goals = [
            kinds.get(name) or (labels.GOAL_METRIC + self.counted[counted.index(level)] if level is not None else labels.NONE)
            for name, level in zip(self.names, levels)
        ]
        self.goals = np.array((goals + [labels.NONE] * labels.GOALS)[: labels.GOALS], dtype=np.int64)
        primary = ENERGY if goals[0] < labels.GOAL_METRIC else goals[0] - labels.GOAL_METRIC
        self.ties = primary != ENERGY and labels.GOAL_ENERGY in goals[1:2]
        leak = np.array([0.0 if level.is_fanout else level.energy.leak for level in architecture.levels])
        compute = space.einsum.computes * architecture.compute.energy.compute
        self.task = scan.Task(self.goals, len(resources), primary, compute, leak, float(space.einsum.computes))
        self.every = spatial_table(space) if every is None else every
        self.sets = list(keep_sets(space)) if len(self.every) else []
        self.surveyor = Surveyor(space, self.machine, self.task, full)
        row = 8 * (2 * len(self.eye) + labels.GOALS + 1) * max(1, len(self.sets))
        self.portion = max(64, self.most_bytes // 8 // row)
        self.evaluator = Evaluator(space.einsum, architecture, WITHOUT_SHORT_WRAPS)
        self.load(0)
        self.incumbent = Incumbent(np.full(labels.GOALS, np.inf))
        self.open: list[tuple[int, int]] = []
        self.labels_made = 0
        self.stopped = ""

    def under_full_count(self, stats: Stats, asked: int) -> Search:
        """A search of the same mapspace under the tool's full count, from this one's incumbent, of the figures ``stats``.

        Where accesses come first it stops at the ``asked`` goals: nearly all choices are equal in them.
        """
        memory, names = self.most_bytes / 2**20, self.names[:asked] if self.ties else self.names
        other = Search(self.space, names, self.threads, self.deadline, memory, None, False, self.every, full=True)
        other.incumbent = replace(self.incumbent, goals=other.goals_of(stats), index=FIRST)
        other.surveyor.plans, other.surveyor.fitting = self.surveyor.plans, self.surveyor.fitting
        return other

    # -- what spatial factors settle ----------------------------------------------------------------------------------

    def load(self, start: int) -> None:
        """Turn to a portion of the choices: as many as memory admits. Interrupted anywhere, it leaves bounds that hold."""
        self.surveys: list[Surveyed] = []
        self.offset = start
        self.choices = self.every[start : start + self.portion].astype(np.int64)
        self.sizes = self.nodes(self.choices)

    def choice(self, c: int) -> SpatialChoice:
        """The spatial bounds of one loaded choice."""
        return SpatialChoice(tuple(tuple(map(int, level)) for level in self.choices[c]))

    def nodes(self, choices: Any) -> Any:
        """``int64[choices]``: nodes of the lattices of ``choices[*, levels, ranks]``."""
        nodes: Any = 1
        for left in (self.machine.size // choices.prod(axis=1)).T:
            values, at = np.unique(left, return_inverse=True)
            nodes = nodes * np.array([len(divisors(int(value))) for value in values])[at]
        return nodes

    def index(self, k: int, c: int) -> int:
        """Number of a pair of keep sets and spatial factors; equal goals are decided by it."""
        return k * len(self.every) + self.offset + c

    # -- search -------------------------------------------------------------------------------------------------------

    @property
    def is_short(self) -> bool:
        """Whether it takes about a second, at most."""
        if not self.sets or len(self.every) > self.portion:
            return False
        return len(self.surveyor.plan(self.sets[0]).ops) * int(self.sizes.sum()) * len(self.sets) <= SHORT

    def taste(self) -> None:
        """Try a few choices of every combination of keep sets."""
        try:
            self.enter(0)
            for block, found in self._scan_all(self._first()):
                self._take(*block, found)
        except KeyboardInterrupt:
            self.stopped = INTERRUPTED

    def learn(self, full: Search) -> None:
        """Take over the bounds of a search under the full count, which are bounds under this one's, too."""
        for own, other in zip(self.surveys, full.surveys):
            own.bounds[own.waiting] = np.maximum(own.bounds, other.bounds)[own.waiting]

    def enter(self, start: int) -> None:
        """Load a portion of the choices, and survey them."""
        self.load(start)
        self.surveys.extend(
            self.surveyor.survey(self.sets, self.choices, self.incumbent.goals if self.incumbent.exists else None)
        )

    def run(self) -> Outcome:
        """Search the mapspace. An interruption ends it with the best nest so far, if any; the deadline, once there is one."""
        stopped, waiting, least = self.stopped, 0, float("inf")
        total = len(self.every)
        for start in range(0, total, self.portion):
            try:
                if self._rest(start) > self.incumbent.goals[0]:
                    break
                if start or not self.surveys:
                    self.enter(start)
                for block, found in self._scan_all(chain(self._first(), self._others())) if not stopped else ():
                    self._take(*block, found)
                    self._report()
                    if self._late():
                        stopped = TIME_LIMIT
                        break
                stopped = stopped or self._settle_all()
            except KeyboardInterrupt:
                stopped = INTERRUPTED
            if stopped:
                waiting += self._waiting() + len(self.open)
                least = min(least, self._least())
                self.open = []
                if stopped not in (MEMORY, BOUNDED):
                    after = start + len(self.choices) if self.offset == start else start
                    waiting += (total - after) * len(self.sets)
                    least = min(least, self._rest(after))
                    break
        if not stopped and self.incumbent.exists and not self.full:
            try:
                self._polish()
            except KeyboardInterrupt:
                stopped = INTERRUPTED
        bound = min(least, float(self.incumbent.goals[0]))
        return Outcome(self.incumbent, bound, stopped, total * len(self.sets) - waiting, self.labels_made)

    def _rest(self, start: int) -> float:
        """A bound on the first goal over all choices from ``start`` on: the computes alone."""
        least = float("inf")
        for at in range(start, len(self.every), self.portion):
            choices = self.every[at : at + self.portion].astype(np.int64)
            nothing = np.zeros((len(choices), len(self.eye)))
            least = min(least, float(self.surveyor.rate(choices, nothing, nothing)[:, 0].min()))
        return least

    def _first(self) -> Iterator[tuple[int, Any]]:
        """A few choices of every combination of keep sets that may precede the incumbent, in blocks.

        Low bounds come first: good incumbents come early, and drop many.
        """
        for k in self._order():
            self.surveyor.raise_bounds(self.surveys[k], self.incumbent.goals)
            alive = self.surveys[k].alive(self.incumbent)
            for block in self._blocks(k, alive[:TASTE]):
                yield k, block

    def _others(self) -> Iterator[tuple[int, Any]]:
        """All choices that may precede the incumbent, in blocks, low bounds first."""
        for k in self._order():
            alive = self.surveys[k].alive(self.incumbent)
            for block in self._blocks(k, alive):
                if may_precede(self.surveys[k].bounds[block], self.incumbent).any():
                    yield k, block
                else:
                    self.surveys[k].waiting[block] = False

    def _blocks(self, k: int, alive: Any) -> Iterator[Any]:
        """``alive`` in blocks of about equal work, the larger the lattices the fewer in one."""
        work = len(self.surveyor.plan(self.sets[k]).ops) * int(self.sizes[alive].mean()) if len(alive) else 1
        size = min(BLOCK, max(1, WORK // max(1, work)))
        return (alive[at : at + size] for at in range(0, len(alive), size))

    def _order(self) -> list[int]:
        """Keep sets with low bounds first: good incumbents come early."""
        least = [float(survey.bounds[:, 0].min()) for survey in self.surveys]
        return sorted(range(len(self.surveys)), key=lambda k: (least[k], k))

    def _late(self) -> bool:
        return self.incumbent.exists and self.deadline is not None and time.perf_counter() > self.deadline

    def _waiting(self) -> int:
        """Pairs of loaded choices and keep sets that are not treated; those not surveyed yet among them."""
        unknown = (len(self.sets) - len(self.surveys)) * len(self.choices)
        return unknown + sum(int(np.count_nonzero(survey.waiting)) for survey in self.surveys)

    def _least(self) -> float:
        """Lower bound of the first goal over all loaded choices."""
        bounds = [float(self.incumbent.goals[0])]
        bounds += [float(self.surveys[k].bounds[c, 0]) for k, c in self.open]
        bounds += [survey.least for survey in self.surveys]
        if len(self.surveys) < len(self.sets):
            bounds.append(self._rest(self.offset))
        return min(bounds)

    def _report(self) -> None:
        if self.progress is not None:
            pairs = len(self.every) * len(self.sets)
            share = (self.offset * len(self.sets) + len(self.choices) * len(self.sets) - self._waiting()) / pairs
            self.progress(0.95 * share, float(self.incumbent.goals[0]), self._least())

    def _scan_all(self, blocks: Iterator[tuple[int, Any]]) -> Iterator[tuple[tuple[int, Any], Any]]:
        """Scan all blocks on the threads; the incumbent at the time of submission goes with each."""
        spare: dict[int, list[tuple[int, Any]]] = {}
        work = len(self.surveyor.plan(self.sets[0]).ops) * self.sizes.mean() if self.sets else 0
        threads = self.threads if work > ALONE else 1

        def treat(k: int, block: Any, found: Incumbent) -> Any:
            survey, status = self.surveys[k], []
            nodes = int(self.sizes[block].max())
            stock = spare.setdefault(k, [])
            fitting = next((item for item in stock if item[0] >= nodes), None)
            if fitting is None:
                stock.clear()
                fitting = nodes, Workplace(self, nodes)
            else:
                stock.remove(fitting)
            for c in block:
                index = self.index(k, c)
                if not found.could_yield_to(survey.bounds[c], index):
                    status.append(scan.DROPPED)
                    continue
                outcome, goals, loops = self.least(survey, fitting[1], c, found, index)
                status.append(outcome)
                if goals is not None and not found.precedes(goals, index):
                    found = Incumbent(goals, index, survey.keeps, self.choice(c), loops)
            stock.append(fitting)
            return status, found

        pool = ThreadPoolExecutor(threads, THREADS)
        pending: dict[Future[Any], tuple[int, Any]] = {}
        try:
            while True:
                while len(pending) < threads and (block := next(blocks, None)) is not None:
                    self.surveys[block[0]].running[block[1]] = True
                    pending[pool.submit(treat, *block, self.incumbent)] = block
                if not pending:
                    return
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield pending.pop(future), future.result()
                    if len(spare) > 4:
                        spare.pop(next(iter(spare)))
        finally:
            pool.shutdown(wait=not pending, cancel_futures=True)

    def least(self, survey: Surveyed, own: Workplace, c: int, found: Incumbent, index: int) -> tuple[int, Any, Any]:
        """Raise the bounds of one choice by its least cost in the primary metric: (status, goals and loops of that nest)."""
        near, bounds, primary = self.surveyor.plan(survey.keeps), survey.bounds[c], self.task.primary
        last, laid, sums = self.surveyor.chained(survey.keeps) if self.full else near, None, survey.floors[c].copy()
        for plan, slides in ((near, NEAREST), (last, EXACT)) if len(near.slides) else ((near, EXACT),):
            if plan is not laid:
                laid, (tables, space) = plan, own.at(plan)
                nodes = scan.lay(
                    self.machine, plan, tables, survey.choices[c], survey.constants[c], self.surveyor.tiles(survey, c)
                )
                if self.full:
                    loosen(self.machine, plan, tables, survey.choices[c], self.surveyor.fanouts, nodes)
                scale = scan.scale_of(self.task, tables)
            if self.ties and bounds[0] >= found.goals[0]:
                if not found.could_yield_to(self._tied(plan, tables, space, nodes, slides, scale, sums), index):
                    return scan.DROPPED, None, None
                if slides == NEAREST:
                    continue
            least = scan.price(self.machine, plan, tables, space, self.eye[primary], nodes, slides, space.slots)
            if least == np.inf:
                bounds[:] = np.inf
                return scan.EMPTY, None, None
            sums[primary] = max(sums[primary], least)
            labels.rate(scale, sums, sums[ENERGY], bounds)
            if not found.could_yield_to(bounds, index):
                return scan.DROPPED, None, None
            if self.ties:
                tied = self._tied(plan, tables, space, nodes, slides, scale, sums)
                if not found.could_yield_to(tied, index):
                    return scan.DROPPED, None, None
                if slides == EXACT:
                    bounds[:] = tied
        rate_metrics(self.machine, plan, tables.instances, tables.partition, self.eye, space.singles)
        if self.full:
            loops = walk(self.machine, plan, tables, space.singles, space.payments, space.slots).loops
            if self._raise_cycles(plan, tables, space, nodes, scale, sums, bounds, found, index):
                return scan.CLOSED, bounds.copy(), loops
            return scan.DROPPED, None, None
        tables.base[:] = survey.base(c)
        nest, goals = walk(self.machine, plan, tables, space.singles, space.payments, space.slots), np.zeros(labels.GOALS)
        labels.fill_goals(scale, nest.sums, nest.sums[ENERGY], nest.cycles, goals)
        if not survey.exact[c]:
            return scan.OPEN, *self._counted(survey, c, index, goals, nest.loops)
        return scan.OPEN if tuple(bounds) < tuple(goals) else scan.CLOSED, goals, nest.loops

    def _tied(self, plan: Plan, tables: Any, space: Any, nodes: int, slides: int, scale: Any, sums: Any) -> Any:
        """Bounds on the goals of nests that cost no more than ``sums`` in the primary metric; of all others, if it is exact."""
        primary, weight = self.task.primary, LIGHT / max(scale.energy, 1.0)
        mix = self.eye[primary] + weight * self.eye[ENERGY]
        both = scan.price(self.machine, plan, tables, space, mix, nodes, slides, space.slots)
        if both == np.inf:
            return np.full(labels.GOALS, np.inf)
        energy, tied = (both * (1.0 - ROUNDING) - sums[primary]) / weight, np.zeros(labels.GOALS)
        labels.rate(scale, sums, max(sums[ENERGY], energy), tied)
        return tied

    def _raise_cycles(
        self, plan: Plan, tables: Any, space: Any, nodes: int, scale: Any, sums: Any, bounds: Any, found: Incumbent, index: int
    ) -> bool:
        """Raise bounds by the least cycles of each bandwidth alone; False when that drops the choice."""
        if not np.isin(self.goals[0], (labels.GOAL_CYCLES, labels.GOAL_EDP)) and bounds[0] < found.goals[0]:
            return True
        for m in range(1, self.task.resources + 1):
            least = scan.price(self.machine, plan, tables, space, self.eye[m], nodes, EXACT, space.slots)
            sums[m] = max(sums[m], least)
            labels.rate(scale, sums, sums[ENERGY], bounds)
            if not found.could_yield_to(bounds, index):
                return False
        return True

    def _counted(self, survey: Surveyed, c: int, index: int, goals: Any, loops: Any) -> tuple[Any, Any]:
        """Goals by the reference model, without link transfers, where the search has lower bounds only."""
        mapping = build_mapping(self.space, Incumbent(goals, index, survey.keeps, self.choice(c), loops))
        try:
            stats = self.evaluator.evaluate(mapping)
        except InvalidMapping:
            return None, None
        return self.goals_of(stats), loops

    def goals_of(self, stats: Stats) -> Any:
        """The model's figures as goals."""
        goals = np.zeros(labels.GOALS)
        for g, name in enumerate(self.names):
            value = value_of(name, stats) * (1e12 if name == "edp" else 1.0)
            as_goal = labels.whole if self.goals[g] >= labels.GOAL_METRIC else labels.rounded
            goals[g] = value if self.goals[g] == labels.GOAL_CYCLES else as_goal(value)
        return goals

    def _take(self, k: int, block: Any, result: Any) -> None:
        status, found = result
        self.surveys[k].waiting[block] = False
        self.open += [(k, int(c)) for c, one in zip(block, status) if one == scan.OPEN]
        if found.exists and not self.incumbent.precedes(found.goals, found.index):
            self.incumbent = found

    def _settle_all(self) -> str:
        """Settle the choices that the scan left open, in order of their bounds; why it stopped early, if it did."""
        self.open.sort(key=lambda kc: (tuple(self.surveys[kc[0]].bounds[kc[1]]), self.index(*kc)), reverse=True)
        unsettled: list[tuple[int, int]] = []
        while self.open:
            k, c = self.open[-1]
            survey, index = self.surveys[k], self.index(k, c)
            if not self.incumbent.could_yield_to(survey.bounds[c], index):
                self.open.clear()
                break
            if self._late():
                self.open += unsettled
                return TIME_LIMIT
            if not self.settle(survey, c, index):
                unsettled.append((k, c))
            self.open.pop()
            self._report()
        self.open = [(k, c) for k, c in unsettled if self.incumbent.could_yield_to(self.surveys[k].bounds[c], self.index(k, c))]
        if not self.open:
            return ""
        return MEMORY if all(self.surveys[k].exact[c] for k, c in self.open) else BOUNDED

    def _polish(self) -> None:
        """Of the nests with the incumbent's goals, spatial factors and keep sets, take one that keeps the fewest words."""
        used = int(np.count_nonzero(self.goals != labels.NONE))
        if used == labels.GOALS:
            return
        goals = self.goals.copy()
        goals[used] = labels.GOAL_METRIC + self.machine.buffer_metric
        k, c = divmod(self.incumbent.index, len(self.every))
        survey = next(self.surveyor.survey([self.sets[k]], self.every[c : c + 1].astype(np.int64)))
        if not survey.exact[0]:
            return
        settler = self.settler(survey, 0, self.task._replace(goals=goals))
        for weights in settler.first_mixes():
            settler.mix(weights)
        limit = self.incumbent.goals.copy()
        limit[used] = np.inf
        found = settler.search(limit, False, np.zeros((0, labels.GOALS)), -1, self.most_bytes // 8)
        if found is not None:
            for loops in found[1]:
                self.incumbent = replace(self.incumbent, loops=loops)

    def settler(self, survey: Surveyed, c: int, with_buffers: scan.Task | None = None) -> Settler:
        """Tables for one choice; ``with_buffers`` is a task that also counts the words kept."""
        plan, choice = self.surveyor.plan(survey.keeps), survey.choices[c]
        tables, space = workspace(self.space, self.machine, plan, int(self.nodes(choice[None])[0]))
        nodes = scan.lay(self.machine, plan, tables, choice, survey.constants[c], self.surveyor.tiles(survey, c))
        tables.base[:] = survey.base(c)
        task = with_buffers or self.task
        own = with_buffers is not None
        return Settler(self.machine, task, plan, tables, space, nodes, self.counted, own, self.most_bytes // 4)

    @property
    def elides_by_bounds(self) -> bool:
        """Whether the first reads that some output does without are bounded, not known."""
        return bool((self.machine.is_output & ~self.machine.is_plain).any())

    def settlers(self, survey: Surveyed, c: int) -> Iterator[Settler]:
        """Tables for one choice; where its constants are bounds, for every way in which the counts may turn out.

        A fan-out that spreads a sum of ranks delivers as many different tiles as the node below it says. For each such number
        the nodes that say another one are closed.
        """
        settler = self.settler(survey, c)
        plan, tables, choice = settler.plan, settler.tables, survey.choices[c]
        if survey.exact[c]:
            yield settler
            return
        spreads = bounded_spreads(self.machine, plan, tables.still, choice)
        counts = [spread_nodes(self.machine, t, choice, i, tables.extent[:, : settler.nodes]) for t, i, _ in spreads]
        for ways in product(*(np.unique(count).tolist() for count in counts)):
            leave, reads = tables.leave.copy(), tables.reads.copy()
            for (t, i, bound), count, way in zip(spreads, counts, ways):
                leave[i - 1, : settler.nodes][count != way] = np.inf
                reads[(plan.transfer_tensor == t) & (plan.transfer_child < 0)] *= way / bound
            yield replace(settler, tables=tables._replace(leave=leave, reads=np.rint(reads)), mixes=[], costs=[], sums=[])

    def settle(self, survey: Surveyed, c: int, index: int) -> bool:
        """Improve the incumbent by the optimum of one choice, if that precedes it; False when memory does not suffice."""
        if not survey.exact[c] and self.elides_by_bounds:
            return False
        least, settled = np.full(labels.GOALS, np.inf), True
        for settler in self.settlers(survey, c):
            bounds = survey.bounds[c].copy()
            settled &= self._settle(settler, bounds, survey, c, index)
            least = min(least, bounds, key=tuple)
        survey.bounds[c] = max(survey.bounds[c], least, key=tuple)
        return settled

    def _settle(self, settler: Settler, bounds: Any, survey: Surveyed, c: int, index: int) -> bool:
        """Settle one way in which the counts of a choice may turn out, and raise its ``bounds``.

        Costs-to-go in mixtures of metrics raise the bounds and give candidates; the label search settles what they leave.
        """
        queue = settler.first_mixes()
        extended = False
        while queue or not extended:
            if not queue:
                extended = True
                queue = settler.later_mixes()
                continue
            found = settler.mix(queue.pop(0))
            if settler.is_empty:
                bounds[:] = np.inf
                return True
            if found is not None and not self.incumbent.precedes(found[0], index):
                self.incumbent = Incumbent(found[0], index, survey.keeps, self.choice(c), found[1])
            if len(settler.mixes) >= len(settler.tracked):
                bounds[:] = np.maximum(bounds, settler.bounds())
                settled = self.incumbent.index == index and tuple(self.incumbent.goals) <= tuple(bounds)
                if settled or not self.incumbent.could_yield_to(bounds, index):
                    return True
        ties = index < self.incumbent.index
        best = settler.search(self.incumbent.goals, ties, np.zeros((0, labels.GOALS)), -1, self.most_bytes // 2)
        if best is None:
            return False
        self.labels_made += best[2]
        for loops in best[1]:
            self.incumbent = Incumbent(best[0], index, survey.keeps, self.choice(c), loops)
        return True


__all__ = ["BLOCK", "Outcome", "Search"]
