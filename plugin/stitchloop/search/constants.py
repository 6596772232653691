"""What spatial factors settle alone: words that the compute units move, and floors under all transfers, for many choices.

Spatial loops of a level stand inside its temporal ones. Inside level 0, and where nothing inside a level is looped over in
time, the extents of what a fan-out spreads are the spatial factors inside it, so the number of different tiles is known.
Elsewhere it depends on temporal loops where a sum of ranks is spread; a lower bound stands in then.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from stitchloop.search.arrays import ENERGY, FILL, READ, UPDATE, Machine, Plan


def instances_of(choices: Any) -> tuple[Any, Any]:
    """Instances in use, ``float64[*, levels]``, and compute units in use, ``float64[*]``, of ``choices[*, levels, ranks]``."""
    outside = np.cumprod(choices.prod(axis=2).astype(float)[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate([outside[:, 1:], np.ones((len(choices), 1))], axis=1), outside[:, 0]


def settle_tensor(
    machine: Machine, plan: Plan, still: Any, t: int, choices: Any, filled: Any = None
) -> tuple[Any, Any, Any, Any]:
    """What tensor ``t`` adds for every one of ``choices[*, levels, ranks]``.

    ``filled[transfers, choices]``, for floors under the tool's full count: 0 where they have to do without the words that
    children get. Then they also do without what compute units side by side move.

    Returns
    -------
    constants, floors : float64[*, metrics]
        What the compute units move; the least that all other transfers cost: each moves every touched word once, into every
        child that differs from others in ranks that do not index the tensor only.
    exact : bool[*]
        Whether the constants are exact, not lower bounds.
    base : float64[*, 2]
        Words that the compute units read and update, per instance of the innermost level that keeps the tensor.
    """
    metrics, (instances, units) = len(machine.weights), instances_of(choices)
    output, late, level = bool(machine.is_output[t]), int(plan.late[t]), int(plan.innermost[t])
    constants, floors = np.zeros((len(choices), metrics)), np.zeros((len(choices), metrics))
    for q in np.nonzero((plan.transfer_tensor == t) & (plan.transfer_child >= 0))[0]:
        child, parent, words = plan.transfer_child[q], plan.transfer_parent[q], machine.touched[t]
        copies = choices[:, child + 1 :].prod(axis=1)[:, ~machine.indexes[t]].prod(axis=1)
        least = words * machine.weights[:, parent, UPDATE if output else READ] / _parts(machine, instances, parent)
        if not output:
            at_child = (words * copies)[:, None] * machine.weights[:, child, FILL]
            at_child = at_child if filled is None else at_child * filled[q][:, None]
            least += at_child / _parts(machine, instances, child)
        floors += least * (1.0 - 1e-12)
    exact = np.full(len(choices), bool(machine.is_plain[t]) or not output)
    words = np.prod([float(size) for size in machine.size]) / units
    for i in range(level + 1):
        bounded = _sums_spread(machine, t, choices[:, i]) if i and not still[i] else np.zeros(len(choices), dtype=np.bool_)
        exact &= ~bounded | (late == i)
        words = words * _different(machine, t, choices[:, i], choices[:, :i].prod(axis=1), bounded)
    first = np.full(len(choices), machine.words[t])
    if machine.is_plain[t]:
        first = first / choices[:, level + 1 :].prod(axis=1)[:, machine.indexes[t]].prod(axis=1)
    again = np.maximum(0.0, words - first) if output else words
    cost = again[:, None] * machine.weights[:, level, READ]
    cost[:, ENERGY] = np.ceil(again / machine.block[level]) * machine.weights[ENERGY, level, READ]
    if output:
        updates = words[:, None] * machine.weights[:, level, UPDATE]
        updates[:, ENERGY] = np.ceil(words / machine.block[level]) * machine.weights[ENERGY, level, UPDATE]
        cost += updates
    cost *= np.where(machine.per_instance, 1.0, instances[:, level, None])
    if late >= 0:
        counted = 1.0 if filled is None else (choices[:, 0] == 1).all(axis=1)[:, None]
        floors += cost * counted * (1.0 - 1e-12)
    else:
        constants += cost
    base = np.stack([again, words if output else np.zeros(len(choices))], axis=1)
    return constants, floors, exact, base if late < 0 else base * 0.0


def _parts(machine: Machine, instances: Any, level: int) -> Any:
    """``float64[*, metrics]``: what a metric divides words at a level by: vectors for energy, instances where it counts one."""
    parts = np.where(machine.per_instance, instances[:, level, None], 1.0)
    parts[:, ENERGY] = machine.block[level]
    return parts


def different_tiles(machine: Machine, plan: Plan, still: Any, choices: Any) -> tuple[Any, Any]:
    """Different tiles between parent and child of every transfer, for every one of ``choices[*, levels, ranks]``.

    Returns
    -------
    known : float64[*, transfers]
        The product over the fan-outs whose tiles the spatial factors settle.
    open_levels : bool[*, transfers, levels]
        The other fan-outs: see :func:`spread_nodes`.
    """
    known = np.ones((len(choices), len(plan.transfer_tensor)))
    open_levels = np.zeros((*known.shape, choices.shape[1]), dtype=np.bool_)
    for q, (t, child, parent) in enumerate(zip(plan.transfer_tensor, plan.transfer_child, plan.transfer_parent)):
        for i in range(child + 1, parent + 1):
            spread = choices[:, i]
            if (spread == 1).all():
                continue
            summed = _sums_spread(machine, t, spread)
            bounded = np.zeros(len(choices), dtype=np.bool_)
            if child >= 0 or i == plan.late[t]:
                open_levels[:, q, i] = summed
            elif i and not still[i]:
                bounded = summed
            settled = _different(machine, t, spread, choices[:, :i].prod(axis=1), bounded)
            known[:, q] *= np.where(open_levels[:, q, i], 1.0, settled)
    return known, open_levels


def spread_nodes(machine: Machine, t: int, choice: Any, level: int, extents: Any) -> Any:
    """Different tiles that the fan-out of ``level`` holds at every node; ``extents[ranks, nodes]`` are the temporal ones."""
    inside, bounds = choice[:level].prod(axis=0).tolist(), choice[level].tolist()
    expressions = [[(r, c) for r, c in terms if bounds[r] > 1] for terms in machine.sums[t]]
    if machine.is_diagonal[t] or any(len(terms) > 2 for terms in expressions):
        within = (extents * np.array(inside)[:, None]).astype(np.int64).T
        return _different(machine, t, np.broadcast_to(choice[level], within.shape), within, np.zeros(len(within), dtype=np.bool_))
    different: Any = 1
    for terms in expressions:
        own = [bounds[r] for r, _ in terms]
        steps = [(extents[r] * (c * inside[r])).astype(np.int64) for r, c in terms]
        different = different * (_offsets(*own, *steps) if len(terms) == 2 else prod(own))
    return different


def bounded_spreads(machine: Machine, plan: Plan, still: Any, choice: Any) -> list[tuple[int, int, float]]:
    """(tensor, fan-out, bound) where the constants of a choice hold a bound on the different tiles at the compute units."""
    found, bounded = [], np.array([True])
    for t, innermost in enumerate(plan.innermost.tolist()):
        for i in range(1, innermost + 1):
            bounds = choice[None, i]
            if not still[i] and plan.late[t] != i and _sums_spread(machine, t, bounds)[0]:
                found.append((t, i, float(_different(machine, t, bounds, choice[None, :i].prod(axis=1), bounded)[0])))
    return found


def _sums_spread(machine: Machine, t: int, bounds: Any) -> Any:
    """Where a fan-out with ``bounds[*, ranks]`` spreads several ranks of one index expression."""
    found = np.zeros(len(bounds), dtype=np.bool_)
    for terms in machine.sums[t]:
        found |= (bounds[:, [rank for rank, _ in terms]] > 1).sum(axis=1) > 1
    return found


def _different(machine: Machine, t: int, bounds: Any, inside: Any, bounded: Any) -> Any:
    """Different tiles over spatial ``bounds[*, ranks]`` with the extents ``inside``; lower bounds where ``bounded``."""
    expressions = machine.sums[t]
    if machine.is_diagonal[t]:
        sizes = [1 + sum(c * (int(machine.size[r]) - 1) for r, c in terms) for terms in expressions]
        least = np.max([np.max([bounds[:, r] for r, _ in terms], axis=0) for terms in expressions if terms], axis=0)
        exact = [_joint(expressions, sizes, row, extents) for row, extents in zip(bounds, inside)]
        return np.where(bounded, least, exact).astype(float)
    different = np.ones(len(bounds))
    for terms in expressions:
        if len(terms) == 1:
            different *= bounds[:, terms[0][0]]
        elif len(terms) == 2:
            (a, by_a), (b, by_b) = terms
            exact = _offsets(bounds[:, a], bounds[:, b], by_a * inside[:, a], by_b * inside[:, b])
            different *= np.where(bounded, bounds[:, a] + bounds[:, b] - 1, exact)
        elif terms:
            least = 1 + sum(bounds[:, r] - 1 for r, _ in terms)
            exact = [_joint([terms], [1], row, extents) for row, extents in zip(bounds, inside)]
            different *= np.where(bounded, least, exact)
    return different


def _offsets(bound_a: Any, bound_b: Any, step_a: Any, step_b: Any) -> Any:
    """Different sums of a multiple of ``step_a`` below ``bound_a`` steps and one of ``step_b`` below ``bound_b`` steps."""
    common = np.gcd(step_a, step_b)
    return bound_a * bound_b - np.maximum(0, bound_a - step_b // common) * np.maximum(0, bound_b - step_a // common)


def _joint(expressions: list[list[tuple[int, int]]], sizes: list[int], bounds: Any, inside: Any) -> int:
    """Different offsets of all elements, every index expression packed into one number."""
    steps: dict[int, int] = {}
    radix = 1
    for terms, size in zip(expressions, sizes):
        for rank, coefficient in terms:
            if bounds[rank] > 1:
                steps[rank] = steps.get(rank, 0) + radix * coefficient * int(inside[rank])
        radix *= size + 1
    offsets = np.zeros(1, dtype=np.int64)
    for rank, step in steps.items():
        offsets = np.unique(np.add.outer(offsets, step * np.arange(bounds[rank])))
    return len(offsets)
