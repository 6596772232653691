"""How many different words a tile touches on its way through the loops: sets of positions as the bits of integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod

from stitchloop.errors import InputError
from stitchloop.model.radix import Segment
from stitchloop.model.tiles import Form

MOST_POSITIONS = 2**30
"""Bits of the largest set: 128 MiB."""

Run = tuple[Segment, Sequence[tuple[int, int]]]
"""Positions of a tile along one rank of the Einsum, and the loops (bound, stride) that spell them, innermost first."""


def linked_ranks(form: Form) -> list[list[int]]:
    """Tensor ranks, put together where they share a rank of the Einsum; different groups move independently."""
    groups: list[tuple[set[int], list[int]]] = []
    for r, expression in enumerate(form.terms):
        ranks, members = {rank for rank, _ in expression}, [r]
        for group in [g for g in groups if g[0] & ranks]:
            groups.remove(group)
            ranks |= group[0]
            members = group[1] + members
        groups.append((ranks, members))
    return [members for _, members in groups]


def outgrow(progressions: Iterable[tuple[int, int]]) -> bool:
    """Whether each (step, length) outgrows all smaller ones together, so that all sums of one element of each differ."""
    reach = 0
    for step, length in sorted((abs(step), length) for step, length in progressions):
        if step <= reach:
            return False
        reach += step * (length - 1)
    return True


def covered(form: Form, runs: Mapping[int, Run]) -> int:
    """Different words of the tensor in a tile at all its positions; ``runs`` has every rank of the Einsum that moves it."""
    return prod(positions_covered(form, rs, runs) for rs in linked_ranks(form))


def positions_covered(form: Form, rs: Sequence[int], runs: Mapping[int, Run]) -> int:
    """Different positions along the linked tensor ranks ``rs`` in a tile at all its positions."""
    ranks = sorted({rank for r in rs for rank, _ in form.terms[r]})
    if len(rs) == 1 and len(ranks) <= 1:
        if not ranks:
            return 1
        segment, c = runs[ranks[0]][0], abs(form.terms[rs[0]][0][1])
        return (segment.positions - 1) * (1 + c * (segment.full - 1)) + 1 + c * (segment.last - 1)
    units = _units(form, rs, runs)
    options = []
    for rank in ranks:
        segment, loops = runs[rank]
        step = sum(c * units[r] for r, c in form.steps[rank] if r in units)
        early, last = _spell(segment.positions - 1, loops, step)
        lag = sum(-c * (segment.full - segment.last) * units[r] for r, c in form.steps[rank] if r in units and c < 0)
        options.append([(bits, extent) for bits, extent in ((early, segment.full), (1 << (last + lag), segment.last)) if bits])
    union = 0
    for chosen in product(*options):
        bits = 1
        for positions, _ in chosen:
            bits = _sums(bits, positions)
        extents = dict(zip(ranks, (extent for _, extent in chosen), strict=True))
        for r in rs:
            bits = _repeat(bits, 1 + sum(abs(c) * (extents[rank] - 1) for rank, c in form.terms[r]), units[r])
        union |= bits
    return union.bit_count()


def _units(form: Form, rs: Sequence[int], runs: Mapping[int, Run]) -> dict[int, int]:
    """Weights that pack positions along several tensor ranks into one number without collisions."""
    units, unit = {}, 1
    for r in rs:
        units[r] = unit
        reach = 1
        for rank, c in form.terms[r]:
            segment, loops = runs[rank]
            reach += abs(c) * (segment.full - 1 + sum((bound - 1) * stride for bound, stride in loops))
        unit *= 2 * reach
    if unit > MOST_POSITIONS:
        found = f"{form.name} has {unit} positions to tell apart"
        raise InputError(None, found, f"at most {MOST_POSITIONS} are counted one by one")
    return units


def _spell(last: int, loops: Sequence[tuple[int, int]], step: int) -> tuple[int, int]:
    """Packed positions of the numbers below ``last`` as bits, and that of ``last``; never negative."""
    everything, early, position = 1, 0, 0
    for bound, stride in loops:
        last, digit = divmod(last, bound)
        gap = stride * abs(step)
        shift = (digit if step > 0 else bound - 1 - digit) * gap
        before = _repeat(everything, digit, gap) << (0 if step > 0 else (bound - digit) * gap)
        early = early << shift | before
        position += shift
        everything = _repeat(everything, bound, gap)
    return early, position


def _repeat(bits: int, times: int, gap: int) -> int:
    """The set together with its copies at 1, 2, ... ``times - 1`` gaps; empty for no times."""
    if times == 0:
        return 0
    done = 1
    while done < times:
        grow = min(done, times - done)
        bits |= bits << (grow * gap)
        done += grow
    return bits


def _sums(one: int, other: int) -> int:
    """All sums of an element of one set and an element of the other."""
    few, many = sorted((one, other), key=int.bit_count)
    sums = 0
    while few:
        lowest = few & -few
        sums |= many << (lowest.bit_length() - 1)
        few ^= lowest
    return sums
