"""Words that a level delivers to one child over the whole run: section "Words delivered to one child" of the counting rules."""

from __future__ import annotations

from typing import NamedTuple

from stitchloop.model.counting import Counting
from stitchloop.model.tiles import Form, Nest, Trip


class Visit(NamedTuple):
    """All visits of the child's tile that the advance of one loop brings about.

    ``move`` is the displacement of the tile since the previous visit, packed; ``words`` what one such visit delivers, as a
    sliver along the edge of the tile or as a box of the tile's shape.
    """

    times: int
    move: int
    words: int
    is_sliver: bool


class Delivery(NamedTuple):
    """What one child gets: its first tile, then a delta per visit. ``visits[m]`` belongs to the m-th temporal loop."""

    tile: int
    visits: tuple[Visit, ...]

    @property
    def total(self) -> int:
        return self.tile + sum(visit.times * visit.words for visit in self.visits)


def outer_trips(nest: Nest, level: int) -> list[Trip]:
    """Temporal loops of ``level`` and of all levels outside it, innermost first."""
    return [trip for trips in nest.temporal[level:] for trip in trips]


def deliver(form: Form, nest: Nest, level: int, counting: Counting) -> Delivery:
    """What ``level`` delivers to one child, the level inside it; the child of level 0 is the compute unit, which holds nothing.

    ``form`` is the tensor; spatial loops stand at index 0, other elements get translated copies.
    """
    trips = outer_trips(nest, level)
    lengths = form.lengths(nest.tiles[level - 1]) if level else [1] * len(form.terms)
    tile = 1
    for length in lengths:
        tile *= length
    remaining = 1
    for trip in trips:
        remaining *= trip.bound
    visits = []
    jump = short_jump = 0
    slide: Trip | None = None
    slide_step = slide_words = 0
    slivered = False
    for trip in trips:
        remaining //= trip.bound
        count = (trip.bound - 1) * remaining
        step = form.packed[trip.rank] * trip.stride
        if step and slide is None:
            slide, slide_step = trip, step
            slide_words = tile - _overlap(lengths, [(r, c * trip.stride) for r, c in form.steps[trip.rank]])
            slivered = slide_words != tile
        move, short = step - jump, step - short_jump
        jump += step * (trip.bound - 1)
        short_jump += step
        sliding = short if counting.short_wrap_slides else move
        if level == 0:
            visits.append(Visit(count, sliding, 1, False))
        elif (short if counting.short_wrap_rests else move) == 0:
            visits.append(Visit(count, 0, 0, False))
        elif sliding == slide_step:
            visits.append(Visit(count, slide_step, slide_words, slivered))
        else:
            overlap = _overlap(lengths, list(enumerate(form.unpack(move)))) if counting.wraps_keep_overlap else 0
            visits.append(Visit(count, sliding, tile - overlap, overlap > 0))
    return Delivery(tile, tuple(visits))


def _overlap(lengths: list[int], moves: list[tuple[int, int]]) -> int:
    """Words that a box of ``lengths`` shares with itself moved by (tensor rank, distance)."""
    left = list(lengths)
    for r, distance in moves:
        left[r] = max(0, left[r] - abs(distance))
    words = 1
    for length in left:
        words *= length
    return words
