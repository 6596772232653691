"""Label search: the exact optimum for one vector of spatial factors when costs pull in different directions.

A *label* is the inner part of a nest: a slot, a node, and what has been paid so far in every *tracked* metric. Labels are
extended slot by slot from the inner end. A label is dropped when another one at the same slot and node is no worse in any
tracked metric, or when the bounds on the rest of the nest (one table per mixture of metrics) show that no completion beats
the incumbent. Both are safe because every goal is a non-decreasing function of the tracked metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from stitchloop.search.arrays import ENERGY, INF
from stitchloop.search.compiled import Floats1, Floats2, Floats3, Ints1, Ints2, Shorts1, Shorts2, inner, kernel
from stitchloop.search.prices import priced, rate_of
from stitchloop.search.program import EXIT, FREE, STEP
from stitchloop.search.slides import slid

GOALS = 12
"""Most goals of a lexicographic list; unused ones are NONE."""

NONE, GOAL_ENERGY, GOAL_CYCLES, GOAL_EDP, GOAL_METRIC = range(5)
"""What a goal is; ``GOAL_METRIC + m`` is metric ``m`` itself."""

EXACT = 1e-12
"""Relative distance below which two energies count as equal."""


class Scale(NamedTuple):
    """What turns metrics into goals for one vector of spatial factors."""

    goals: Any
    """int64[GOALS]."""
    resources: int
    """Metrics 1 to ``resources`` are cycles that a bandwidth needs."""
    energy: float
    """pJ whatever the temporal loops, leakage left out."""
    leakage: float
    """pJ per cycle."""
    cycles: float
    """Cycles of the compute units."""
    constant: Any
    """float64[metrics]."""


@inner
def rounded(number: float) -> float:
    """``number`` to 38 bits (Veltkamp's splitting), so that sums of equal terms in different orders are equal; monotone."""
    if number == INF:
        return number
    scaled = number * (2.0**15 + 1.0)
    return scaled - (scaled - number)


@inner
def whole(number: float) -> float:
    """Words: the least whole number that is not far below ``number``; whole numbers up to 1e11 as they are; monotone."""
    return np.ceil(number * (1.0 - 6e-12))


@inner
def rate(scale: Scale, sums: Any, energy: float, goals: Any) -> None:
    """``goals``: the lexicographic figures of a nest that costs ``sums`` (and at least ``energy``), constants left out."""
    cycles = scale.cycles
    for m in range(1, scale.resources + 1):
        cycles = max(cycles, np.ceil((scale.constant[m] + sums[m]) * (1.0 - 1e-13)))
    fill_goals(scale, sums, energy, cycles, goals)


@inner
def fill_goals(scale: Scale, sums: Any, energy: float, cycles: float, goals: Any) -> None:
    """``goals`` of a nest that takes ``cycles``; the rest as for :func:`rate`."""
    total = scale.energy + energy + scale.leakage * cycles
    for g in range(goals.shape[0]):
        goal = scale.goals[g]
        if goal == NONE:
            goals[g] = 0.0
        elif goal == GOAL_ENERGY:
            goals[g] = rounded(total)
        elif goal == GOAL_CYCLES:
            goals[g] = cycles
        elif goal == GOAL_EDP:
            goals[g] = rounded(total * cycles)
        else:
            goals[g] = whole(scale.constant[goal - GOAL_METRIC] + sums[goal - GOAL_METRIC])


@kernel
def extend_labels(
    ops: Ints2, slot_ops: Ints2, op_pays: Ints1, op_slides: Ints1, spans: Ints2, root: int,
    count: Ints1, stride: Ints1, value: Ints2, leave: Floats2, shares: Floats2, all_reads: Floats2, staying: Floats2,
    goals_asked: Ints1, resources: int, energy: float, leakage: float, cycles: float, constant: Floats1,
    buffer_metric: int, tracked: Ints1, rates: Floats3, costs: Floats3, mixes: Floats2, ahead: Floats3,
    heads: Shorts2, pool: Floats2, links: Shorts2, by_slot: Shorts1, scratch: Floats2, best: Floats1, ties: bool,
    front: Floats2, fronted: bool,
) -> int:  # fmt: skip
    """Extend labels from the inner end to the END, slot 0.

    Parameters
    ----------
    leave : float64[levels, nodes]
        Words kept in all instances, infinite where they do not fit.
    goals_asked, resources, energy, leakage, cycles, constant
        The :class:`Scale`.
    tracked : int64[*]
        Metrics that labels carry; the first is energy.
    rates, costs : float64[tracked, transfers, 10], float64[tracked, payments, nodes]
    mixes : float64[mixtures, metrics]
        The first ``len(tracked)`` are the tracked metrics themselves.
    ahead : float64[mixtures, slots, nodes]
        Least cost to the end of the nest in each mixture.
    heads, pool, links, by_slot, scratch
        Work space: int32[slots, nodes], float64[labels, tracked], int32[labels, 5], int32[slots], and float64[6, *] with at least
        as many columns as there are goals, metrics and mixtures.
    best, ties, front, fronted
        A label is dropped when it cannot beat ``best`` (``float64[GOALS]``) or, with ``ties``, equal it. If ``fronted``, it is
        dropped instead when a row of ``front`` (``float64[*, GOALS]``) is no worse in every goal than it could ever be.

    Returns
    -------
    labels made, or -1 when the work space did not suffice
    """
    scale = Scale(goals_asked, resources, energy, leakage, cycles, constant)
    kinds, mixtures, capacity = tracked.shape[0], mixes.shape[0], pool.shape[0]
    metrics = scale.constant.shape[0]
    for slot in range(heads.shape[0]):
        by_slot[slot] = -1
        for p in range(heads.shape[1]):
            heads[slot, p] = -1
    values, goals, paid, bounds, steps = scratch[0], scratch[1, :GOALS], scratch[2], scratch[3], scratch[4]
    for x in range(kinds):
        pool[0, x] = 0.0
    links[0, 0], links[0, 1], links[0, 2], links[0, 3], links[0, 4] = -1, -1, 0, -1, -1
    # links: parent, operation, node, next at the same slot and node (-2 when dropped), next of the same slot
    heads[root, 0] = 0
    by_slot[root] = 0
    made = 1
    for slot in range(root, 0, -1):
        label = np.int64(by_slot[slot])
        while label >= 0:
            following, node = np.int64(links[label, 4]), np.int64(links[label, 2])
            last_op = slot_ops[slot, 1] if links[label, 3] != -2 else np.int64(-1)
            for o in range(slot_ops[slot, 0], last_op):
                kind, source, rank, level = ops[o, 0], ops[o, 2], ops[o, 3], ops[o, 4]
                words = leave[level, node] if kind == EXIT else 0.0
                for x in range(kinds):
                    paid[x] = pool[label, x]
                    for k in range(ops[o, 8], ops[o, 9]):
                        paid[x] += costs[x, op_pays[k], node]
                    if tracked[x] == buffer_metric:
                        paid[x] += words
                here, last, step = 0, 0, 1
                if kind == FREE or kind >= STEP:
                    step = stride[rank]
                    here = (node // step) % count[rank]
                    last = count[rank] - 1
                for there in range(here + 1 if kind >= STEP else here, last + 1 if words < INF else here):
                    bound = 1
                    if there != here:
                        bound = value[rank, there] // value[rank, here]
                        if value[rank, there] % value[rank, here] or bound < ops[o, 5] or bound > ops[o, 6]:
                            continue
                    target = node + (there - here) * step
                    if ahead[0, source, target] == INF:
                        continue
                    for x in range(kinds):
                        steps[x] = paid[x]
                    for s in range(ops[o, 10], ops[o, 11]):
                        slide = op_slides[s]
                        first = spans[slide, 0]
                        for q in range(first, spans[slide, 1]):
                            stays = staying[spans[slide, 2] + q - first, node]
                            share, reads = slid(shares[q, node], all_reads[q, node], stays, 1.0 - 1.0 / bound)
                            for x in range(kinds):
                                steps[x] += priced(rate_of(rates[x, q]), np.rint(share), np.rint(reads))
                    for m in range(metrics):
                        bounds[m] = 0.0
                    for x in range(kinds):
                        bounds[tracked[x]] = steps[x] + ahead[x, source, target]
                    for x in range(kinds, mixtures):
                        values[x] = ahead[x, source, target]
                        for y in range(kinds):
                            values[x] += mixes[x, tracked[y]] * steps[y]
                    bound_goals(scale, mixes, values, kinds, bounds, goals)
                    if hopeless(goals, best, ties, front, fronted) or dominated(heads, links, pool, steps, source, target):
                        continue
                    if made == capacity:
                        return -1
                    for x in range(kinds):
                        pool[made, x] = steps[x]
                    links[made, 0], links[made, 1], links[made, 2] = label, o, target
                    links[made, 3], links[made, 4] = heads[source, target], by_slot[source]
                    heads[source, target] = made
                    by_slot[source] = made
                    made += 1
            label = following
    return made


@inner
def hopeless(goals: Any, best: Any, ties: bool, front: Any, fronted: bool) -> bool:
    """Whether a row of the front is no worse than ``goals`` in every goal; without a front, whether ``best`` comes first."""
    if fronted:
        for row in range(front.shape[0]):
            better = True
            for g in range(goals.shape[0]):
                if front[row, g] > goals[g]:
                    better = False
                    break
            if better:
                return True
        return False
    for g in range(goals.shape[0]):
        if goals[g] != best[g]:
            return goals[g] > best[g]
    return not ties


@inner
def dominated(heads: Any, links: Any, pool: Any, steps: Any, slot: int, node: Any) -> bool:
    """Whether a label at the slot and node costs no more than ``steps`` in any metric; those that cost no less are dropped."""
    other, previous = np.int64(heads[slot, node]), np.int64(-1)
    while other >= 0:
        after = links[other, 3]
        no_better, no_worse = True, True
        for x in range(pool.shape[1]):
            slack = EXACT * abs(steps[x]) if x == 0 else 0.0
            if steps[x] < pool[other, x] - slack:
                no_better = False
            if steps[x] > pool[other, x] + slack:
                no_worse = False
        if no_better:
            return True
        if no_worse:
            if previous < 0:
                heads[slot, node] = after
            else:
                links[previous, 3] = after
            links[other, 3] = -2
        else:
            previous = other
        other = np.int64(after)
    return False


def ends(links: Any, by_slot: Any) -> Iterator[int]:
    """The labels that reached the END and were not dropped."""
    label = int(by_slot[0])
    while label >= 0:
        if links[label, 3] != -2:
            yield label
        label = int(links[label, 4])


def path_to(links: Any, label: int) -> Any:
    """The (operation, node) of the nest that ends in ``label``, innermost first."""
    path = [(0, links[label, 2])]
    while links[label, 0] >= 0:
        parent = links[label, 0]
        path.append((links[label, 1], links[parent, 2]))
        label = parent
    return np.array(path[::-1], dtype=np.int64)


@inner
def bound_goals(scale: Scale, mixes: Any, values: Any, first_mix: int, bounds: Any, goals: Any) -> None:
    """Lower bounds on the goals from bounds on every metric and on mixtures of them."""
    for x in range(first_mix, mixes.shape[0]):
        if mixes[x, ENERGY] == 0.0:
            constant, weight = 0.0, 0.0
            for m in range(1, scale.resources + 1):
                constant += mixes[x, m] * scale.constant[m]
                weight += mixes[x, m]
            if weight > 0.0:
                bounds[1] = max(bounds[1], (values[x] + constant) / weight - scale.constant[1])
    rate(scale, bounds, bounds[ENERGY], goals)
    if scale.resources == 0:
        return
    cycles = scale.cycles
    for m in range(1, scale.resources + 1):
        cycles = max(cycles, (scale.constant[m] + bounds[m]) * (1.0 - 1e-13))
    base = scale.energy + scale.leakage * scale.cycles
    for x in range(first_mix, mixes.shape[0]):
        if mixes[x, ENERGY] == 1.0:
            constant, weight = base, 0.0
            for m in range(1, scale.resources + 1):
                constant += mixes[x, m] * scale.constant[m]
                weight += mixes[x, m]
            if weight > 0.0:
                product = _least_product(values[x] + constant, weight, bounds[ENERGY] + base, cycles)
                for g in range(goals.shape[0]):
                    if scale.goals[g] == GOAL_EDP:
                        goals[g] = max(goals[g], rounded(product))


@inner
def _least_product(mixture: float, weight: float, energy: float, cycles: float) -> float:
    """Least ``E * C`` with ``E + weight * C >= mixture``, ``E >= energy``, ``C >= cycles``.

    Along the line the product is concave, so it is least at an end of the segment that the other two leave of it.
    """
    if mixture <= energy + weight * cycles:
        return energy * cycles
    return min((mixture - weight * cycles) * cycles, energy * (mixture - energy) / weight) * (1.0 - 1e-12)
