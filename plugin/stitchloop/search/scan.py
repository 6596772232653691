"""Least costs for many vectors of spatial factors, one after another, with a shared incumbent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from stitchloop.search.kernels import (
    ENERGY,
    INF,
    Machine,
    Plan,
    Tables,
    count_constants,
    count_words,
    lay_lattice,
    mix_metrics,
    run_program,
    value_payments,
    value_slides,
    walk,
)
from stitchloop.search.labels import GOALS, Scale, beats, rate

DROPPED, CLOSED, OPEN, EMPTY = range(4)
"""Its bound does not beat the incumbent; its optimum is known; neither; no nest is valid."""


class Space(NamedTuple):
    """Work space of one thread."""

    rates: Any
    """float64[transfers, 10]."""
    singles: Any
    """float64[metrics, transfers, 10]."""
    payments: Any
    """float64[payments, nodes]."""
    slides: Any
    """float64[*]."""
    slots: Any
    """float64[slots, nodes]."""


class Task(NamedTuple):
    """What is asked for, the same for all vectors."""

    goals: Any
    """int64[GOALS]."""
    resources: int
    primary: int
    """The metric that the first goal grows with."""
    compute_energy: float
    leak: Any
    """float64[levels]: pJ per cycle and instance."""


@njit(cache=True, nogil=True)
def scale_of(task: Task, tables: Tables) -> Scale:
    """The scale after :func:`stitchloop.search.kernels.count_constants`."""
    leakage = 0.0
    for i in range(task.leak.shape[0]):
        leakage += task.leak[i] * tables.instances[i]
    energy = task.compute_energy + tables.constant[ENERGY]
    return Scale(task.goals, task.resources, energy, leakage, tables.cycles[0], tables.constant)


@njit(cache=True, nogil=True)
def precedes(goals: Any, index: int, best: Any, best_index: int) -> bool:
    """Whether ``goals`` at ``index`` would replace the incumbent; equal figures are decided by the index."""
    if beats(goals, best):
        return True
    return index < best_index and not beats(best, goals)


@njit(cache=True, nogil=True)
def scan(
    machine: Machine,
    plan: Plan,
    tables: Tables,
    space: Space,
    task: Task,
    choices: Any,
    first: int,
    best: Any,
    best_index: int,
    status: Any,
    bounds: Any,
    loops: Any,
) -> Any:
    """Treat ``choices[*, levels, ranks]``, numbered from ``first``.

    Fills ``status`` and ``bounds[*, GOALS]``, improves ``best[GOALS]`` and puts its loops into ``loops``.

    Returns
    -------
    (number of loops, index of the incumbent, choice of the incumbent or -1 when it was not improved)
    """
    metrics = machine.weights.shape[0]
    sums, floor, goals = np.zeros(metrics), np.zeros(metrics), np.zeros(GOALS)
    mix, found = np.zeros(metrics), np.zeros((loops.shape[0], 3), dtype=np.int64)
    count, chosen = 0, -1
    for c in range(choices.shape[0]):
        spatial = choices[c]
        count_constants(machine, plan, spatial, tables)
        scale = scale_of(task, tables)
        floor[:] = 0.0
        rate(scale, floor, tables.floor[0], bounds[c])
        status[c] = DROPPED
        if not precedes(bounds[c], first + c, best, best_index):
            continue
        nodes = lay_lattice(machine, spatial, tables)
        count_words(machine, plan, spatial, tables, nodes)
        mix[:] = 0.0
        mix[task.primary] = 1.0
        mix_metrics(machine, plan, tables, mix, space.rates)
        value_payments(plan, tables, space.rates, nodes, space.payments)
        value_slides(machine, plan, tables, space.rates, nodes, space.slides)
        run_program(plan, machine, tables, 0.0, nodes, space.payments, space.slides, space.slots)
        least = space.slots[plan.root, 0]
        if least == INF:
            status[c] = EMPTY
            bounds[c, :] = INF
            continue
        floor[task.primary] = least
        rate(scale, floor, least if task.primary == ENERGY else tables.floor[0], bounds[c])
        if not precedes(bounds[c], first + c, best, best_index):
            continue
        for m in range(metrics):
            mix[:] = 0.0
            mix[m] = 1.0
            mix_metrics(machine, plan, tables, mix, space.singles[m])
        length = walk(machine, plan, tables, space.rates, space.singles, space.payments, space.slots, sums, found)
        rate(scale, sums, sums[ENERGY], goals)
        status[c] = OPEN
        if not beats(bounds[c], goals):
            status[c] = CLOSED
        if precedes(goals, first + c, best, best_index):
            best[:] = goals
            best_index, chosen, count = first + c, c, length
            loops[:] = found
    return count, best_index, chosen
