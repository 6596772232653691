"""What a search hands over: a mapping, its figures and what is proved of it."""

from __future__ import annotations

from dataclasses import dataclass

from stitchloop.mapping import Mapping
from stitchloop.stats import Stats

INTERRUPTED, TIME_LIMIT = "interrupted", "time limit"
"""Why a search stopped early: Ctrl-C or SIGTERM; its deadline."""


@dataclass(frozen=True)
class Found:
    """A mapping with the model's figures; the bound on the first objective is under the count named ``counting``."""

    mapping: Mapping
    stats: Stats
    bound: float
    evaluated: int
    counting: str
    stopped_by: str
    notes: tuple[str, ...] = ()
