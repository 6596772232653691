"""Least costs for many vectors of spatial factors, one after another, with a shared incumbent."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from stitchloop.search.kernels import (
    ENERGY,
    Machine,
    Plan,
    Tables,
    count_constants,
    count_words,
    lay_lattice,
    mix_metrics,
    place,
    run_program,
    value_payments,
    value_slides,
)
from stitchloop.search.labels import Scale, beats, rate

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


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def scale_of(task: Task, tables: Tables) -> Scale:
    """The scale after :func:`stitchloop.search.kernels.count_constants`."""
    leakage = 0.0
    for i in range(task.leak.shape[0]):
        leakage += task.leak[i] * tables.instances[i]
    energy = task.compute_energy + tables.constant[ENERGY]
    return Scale(task.goals, task.resources, energy, leakage, tables.cycles[0], tables.constant)


@njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
def precedes(goals: Any, index: int, best: Any, best_index: int) -> bool:
    """Whether ``goals`` at ``index`` would replace the incumbent; equal figures are decided by the index."""
    if beats(goals, best):
        return True
    return index < best_index and not beats(best, goals)


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def survey(machine: Machine, plan: Plan, tables: Tables, only: int, choices: Any, constants: Any, floors: Any, exact: Any) -> None:
    """What tensor ``only`` adds to constants and floors of all ``choices[*, levels, ranks]``; whether that is exact."""
    for c in range(choices.shape[0]):
        place(machine, choices[c], tables)
        exact[c] = count_constants(machine, plan, choices[c], tables, only)
        constants[c, :] = tables.constant
        floors[c, :] = tables.floor


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def rate_floors(
    machine: Machine, tables: Tables, task: Task, choices: Any, constants: Any, floors: Any, bounds: Any
) -> None:
    """``bounds[*, GOALS]``: bounds on the goals from constants and floors."""
    for c in range(choices.shape[0]):
        place(machine, choices[c], tables)
        tables.constant[:] = constants[c]
        rate(scale_of(task, tables), floors[c], floors[c, ENERGY], bounds[c])


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def lay(machine: Machine, plan: Plan, tables: Tables, choice: Any, constants: Any) -> int:
    """Fill everything in ``tables`` that a choice of spatial factors settles; the number of nodes."""
    place(machine, choice, tables)
    tables.constant[:] = constants
    nodes = lay_lattice(machine, choice, tables)
    count_words(machine, plan, choice, tables, nodes)
    return nodes


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def price(machine: Machine, plan: Plan, tables: Tables, space: Space, mix: Any, nodes: int, relaxed: bool, slots: Any) -> float:
    """Costs-to-go of every slot in the mixture ``mix`` of metrics; that of the whole nest."""
    mix_metrics(machine, plan, tables, mix, space.rates)
    value_payments(machine, plan, tables, space.rates, nodes, relaxed, space.payments)
    if not relaxed:
        value_slides(machine, plan, tables, space.rates, nodes, space.slides)
    buffers = mix[machine.buffer_metric]
    run_program(plan, machine, tables, buffers, nodes, space.payments, space.slides, relaxed, slots)
    return slots[plan.root, 0]
