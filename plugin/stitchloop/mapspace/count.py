"""How many mappings a mapspace holds, without listing them."""

from __future__ import annotations

from math import comb, factorial
from typing import Any

import numpy as np

from stitchloop.mapspace.factors import FactorRange, divisors
from stitchloop.mapspace.orders import LoopSpace, SpatialSpace
from stitchloop.mapspace.space import Mapspace

Array = Any
"""Object arrays of Python integers: the counts exceed 64 bits."""


def count_mappings(mapspace: Mapspace) -> int:
    """The exact number of mappings: factorisations x permutations x spatial layouts x keep sets.

    Loops of bound 1 are dropped, so permutations of such loops are counted once (Timeloop's own figure counts them as
    distinct). Mappings that capacity, fan-out or a bound on a product (parallelism, utilisation, sequential factors)
    rejects are counted: they belong to what a search has to rule out.

    Method: the number of orders of a slot depends only on how many free and how many listed ranks have loops there. A
    table over all ranks is filled slot by slot. Its axis for a rank counts the slots with a loop over it - all ways to
    fill ``k`` slots with bounds above 1 are the same in number, whichever slots they are - or, for a rank with ``<=`` or
    ``>=`` constraints, holds what of the rank is still to be covered.
    """
    ranks = [rank for rank in mapspace.einsum.ranks if mapspace.einsum.sizes[rank] > 1]
    axes = [_axis(mapspace, rank) for rank in ranks]
    table = np.zeros([axis.length for axis in axes], dtype=object)
    table[tuple(axis.start for axis in axes)] = 1
    for number, slot in enumerate(mapspace.slots):
        table = _fill_slot(table, mapspace.loops(slot), ranks, axes, number)
    for axis in reversed(axes):
        table = np.dot(table, axis.ending)
    keep_sets = 1
    for level in mapspace.levels:
        keep_sets *= 1 << len(level.tensors.free)
    return int(table.item() if isinstance(table, np.ndarray) else table) * keep_sets


class _Axis:
    """One rank's axis of the table: its states, how a slot changes them, and how many ways each final state stands for."""

    length: int
    start: int
    ending: Array

    def idle(self, number: int, table: Array, axis: int) -> Array | None:
        """The table when the rank has no loop in slot ``number``; None when it has to have one."""
        raise NotImplementedError

    def looped(self, number: int, table: Array, axis: int) -> Array | None:
        """The table when it has one; None when it may not."""
        raise NotImplementedError


class _CountAxis(_Axis):
    """For a rank whose slots are free or exact: the state is the number of its free slots that have a loop."""

    def __init__(self, size: int, limits: tuple[FactorRange, ...], weighted: list[bool], imperfect: bool) -> None:
        self.limits, self.weighted = limits, weighted
        left, exacts = size, [limit.exact for limit in limits if limit.exact is not None]
        for bound in exacts:
            left = left // bound if left % bound == 0 else 0
        chains = _chains(left, imperfect) if left else [0]
        open_slots = [flag for limit, flag in zip(limits, weighted) if limit.exact is None]
        unweighted = len(open_slots) - sum(open_slots)
        most = min(sum(open_slots), len(chains) - 1)
        self.length, self.start = most + 1, 0
        ways = [
            sum(comb(unweighted, more) * chains[count + more] for more in range(len(chains) - count)) for count in range(most + 1)
        ]
        self.ending = np.array(ways, dtype=object)

    def idle(self, number: int, table: Array, axis: int) -> Array | None:
        return table if self.limits[number].exact in (None, 1) else None

    def looped(self, number: int, table: Array, axis: int) -> Array | None:
        exact = self.limits[number].exact
        if exact is not None:
            return None if exact == 1 else table
        if not self.weighted[number] or self.length == 1:
            return None
        after = np.zeros_like(table)
        np.moveaxis(after, axis, 0)[1:] = np.moveaxis(table, axis, 0)[:-1]
        return after


class _LeftAxis(_Axis):
    """For a rank with ranges: the state is what is still to be covered by the slots outside."""

    def __init__(self, size: int, limits: tuple[FactorRange, ...], imperfect: bool) -> None:
        self.limits, self.imperfect = limits, imperfect
        self.states = left_states(size, imperfect)
        self.index = {left: number for number, left in enumerate(self.states)}
        self.length, self.start = len(self.states), self.index[size]
        self.ending = np.array([int(left == 1) for left in self.states], dtype=object)

    def idle(self, number: int, table: Array, axis: int) -> Array | None:
        return table if self.limits[number].admits(1) else None

    def looped(self, number: int, table: Array, axis: int) -> Array | None:
        after = np.zeros_like(table)
        source, target = np.moveaxis(table, axis, 0), np.moveaxis(after, axis, 0)
        for left in self.states:
            for then, ways in _steps(left, self.limits[number], self.imperfect):
                target[self.index[then]] += ways * source[self.index[left]]
        return after


def _axis(mapspace: Mapspace, rank: str) -> _Axis:
    limits = mapspace.limits(rank)
    size = mapspace.einsum.sizes[rank]
    exact = [limit.exact for limit in limits]
    ranged = any(bound is None and not limit.is_free for bound, limit in zip(exact, limits))
    if ranged or (mapspace.imperfect and any(bound not in (None, 1) for bound in exact)):
        return _LeftAxis(size, limits, mapspace.imperfect)
    weighted = [_is_weighted(mapspace.loops(slot)) for slot in mapspace.slots]
    return _CountAxis(size, limits, weighted, mapspace.imperfect)


def _is_weighted(loops: LoopSpace) -> bool:
    """Whether the number of orders depends on which ranks have loops."""
    if isinstance(loops, SpatialSpace):
        return bool(loops.free) or loops.split is None
    return bool(loops.free) and not loops.canonical


def _fill_slot(table: Array, loops: LoopSpace, ranks: list[str], axes: list[_Axis], number: int) -> Array:
    """The table after one slot: every set of looped ranks, weighted by the number of its orders."""
    by_counts = {(0, 0): table}
    for position, (rank, axis) in enumerate(zip(ranks, axes)):
        is_free = rank in loops.free
        after: dict[tuple[int, int], Array] = {}
        for (free, listed), part in by_counts.items():
            with_loop = free + is_free, listed + (not is_free)
            for key, moved in (
                ((free, listed), axis.idle(number, part, position)),
                (with_loop, axis.looped(number, part, position)),
            ):
                if moved is not None:
                    after[key] = after[key] + moved if key in after else moved
        by_counts = after
    return sum((part * _orders(loops, *key) for key, part in by_counts.items()), np.zeros_like(table))


def _orders(loops: LoopSpace, free: int, listed: int) -> int:
    """Number of orders (and layouts) of ``free`` loops over free ranks and ``listed`` ones over listed ranks."""
    if not isinstance(loops, SpatialSpace):
        return 1 if loops.canonical else factorial(free)
    cuts = free + listed + 1 if loops.split is None else len(loops.free_on_x(free))
    return factorial(free) * cuts


def left_states(size: int, imperfect: bool) -> list[int]:
    """Everything that may be left of a rank of ``size`` for outer slots, ascending."""
    if not imperfect:
        return list(divisors(size))
    states: set[int] = set()
    fresh = {size}
    while fresh:
        states |= fresh
        fresh = {after for left in fresh for after, _ in _steps(left, FactorRange(), True)} - states
    return sorted(states)


def _steps(left: int, limit: FactorRange, imperfect: bool) -> list[tuple[int, int]]:
    """(what is left after a bound above 1, number of such bounds), for every value."""
    if not imperfect:
        return [(left // bound, 1) for bound in divisors(left) if bound > 1 and limit.admits(bound)]
    steps, bound, high = [], max(2, limit.low), min(left, limit.high or left)
    while bound <= high:
        after = -(-left // bound)
        last = min(high, (left - 1) // (after - 1) if after > 1 else left)
        steps.append((after, last - bound + 1))
        bound = last + 1
    return steps


def _chains(size: int, imperfect: bool) -> list[int]:
    """How many ways there are to cover ``size`` by exactly 0, 1, 2, ... bounds above 1."""
    states = left_states(size, imperfect)
    ways = {size: 1}
    counts = []
    while ways:
        counts.append(ways.get(1, 0))
        after: dict[int, int] = {}
        for left, many in ways.items():
            for then, more in _steps(left, FactorRange(), imperfect) if left > 1 else ():
                after[then] = after.get(then, 0) + many * more
        ways = after
    assert len(counts) <= len(states) + 1
    return counts
