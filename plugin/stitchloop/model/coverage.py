"""How many different words a tile touches on its way through the loops."""

from __future__ import annotations

from collections.abc import Sequence

from stitchloop.model.tiles import Extents, Form, Trip


def covered(form: Form, tile: Extents, trips: Sequence[Trip]) -> int:
    """Different words in a tile of extents ``tile`` at all the positions that the loops ``trips`` give it."""
    lengths = form.lengths(tile)
    words = 1
    for group in linked_ranks(form):
        units, unit = {}, 1
        for r in group:
            units[r] = unit
            reach = (abs(c) * t.stride * (t.bound - 1) for t in trips for q, c in form.steps[t.rank] if q == r)
            unit *= 2 * (lengths[r] + sum(reach))
        moves = [(t.bound, t.stride * sum(c * units.get(r, 0) for r, c in form.steps[t.rank])) for t in trips]
        words *= distinct([*((lengths[r], units[r]) for r in group), *moves])
    return words


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


def distinct(progressions: Sequence[tuple[int, int]]) -> int:
    """Size of the sum set of arithmetic progressions (length, step).

    Steps that outgrow all smaller ones give a plain product; else the set is built as the bits of one integer.
    """
    steps = sorted((abs(step), length) for length, step in progressions if step and length > 1)
    reach, count = 0, 1
    for step, length in steps:
        if step <= reach:
            break
        reach += step * (length - 1)
        count *= length
    else:
        return count
    bits = 1
    for step, length in steps:
        done = 1
        while done < length:
            grow = min(done, length - done)
            bits |= bits << (step * grow)
            done += grow
    return bits.bit_count()
