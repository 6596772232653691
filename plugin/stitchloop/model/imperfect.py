"""Counts of an imperfect mapping at the levels that keep a tensor, for every kind of instance."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from stitchloop.model.bypass import Counts, Kept
from stitchloop.model.counting import Counting
from stitchloop.model.partial import Choice, Path, choices
from stitchloop.model.radix import Radix
from stitchloop.model.tiles import Form


def count_imperfect(
    form: Form,
    keeps: Sequence[bool],
    radices: Sequence[Radix],
    capacities: Sequence[int],
    blocks: Sequence[int],
    counting: Counting,
) -> dict[int, Kept]:
    """Counts of ``form`` at each level that keeps it, by level index.

    Parameters
    ----------
    keeps, capacities, blocks : sequences, one entry per level
        Whether the level keeps the tensor, the words of its largest tile, and the words of one vector access.

    Notes
    -----
    Instances differ: the figures per instance are those of instance 0, which works most. Where a vector access is one word
    nothing is rounded up, and one entry with the words of all instances together says the same as one per kind.
    """
    counted = {}
    kept_levels = [level for level, kept in enumerate(keeps) if kept]
    for child, level in zip([-1, *kept_levels], kept_levels):
        feed = Path(form, radices, child, level, counting)
        own = Path(form, radices, level, level, counting)
        is_outermost = level == kept_levels[-1]
        kinds = list(choices(radices, level))
        first = _counts(form, feed, own, kinds[0][0], capacities[level], is_outermost)
        if len(kinds) == 1:
            spread = [(kinds[0][1], first)]
        elif blocks[level] == 1:
            spread = [(1, _counts(form, feed, own, None, capacities[level], is_outermost))]
        else:
            others = [(many, _counts(form, feed, own, kind, capacities[level], is_outermost)) for kind, many in kinds[1:]]
            spread = [(kinds[0][1], first), *others]
        counted[level] = Kept(first, working_instances(radices, level), tuple(spread))
    return counted


def _counts(form: Form, feed: Path, own: Path, choice: Choice, capacity: int, is_outermost: bool) -> Counts:
    read, filled = feed.words(choice), 0 if is_outermost else own.words(choice)
    if not form.is_output:
        return Counts(own.covered(choice), capacity, read, filled, 0, 0)
    again, words = read - feed.covered(choice), own.covered(choice)
    return Counts(words, capacity, again, 0 if is_outermost else filled - words, read, again)


def working_instances(radices: Sequence[Radix], level: int) -> int:
    """Instances of ``level`` that ever work; of the compute units for -1."""
    return prod(sum(branch.instances for branch in radix.branches(level, level)) for radix in radices)


def passes(radices: Sequence[Radix]) -> int:
    """Iterations of all temporal loops: cycles of compute unit 0, which works whenever another does."""
    return prod(radix.close(radix.branches(-1, -1)[0], -1, -1).positions for radix in radices)
