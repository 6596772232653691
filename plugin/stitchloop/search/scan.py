"""Least costs for many vectors of spatial factors, one after another, with a shared incumbent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stitchloop.search import lattice
from stitchloop.search.arrays import ENERGY, Machine, Plan, Tables
from stitchloop.search.constants import different_tiles, instances_of, settle_tensor, spread_nodes
from stitchloop.search.labels import GOAL_CYCLES, GOAL_EDP, GOAL_ENERGY, GOAL_METRIC, Scale
from stitchloop.search.passes import run_program
from stitchloop.search.prices import rate_metrics, value_payments
from stitchloop.search.slides import EXACT, value_slides

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
    iterations: float
    """Points of the iteration space."""


def scale_of(task: Task, tables: Tables) -> Scale:
    """The scale after :func:`survey` or :func:`lay`."""
    energy, leakage = task.compute_energy + float(tables.constant[ENERGY]), float(task.leak @ tables.instances)
    return Scale(task.goals, task.resources, energy, leakage, float(tables.cycles[0]), tables.constant)


def rate_floors(task: Task, choices: Any, constants: Any, floors: Any, bounds: Any) -> None:
    """``bounds[*, GOALS]``: bounds on the goals of all ``choices[*, levels, ranks]`` from constants and floors."""
    instances, units = instances_of(choices)
    cycles = task.iterations / units
    for m in range(1, task.resources + 1):
        cycles = np.maximum(cycles, np.ceil((constants[:, m] + floors[:, m]) * (1.0 - 1e-13)))
    energy = task.compute_energy + constants[:, ENERGY] + floors[:, ENERGY] + (instances @ task.leak) * cycles
    for g, goal in enumerate(task.goals):
        if goal == GOAL_ENERGY:
            bounds[:, g] = rounded_down(energy)
        elif goal == GOAL_CYCLES:
            bounds[:, g] = cycles
        elif goal == GOAL_EDP:
            bounds[:, g] = rounded_down(energy * cycles)
        elif goal >= GOAL_METRIC:
            bounds[:, g] = np.ceil(rounded_down(constants[:, goal - GOAL_METRIC] + floors[:, goal - GOAL_METRIC]))


def rounded_down(numbers: Any) -> Any:
    """A bound below :func:`stitchloop.search.labels.rounded` of every number."""
    return numbers * (1.0 - 4e-12)


def lay(machine: Machine, plan: Plan, tables: Tables, choice: Any, constants: Any, tiles: Any = None) -> int:
    """Fill everything in ``tables`` that a choice of spatial factors settles; the number of nodes.

    ``tiles`` is the choice's row of :func:`stitchloop.search.constants.different_tiles`.
    """
    tables.constant[:] = constants
    if tiles is None:
        known, open_levels = different_tiles(machine, plan, tables.still, choice[None])
        tiles = known[0], open_levels[0]
    tables.different[:] = tiles[0]
    nodes = int(lattice.lay(machine, plan, choice, tables))
    for q, level in zip(*np.nonzero(tiles[1])):
        tables.reads[q, :nodes] *= spread_nodes(machine, plan.transfer_tensor[q], choice, level, tables.extent[:, :nodes])
    return nodes


def price(machine: Machine, plan: Plan, tables: Tables, space: Space, mix: Any, nodes: int, slides: int, slots: Any) -> float:
    """Costs-to-go of every slot in the mixture ``mix`` of metrics; that of the whole nest. Exact, or with cheaper slides."""
    axes, share, reads = (tables.count, tables.stride, tables.value), tables.share, tables.reads
    rate_metrics(machine, plan, tables.instances, tables.partition, mix[None], space.rates[None])
    value_payments(plan.pay_first, plan.pay_last, space.rates, share, reads, nodes, tables.value_of_transfer, space.payments)
    if len(plan.slides):
        value_slides(
            plan.slides, plan.spans, *axes, space.rates, share, reads, tables.staying, tables.loose, nodes,
            slides, tables.slide_start, tables.slide_values,
        )  # fmt: skip
    leave = lattice.price_of_leaving(tables, mix[machine.buffer_metric])
    run_program(
        plan.ops, plan.op_pays, plan.op_slides, *axes, tables.pairs, tables.successor, leave, tables.slide_start, nodes,
        lattice.block_of(tables, nodes),
        space.payments, tables.slide_values, slides != EXACT, tables.scratch, slots,
    )  # fmt: skip
    return float(slots[plan.root, 0])


def count_base(machine: Machine, plan: Plan, tables: Tables, choice: Any) -> None:
    """Constants and ``tables.base`` of one choice."""
    tables.constant[:] = 0.0
    for t in range(len(machine.is_output)):
        constants, _, _, base = settle_tensor(machine, plan, tables.still, t, choice[None])
        tables.constant[:] += constants[0]
        tables.base[t] = base[0]
