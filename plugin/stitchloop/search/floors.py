"""Floors under the energy of a choice of spatial factors that need no lattice of its own.

Take a level k of limited capacity. Let e be the extents of its tile, spatial loops inside included, and r the rank of the
first temporal loop outside it. Every kept tensor that r indexes is delivered anew in each step of that loop: per iteration
its transfer moves at least ``x(e)`` words into a child, the part of the tile that a slide along r does not keep over the
volume of e. The others move each touched word at least once. So r prices the level, at the least over all e that fit. The
level outside has the same first loop, unless r is the rank of one of its own loops. Ranks of which spatial loops leave
nothing have no loop. As long as no level up to k has loops, e is what spatial loops make of it, and every iteration is a step.
The floor is the least sum over all levels, all ranks that agree in this way, and all levels where loops may begin; the prices
of different levels add up, for they are about different transfers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stitchloop.mapspace.space import Mapspace
from stitchloop.search.arrays import ENERGY, FILL, READ, UPDATE, Machine, Plan
from stitchloop.search.constants import instances_of
from stitchloop.search.symmetry import same_rows

TILES = 2048
"""Most tiles of a level for which its floor is raised."""

GROUPS = 64
"""Most different spatial factors inside a level for which its floor is raised."""


def sums_ranks(machine: Machine, tensor: int) -> bool:
    """Whether a rank of the tensor sums ranks, or one occurs twice: its tiles overlap, wraps and links may come in."""
    first, last = machine.tensor_expression[tensor], machine.tensor_expression[tensor + 1]
    several = any(machine.expression_term[e + 1] - machine.expression_term[e] > 1 for e in range(first, last))
    return bool(several or machine.is_diagonal[tensor])


def fanouts_outside(space: Mapspace) -> list[int]:
    """Per level, how many levels outside it have several children."""
    several = [level.spatial.fanout > 1 for level in space.levels]
    return [sum(several[i + 1 :]) for i in range(len(several))]


def surely_filled(machine: Machine, plan: Plan, choices: Any, fanouts: list[int]) -> Any:
    """``float64[transfers, choices]``: 0 where link transfers may make the tool count fewer words into a child than it gets."""
    filled = np.ones((len(plan.transfer_child), len(choices)))
    for q, (t, child, parent) in enumerate(zip(plan.transfer_tensor, plan.transfer_child, plan.transfer_parent)):
        if child >= 0 and fanouts[child] > 1:
            filled[q] = ~_moves_sums(machine, t, choices[:, child + 1 : parent + 1])
    return filled


def possible_loops(space: Mapspace, machine: Machine, plan: Plan) -> Any:
    """``bool[levels, ranks]``: whether a level may loop over a rank in time: constraints and capacities outside admit it."""
    looped = np.array(
        [[limits.high != 1 for limits in (level.temporal.factors[r] for r in space.einsum.ranks)] for level in space.levels]
    )
    for t in range(len(machine.is_output)):
        for r in np.nonzero(machine.indexes[t])[0]:
            pair = np.ones((1, len(machine.size)))
            pair[0, r] = 2.0
            words = _boxes(machine, t, pair)[0][0]
            full = np.nonzero(plan.kept[:, t] & (machine.capacity < words))[0]
            if len(full):
                looped[: full[-1] + 1, r] = False
    return looped


def raise_floors(
    machine: Machine, plan: Plan, looped: Any, choices: Any, floors: Any, tiles: dict[Any, Any], filled: Any = None
) -> None:
    """Raise ``floors[:, ENERGY]`` of all ``choices[*, levels, ranks]`` in place; ``looped`` as :func:`possible_loops` gives.

    ``tiles`` remembers the tiles that fit, by level and kept tensors.

    With ``filled``, from :func:`surely_filled`, the floors hold with link transfers and short wraps as well: see
    :mod:`stitchloop.search.wraps`.
    """
    ranks = [r for r, n in enumerate(machine.size) if n > 1]
    if not ranks:
        return
    instances = instances_of(choices)[0].T
    outer = np.where((machine.size // choices.prod(axis=1))[:, ranks].T > 1, 0.0, np.inf)
    begun, still = outer.copy(), outer.copy()
    for k in range(choices.shape[1] - 1, -1, -1):
        if k + 1 < choices.shape[1]:
            own, least = looped[k + 1, ranks], begun.min(axis=0)
            begun[own] = np.where(np.isinf(begun[own]), np.inf, least)
            still[own] = np.minimum(still[own], np.where(np.isinf(still[own]), np.inf, least))
        moved = _Moved.into(k, machine, plan, choices, instances, filled)
        if moved.transfers:
            raised = _raised(machine, plan, looped[: k + 1].any(axis=0), k, ranks, choices, moved, tiles)
            begun += raised
            still += np.maximum(raised, _raised_by_spatial(machine, plan, k, ranks, choices, moved))
    least = np.minimum(still.min(axis=0), begun.min(axis=0) if looped[0, ranks].any() else np.inf)
    floors[:, ENERGY] += np.where(np.isinf(least), 0.0, least)


class _Moved(NamedTuple):
    """The transfers into a level."""

    transfers: list[int]
    prices: Any
    """``float64[transfers, choices]``: pJ of one word into one child, all instances together."""
    least: Any
    """``float64[transfers, choices]``: what the floor holds of them without any raise."""

    @classmethod
    def into(cls, k: int, machine: Machine, plan: Plan, choices: Any, instances: Any, filled: Any) -> _Moved:
        """Those whose child is level k."""
        own = [q for q, child in enumerate(plan.transfer_child) if child == k]
        halved = [filled is not None and sums_ranks(machine, plan.transfer_tensor[q]) for q in own]
        part = np.where(halved, 0.5, 1.0)[:, None]
        fills: Any = [1.0 if filled is None else filled[q] for q in own]
        prices = [_price(machine, plan, q, choices, instances, *how) for q, *how in zip(own, halved, fills)]
        least = [_compulsory(machine, plan, q, choices, instances, fill) for q, fill in zip(own, fills)]
        return cls(own, part * np.array(prices), np.array(least))


def _raised_by_spatial(machine: Machine, plan: Plan, k: int, ranks: list[int], choices: Any, moved: _Moved) -> Any:
    """What :func:`_raised` gives where no level up to k has loops."""
    inside, raised = choices[:, : k + 1].prod(axis=1).astype(float), np.zeros((len(ranks), len(choices)))
    turns = (machine.size / choices.prod(axis=1)).prod(axis=1)
    for n, q in enumerate(moved.transfers):
        t = plan.transfer_tensor[q]
        for i, r in enumerate(ranks):
            if machine.indexes[t, r]:
                raised[i] += moved.prices[n] * turns * _boxes(machine, t, inside, r)[1] * (1.0 - 1e-12) - moved.least[n]
    return np.maximum(raised, 0.0)


def _raised(
    machine: Machine, plan: Plan, looped: Any, k: int, ranks: list[int], choices: Any, moved: _Moved, tiles: dict[Any, Any]
) -> Any:
    """``float64[ranks, choices]``: by how much each rank of the first loop outside level k raises the level's floor.

    ``looped[rank]``: whether a level up to k may loop over the rank in time.
    """
    raised, own = np.zeros((len(ranks), len(choices))), moved.transfers
    if not np.isfinite(machine.capacity[k]):
        return raised
    inside = choices[:, : k + 1].prod(axis=1)
    _, first, member = np.unique(same_rows(inside), return_index=True, return_inverse=True)
    if len(first) > GROUPS:
        return raised
    groups = inside[first]
    if (key := (k, plan.kept[k].tobytes())) not in tiles:
        tiles[key] = _fitting(machine, plan, k)
    extents = tiles[key]
    if not len(extents):
        return raised
    shaped = machine.indexes[plan.kept[k]].any(axis=0)
    left = machine.size / choices.prod(axis=1)
    turns = left[:, shaped | ~looped].prod(axis=1)
    volumes = extents.prod(axis=1)
    order = np.argsort(member.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(member.ravel(), minlength=len(first)))
    for group, start, end in zip(groups, np.concatenate([[0], ends[:-1]]), ends):
        those = order[start:end]
        fixed = shaped & ~looped
        fit = (extents[:, shaped] % group[shaped] == 0).all(axis=1) & (extents[:, fixed] == group[fixed]).all(axis=1)
        if not fit.any():
            continue
        weight = moved.prices[:, those] * turns[those] * float(group[shaped].prod())
        for i, r in enumerate(ranks):
            those_of_r = [n for n, q in enumerate(own) if machine.indexes[plan.transfer_tensor[q], r]]
            if not those_of_r:
                continue
            tensors = tuple(plan.transfer_tensor[own[n]] for n in those_of_r)
            if (few := (*key, group.tobytes(), fixed.tobytes(), tensors, r)) not in tiles:
                words = [_boxes(machine, t, extents[fit], r)[1] / volumes[fit] for t in tensors]
                tiles[few] = _minimal(np.array(words).T)
            energy = (tiles[few] @ weight[those_of_r]).min(axis=0)
            raised[i, those] = np.maximum(energy * (1.0 - 1e-12) - moved.least[those_of_r][:, those].sum(axis=0), 0.0)
    return raised


def _minimal(rows: Any) -> Any:
    """The rows of ``rows[*, terms]`` that no other row matches or is below in every term."""
    kept, left = [], rows
    while len(left):
        least = left[left.sum(axis=1).argmin()]
        kept.append(least)
        left = left[(left < least).any(axis=1)]
    return np.array(kept)


def _fitting(machine: Machine, plan: Plan, level: int) -> Any:
    """Extents of tiles (temporal and spatial loops together) whose kept tensors fit into the level; none if too many.

    Ranks that index none of the kept tensors stand at 1.
    """
    extents = np.ones((1, len(machine.size)))
    for rank in np.nonzero(machine.indexes[plan.kept[level]].any(axis=0))[0]:
        steps = machine.divisors[rank, : machine.divisor_count[rank]].astype(float)
        grown = np.repeat(extents, len(steps), axis=0)
        grown[:, rank] = np.tile(steps, len(extents))
        kept = sum(_boxes(machine, t, grown)[0] for t in np.nonzero(plan.kept[level])[0])
        extents = grown[kept <= machine.capacity[level]]
        if not 0 < len(extents) <= TILES:
            return extents[:0]
    return extents


def _boxes(machine: Machine, tensor: Any, extents: Any, rank: int = -1) -> tuple[Any, Any]:
    """Words of a tensor's tiles, and of what a step of a loop over ``rank`` brings anew."""
    whole, anew = np.ones(len(extents)), np.ones(len(extents))
    for e in range(machine.tensor_expression[tensor], machine.tensor_expression[tensor + 1]):
        length, step = np.ones(len(extents)), np.zeros(len(extents))
        for k in range(machine.expression_term[e], machine.expression_term[e + 1]):
            length += machine.term_coefficient[k] * (extents[:, machine.term_rank[k]] - 1.0)
            if machine.term_rank[k] == rank:
                step += machine.term_coefficient[k] * extents[:, rank]
        whole *= length
        anew *= np.where(step > 0.0, np.minimum(length, step), length)
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


def _price(machine: Machine, plan: Plan, q: int, choices: Any, instances: Any, linked: bool, filled: Any) -> Any:
    """pJ of one word into one child, all instances together, vectors not rounded up, the first reads of outputs elided.

    With ``linked``, neighbours pass on all that one child got where spatial loops move a sum of ranks.
    """
    t, child, parent = plan.transfer_tensor[q], plan.transfer_child[q], plan.transfer_parent[q]
    reads = instances[parent].copy()
    different = np.ones(len(choices))
    for i in range(child + 1, parent + 1):
        different *= _different(machine, t, choices[:, i])
    reads *= np.where(_moves_sums(machine, t, choices[:, child + 1 : parent + 1]), 1.0, different) if linked else different
    energy = machine.weights[ENERGY]
    if machine.is_output[t]:
        return energy[parent, UPDATE] / machine.block[parent] * reads
    fills = energy[child, FILL] / machine.block[child] * instances[child] * filled
    return energy[parent, READ] / machine.block[parent] * reads + fills


def _moves_sums(machine: Machine, tensor: int, choices: Any) -> Any:
    """``bool[choices]``: whether spatial loops move a rank of the tensor that sums ranks."""
    summed = []
    for e in range(machine.tensor_expression[tensor], machine.tensor_expression[tensor + 1]):
        terms = range(machine.expression_term[e], machine.expression_term[e + 1])
        if len(terms) > 1 or machine.is_diagonal[tensor]:
            summed += [machine.term_rank[k] for k in terms]
    return (choices[:, :, sorted(set(summed))] > 1).any(axis=(1, 2))


def _compulsory(machine: Machine, plan: Plan, q: int, choices: Any, instances: Any, filled: Any) -> Any:
    """What :func:`stitchloop.search.constants.settle_tensor` counts for a transfer in its floor."""
    t, child, parent = plan.transfer_tensor[q], plan.transfer_child[q], plan.transfer_parent[q]
    energy, words = machine.weights[ENERGY], machine.touched[t]
    if machine.is_output[t]:
        return np.full(len(choices), energy[parent, UPDATE] * words / machine.block[parent])
    copies = choices[:, child + 1 :].prod(axis=1)[:, ~machine.indexes[t]].prod(axis=1)
    reads = energy[parent, READ] / machine.block[parent]
    return words * (reads + energy[child, FILL] * copies * filled / machine.block[child])
