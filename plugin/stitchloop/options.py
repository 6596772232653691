"""Mapper options (Timeloop's ``mapper`` section) and Stitchloop's own switches."""

from __future__ import annotations

from dataclasses import dataclass

METRICS = {
    "energy": "energy",
    "delay": "delay",
    "cycles": "delay",
    "latency": "delay",
    "edp": "edp",
    "last-level-accesses": "last-level-accesses",
    "last_level_accesses": "last-level-accesses",
}
"""Names that are understood, to the one that is used and shown; ``accesses-LEVEL`` comes on top."""

LARGEST_IMPERFECT = 1 << 22
"""Rank size up to which every tile size is looked at."""
LARGEST_PERFECT = 1 << 44
"""Rank size up to which the divisors are."""


@dataclass(frozen=True)
class MapperOptions:
    """What to optimise and how long to look.

    ``metrics`` is lexicographic: ``energy``, ``delay``, ``edp``, ``last-level-accesses`` or ``accesses-LEVEL``.
    ``victory_condition``, ``timeout`` and ``search_size`` steer Timeloop's random search; an exact search reads and
    ignores them (``ignored`` names those that were given).
    """

    metrics: tuple[str, ...] = ("edp",)
    num_threads: int | None = None
    diagnostics: bool = False
    live_status: bool = False
    imperfect: bool = False
    perfect: bool = False
    """Whether the files ask for factors that divide (``imperfect: false``, or Timeloop's mapspace template ``uber``): the default
    for one Einsum, and a choice for fused work."""
    time_limit: float | None = None
    memory_limit_mb: float | None = None
    pareto: tuple[str, ...] = ()
    """Two or three objectives whose Pareto front is wanted beside the best mapping of ``metrics``."""
    out_prefix: str = "timeloop-mapper"
    ignored: tuple[str, ...] = ()
