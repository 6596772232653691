"""Exact counts of imperfect mappings, in closed form, rank by rank.

Same rules as for perfect mappings (a child gets what its tile did not hold before; loops outside that do not move the tile
cause no refill; equal deliveries under one fan-out are one read; the first read of each partial sum is elided), with every
partial tile at its own size, and two readings that perfect mappings do not need:

* an instance that idles in the last pass of some loop keeps its tile;
* two children share deliveries if their tiles coincide in every pass; children that differ only along ranks that the tensor
  does not have share in every pass in which they work.

Ranks are independent: the visits that the advance of one loop brings about are the product, over the ranks, of a few
:class:`~stitchloop.model.radix.State` each, so their words are products of sums over linked tensor ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import NamedTuple

from stitchloop.model.counting import Counting
from stitchloop.model.coverage import linked_ranks, outgrow, positions_covered
from stitchloop.model.radix import Branch, Digit, Radix, Segment, State, states
from stitchloop.model.tiles import Form

Choice = Sequence[int] | None
"""A branch of instances per rank of the Einsum; None is all instances together."""

Weighted = dict[tuple[Segment, ...], int]
"""Segments along a few ranks, with the number of elements that have them."""


class Moved(NamedTuple):
    """Words of tiles after their moves, and what of them was there before.

    ``common`` are the words held before, ``slid`` those of tiles that moved by one step of the innermost moving loop,
    ``rested`` those of tiles that held everything before, ``both`` those that are in ``slid`` and in ``rested``. Along
    independent tensor ranks all five multiply.
    """

    words: int
    common: int
    slid: int
    rested: int
    both: int

    def plus(self, weight: int, other: Moved) -> Moved:
        return Moved(
            self.words + weight * other.words,
            self.common + weight * other.common,
            self.slid + weight * other.slid,
            self.rested + weight * other.rested,
            self.both + weight * other.both,
        )

    def times(self, other: Moved) -> Moved:
        return Moved(
            self.words * other.words,
            self.common * other.common,
            self.slid * other.slid,
            self.rested * other.rested,
            self.both * other.both,
        )


class Path:
    """What flows of one tensor between level ``level`` and the tiles of level ``child`` inside it.

    Parameters
    ----------
    form, radices
        The tensor, and the digits of every rank of the Einsum.
    child : int
        The level whose tiles are filled; -1 for the compute units.
    level : int
        The level that feeds them, or ``child`` itself for the words that one of its instances gets.
    """

    def __init__(self, form: Form, radices: Sequence[Radix], child: int, level: int, counting: Counting) -> None:
        self.form, self.radices, self.child, self.level, self.counting = form, radices, child, level, counting
        self.branches = [radix.branches(level, child) for radix in radices]
        self.digits = [radix.temporal(child) for radix in radices]
        self.groups = [(rs, sorted({rank for r in rs for rank, _ in form.terms[r]})) for rs in linked_ranks(form)]
        self.others = [rank for rank, steps in enumerate(form.steps) if not steps]

    def words(self, choice: Choice = None) -> int:
        """Words that the level reads for its children, one read for all that share: per instance of ``choice``, or of all."""
        groups = [self._under(ranks, choice) for _, ranks in self.groups]
        others = [(rank, self._first(rank, choice)) for rank in self.others]
        if self.child < 0:
            total = prod(sum(many * prod(s.positions for s in segments) for segments, many in group.items()) for group in groups)
            return total * prod(sum(many * s.positions for s, many in first.items()) for _, first in others)
        total = prod(sum(first.values()) for _, first in others)
        for (rs, ranks), group in zip(self.groups, groups, strict=True):
            total *= sum(
                many * self._size(rs, dict(zip(ranks, [s.last if s.positions == 1 else s.full for s in segments], strict=True)))
                for segments, many in group.items()
            )
        for owner, digits in enumerate(self.digits):
            for digit in digits:
                total += self._advance(owner, digit, groups, others)
        return total

    def covered(self, choice: Choice = None) -> int:
        """Different words among the tiles of the children of one instance (or the sum of that over all instances)."""
        branches = [radix.branches(self.level, self.child, with_spatial=True) for radix in self.radices]
        words = prod(sum(branch.instances for branch in _chosen(branches, rank, choice)) for rank in self.others)
        for rs, ranks in self.groups:
            words *= sum(
                prod(branch.instances for branch in chosen) * self._union(rs, ranks, chosen)
                for chosen in product(*(_chosen(branches, rank, choice) for rank in ranks))
            )
        return words

    def _union(self, rs: Sequence[int], ranks: Sequence[int], chosen: Sequence[Branch]) -> int:
        runs = {}
        for rank, branch in zip(ranks, chosen, strict=True):
            radix = self.radices[rank]
            loops = [d for d in reversed(radix.digits) if d.level > self.child and (d.is_temporal or d.level <= self.level)]
            runs[rank] = (radix.close(branch, self.level, self.child), [(d.bound, d.stride) for d in loops])
        return positions_covered(self.form, rs, runs)

    def _advance(
        self, owner: int, digit: Digit, groups: Sequence[Weighted], others: Sequence[tuple[int, dict[Segment, int]]]
    ) -> int:
        """Words of all visits that the advance of one loop brings about."""
        times = 1
        for rank, first in others:
            along = [(many, self._states(rank, segment, owner, digit)) for segment, many in first.items()]
            times *= sum(many * sum(state.times for state in joint) for many, joint in along)
            if not times:
                return 0
        total = Moved(1, 1, 1, 1, 1)
        for (rs, ranks), group in zip(self.groups, groups, strict=True):
            part = Moved(0, 0, 0, 0, 0)
            for segments, many in group.items():
                along_ranks = [self._states(rank, segment, owner, digit) for rank, segment in zip(ranks, segments, strict=True)]
                for joint in product(*along_ranks):
                    weight = many * prod(state.times for state in joint)
                    part = part.plus(weight, self._move(rs, dict(zip(ranks, joint, strict=True))))
            total = total.times(part)
        held = total.common if self.counting.wraps_keep_overlap else total.slid + total.rested - total.both
        return times * (total.words - held)

    @cached_property
    def _slide(self) -> dict[int, int]:
        """One step of the innermost loop that moves the tile, along each tensor rank that it moves."""
        moving = [(digits[0], rank) for rank, digits in enumerate(self.digits) if digits and self.form.steps[rank]]
        if not moving:
            return {}
        digit, rank = min(moving, key=lambda item: item[0].order)
        return {r: c * digit.stride for r, c in self.form.steps[rank]}

    def _move(self, rs: Sequence[int], moved: dict[int, State]) -> Moved:
        """One move along linked tensor ranks."""
        size = common = 1
        slides = True
        for r in rs:
            before = after = 1
            shift = step = 0
            for rank, c in self.form.terms[r]:
                state = moved[rank]
                before += abs(c) * (state.before - 1)
                after += abs(c) * (state.after - 1)
                step += c * state.move
                shift += c * (state.move if c > 0 else state.move + state.after - state.before)
            size *= after
            common *= max(0, min(before, shift + after) - max(0, shift))
            slides &= step == self._slide.get(r, 0)
        rests = common == size
        return Moved(size, common, common if slides else 0, size if rests else 0, size if slides and rests else 0)

    def _states(self, rank: int, segment: Segment, owner: int, digit: Digit) -> list[State]:
        return states(self.digits[rank], segment, digit, is_own=rank == owner)

    def _size(self, rs: Sequence[int], extents: dict[int, int]) -> int:
        return prod(1 + sum(abs(c) * (extents[rank] - 1) for rank, c in self.form.terms[r]) for r in rs)

    def _first(self, rank: int, choice: Choice) -> dict[Segment, int]:
        """Segments along a rank that the tensor has not: digit 0 works whenever another does, and stands for all of them."""
        found: dict[Segment, int] = {}
        radix = self.radices[rank]
        full, boundary = radix.extents(self.child)
        for branch in _chosen(self.branches, rank, choice):
            positions, is_open = branch.positions, branch.is_open
            for index, inner in self._inside[rank]:
                d = radix.digits[index]
                if not is_open:
                    break
                if d.is_temporal:
                    positions += (d.last - 1) * inner
                elif d.last > 1 or radix.is_full_inside(index):
                    positions, is_open = positions + inner, False
            segment = Segment(positions + 1, full, boundary) if is_open else Segment(positions, full, full)
            found[segment] = found.get(segment, 0) + branch.instances
        return found

    def _under(self, ranks: Sequence[int], choice: Choice) -> Weighted:
        """Segments along linked ranks, one element for all that share, with their numbers."""
        if any(not branches for branches in self.branches):
            return {}
        found: dict[tuple[tuple[int, bool], ...], int] = {}
        for chosen in product(*(_chosen(self.branches, rank, choice) for rank in ranks)):
            start = tuple((branch.positions, branch.is_open) for branch in chosen)
            found[start] = found.get(start, 0) + prod(branch.instances for branch in chosen)
        for level in range(self.level, self.child, -1):
            found = self._descend(ranks, level, found)
        segments: Weighted = {}
        extents = [self.radices[rank].extents(self.child) for rank in ranks]
        for at, many in found.items():
            key = tuple(
                Segment(positions + 1, *ends) if is_open else Segment(positions, ends[0], ends[0])
                for (positions, is_open), ends in zip(at, extents, strict=True)
            )
            segments[key] = segments.get(key, 0) + many
        return segments

    def _descend(
        self, ranks: Sequence[int], level: int, found: dict[tuple[tuple[int, bool], ...], int]
    ) -> dict[tuple[tuple[int, bool], ...], int]:
        """Go through the loops of one level: first its temporal ones, then its elements."""
        at_level = [
            [(i, inner) for i, inner in self._inside[rank] if self.radices[rank].digits[i].level == level] for rank in ranks
        ]
        if not any(at_level):
            return found
        spatial = [
            [i for i, _ in inside if not self.radices[rank].digits[i].is_temporal]
            for rank, inside in zip(ranks, at_level, strict=True)
        ]
        apart = outgrow(
            (self.form.packed[rank] * self.radices[rank].digits[i].stride, self.radices[rank].digits[i].bound)
            for rank, indices in zip(ranks, spatial, strict=True)
            for i in indices
        )
        below: dict[tuple[tuple[int, bool], ...], int] = {}
        for at, many in found.items():
            entered = [self._enter(rank, inside, *state) for rank, inside, state in zip(ranks, at_level, at, strict=True)]
            if apart:
                for outcome in product(*({state: len(moves) for state, moves in e.items()}.items() for e in entered)):
                    key = tuple(state for state, _ in outcome)
                    below[key] = below.get(key, 0) + many * prod(count for _, count in outcome)
                continue
            different = {
                (tuple(state for state, _ in joint), sum(self.form.packed[rank] * move for rank, (_, move) in zip(ranks, joint)))
                for joint in product(*([(state, move) for state, moves in e.items() for move in moves] for e in entered))
            }
            for key, _ in different:
                below[key] = below.get(key, 0) + many
        return below

    def _enter(
        self, rank: int, inside: Sequence[tuple[int, int]], positions: int, is_open: bool
    ) -> dict[tuple[int, bool], Sequence[int]]:
        """What becomes of a state along one rank at one level: by new state, the offsets of the elements that are in it."""
        digits = self.radices[rank].digits
        offsets: Sequence[int] = range(1)
        limit, after = 0, 1
        full = True
        for index, inner in inside:
            d = digits[index]
            if d.is_temporal:
                positions += (d.last - 1) * inner if is_open else 0
                continue
            offsets = _steps(offsets, d)
            limit += (d.last - 1) * d.stride
            after, full = inner, self.radices[rank].is_full_inside(index)
        if not is_open or (len(offsets) == 1 and all(digits[i].is_temporal for i, _ in inside)):
            return {(positions, is_open): offsets}
        return _compare(offsets, limit, positions, after, full)

    @cached_property
    def _inside(self) -> list[list[tuple[int, int]]]:
        """Per rank, digits between child and level, outermost first: index, and the product of the temporal digits inside."""
        found = []
        for radix in self.radices:
            inner, listed = 1, []
            for index in range(len(radix.digits) - 1, -1, -1):
                d = radix.digits[index]
                if d.level <= self.child:
                    continue
                if d.level <= self.level:
                    listed.append((index, inner))
                if d.is_temporal:
                    inner *= d.bound
            found.append(listed[::-1])
        return found


def _chosen(branches: Sequence[Sequence[Branch]], rank: int, choice: Choice) -> Sequence[Branch]:
    """All branches of a rank, or the chosen one as a single instance."""
    if choice is None:
        return branches[rank]
    return [branches[rank][choice[rank]]._replace(instances=1)]


def _steps(offsets: Sequence[int], d: Digit) -> Sequence[int]:
    """Offsets after one more, inner, spatial digit; kept a range while they are evenly spaced."""
    if len(offsets) == 1:
        return range(offsets[0], offsets[0] + d.bound * d.stride, d.stride)
    return [offset + k * d.stride for offset in offsets for k in range(d.bound)]


def _compare(offsets: Sequence[int], limit: int, positions: int, inner: int, full: bool) -> dict[tuple[int, bool], Sequence[int]]:
    """Split the elements of one level by whether they come before, at or after the boundary."""
    found: dict[tuple[int, bool], Sequence[int]] = {}
    before = [offset for offset in offsets if offset < limit or (full and offset == limit)]
    if before:
        found[positions + inner, False] = before
    if not full:
        found[positions, True] = [limit]
    after = len(offsets) - len(before) - (0 if full else 1)
    if after and positions:
        found[positions, False] = [offset for offset in offsets if offset > limit]
    return found


def choices(radices: Sequence[Radix], level: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Kinds of instances of ``level``, instance 0 first: a branch per rank, and how many instances are of that kind."""
    branches = [radix.branches(level, level) for radix in radices]
    for joint in product(*(range(len(b)) for b in branches)):
        yield joint, prod(b[i].instances for b, i in zip(branches, joint, strict=True))
