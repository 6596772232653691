"""Lower bounds of what a sliding tensor moves under the tool's full count: link transfers and short wraps included.

The search's own count has neither. Both matter only to a tensor of which a rank sums several ranks of the Einsum, and only
if the first loop that moves its tile runs along such a sum: a step of any other loop never comes back later, and exceeds
all offsets that spatial loops give. So they matter to slides alone. A slide over rank a makes n steps of s along the sum,
n - 1 in n of all visits; ``part`` is (n - 1) / n. A step brings the tile but for what stays, the visits of later loops bring
the whole tile. From these words may go:

- *Short wraps.* A later loop counts as rest or as one more slide only if all loops that moved the tile so far run along the
  same sum, and its step equals theirs together, or that and s more. Let b be the sum's other rank, of step t there. If
  neither rank has more than one loop left, t is s or 2s. If b may have several, the steps of b alone have to make up s or 2s,
  so t divides 2s; if a may have several, t is a multiple of s; if both may, anything. Without any loop over b, only a can match,
  where its first loop makes two steps: then the tool's slide is a true one. Rest takes at most all later visits but for those
  that loops of other tensor ranks make; of these there is one in as many as the rest of a and b has iterations.
- *Link transfers.* A neighbour has what an element needs next only along a sum. So of each set of elements that differ in
  ranks that stand alone one at least reads from the parent, and when the slide itself advances, one of each set that differs
  in another sum too; and only if s is an offset that spatial loops can give along the sum, and if the deliveries have equal
  shapes: slides that overlap never do, unless wraps count as slides. What neighbours pass on, the tool shares among all instances
  of the child, those under other fan-outs further out included: then a child may be counted less than it gets.

Sums of more than two ranks, and tensors that repeat a rank, get half of their words, but for what the best slide keeps, and one
reading element. Level 0 with compute units side by side passes on stationary words too; all that they move is left out there.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from stitchloop.search.arrays import Machine, Plan, Tables
from stitchloop.search.constants import expressions_of
from stitchloop.search.floors import sums_ranks

Term = tuple[int, int]
"""Rank, coefficient."""


def loosen(machine: Machine, plan: Plan, tables: Tables, choice: Any, fanouts: list[int], nodes: int) -> None:
    """Turn ``tables`` of ``choice[levels, ranks]`` into bounds under the tool's full count.

    A slide then moves ``share * (loose[0] + loose[1] * part)`` words into a child and ``reads * (loose[2] + loose[3] * part)``
    from the parent. ``fanouts`` as :func:`stitchloop.search.floors.fanouts_outside` gives.
    """
    side_by_side = bool((choice[0] > 1).any())
    if side_by_side:
        tables.constant[:] = 0.0
    for q, t in enumerate(plan.transfer_tensor):
        child, parent = plan.transfer_child[q], plan.transfer_parent[q]
        if child < 0:
            tables.reads[q, :nodes] *= not side_by_side
        elif sums_ranks(machine, t) and not _is_simple(machine, t):
            share = tables.share[q, :nodes]
            spread = tables.reads[q, :nodes] / share
            share *= 0.5 * _least_slide(machine, tables, t, child, nodes)
            linked = bool((choice[child + 1 : parent + 1] > 1).any())
            tables.reads[q, :nodes] = share * (np.minimum(spread, 1.0) if linked else spread)
            if linked and fanouts[child] > 1:
                share /= float(choice[child + 1 :].prod())
    grid = Grid(machine, tables)
    known: dict[tuple[Any, ...], int] = {}
    for slide, (_, level, rank) in enumerate(plan.slides.tolist()):
        first, last, row = plan.spans[slide].tolist()
        for q in range(first, last):
            own, t, child = row + q - first, int(plan.transfer_tensor[q]), int(plan.transfer_child[q])
            key = q, level, rank
            if key in known:
                tables.loose[:, own, :nodes] = tables.loose[:, known[key], :nodes]
                continue
            known[key] = own
            into = tables.loose[:, own, :nodes].reshape(4, *grid.shape)
            stays = grid.along(tables.staying[own, :nodes], _ranks_of(grid.expressions[t], rank))
            fill = reads = Part(1.0, 1.0)
            matched: Any = 0.0
            if _is_simple(machine, t) and _pair(grid.expressions[t], rank):
                matched = _matched(grid, choice, t, level, rank, stays)
                spread = grid.constant_or_full(tables.reads[q, :nodes] / tables.share[q, :nodes])
                fill, reads = _links(grid, choice, t, child, int(plan.transfer_parent[q]), level, rank, spread)
                fill = fill if fanouts[child] > 1 else Part(1.0, 1.0)
            none = (stays > 0.0) & (matched == 0.0)
            for at, part in ((0, fill), (2, reads)):
                later = (1.0 - matched) * np.where(none, 1.0, part.later)
                into[at] = later
                into[at + 1] = (1.0 - stays) * np.where(none, 1.0, part.own) - later


class Grid:
    """A lattice with one axis per rank; what depends on few ranks only has length 1 along the other axes."""

    def __init__(self, machine: Machine, tables: Tables) -> None:
        self.axis = {int(r): i for i, r in enumerate(machine.axes)}
        self.shape = tuple(int(tables.count[r]) for r in machine.axes)
        self.inner = tables.inner
        self.values = {r: tables.value[r, : tables.count[r]].astype(float) for r in self.axis}
        self.expressions = [expressions_of(machine, t) for t in range(len(machine.is_output))]
        self.splits: dict[int, Any] = {}

    def extent(self, rank: int) -> Any:
        """Temporal extents of a rank."""
        return self.values[rank].reshape([-1 if i == self.axis[rank] else 1 for i in range(len(self.shape))])

    def left(self, rank: int) -> Any:
        """Iterations of a rank outside."""
        return self.values[rank][-1] / self.extent(rank)

    def several(self, rank: int) -> Any:
        """Whether what is left of a rank may make several loops."""
        if rank not in self.splits:
            self.splits[rank] = _composite(self.left(rank))
        return self.splits[rank]

    def along(self, nodes: Any, ranks: list[int]) -> Any:
        """What depends on ``ranks`` only, out of ``nodes``."""
        axes = {self.axis[r] for r in ranks}
        return nodes.reshape(self.shape)[tuple(slice(None) if i in axes else slice(0, 1) for i in range(len(self.shape)))]

    def constant_or_full(self, nodes: Any) -> Any:
        return nodes[0] if nodes.min() == nodes.max() else nodes.reshape(self.shape)


class Part(NamedTuple):
    """Least part of words that are not passed on by neighbours: in visits of the slide itself, in those of later loops."""

    own: Any
    later: Any


def _is_simple(machine: Machine, tensor: Any) -> bool:
    """Whether no rank occurs twice, and no sum has more than two ranks."""
    return not machine.is_diagonal[tensor] and all(len(terms) <= 2 for terms in expressions_of(machine, tensor))


def _least_slide(machine: Machine, tables: Tables, tensor: Any, child: int, nodes: int) -> Any:
    """``float64[nodes]``: the least part of the tile that a slide along some sum brings."""
    extents = tables.extent[:, :nodes] * tables.inner[child + 1][:, None]
    least: Any = np.ones(nodes)
    for terms in expressions_of(machine, tensor):
        if terms:
            length = 1.0 + sum(c * (extents[r] - 1.0) for r, c in terms)
            least = least * np.minimum(1.0, np.min([c * extents[r] for r, c in terms], axis=0) / length)
    return least


def _matched(grid: Grid, choice: Any, tensor: int, level: int, rank: int, stays: Any) -> Any:
    """The greatest part of the words of later visits that wraps take away, over the grid."""
    (_, by_own), (other, by_other) = _pair(grid.expressions[tensor], rank)
    own, more = grid.left(rank), grid.left(other)
    step = by_own * grid.extent(rank) * grid.inner[level + 1, rank]
    beside = by_other * grid.extent(other) * grid.inner[level + 1, other]
    several, several_beside = grid.several(rank), grid.several(other)
    if (choice[level + 1 :, [rank, other]] > 1).any():
        rest: Any = np.ones(np.broadcast_shapes(own.shape, more.shape), dtype=np.bool_)
    else:
        rest = (beside == step) | (beside == 2.0 * step) | (several & several_beside)
        rest |= several_beside & (np.mod(2.0 * step, beside) == 0.0) | several & (np.mod(beside, step) == 0.0)
    rest &= more > 1.0
    again = (np.mod(own, 2.0) == 0.0) & (own > 2.0)
    return np.maximum(np.where(rest, 1.0 - 2.0 / (own * more), 0.0), np.where(again, stays, 0.0))


def _ranks_of(expressions: list[list[Term]], rank: int) -> list[int]:
    """All ranks of the index expressions that ``rank`` is in."""
    return [r for terms in expressions if any(one == rank for one, _ in terms) for r, _ in terms]


def _pair(expressions: list[list[Term]], rank: int) -> list[Term]:
    """The term of ``rank`` and the other one of its sum; nothing when it stands alone: ranks of size 1 are left out."""
    for terms in expressions:
        if len(terms) == 2 and any(r == rank for r, _ in terms):
            return sorted(terms, key=lambda term: term[0] != rank)
    return []


def _links(
    grid: Grid, choice: Any, tensor: int, child: int, parent: int, level: int, rank: int, spread: Any
) -> tuple[Part, Part]:
    """What links leave of the words that one child gets from its parent, and of those that the parent delivers.

    ``spread`` are the words that the parent delivers per word into one child.
    """
    spatial, everything = choice[child + 1 : parent + 1], float(choice[child + 1 :].prod())
    expressions = grid.expressions[tensor]
    alone = [terms[0][0] for terms in expressions if len(terms) == 1]
    sums = {i: terms for i, terms in enumerate(expressions) if len(terms) == 2}
    parts = {i: float(prod(max(bounds[r] for r, _ in terms) for bounds in spatial)) for i, terms in sums.items()}
    if all(part == 1.0 for part in parts.values()):
        return Part(1.0, 1.0), Part(1.0, 1.0)
    apart = float(spatial[:, alone].prod())
    along = next(i for i, terms in sums.items() if any(r == rank for r, _ in terms))
    others = apart * prod(part for i, part in parts.items() if i != along)
    reachable = _reachable(grid, sums[along], spatial, child, level, rank)
    reads = Part(np.where(reachable, np.minimum(1.0, others / spread), 1.0), np.minimum(1.0, apart / spread))
    share = Part(np.where(reachable, min(1.0, others / everything), 1.0), min(1.0, apart / everything))
    return share, reads


def _reachable(grid: Grid, terms: list[Term], spatial: Any, child: int, level: int, rank: int) -> Any:
    """Whether spatial loops may give two elements offsets that differ by the slide's step, over the grid."""
    coefficient = next(c for r, c in terms if r == rank)
    step = coefficient * grid.extent(rank) * grid.inner[level + 1, rank]
    offsets = [
        (c * grid.extent(r) * grid.inner[child + 1, r], float(spatial[:, r].prod()))
        for r, c in terms
        if (spatial[:, r] > 1).any()
    ]
    if not offsets:
        return np.zeros_like(step, dtype=np.bool_)
    common = offsets[0][0].astype(np.int64)
    for offset, _ in offsets[1:]:
        common = np.gcd(common, offset.astype(np.int64))
    return (np.mod(step, common) == 0.0) & (step <= sum((bound - 1.0) * offset for offset, bound in offsets))


def _composite(numbers: Any) -> Any:
    """Which of the numbers are products of two numbers above 1."""
    values, at = np.unique(numbers, return_inverse=True)
    found = [n > 3 and any(int(n) % d == 0 for d in range(2, int(n**0.5) + 1)) for n in values]
    return np.array(found, dtype=np.bool_)[at].reshape(numbers.shape)
