"""The search's program: passes over the lattice of tile shapes that together walk every loop nest.

A *slot* is one table of costs-to-go over the lattice. It stands for a place in the nest (a level, and how far its
permutation has been walked) and for the tensors that are *unpaid* there. :func:`build_program` lists the operations that
fill the slots, outermost first; :mod:`stitchloop.search.passes` runs them, and :mod:`stitchloop.search.exact` proves that
nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np

from stitchloop.mapspace.factors import FactorRange, divisors
from stitchloop.mapspace.space import Mapspace
from stitchloop.workload import Einsum, Tensor

DEAD = -1
"""The slot from which no nest can be ended."""

END, EXIT, FREE, PAY, STEP, SLIDE = range(6)
"""Operations: the whole nest is walked; leave a level; loop over a rank at no cost; pay; pay and loop; the same with halo."""

COLUMNS = 13
"""kind, destination, source, rank, level, least bound, greatest bound, first of its destination, payments
(from, to), slides (from, to), whether a payment to the same slot stands beside it."""

EITHER, PLAIN, CHAINED = range(3)
"""What comes after a slide: any loop; no loop of its sum before others move the tile; one of its sum before them."""

CHAIN = 64
"""Times the number of a sum: what an :data:`Unpaid` holds of it while its next loop is awaited."""

UNLIMITED = 1 << 62

Op = tuple[int, int, int, int, int, int, list[int], list[int]]
"""(kind, source, rank, level, least bound, greatest bound, payments, slides)."""

Unpaid = tuple[int, ...]
"""Per tensor: how many of its transfers, the outermost ones begun, still run; and the sum of a :data:`CHAINED` slide."""


@dataclass(frozen=True)
class Transfers:
    """Who feeds whom when the keep sets are fixed: (tensor, child level, parent level), tensors in order, inner to outer."""

    tensor: tuple[int, ...]
    child: tuple[int, ...]
    parent: tuple[int, ...]
    first: tuple[int, ...]
    """Index of each tensor's first transfer; one entry more than tensors."""
    kept: tuple[tuple[int, ...], ...]
    """Levels that keep each tensor, inner to outer."""
    late: tuple[int, ...]
    """Per tensor: the fan-out above which the compute units' own transfer is settled, or -1 when spatial factors settle it.

    Such a transfer (child -1) stands after all others. What it costs depends on the tiles that the fan-out spreads, where
    an index expression sums several ranks that it may spread.
    """

    @classmethod
    def of(cls, space: Mapspace, keeps: Sequence[frozenset[str]]) -> Transfers:
        names = [tensor.name for tensor in space.einsum.tensors]
        tensors: list[int] = []
        children: list[int] = []
        parents: list[int] = []
        first = [0]
        kept = tuple(tuple(i for i, keep in enumerate(keeps) if name in keep) for name in names)
        for t, levels in enumerate(kept):
            for child, parent in pairwise(levels):
                tensors.append(t)
                children.append(child)
                parents.append(parent)
            first.append(len(tensors))
        late = tuple(_late(space, t, levels[0]) for t, levels in enumerate(kept))
        for t, fanout in enumerate(late):
            if fanout >= 0:
                tensors.append(t)
                children.append(-1)
                parents.append(kept[t][0])
        return cls(tuple(tensors), tuple(children), tuple(parents), tuple(first), kept, late)

    def computed(self, tensor: int) -> int:
        """Number of the late transfer of a tensor."""
        return self.first[-1] + sum(fanout >= 0 for fanout in self.late[:tensor])

    def begun(self, tensor: int, level: int) -> int:
        """Transfers of the tensor whose child is inside ``level``."""
        return sum(1 for k in self.kept[tensor][:-1] if k < level)


def _late(space: Mapspace, tensor: int, innermost: int) -> int:
    """The outermost fan-out up to level ``innermost`` that may spread tiles of different extents over a sum of ranks."""
    einsum = space.einsum
    for i in range(innermost, 0, -1):
        inside = [rank for rank in einsum.ranks if any(level.temporal.factors[rank].high != 1 for level in space.levels[:i])]
        for terms in einsum.tensors[tensor].projection:
            if _may_spread(space, i, {term.rank for term in terms}, set(inside)):
                return i
    return -1


def _may_spread(space: Mapspace, level: int, ranks: set[str], inside: set[str]) -> bool:
    """Whether a fan-out has room for loops over two of ``ranks``, some of which are looped over inside it."""
    spatial, sizes = space.levels[level].spatial, space.einsum.sizes
    least = {}
    for rank in ranks:
        bounds = [bound for bound in divisors(sizes[rank]) if bound > 1 and spatial.factors[rank].admits(bound)]
        if bounds:
            least[rank] = bounds[0]
    return bool(set(least) & inside) and any(a * b <= spatial.fanout for a, b in combinations(least.values(), 2))


def _sums(tensor: Tensor, einsum: Einsum) -> dict[int, int]:
    """The number, from 1, of the sum of two ranks that each rank is in; none if three are summed, or a rank stands twice."""
    expressions = [
        {term.rank for term in terms if term.coefficient and einsum.sizes[term.rank] > 1} for terms in tensor.projection
    ]
    if any(len(ranks) > 2 for ranks in expressions) or len(set().union(*expressions)) < sum(map(len, expressions)):
        return {}
    numbered = enumerate((ranks for ranks in expressions if len(ranks) == 2), 1)
    return {einsum.ranks.index(rank): number for number, ranks in numbered for rank in ranks}


@dataclass(frozen=True)
class Program:
    """Operations in the order of execution, those of one slot together.

    ``payments`` are runs of transfers, as (first, past the last): an unpaid tensor pays all of its transfers at once.
    """

    transfers: Transfers
    ops: Any
    op_pays: Any
    op_slides: Any
    pay_first: Any
    pay_last: Any
    slides: Any
    """Distinct slides: (payment, level, rank, what comes after)."""
    slot_ops: Any
    """Per slot: (first, past the last) of its operations."""
    slots: int
    root: int


class _Builder:
    def __init__(self, space: Mapspace, transfers: Transfers, at_once: frozenset[str], chained: bool) -> None:
        einsum = space.einsum
        self.space, self.transfers = space, transfers
        self.at_once = [tensor.name in at_once for tensor in einsum.tensors]
        self.sizes = einsum.rank_sizes
        self.ranks = einsum.ranks
        self.tensors = len(einsum.tensors)
        self.relevant = [frozenset(self.ranks.index(rank) for rank in tensor.ranks) for tensor in einsum.tensors]
        self.sliding = [
            frozenset(
                self.ranks.index(term.rank)
                for terms in tensor.projection
                if len({term.rank for term in terms}) > 1
                for term in terms
            )
            for tensor in einsum.tensors
        ]
        self.sums = [_sums(tensor, einsum) if chained else {} for tensor in einsum.tensors]
        self.ops: list[list[int]] = []
        self.op_pays: list[int] = []
        self.op_slides: list[int] = []
        self.pays: dict[tuple[int, int], int] = {}
        self.slides: dict[tuple[int, int, int, int], int] = {}
        self.slot_ops: list[tuple[int, int]] = []
        self.memo: dict[tuple[Any, ...], int] = {}

    # -- operations ---------------------------------------------------------------------------------------------------

    def pay(self, tensor: int, unpaid: int, level: int) -> int:
        """Number of the payment of the last ``unpaid`` transfers begun inside ``level``."""
        last = self.transfers.first[tensor] + self.transfers.begun(tensor, level)
        return self.pays.setdefault((last - unpaid, last), len(self.pays))

    def slot(self, key: tuple[Any, ...], ops: list[Op]) -> int:
        """A new slot filled by ``ops``, or DEAD when none leads anywhere."""
        ops = [op for op in ops if op[1] != DEAD]
        if not ops:
            self.memo[key] = DEAD
            return DEAD
        number, start = len(self.slot_ops), len(self.ops)
        for order, (kind, source, rank, level, least, greatest, pays, slides) in enumerate(ops):
            p, s = len(self.op_pays), len(self.op_slides)
            self.op_pays += pays
            self.op_slides += slides
            beside = kind == SLIDE and any(other[0] == PAY and other[1] == source for other in ops)
            numbers = [kind, number, source, rank, level, least, greatest, int(order == 0)]
            self.ops.append([*numbers, p, len(self.op_pays), s, len(self.op_slides), int(beside)])
        self.slot_ops.append((start, len(self.ops)))
        self.memo[key] = number
        return number

    # -- the nest, from outside in ------------------------------------------------------------------------------------

    def limits(self, level: int, rank: int) -> FactorRange:
        return self.space.levels[level].temporal.factors[self.ranks[rank]]

    def is_free(self, level: int, rank: int) -> bool:
        limits = self.limits(level, rank)
        return limits.low <= 1 and (limits.high is None or limits.high >= self.sizes[rank])

    def is_one(self, level: int, rank: int) -> bool:
        return self.sizes[rank] == 1 or self.limits(level, rank).high == 1

    def start(self, level: int, unpaid: Unpaid) -> int:
        """Slot of the inner end of a level's temporal loops."""
        if level == len(self.space.levels):
            if any(state >= CHAIN for state in unpaid):
                return DEAD
            key: tuple[Any, ...] = ("end", unpaid)
            if key in self.memo:
                return self.memo[key]
            end = self.memo.get(("end",))
            if end is None:
                end = self.slot(("end",), [(END, 0, 0, 0, 0, 0, [], [])])
            pays = [self.pay(t, n, level) for t, n in enumerate(unpaid) if n]
            return self.slot(key, [(PAY, end, 0, level, 0, 0, pays, [])])
        if not any(unpaid):
            return self._unordered(level, 0)
        return self._ordered(level, unpaid, "inner", 0)

    def leave(self, level: int, unpaid: Unpaid) -> int:
        """Slot of the outer end of a level's temporal loops."""
        key = ("leave", level, unpaid)
        if key in self.memo:
            return self.memo[key]
        begins = [level in kept[:-1] for kept in self.transfers.kept]
        begun = tuple(n + (begins[t] and not self.at_once[t]) for t, n in enumerate(unpaid))
        source = self.start(level + 1, begun)
        pays = [self.pay(t, 1, level + 1) for t, own in enumerate(begins) if own and self.at_once[t]]
        for t, fanout in enumerate(self.transfers.late):
            if fanout == level + 1:
                q = self.transfers.computed(t)
                pays.append(self.pays.setdefault((q, q + 1), len(self.pays)))
        if pays:
            source = self.slot((*key, "late"), [(PAY, source, 0, level, 0, 0, pays, [])])
        return self.slot(key, [(EXIT, source, 0, level, 0, 0, [], [])])

    def _unordered(self, level: int, rank: int) -> int:
        """All tensors are paid: the order of loops costs nothing, so the ranks are taken one by one."""
        none = (0,) * self.tensors
        while rank < len(self.ranks) and self.is_one(level, rank):
            rank += 1
        if rank == len(self.ranks):
            return self.leave(level, none)
        key = ("unordered", level, rank)
        if key in self.memo:
            return self.memo[key]
        source = self._unordered(level, rank + 1)
        if self.is_free(level, rank):
            return self.slot(key, [(FREE, source, rank, level, 1, UNLIMITED, [], [])])
        return self.slot(key, [*self._skip(level, rank, source), *self._loops(level, rank, none, lambda after: source)])

    def _skip(self, level: int, rank: int, source: int) -> list[Op]:
        return [(PAY, source, rank, level, 0, 0, [], [])] if self.limits(level, rank).low <= 1 else []

    def _loops(self, level: int, rank: int, unpaid: Unpaid, go_on: Callable[[Unpaid], int]) -> list[Op]:
        """Pay the tensors that the rank indexes, and loop over it; ``go_on`` gives the slot for what is unpaid after that."""
        if any(state >= CHAIN and rank in self.relevant[t] - self._awaited(t, state) for t, state in enumerate(unpaid)):
            return []
        limits = self.limits(level, rank)
        pays, sliding = [], []
        for t, n in enumerate(unpaid):
            if n % CHAIN and rank in self.relevant[t]:
                payment = self.pay(t, n % CHAIN, level)
                if rank in self.sliding[t]:
                    sliding.append((t, payment))
                else:
                    pays.append(payment)
        ops: list[Op] = []
        for ways in product(*((PLAIN, CHAINED) if rank in self.sums[t] else (EITHER,) for t, _ in sliding)):
            after, slides = list(self._after(rank, unpaid)), []
            for (t, payment), way in zip(sliding, ways):
                slides.append(self.slides.setdefault((payment, level, rank, way), len(self.slides)))
                after[t] = CHAIN * self.sums[t][rank] if way == CHAINED else 0
            kind, least = SLIDE if slides else STEP, max(2, limits.low)
            ops.append((kind, go_on(tuple(after)), rank, level, least, limits.high or UNLIMITED, pays, slides))
        return ops

    def _awaited(self, tensor: int, state: int) -> frozenset[int]:
        """Ranks of the sum of which a chained tensor awaits a loop."""
        return frozenset(rank for rank, number in self.sums[tensor].items() if number == state // CHAIN)

    def _after(self, rank: int, unpaid: Unpaid) -> Unpaid:
        return tuple(0 if rank in self.relevant[t] else n for t, n in enumerate(unpaid))

    def _ordered(self, level: int, unpaid: Unpaid, zone: str, position: int) -> int:
        """Walk the listed ranks of a permutation in their order."""
        temporal = self.space.levels[level].temporal
        listed = temporal.inner if zone == "inner" else temporal.outer
        while position < len(listed) and self.is_one(level, self.ranks.index(listed[position])):
            position += 1
        if position == len(listed):
            if zone == "outer":
                return self.leave(level, unpaid)
            restricted = frozenset(
                r
                for r in (self.ranks.index(name) for name in temporal.free)
                if not self.is_one(level, r) and not self.is_free(level, r)
            )
            return self._permuted(level, unpaid, restricted)
        key = ("ordered", level, unpaid, zone, position)
        if key in self.memo:
            return self.memo[key]
        rank = self.ranks.index(listed[position])
        rest = self._ordered(level, unpaid, zone, position + 1)
        if self._after(rank, unpaid) == unpaid and self.is_free(level, rank):
            return self.slot(key, [(FREE, rest, rank, level, 1, UNLIMITED, [], [])])
        loops = self._loops(level, rank, unpaid, lambda after: self._ordered(level, after, zone, position + 1))
        return self.slot(key, [*self._skip(level, rank, rest), *loops])

    def _permuted(self, level: int, unpaid: Unpaid, restricted: frozenset[int]) -> int:
        """The free part of a permutation. ``restricted``: ranks with bounds of their own that have no loop here yet."""
        key = ("permuted", level, unpaid, restricted)
        if key in self.memo:
            return self.memo[key]
        temporal = self.space.levels[level].temporal
        if restricted and not any(unpaid):
            rank = min(restricted)
            source = self._permuted(level, unpaid, restricted - {rank})
            return self.slot(key, [*self._skip(level, rank, source), *self._loops(level, rank, unpaid, lambda after: source)])
        free = [self.ranks.index(name) for name in temporal.free]
        free = [rank for rank in free if not self.is_one(level, rank) and self.is_free(level, rank)]
        alive = {rank for t, n in enumerate(unpaid) if n for rank in self.relevant[t]}
        ops: list[Op] = []
        if all(self.limits(level, rank).low <= 1 for rank in restricted):
            ops.append((PAY, self._ordered(level, unpaid, "outer", 0), 0, level, 0, 0, [], []))
        seen = set()
        for rank in free:
            if rank not in alive:
                continue
            after = self._after(rank, unpaid)
            loops = self._loops(level, rank, unpaid, lambda after: self._permuted(level, after, restricted))
            if any(state >= CHAIN and not after[t] for t, state in enumerate(unpaid)):
                ops += loops
                continue
            if after not in seen:
                seen.add(after)
                paid = [self.pay(t, n % CHAIN, level) for t, n in enumerate(unpaid) if n % CHAIN and not after[t]]
                ops.append((PAY, self._permuted(level, after, restricted), rank, level, 0, 0, paid, []))
            ops += [op for op in loops if op[0] == SLIDE]
        for rank in sorted(restricted):
            ops += self._loops(level, rank, unpaid, partial(self._permuted, level, restricted=restricted - {rank}))
        number = self.slot(key, ops)
        for rank in free:
            if rank not in alive:
                number = self.slot(key, [(FREE, number, rank, level, 1, UNLIMITED, [], [])])
        return number


def build_program(
    space: Mapspace, keeps: Sequence[frozenset[str]], at_once: frozenset[str] = frozenset(), chained: bool = False
) -> Program:
    """The program of a mapspace for fixed keep sets (one per level, inner to outer).

    Tensors in ``at_once`` never rest: they are paid where a level that keeps them ends. If ``chained``, slides along sums of two
    ranks are told apart by whether the next loop that moves their tensor runs along the same sum.
    """
    einsum = space.einsum
    transfers = Transfers.of(space, keeps)
    builder = _Builder(space, transfers, at_once, chained)
    root = builder.start(0, (0,) * len(einsum.tensors))
    pays = list(builder.pays)
    return Program(
        transfers,
        np.array(builder.ops, dtype=np.int64).reshape(-1, COLUMNS),
        np.array(builder.op_pays, dtype=np.int64),
        np.array(builder.op_slides, dtype=np.int64),
        np.array([first for first, _ in pays], dtype=np.int64),
        np.array([last for _, last in pays], dtype=np.int64),
        np.array(list(builder.slides), dtype=np.int64).reshape(-1, 4),
        np.array(builder.slot_ops, dtype=np.int64),
        len(builder.slot_ops),
        root,
    )
