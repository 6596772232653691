"""Lower bounds of what a sliding tensor moves under the tool's full count: link transfers and short wraps included.

The search's own count has neither. Both only ever take words away from a tensor of which a rank sums several ranks of the
Einsum, so scaling down its words turns the search's tables into bounds:

- *Short wraps.* Let the first loop that moves the tile run over rank a, with step s along the sum. A later loop counts as
  rest or as one more slide only if all loops that moved the tile so far run along the same sum, and its step equals theirs
  together, or that and s more. With two ranks a, b in the sum and steps s, t at the node where the first loop begins: for
  ``s <= t <= 2s`` the next loop may already match; for a larger t, a has to be looped over again, so what is left of it is
  no prime; for a smaller t the same holds for b. Else only a itself can match, where its first loop makes two steps: then
  the tool's slide is a true one. A loop of n steps makes n - 1 visits of ``n - 1`` in n, so rest leaves half of the visits at
  least, and none of them brings less than the best slide does.
- *Link transfers.* A neighbour has what an element needs next only along a sum: the step of a loop over a rank that stands
  alone exceeds all offsets that spatial loops give that rank. So of each set of elements that differ in such ranks one at
  least reads from the parent; and when the innermost loop advances, which is half of all visits at least, the displacement
  lies along one sum, so elements that differ in another sum all read. What neighbours pass on, the tool shares among all
  instances of the child, those under other fan-outs further out included: then a child may be counted less than it gets.

Level 0 with compute units side by side passes on stationary words too; all that they move is left out there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stitchloop.search.arrays import Machine, Plan, Tables
from stitchloop.search.floors import sums_ranks


def loosen(machine: Machine, plan: Plan, tables: Tables, choice: Any, fanouts: list[int], nodes: int) -> None:
    """Scale down shares and reads in ``tables`` of ``choice[levels, ranks]`` to bounds under the tool's full count.

    ``fanouts`` as :func:`stitchloop.search.floors.fanouts_outside` gives.
    """
    if (choice[0] > 1).any():
        tables.constant[:] = 0.0
    for q, t in enumerate(plan.transfer_tensor):
        child, parent = plan.transfer_child[q], plan.transfer_parent[q]
        if child < 0:
            tables.reads[q, :nodes] *= not (choice[0] > 1).any()
        elif sums_ranks(machine, t):
            share = tables.share[q, :nodes]
            spread = tables.reads[q, :nodes] / share
            share *= least_share(machine, tables, choice, t, child, nodes)
            reading = unlinked(machine, t, choice[child + 1 : parent + 1])
            tables.reads[q, :nodes] = share * np.minimum(spread, reading)
            if np.isfinite(reading) and fanouts[child] > 1:
                share *= min(1.0, reading / choice[child + 1 :].prod())


def sums_of(machine: Machine, tensor: Any) -> tuple[list[list[tuple[int, int]]], list[int]]:
    """(rank, coefficient) of the terms of each index expression that sums ranks, and the ranks that stand alone."""
    sums, alone = [], []
    for e in range(machine.tensor_expression[tensor], machine.tensor_expression[tensor + 1]):
        terms = [
            (int(machine.term_rank[k]), int(machine.term_coefficient[k])) for k in range(*machine.expression_term[e : e + 2])
        ]
        if len(terms) > 1:
            sums.append(terms)
        elif terms:
            alone.append(terms[0][0])
    return sums, alone


def unlinked(machine: Machine, tensor: Any, spatial: Any) -> float:
    """Elements under ``spatial[levels, ranks]`` that read a delivery from the parent, at least and on average."""
    if machine.is_diagonal[tensor]:
        return 1.0 if (spatial > 1).any() else np.inf
    sums, alone = sums_of(machine, tensor)
    parts = [float(np.prod([max(level[r] for r, _ in terms) for level in spatial])) for terms in sums]
    if all(part == 1.0 for part in parts):
        return np.inf
    others = min(float(np.prod(parts)) / part for part in parts if part > 1.0)
    return float(spatial[:, alone].prod()) * 0.5 * (1.0 + others)


def least_share(machine: Machine, tables: Tables, choice: Any, tensor: Any, child: int, nodes: int) -> Any:
    """``float64[nodes]``: the least part of its words that a run ending at a node delivers when wraps match."""
    sums, _ = sums_of(machine, tensor)
    extents = tables.extent[:, :nodes] * tables.inner[child + 1][:, None]
    kept: Any = np.ones(nodes)
    halved: Any = np.full(nodes, bool(machine.is_diagonal[tensor]))
    for terms in sums:
        length = 1.0 + sum(c * (extents[r] - 1.0) for r, c in terms)
        slide = np.minimum(1.0, np.min([c * extents[r] for r, c in terms], axis=0) / length)
        rest, again = _matching(tables, choice, terms, child, nodes)
        halved |= rest
        kept = np.minimum(kept, np.where(rest | again | halved, slide, 1.0))
    return np.where(halved, 0.5, 1.0) * kept


def _matching(tables: Tables, choice: Any, terms: list[tuple[int, int]], child: int, nodes: int) -> tuple[Any, Any]:
    """Nodes at which a later loop may count as rest, and at which one may count as one more slide."""
    ranks = [r for r, _ in terms]
    left = np.array([tables.value[r, tables.count[r] - 1] / tables.extent[r, :nodes] for r in ranks])
    if len(terms) > 2 or (choice[child + 2 :, ranks] > 1).any():
        several = (left > 1.0).any(axis=0)
        return several, several
    outer = min(child + 2, len(tables.inner) - 1)
    steps = np.array([c * tables.extent[r, :nodes] * tables.inner[outer, r] for r, c in terms])
    split = np.array([_composite(row) for row in left])
    rest: Any = np.zeros(nodes, dtype=np.bool_)
    for a, b in ((0, 1), (1, 0)):
        near = (steps[b] >= steps[a]) & (steps[b] <= 2.0 * steps[a])
        far = ((steps[b] > 2.0 * steps[a]) & split[a]) | ((steps[b] < steps[a]) & split[b])
        rest |= (left[a] > 1.0) & (left[b] > 1.0) & (near | far)
    again = ((left % 2.0 == 0.0) & (left > 2.0)).any(axis=0)
    return rest, again


def _composite(numbers: Any) -> Any:
    """Which of the numbers are products of two numbers above 1."""
    values, at = np.unique(numbers, return_inverse=True)
    found = [n > 3 and any(int(n) % d == 0 for d in range(2, int(n**0.5) + 1)) for n in values]
    return np.array(found, dtype=np.bool_)[at]
