"""Multicast, spatial reduction and link transfers under one level: section "Spatial" of the counting rules."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from stitchloop.errors import InputError
from stitchloop.model.counting import Counting
from stitchloop.model.delivery import Delivery, Visit
from stitchloop.model.tiles import Form, Trip

if TYPE_CHECKING:
    import numpy as np


MOST_ELEMENTS = 2**24

Classes = dict[int, int]
"""Elements grouped by what they get: group size (multicast factor) to number of such groups (the tool's scatter factor)."""


class Spread(NamedTuple):
    """What a level does for all its children together, in words over the whole run."""

    accesses: int
    """Reads of the parent (or partial sums that reach it): equal deliveries to several children are one."""
    words: int
    """Words that children get from the parent."""
    linked: int
    """Words that children get from a neighbour instead."""
    by_signature: dict[tuple[int, int], int]
    """``accesses`` by (multicast factor, scatter factor)."""


def classes(form: Form, trips: Sequence[Trip]) -> Classes:
    """Group the elements of the spatial loops ``trips`` by the offset of their tiles."""
    found: Classes = {1: 1}
    for trip in trips:
        if not form.packed[trip.rank]:
            found = {size * trip.bound: many for size, many in found.items()}
    for group in _groups(form, trips):
        found = _product(found, _classes_of_group(form, group))
    return found


def _classes_of_group(form: Form, trips: Sequence[Trip]) -> Classes:
    """Classes of loops that all move the tensor; steps that outgrow all smaller ones keep every element apart."""
    steps = sorted((abs(form.packed[trip.rank] * trip.stride), trip.bound) for trip in trips)
    reach = 0
    for step, bound in steps:
        if step <= reach:
            return class_sizes(offsets(form, trips))
        reach += step * (bound - 1)
    return {1: prod(trip.bound for trip in trips)}


def class_sizes(positions: np.ndarray[Any, Any]) -> Classes:
    """Classes of equal entries."""
    import numpy as np

    sizes, many = np.unique(np.unique(positions, return_counts=True)[1], return_counts=True)
    return dict(zip(sizes.tolist(), many.tolist(), strict=True))


def _product(one: Classes, other: Classes) -> Classes:
    """Classes of all pairs of elements, when the two parts move apart independently."""
    if other == {1: 1}:
        return one
    product: Classes = {}
    for size, many in one.items():
        for other_size, other_many in other.items():
            product[size * other_size] = product.get(size * other_size, 0) + many * other_many
    return product


def _groups(form: Form, trips: Sequence[Trip]) -> list[list[Trip]]:
    """Loops that move the tensor, put together where they share a tensor rank: offsets of different groups are independent."""
    groups: list[tuple[set[int], list[Trip]]] = []
    for trip in trips:
        touched = {r for r, _ in form.steps[trip.rank]}
        if not touched:
            continue
        members = [trip]
        for group in [g for g in groups if g[0] & touched]:
            groups.remove(group)
            touched |= group[0]
            members = group[1] + members
        groups.append((touched, members))
    return [members for _, members in groups]


def spread(
    form: Form, trips_x: Sequence[Trip], trips_y: Sequence[Trip], mesh_x: int, delivery: Delivery, counting: Counting
) -> Spread:
    """Spread the delivery to element 0 over all elements of a level's spatial loops.

    ``mesh_x`` is the physical fan-out along X under one instance.
    """
    trips = (*trips_x, *trips_y)
    total = delivery.total
    if not trips:
        return Spread(total, total, 0, {(1, 1): total})
    columns = prod(trip.bound for trip in trips_x)
    elements = prod((trip.bound for trip in trips_y), start=columns)
    everyone = classes(form, trips)
    apart = sum(everyone.values())
    signatures: dict[tuple[int, int], int] = {}
    linked, from_parent = 0, total
    candidates = link_candidates(delivery) if counting.links else []
    if candidates:
        grid = Grid(form, trips, max(columns, mesh_x) if counting.physical_pitch else columns)
        for weight, words, move in candidates:
            passed_on, rest = grid.linked(move)
            if sum(rest.values()) < apart:
                linked += passed_on * weight * words
                from_parent -= weight * words
                _add(signatures, rest, weight * words)
    _add(signatures, everyone, from_parent)
    return Spread(sum(signatures.values()), total * elements - linked, linked, signatures)


def _add(signatures: dict[tuple[int, int], int], groups: Classes, words: int) -> None:
    for size, many in groups.items():
        signatures[size, many] = signatures.get((size, many), 0) + many * words


def link_candidates(delivery: Delivery) -> list[tuple[int, int, int]]:
    """Visits whose delta has the shape of the delta before it: (how many, words of one, displacement).

    Before the advance of an outer loop came a step of the innermost one; before a step of the innermost loop came whatever
    opened its run: an outer loop's advance, or the first tile.
    """
    if not delivery.visits:
        return []
    inner, *outer = delivery.visits
    found = []
    if inner.words:
        per_run = inner.times // (1 + sum(visit.times for visit in outer))
        runs = sum(visit.times for visit in outer if _same_shape(visit, inner))
        if not inner.is_sliver:
            runs += 1
        if runs:
            found.append((per_run * runs, inner.words, inner.move))
        found += [(visit.times, visit.words, visit.move) for visit in outer if _same_shape(visit, inner)]
    return found


def _same_shape(one: Visit, other: Visit) -> bool:
    return one.words == other.words and one.is_sliver == other.is_sliver


class Grid:
    """The elements of one level's spatial loops in rows of ``columns``, with the offsets of their tiles."""

    def __init__(self, form: Form, trips: Sequence[Trip], columns: int) -> None:
        import numpy as np

        self.columns = columns
        self.offsets = offsets(form, trips)
        self.elements = len(self.offsets)
        self.same_row = np.arange(1, self.elements) % columns != 0
        self.known: dict[int, tuple[int, Classes]] = {}

    def linked(self, move: int) -> tuple[int, Classes]:
        """Elements whose neighbour held the same box before a displacement ``move``, and the classes of the other elements."""
        if move not in self.known:
            self.known[move] = self._linked(move)
        return self.known[move]

    def _linked(self, move: int) -> tuple[int, Classes]:
        import numpy as np

        offsets, columns = self.offsets, self.columns
        mask = np.zeros(self.elements, dtype=bool)
        right = offsets[1:] - offsets[:-1]
        mask[:-1] |= self.same_row & (right == move)
        mask[1:] |= self.same_row & (right == -move)
        if columns < self.elements:
            down = offsets[columns:] - offsets[:-columns]
            mask[:-columns] |= down == move
            mask[columns:] |= down == -move
        passed_on = int(np.count_nonzero(mask))
        if not passed_on:
            return 0, {1: self.elements}
        return passed_on, class_sizes(offsets[~mask])


def offsets(form: Form, trips: Sequence[Trip]) -> np.ndarray[Any, Any]:
    """Packed offset of each element's tile, in the tool's dense numbering; Python integers where 64 bits do not hold them."""
    import numpy as np

    elements = prod(trip.bound for trip in trips)
    if elements > MOST_ELEMENTS:
        raise InputError(None, f"{elements} elements under one level", f"at most {MOST_ELEMENTS} are told apart one by one")
    positions = np.zeros(1, dtype=np.int64 if form.radix[-1] < 2**63 else object)
    for trip in trips:
        step = form.packed[trip.rank] * trip.stride
        steps = np.arange(trip.bound, dtype=positions.dtype) * step
        positions = (steps[:, None] + positions[None, :]).ravel()
    return positions
