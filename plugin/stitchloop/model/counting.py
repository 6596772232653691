"""Which of Timeloop's counting artefacts the reference model reproduces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counting:
    """Switches of the count, one per artefact of the tool.

    Attributes
    ----------
    name : str
        What certificates and reports call this count.
    links : bool
        Neighbouring elements pass a tile on instead of reading it from the parent again (the tool's link transfers).
    physical_pitch : bool
        Neighbours are looked for at the pitch of the physical mesh although elements are numbered densely over the loops.
        Off: at the positions that the X and Y loops give.
    short_wrap_slides : bool
        When a loop advances, the loops inside it are taken to jump back by one step, however many they made. A wrap that then
        looks like one more step of the innermost moving loop counts as a slide.
    short_wrap_rests : bool
        The same short jump: a wrap that then looks as if the tile had not moved delivers nothing.
    wraps_keep_overlap : bool
        A wrap delivers only the words that the previous tile did not hold. Off: the whole tile, as the tool counts.
    floored_partition : bool
        The words of an output that one instance covers, whose first reads are elided, follow from ratios of tile sizes,
        rounded down at each level. Off: the distinct words are counted.
    double_shares : bool
        What a child gets is summed over multicast factors in double precision, and may lose a word. Off: exact fractions.
    double_cycles : bool
        Bandwidth throttling in double precision, as the tool computes it. Off: in exact fractions.
    """

    name: str = "timeloop"
    links: bool = True
    physical_pitch: bool = True
    short_wrap_slides: bool = True
    short_wrap_rests: bool = True
    wraps_keep_overlap: bool = False
    floored_partition: bool = True
    double_shares: bool = True
    double_cycles: bool = True


TIMELOOP = Counting()
"""Everything as the tool counts it."""

TIMELOOP_WITHOUT_LINKS = Counting(name="timeloop without link transfers", links=False)
"""As the tool counts with link transfers switched off."""

CLEAN = Counting(
    name="clean",
    links=False,
    physical_pitch=False,
    short_wrap_slides=False,
    short_wrap_rests=False,
    wraps_keep_overlap=True,
    floored_partition=False,
    double_shares=False,
    double_cycles=False,
)
"""Physically clean: a buffer loads what it does not hold, and no neighbour helps."""
