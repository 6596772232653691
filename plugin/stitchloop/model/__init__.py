"""The reference model: one mapping of one Einsum, in exact integers, equal to Timeloop."""

from __future__ import annotations

from stitchloop.architecture import Architecture
from stitchloop.errors import InvalidMapping
from stitchloop.mapping import Mapping
from stitchloop.model.counting import CLEAN, TIMELOOP, TIMELOOP_WITHOUT_LINKS, Counting
from stitchloop.model.evaluator import Evaluator
from stitchloop.stats import Stats
from stitchloop.workload import Einsum

__all__ = [
    "CLEAN",
    "TIMELOOP",
    "TIMELOOP_WITHOUT_LINKS",
    "Counting",
    "Evaluator",
    "InvalidMapping",
    "check",
    "evaluate",
]


def evaluate(einsum: Einsum, architecture: Architecture, mapping: Mapping, counting: Counting = TIMELOOP) -> Stats:
    """Evaluate one mapping; :class:`Evaluator` is the same for many.

    Returns
    -------
    Stats
        Counts per instance, cycles, energy (pJ) and utilisation, as Timeloop gives them.

    Raises
    ------
    InvalidMapping
        With the tool's wording, the level, the size and the limit.
    """
    return Evaluator(einsum, architecture, counting).evaluate(mapping)


def check(einsum: Einsum, architecture: Architecture, mapping: Mapping, counting: Counting = TIMELOOP) -> None:
    """Raise :class:`InvalidMapping` if the hardware or the workload forbids ``mapping``."""
    Evaluator(einsum, architecture, counting).count(mapping)
