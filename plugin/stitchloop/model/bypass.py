"""From deliveries to reads, fills and updates of the levels that keep a tensor: section "Bypass" of the counting rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import NamedTuple

from stitchloop.errors import InvalidMapping
from stitchloop.model.counting import Counting
from stitchloop.model.partial import Path
from stitchloop.model.radix import Radix
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


class Kept(NamedTuple):
    """A tensor at one level that keeps it.

    ``counts`` are those of instance 0. ``kinds`` lists how many instances have which counts, for what is summed over all.
    """

    counts: Counts
    instances: int
    kinds: tuple[tuple[int, Counts], ...]


class Firsts(NamedTuple):
    """Words of an output whose first read is elided, per instance: when children ask, and when the level asks its parent."""

    reads: int
    fills: int


def count_levels(
    form: Form,
    keeps: Sequence[bool],
    names: Sequence[str],
    nest: Nest,
    spreads: Sequence[Spread],
    firsts: Mapping[int, Firsts],
    counting: Counting,
) -> dict[int, Kept]:
    """Counts of ``form`` at each level that keeps it, by level index.

    Parameters
    ----------
    keeps, names, spreads : sequences, one entry per level
        Whether the level keeps the tensor, its name, and what it spreads to its children.
    firsts : mapping of int to Firsts
        By keeping level, the words whose first reads are elided.

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
        capacity, first, instances = form.volume(nest.tiles[i]), firsts[i], nest.instances[i + 1]
        if not form.is_output:
            count = Counts(first.fills, capacity, rounded(served), floor(received), 0, 0)
        elif served < first.reads:
            raise InvalidMapping(
                f"couldn't map level {names[i]}: {form.name} is written back {rounded(served)} times for {first.reads} words",
                kind="writeback",
                level=names[i],
                size=float(served),
                limit=first.reads,
            )
        else:
            again = rounded(served - first.reads)
            fills = rounded(received if i == outermost else received - first.fills)
            count = Counts(first.fills, capacity, again, fills, rounded(accesses[i]), again)
        counts[i] = Kept(count, instances, ((instances, count),))
    return counts


def floored_partitions(form: Form, nest: Nest) -> dict[int, Firsts]:
    """Words that one instance of each level covers, by ratios of tile sizes rounded down level by level."""
    sizes = [form.volume(tile) for tile in nest.tiles]
    partitions = [sizes[-1]]
    for i in range(len(sizes) - 2, -1, -1):
        divided = form.volume(nest.spatial_tiles[i + 1]) if nest.spatial[i + 1] else sizes[i]
        partitions.append(partitions[-1] * sizes[i] // divided)
    return {level: Firsts(words, words) for level, words in enumerate(reversed(partitions))}


def first_accesses(form: Form, keeps: Sequence[bool], radices: Sequence[Radix], counting: Counting) -> dict[int, Firsts]:
    """Different words that each keeping level reads for its children, and that one instance of it gets: their first reads."""
    kept_levels = [level for level, kept in enumerate(keeps) if kept]
    instance = [0] * len(radices)
    firsts = {}
    for child, level in zip([-1, *kept_levels], kept_levels):
        feed, own = Path(form, radices, child, level, counting), Path(form, radices, level, level, counting)
        firsts[level] = Firsts(feed.covered(instance), own.covered(instance))
    return firsts


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
