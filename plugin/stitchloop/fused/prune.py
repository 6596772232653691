"""Symbolic pruning: drop a row when another is proved at most as large, for every tiling, before any tiling is known.

A row ``v`` goes when some row ``u`` of its group has at most its DRAM access and at most its buffer demand. The buffer demand
is the largest of the phases' sums. For two phases ``P`` and ``C`` the proof uses ``max(P_v, C_v) >= lam*P_v + (1-lam)*C_v``:
each of ``u``'s sums must have some ``lam`` in [0, 1] for which its terms can be routed onto larger terms of ``v`` whose
capacities are ``lam`` (terms of ``P_v``) and ``1-lam`` (terms of ``C_v``). By Hall's condition such a routing exists exactly
when every subset of the terms finds enough capacity among its larger terms: one linear inequality in ``lam`` per subset,
decided in exact rationals.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import NamedTuple, Protocol

import numpy as np

from stitchloop.fused.monomials import Extent, Monomial, at_most
from stitchloop.fused.shape import Operand, Structure
from stitchloop.fused.template import Choice, Row, Skeleton, Walk, assemble, choices, level_count, skeletons, useful

SAMPLES = 48


@dataclass(frozen=True)
class Pruned:
    """The rows that survive, and what they stand for.

    Attributes
    ----------
    rows : tuple of Row
    raw : int
        Templates in the mapspace.
    raw_by_repeats : dict
        The same, for each set of recomputed ranks.
    distinct : int
        Rows after the retention levels that another level of the same tensor beats were left out and equal rows were merged.
    """

    rows: tuple[Row, ...]
    raw: int
    raw_by_repeats: dict[tuple[frozenset[int], ...], int]
    distinct: int


class Routing(NamedTuple):
    """Proof that a sum of terms is at most the largest of some sums: ``share`` of the first, the rest of the second."""

    share: Fraction


def routing(terms: Sequence[Monomial], first: Sequence[Monomial], second: Sequence[Monomial]) -> Routing | None:
    """A convex combination of two sums onto whose larger terms ``terms`` can be routed, or None."""
    above_first = [sum(1 << at for at, large in enumerate(first) if at_most(small, large)) for small in terms]
    above_second = [sum(1 << at for at, large in enumerate(second) if at_most(small, large)) for small in terms]
    low, high = Fraction(0), Fraction(1)
    reach = {0: (0, 0)}
    for subset in range(1, 1 << len(terms)):
        top = subset.bit_length() - 1
        a, b = reach[subset ^ (1 << top)]
        a, b = a | above_first[top], b | above_second[top]
        reach[subset] = (a, b)
        slope, offset = a.bit_count() - b.bit_count(), b.bit_count() - subset.bit_count()
        if slope > 0:
            low = max(low, Fraction(-offset, slope))
        elif slope < 0:
            high = min(high, Fraction(offset, -slope))
        elif offset < 0:
            return None
        if low > high:
            return None
    return Routing(low)


def buffer_proof(u: Row, v: Row) -> tuple[Routing, ...] | None:
    """For each phase of ``u`` a proof that it is at most ``v``'s buffer demand, or None."""
    if len(v.phases) == 1:
        pairs = [(v.phases[0], v.phases[0])]
    else:
        pairs = [(v.phases[a], v.phases[b]) for a in range(len(v.phases)) for b in range(a + 1, len(v.phases))]
    proofs = []
    for terms in u.phases:
        proof = next((found for a, b in pairs if (found := routing(terms, a, b)) is not None), None)
        if proof is None:
            return None
        proofs.append(proof)
    return tuple(proofs)


def dominates(u: Row, v: Row) -> bool:
    """Whether ``u`` is proved no worse than ``v`` for every tiling, in buffer demand and in DRAM access."""
    moves = all(at_most(a, b) for us, vs in zip(u.dram, v.dram) for a, b in zip(us, vs))
    return moves and u.group == v.group and buffer_proof(u, v) is not None


class Mapspace(Protocol):
    """Which templates are looked at."""

    def admits(self, structure: Structure, walks: tuple[Walk, ...]) -> bool:
        """Whether these loops belong to it."""

    def levels(self, walk: Walk, operand: Operand) -> tuple[Choice, ...]:
        """The retention levels that a tensor may have."""


class Everything:
    """All templates."""

    def admits(self, structure: Structure, walks: tuple[Walk, ...]) -> bool:
        return True

    def levels(self, walk: Walk, operand: Operand) -> tuple[Choice, ...]:
        return choices(walk, operand)


def prune(structure: Structure, mapspace: Mapspace | None = None) -> Pruned:
    """Enumerate the templates of a structure and keep those that no other is proved to equal or beat."""
    raw: dict[tuple[frozenset[int], ...], int] = defaultdict(int)
    groups: dict[object, dict[object, Row]] = defaultdict(dict)
    for skeleton in skeletons(structure):
        if mapspace is not None and not mapspace.admits(structure, skeleton.first):
            continue
        options = [op_options(walks, mapspace or Everything()) for walks in skeleton.orders]
        for chosen in product(*options):
            row = assemble(structure, tuple(o.walk for o in chosen), tuple(o.picks for o in chosen))
            groups[row.group].setdefault((row.phases, row.dram), row)
        raw[row.repeats] += _raw(skeleton, mapspace)
    rows = [row for group in groups.values() for row in undominated(list(group.values()))]
    return Pruned(tuple(rows), sum(raw.values()), dict(raw), sum(map(len, groups.values())))


def _raw(skeleton: Skeleton, mapspace: Mapspace | None) -> int:
    """Templates that a skeleton stands for."""

    def levels(walk: Walk, operand: Operand) -> int:
        return level_count(skeleton, walk, operand) if mapspace is None else len(mapspace.levels(walk, operand))

    return prod(sum(prod(levels(walk, o) for o in walk.op.operands) for walk in walks) for walks in skeleton.orders)


class OpOption(NamedTuple):
    """One Einsum's loop order and retention levels; blocks that keep their place through all phases, and those of its own
    phase."""

    walk: Walk
    picks: tuple[Choice, ...]
    held: tuple[Monomial, ...]
    own: tuple[Monomial, ...]


def op_options(walks: Sequence[Walk], mapspace: Mapspace) -> list[OpOption]:
    """The options of one Einsum under given shared loops, without those that another of them equals or beats by proof."""
    found: dict[object, OpOption] = {}
    for walk in walks:
        for picks in product(*(useful(mapspace.levels(walk, o)) for o in walk.op.operands)):
            blocks = [(pick.held, pick.block) for pick in picks]
            held, own = (tuple(sorted(block for is_held, block in blocks if is_held is kind)) for kind in (True, False))
            found.setdefault((held, own, tuple(pick.dram for pick in picks)), OpOption(walk, picks, held, own))
    options = list(found.values())
    if len(walks) == 1:
        return options
    return [
        v
        for n, v in enumerate(options)
        if not any(_beats(u, v) and (m < n or not _beats(v, u)) for m, u in enumerate(options) if m != n)
    ]


def _beats(u: OpOption, v: OpOption) -> bool:
    if not all(at_most(a.dram, b.dram) for a, b in zip(u.picks, v.picks)):
        return False
    return routing(u.held, v.held, v.held) is not None and routing(u.held + u.own, v.held + v.own, v.held + v.own) is not None


def undominated(rows: list[Row]) -> list[Row]:
    """The rows that no other row dominates, one of each set of equals.

    Values at sample tilings only refute: a row that is larger at one of them cannot dominate. Every row that is dropped is
    dropped by proof.
    """
    buffer, dram = _sampled(rows)
    order = sorted(range(len(rows)), key=lambda at: (float(np.log(buffer[at]).sum() + np.log(dram[at]).sum()), at))
    kept: list[int] = []
    dropped: list[int] = []
    for at in order:
        below = (_perhaps_below(at, others, buffer, dram) for others in (kept, dropped))
        is_below = any(dominates(rows[other], rows[at]) for others in below for other in others)
        (dropped if is_below else kept).append(at)
    return [rows[at] for at in sorted(kept)]


def _perhaps_below(at: int, others: list[int], buffer: np.ndarray, dram: np.ndarray) -> list[int]:
    if not others:
        return []
    index = np.array(others)
    slack = 1 + 1e-12
    below = (buffer[index] <= buffer[at] * slack).all(axis=1) & (dram[index] <= dram[at] * slack).all(axis=1)
    return [int(i) for i in index[below]]


def _sampled(rows: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Buffer demand and DRAM access of each row at sample tilings: two arrays (rows, samples)."""
    chance = random.Random(5)
    monomials = sorted({m for row in rows for terms in (*row.phases, *row.dram) for m in terms})
    ranks = {extent.rank for m in monomials for extent, _ in m}
    tilings = []
    for _ in range(SAMPLES):
        tiles = {rank: (2 ** chance.randint(0, 9), 2 ** chance.randint(0, 9)) for rank in ranks}
        tilings.append(tiles)
    values = {m: np.array([_value(m, tiles) for tiles in tilings], dtype=float) for m in monomials}
    buffer = np.array([np.max([np.sum([values[m] for m in phase], axis=0) for phase in row.phases], axis=0) for row in rows])
    dram = np.array([np.sum([values[m] for terms in row.dram for m in terms if m], axis=0) for row in rows])
    return buffer, dram


def _value(monomial: Monomial, tiles: dict[int, tuple[int, int]]) -> float:
    value = 1
    for extent, exponent in monomial:
        value *= extent_value(extent, *tiles[extent.rank]) ** exponent
    return float(value)


def extent_value(extent: Extent, tile: int, trips: int, size: int | None = None) -> int:
    """The extent for a tile, its trip count and the size of the rank (``tile * trips`` unless given)."""
    size = tile * trips if size is None else size
    value = extent.tile * tile + extent.full * size + extent.trips * trips + extent.constant
    if extent.own:
        reach = extent.stride * (size - 1) + extent.window
        value += extent.own * -(-reach // (extent.stride * (tile - 1) + extent.window))
    return value
