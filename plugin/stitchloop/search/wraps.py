"""Lower bounds of what a sliding tensor moves under the tool's full count: link transfers and short wraps included.

The search's own count has neither. Both matter only to a tensor of which a rank sums several ranks of the Einsum, and only
if the first loop that moves its tile runs along such a sum: a step of any other loop never comes back later, and exceeds
all offsets that spatial loops give. So they matter to slides alone. A slide over rank a makes n steps of s along the sum,
n - 1 in n of all visits; ``part`` is (n - 1) / n. A step brings the tile but for what stays, the visits of later loops bring
the whole tile. From these words may go:

- *Short wraps.* A later loop counts as rest or as one more slide only if all loops that moved the tile so far run along the
  same sum, and its step equals theirs together, or that and s more. So unless the next loop that moves the tile runs along the
  sum there are none: the passes tell these two kinds of slides apart (:data:`stitchloop.search.program.CHAINED`). Let b be the
  sum's other rank, of step t there. If neither rank has more than one loop left, t is s or 2s. If b may have several, the steps
  of b alone have to make up s or 2s, so t divides 2s; if a may have several, t is a multiple of s; if both may, anything. Without
  any loop over b, only a can match, where its first loop makes two steps: then the tool's slide is a true one. Rest takes at most
  all later visits but for those that loops of other tensor ranks make; of these there is one in as many as the rest of a and b
  has iterations.
- *Link transfers.* A neighbour has what an element needs next only along a sum. So of each set of elements that differ in
  ranks that stand alone one at least reads from the parent, and when the slide itself advances, one of each set that differs
  in another sum too; and only if s is an offset that spatial loops can give along the sum, and if the deliveries have equal
  shapes: slides that overlap never do, unless wraps count as slides. What neighbours pass on, the tool shares among all instances
  of the child, those under other fan-outs further out included: then a child may be counted less than it gets.

Sums of more than two ranks, and tensors that repeat a rank, get half of their words, but for what the best slide keeps, and one
reading element. Level 0 with compute units side by side passes on stationary words too; all that they move is left out there.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from stitchloop.mapspace.factors import divisors
from stitchloop.search.arrays import Machine, Plan, Tables
from stitchloop.search.floors import sums_ranks
from stitchloop.search.program import PLAIN

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
    expressions = machine.sums
    axes, shape = machine.axes.tolist(), [int(tables.count[r]) for r in machine.axes]
    inside = tables.inner.astype(np.int64)
    known: dict[tuple[int, int, int, int], int] = {}
    spreads: dict[int, Any] = {}
    for slide, (_, level, rank, after) in enumerate(plan.slides.tolist()):
        first, last, row = plan.spans[slide].tolist()
        for q in range(first, last):
            own, t, child = row + q - first, int(plan.transfer_tensor[q]), int(plan.transfer_child[q])
            into = tables.loose[:, own, :nodes]
            if (key := (q, level, rank, after)) in known:
                into[:] = tables.loose[:, known[key], :nodes]
                continue
            known[key] = own
            pair = _pair(expressions[t], rank) if _is_simple(machine, t) else []
            if not pair:
                into[:] = np.stack(_parts(tables.staying[own, :nodes], 0.0, False, NO_LINKS, 1.0))
                continue
            spatial = choice[child + 1 : int(plan.transfer_parent[q]) + 1]
            mine, its = (
                Axis(c, int(machine.size[r] // inside[-1, r]), int(inside[level + 1, r]), int(inside[child + 1, r]),
                     tuple(spatial[:, r].tolist()))
                for r, c in pair
            )  # fmt: skip
            outside = bool((choice[level + 1 :, [r for r, _ in pair]] > 1).any())
            links = _links(expressions[t], spatial, rank, float(choice[child + 1 :].prod()) if fanouts[child] > 1 else 1.0)
            if q not in spreads:
                spreads[q] = _constant_or_all(tables.reads[q, :nodes] / tables.share[q, :nodes])
            places = [axes.index(r) for r, _ in pair]
            if np.ndim(spreads[q]) and links != NO_LINKS:
                geometry = _geometry(mine, its, outside, after != PLAIN)
                stays, matched, reachable = (_on_grid(array, places, shape) for array in geometry)
                parts = _parts(stays, matched, reachable, links, spreads[q].reshape(shape))
            else:
                table = _table(mine, its, outside, after != PLAIN, links, 1.0 if links == NO_LINKS else spreads[q])
                parts = [_on_grid(array, places, shape) for array in table]
            for k, part in enumerate(parts):
                into[k].reshape(shape)[:] = part


def _on_grid(table: Any, places: list[int], shape: list[int]) -> Any:
    """A table of two axes as part of a lattice of ``shape``, where they stand at ``places``."""
    turned = table if places[0] < places[1] else table.T
    return turned.reshape([size if i in places else 1 for i, size in enumerate(shape)])


class Axis(NamedTuple):
    """A rank of a sum, as far as a slide depends on it."""

    coefficient: int
    left: int
    """What spatial loops leave of the rank."""
    inside: int
    """Spatial factors inside the slide's level."""
    below: int
    """Spatial factors inside the child."""
    spread: tuple[int, ...]
    """Spatial bounds between child and parent."""

    @property
    def extents(self) -> Any:
        return np.array(divisors(self.left))


class Links(NamedTuple):
    """What neighbours pass on: see :func:`_parts`."""

    apart: float
    """Sets of elements that differ in ranks that stand alone."""
    others: float
    """The same, and in sums that the slide does not run along."""
    instances: float
    """Instances that the tool shares among what neighbours pass on."""


NO_LINKS = Links(inf, inf, 1.0)


def _constant_or_all(numbers: Any) -> Any:
    return float(numbers[0]) if numbers.min() == numbers.max() else numbers


@lru_cache(maxsize=1 << 14)
def _table(own: Axis, other: Axis, outside: bool, chained: bool, links: Links, spread: float) -> Any:
    """``float64[4, extents of own, extents of other]``: see :func:`loosen`."""
    return np.stack(np.broadcast_arrays(*_parts(*_geometry(own, other, outside, chained), links, spread)))


def _parts(stays: Any, matched: Any, reachable: Any, links: Links, spread: Any) -> list[Any]:
    """What is left of a slide's words: see :func:`loosen`.

    ``stays`` is the part of the tile that a whole slide leaves in the child, ``matched`` the greatest part of later visits that
    wraps take away, ``reachable`` whether spatial loops give the slide's step, and ``spread`` the words that the parent delivers
    per word into one child.
    """
    none, parts = (stays > 0.0) & (matched == 0.0), []
    for among in (links.instances, spread):
        step = np.where(reachable, np.minimum(1.0, links.others / among), 1.0)
        later = (1.0 - matched) * np.where(none, 1.0, np.minimum(1.0, links.apart / among))
        parts += [later, (1.0 - stays) * np.where(none, 1.0, step) - later]
    return parts


def _geometry(own: Axis, other: Axis, outside: bool, chained: bool) -> tuple[Any, Any, Any]:
    """``[extents of own, extents of other]``: stays, matched and reachable of :func:`_parts`.

    ``outside``: whether spatial loops over either rank stand outside the slide's level. ``chained``: whether the next loop
    that moves the tile may run along the same sum.
    """
    mine, its = own.extents[:, None], other.extents[None]
    step, beside = own.coefficient * own.inside * mine, other.coefficient * other.inside * its
    length = 1 + own.coefficient * (mine * own.below - 1) + other.coefficient * (its * other.below - 1)
    stays = np.maximum(0.0, length - step) / length
    left, more = own.left // mine, other.left // its
    several, several_beside = _composite(left), _composite(more)
    rest = (beside == step) | (beside == 2 * step) | (several & several_beside)
    rest |= several_beside & (2 * step % beside == 0) | several & (beside % step == 0)
    rest = (rest | outside) & (more > 1)
    again = (left % 2 == 0) & (left > 2)
    matched = np.maximum(np.where(rest, 1.0 - 2.0 / (left * more), 0.0), np.where(again, stays, 0.0)) * chained
    return stays, matched, np.broadcast_to(_reachable(own, other, step), stays.shape)


def _reachable(own: Axis, other: Axis, step: Any) -> Any:
    """Whether spatial loops may give two elements offsets that differ by the slide's step."""
    offsets = [
        (axis.coefficient * axis.below * extents, prod(axis.spread))
        for axis, extents in ((own, own.extents[:, None]), (other, other.extents[None]))
        if prod(axis.spread) > 1
    ]
    if not offsets:
        return np.zeros_like(step, dtype=np.bool_)
    common = offsets[0][0] if len(offsets) == 1 else np.gcd(offsets[0][0], offsets[1][0])
    return (step % common == 0) & (step <= sum((bound - 1) * offset for offset, bound in offsets))


def _links(expressions: list[list[Term]], spatial: Any, rank: int, instances: float) -> Links:
    """What links take of the words of a slide over ``rank``, with ``spatial[*, ranks]`` between child and parent."""
    alone = [terms[0][0] for terms in expressions if len(terms) == 1]
    sums = [terms for terms in expressions if len(terms) == 2]
    parts = [float(prod(max(bounds[r] for r, _ in terms) for bounds in spatial)) for terms in sums]
    if all(part == 1.0 for part in parts):
        return NO_LINKS
    apart = float(spatial[:, alone].prod())
    others = apart * prod(part for part, terms in zip(parts, sums) if all(r != rank for r, _ in terms))
    return Links(apart, others, instances)


def _is_simple(machine: Machine, tensor: Any) -> bool:
    """Whether no rank occurs twice, and no sum has more than two ranks."""
    return not machine.is_diagonal[tensor] and all(len(terms) <= 2 for terms in machine.sums[tensor])


def _least_slide(machine: Machine, tables: Tables, tensor: Any, child: int, nodes: int) -> Any:
    """``float64[nodes]``: the least part of the tile that a slide along some sum brings."""
    extents = tables.extent[:, :nodes] * tables.inner[child + 1][:, None]
    least: Any = np.ones(nodes)
    for terms in machine.sums[tensor]:
        if terms:
            length = 1.0 + sum(c * (extents[r] - 1.0) for r, c in terms)
            least = least * np.minimum(1.0, np.min([c * extents[r] for r, c in terms], axis=0) / length)
    return least


def _pair(expressions: list[list[Term]], rank: int) -> list[Term]:
    """The term of ``rank`` and the other one of its sum; nothing when it stands alone: ranks of size 1 are left out."""
    for terms in expressions:
        if len(terms) == 2 and any(r == rank for r, _ in terms):
            return sorted(terms, key=lambda term: term[0] != rank)
    return []


def _composite(numbers: Any) -> Any:
    """Which of the numbers are products of two numbers above 1."""
    values, at = np.unique(numbers, return_inverse=True)
    found = [n > 3 and any(int(n) % d == 0 for d in range(2, int(n**0.5) + 1)) for n in values]
    return np.array(found, dtype=np.bool_)[at].reshape(numbers.shape)
