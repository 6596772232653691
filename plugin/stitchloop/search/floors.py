"""Floors under the energy of a choice of spatial factors that need no lattice of its own.

Take a level k of limited capacity. Let e be the extents of its tile, spatial loops inside included, and r the rank of the
first loop outside it. Every kept tensor that r indexes is delivered anew in each step of that loop: per iteration its
transfer moves at least ``x(e)`` words into a child, the part of the tile that a slide does not keep over the volume of e.
The others move each touched word at least once. The floor is the least over all e that fit and all r; the floors of
different levels add up, for they are about different transfers.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from stitchloop.search.arrays import ENERGY, FILL, READ, UPDATE, Machine, Plan

TILES = 2048
"""Most tiles of a level for which its floor is raised."""

GROUPS = 64
"""Most different spatial factors inside a level for which its floor is raised."""


def sums_ranks(machine: Machine, tensor: int) -> bool:
    """Whether a rank of the tensor sums ranks, or one occurs twice: its tiles overlap, wraps and links may come in."""
    first, last = machine.tensor_expression[tensor], machine.tensor_expression[tensor + 1]
    several = any(machine.expression_term[e + 1] - machine.expression_term[e] > 1 for e in range(first, last))
    return bool(several or machine.is_diagonal[tensor])


def wrapped_floors(machine: Machine, plan: Plan, choices: Any) -> Any:
    """Floors that hold with link transfers and short wraps, in which a tensor that sums ranks counts half at least."""
    instances = _instances(choices)
    floors = np.zeros((len(choices), len(machine.weights)))
    for q, child in enumerate(plan.transfer_child):
        if child >= 0:
            share = 0.5 if sums_ranks(machine, plan.transfer_tensor[q]) else 1.0
            floors[:, ENERGY] += share * (1.0 - 1e-12) * _compulsory(machine, plan, q, choices, instances)
    return floors


def _instances(choices: Any) -> Any:
    used = choices.prod(axis=2).astype(float)
    outside = np.cumprod(used[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate([outside[:, 1:], np.ones((len(choices), 1))], axis=1).T


def raise_floors(machine: Machine, plan: Plan, choices: Any, floors: Any, wrapped: bool = False) -> None:
    """Raise ``floors[:, ENERGY]`` of all ``choices[*, levels, ranks]`` in place.

    With ``wrapped``, the floors hold with link transfers and short wraps as well; see :mod:`stitchloop.search.listing`.
    """
    instances = _instances(choices)
    cycles = prod(float(size) for size in machine.size) / choices.prod(axis=(1, 2))
    for k in range(choices.shape[1]):
        own = [q for q, child in enumerate(plan.transfer_child) if child == k]
        if not own or not np.isfinite(machine.capacity[k]):
            continue
        inside = choices[:, : k + 1].prod(axis=1)
        groups, member = np.unique(inside, axis=0, return_inverse=True)
        if len(groups) > GROUPS:
            continue
        extents = _fitting(machine, plan, k)
        if not len(extents):
            continue
        halved = [wrapped and sums_ranks(machine, plan.transfer_tensor[q]) for q in own]
        part = np.where(halved, 0.5, 1.0)[:, None]
        prices = part * np.array([_price(machine, plan, q, choices, instances, half) for q, half in zip(own, halved)])
        least = part * np.array([_compulsory(machine, plan, q, choices, instances) for q in own])
        shares = np.array([_boxes(machine, plan.transfer_tensor[q], extents)[1] for q in own]).T / extents.prod(axis=1)[:, None]
        sets = {
            tuple(bool(machine.indexes[plan.transfer_tensor[q], r]) for q in own) for r, n in enumerate(machine.size) if n > 1
        }
        order = np.argsort(member.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(member.ravel(), minlength=len(groups)))
        for group, start, end in zip(groups, np.concatenate([[0], ends[:-1]]), ends):
            those = order[start:end]
            rows = shares[(extents % group == 0).all(axis=1)] if (group > 1).any() else shares
            if not len(rows):
                continue
            weight = prices[:, those] * cycles[those] * float(group.prod())
            lowest = np.full(len(those), np.inf)
            for anew in sets:
                chosen = np.array(anew)
                moved = _least_sum(rows[:, chosen], weight[chosen])
                lowest = np.minimum(lowest, moved + least[~chosen][:, those].sum(axis=0))
            raised = lowest * (1.0 - 1e-12) - least[:, those].sum(axis=0)
            floors[those, ENERGY] += np.where(np.isfinite(raised), np.maximum(raised, 0.0), 0.0)


def _least_sum(rows: Any, weight: Any) -> Any:
    """For every column of ``weight[terms, *]`` the least ``rows[*, terms] @ weight``."""
    if not rows.shape[1]:
        return np.zeros(weight.shape[1])
    rows = np.unique(rows, axis=0)
    best = np.full(weight.shape[1], np.inf)
    for start in range(0, len(rows), 256):
        best = np.minimum(best, (rows[start : start + 256] @ weight).min(axis=0))
    return best


def _fitting(machine: Machine, plan: Plan, level: int) -> Any:
    """Extents of tiles (temporal and spatial loops together) whose kept tensors fit into the level; none if too many."""
    extents = np.ones((1, len(machine.size)))
    for rank in range(len(machine.size)):
        steps = machine.divisors[rank, : machine.divisor_count[rank]].astype(float)
        grown = np.repeat(extents, len(steps), axis=0)
        grown[:, rank] = np.tile(steps, len(extents))
        kept = sum(_boxes(machine, t, grown)[0] for t in np.nonzero(plan.kept[level])[0])
        extents = grown[kept <= machine.capacity[level]]
        if not 0 < len(extents) <= TILES:
            return extents[:0]
    return extents


def _boxes(machine: Machine, tensor: Any, extents: Any) -> tuple[Any, Any]:
    """Words of a tensor's tiles, and of what the best slide of one step brings anew."""
    whole, anew = np.ones(len(extents)), np.ones(len(extents))
    for e in range(machine.tensor_expression[tensor], machine.tensor_expression[tensor + 1]):
        terms = range(machine.expression_term[e], machine.expression_term[e + 1])
        spans = [machine.term_coefficient[k] * extents[:, machine.term_rank[k]] for k in terms]
        length = 1.0 + sum((span - machine.term_coefficient[k] for k, span in zip(terms, spans)), np.zeros(len(extents)))
        whole *= length
        anew *= np.minimum(length, np.min(spans, axis=0)) if len(spans) > 1 else length
    return whole, anew


def _different(machine: Machine, tensor: int, bounds: Any) -> Any:
    """A lower bound of the different tiles of a tensor over spatial ``bounds[*, ranks]``."""
    if machine.is_diagonal[tensor]:
        return np.ones(len(bounds))
    different = np.ones(len(bounds))
    for e in range(machine.tensor_expression[tensor], machine.tensor_expression[tensor + 1]):
        terms = range(machine.expression_term[e], machine.expression_term[e + 1])
        different *= 1.0 + sum((bounds[:, machine.term_rank[k]] - 1.0 for k in terms), np.zeros(len(bounds)))
    return different


def _price(machine: Machine, plan: Plan, q: int, choices: Any, instances: Any, linked: bool) -> Any:
    """pJ of one word into one child, all instances together, vectors not rounded up, the first reads of outputs elided.

    With ``linked``, neighbours pass on all that one child got.
    """
    t, child, parent = plan.transfer_tensor[q], plan.transfer_child[q], plan.transfer_parent[q]
    reads = instances[parent].copy()
    for i in range(child + 1, parent + 1):
        if not linked:
            reads *= _different(machine, t, choices[:, i])
    energy = machine.weights[ENERGY]
    if machine.is_output[t]:
        return energy[parent, UPDATE] / machine.block[parent] * reads
    fills = energy[child, FILL] / machine.block[child] * instances[child]
    return energy[parent, READ] / machine.block[parent] * reads + fills


def _compulsory(machine: Machine, plan: Plan, q: int, choices: Any, instances: Any) -> Any:
    """What :func:`stitchloop.search.constants.settle_tensor` counts for a transfer in its floor."""
    t, child, parent = plan.transfer_tensor[q], plan.transfer_child[q], plan.transfer_parent[q]
    energy, words = machine.weights[ENERGY], machine.touched[t]
    if machine.is_output[t]:
        return np.full(len(choices), energy[parent, UPDATE] * words / machine.block[parent])
    copies = choices[:, child + 1 :].prod(axis=1)[:, ~machine.indexes[t]].prod(axis=1)
    reads = energy[parent, READ] / machine.block[parent]
    return words * (reads + energy[child, FILL] * copies / machine.block[child])
