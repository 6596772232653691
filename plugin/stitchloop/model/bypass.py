"""From deliveries to reads, fills and updates of the levels that keep a tensor: section "Bypass" of the counting rules."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor
from typing import NamedTuple

from stitchloop.errors import InvalidMapping
from stitchloop.model.counting import Counting
from stitchloop.model.coverage import covered
from stitchloop.model.spatial import Spread
from stitchloop.model.tiles import Form, Nest

Exact = int | Fraction


class Counts(NamedTuple):
    """Words per instance of one kept tensor at one level."""

    partition: int
    capacity: int
    reads: int
    fills: int
    updates: int
    reductions: int


def count_levels(
    form: Form,
    keeps: Sequence[bool],
    names: Sequence[str],
    nest: Nest,
    spreads: Sequence[Spread],
    partitions: Sequence[int],
    counting: Counting,
) -> dict[int, Counts]:
    """Counts of ``form`` at each level that keeps it, by level index.

    Parameters
    ----------
    keeps, names, spreads, partitions : sequences, one entry per level
        Whether the level keeps the tensor, its name, what it spreads to its children, and the words one instance covers.

    Raises
    ------
    InvalidMapping
        When an output is written back less often than it has words; the tool aborts there.
    """
    accesses: list[Exact] = [spread.accesses for spread in spreads]
    outermost = max(i for i, kept in enumerate(keeps) if kept)
    counts = {}
    for i, kept in enumerate(keeps[: outermost + 1]):
        if not kept:
            above = spreads[i + 1]
            accesses[i + 1] = _share(accesses[i] * nest.fanout[i + 1] * above.accesses, above.words)
            continue
        peer: Exact = 0
        if i + 1 < len(spreads):
            peer = _share(spreads[i + 1].linked, nest.instances[i + 1])
        served = accesses[i] + peer
        received = peer if i == outermost else _received(spreads[i + 1], nest.fanout[i + 1], peer, counting)
        capacity, partition = form.volume(nest.tiles[i]), partitions[i]
        if not form.is_output:
            counts[i] = Counts(partition, capacity, rounded(served), floor(received), 0, 0)
            continue
        if served < partition:
            raise InvalidMapping(
                f"couldn't map level {names[i]}: {form.name} is written back {rounded(served)} times for {partition} words",
                kind="writeback",
                level=names[i],
                size=float(served),
                limit=partition,
            )
        again = rounded(served - partition)
        fills = rounded(received if i == outermost else received - partition)
        counts[i] = Counts(partition, capacity, again, fills, rounded(accesses[i]), again)
    return counts


def floored_partitions(form: Form, nest: Nest) -> list[int]:
    """Words that one instance of each level covers, by ratios of tile sizes rounded down level by level."""
    sizes = [form.volume(tile) for tile in nest.tiles]
    partitions = [sizes[-1]]
    for i in range(len(sizes) - 2, -1, -1):
        divided = form.volume(nest.spatial_tiles[i + 1]) if nest.spatial[i + 1] else sizes[i]
        partitions.append(partitions[-1] * sizes[i] // divided)
    return partitions[::-1]


def distinct_words(form: Form, nest: Nest) -> list[int]:
    """Words that one instance of each level covers: its tile in all positions that outer temporal loops give."""
    words = []
    for i, tile in enumerate(nest.tiles):
        moves = [trip for trips in nest.temporal[i + 1 :] for trip in trips]
        words.append(covered(form, tile, moves))
    return words


def rounded(number: Exact | float) -> int:
    """The nearest integer, halves away from zero."""
    if isinstance(number, int):
        return number
    size = -number if number < 0 else number
    nearest = floor(size) + (2 * (size - floor(size)) >= 1)
    return -nearest if number < 0 else nearest


def _received(spread: Spread, fanout: int, peer: Exact, counting: Counting) -> Exact | float:
    """Words that one child gets, from its parent and from its peers.

    The tool sums the parent's part over (multicast, scatter) signatures in double precision, and a sum of 51.99999999999999 is
    51 fills (fuzz-20010).
    """
    if not counting.double_shares or all(reads * signature[0] % fanout == 0 for signature, reads in spread.by_signature.items()):
        return _share(spread.words, fanout) + peer
    share = 0.0
    for (multicast, _), reads in sorted(spread.by_signature.items()):
        share += reads * multicast / fanout
    return share + float(peer)


def _share(number: Exact, parts: int) -> Exact:
    """``number / parts``, as an integer where it is one."""
    if isinstance(number, int):
        quotient, rest = divmod(number, parts)
        return Fraction(number, parts) if rest else quotient
    return number / parts
