"""Factor constraints of one rank in one slot, merged; each keeps its place, so that a contradiction can name both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stitchloop.constraints import Relation
from stitchloop.errors import InputError, Place
from stitchloop.mapspace.factors import FactorRange


@dataclass(frozen=True)
class Wish:
    """``rank relation value`` in a slot, where it was written, and in which words to name it."""

    rank: str
    relation: Relation
    value: int
    place: Place
    clause: str
    slot: str
    """The slot in words: ``'PE (spatial)'``."""

    def __str__(self) -> str:
        return f"{self.clause} at {self.slot}" + (f" ({self.place})" if self.place != Place() else "")

    @property
    def is_rest(self) -> bool:
        """``rank = 0``: the whole rank that the other fixed bounds leave."""
        return self.relation == "=" and self.value == 0

    @property
    def source(self) -> tuple[Place, str]:
        return self.place, f"{self.clause} at {self.slot}"


def contradiction(first: Wish, second: Wish, why: str = "contradict each other") -> InputError:
    """The error for two wishes that cannot both hold; it stands at one with a place of its own."""
    at = first if first.place != Place() else second
    return InputError(at.place, f"{first} and {second} {why}", "change or remove one of them")


def merge(wishes: Sequence[Wish]) -> FactorRange:
    """The range that all wishes on one rank in one slot leave. Raises :class:`InputError` when it is empty."""
    low, high = None, None
    for wish in wishes:
        if wish.is_rest:
            continue
        if wish.relation in ("=", ">=") and (low is None or wish.value > low.value):
            low = wish
        if wish.relation in ("=", "<=") and (high is None or wish.value < high.value):
            high = wish
    if low is not None and high is not None and low.value > high.value:
        raise contradiction(low, high)
    limiting = tuple(dict.fromkeys(wish.source for wish in (low, high) if wish is not None))
    return FactorRange(low.value if low else 1, high.value if high else None, limiting)
