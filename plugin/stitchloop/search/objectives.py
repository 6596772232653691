"""The objectives, in one table: names, what they read from the model's figures, and how ties are broken.

A mapping is judged by a list of objectives, the first unequal one deciding. Whatever the list, it is completed with energy
and delay (after ``energy``: delay, after ``delay``: energy, after ``edp``: delay), then the words kept in all levels, and
at last the order in which the search lists spatial factors, keep sets and loops. So every run gives the same mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stitchloop.architecture import Architecture
from stitchloop.errors import InputError
from stitchloop.options import METRICS
from stitchloop.stats import LevelStats, Stats
from stitchloop.workload import Einsum


@dataclass(frozen=True)
class Objective:
    """A figure to be made small.

    ``value`` reads it from the model's figures.
    """

    name: str
    value: Callable[[Stats], float]
    then: tuple[str, ...] = ("energy", "delay")
    """What breaks ties."""
    floor: Callable[[Einsum, Architecture], float] = lambda einsum, architecture: 0.0
    """What no mapping goes below, whatever the count: the computes alone, side by side on all units, and no word moved."""


def _accesses(level: LevelStats) -> float:
    return float(sum((t.reads + t.fills + t.updates) * t.instances for t in level.tensors.values()))


def _last_level(stats: Stats) -> float:
    return _accesses(list(stats.levels.values())[-1])


def _compute_energy(einsum: Einsum, architecture: Architecture) -> float:
    return einsum.computes * architecture.compute.energy.compute


def _compute_cycles(einsum: Einsum, architecture: Architecture) -> float:
    return float(-(-einsum.computes // architecture.compute.instances))


def _compute_edp(einsum: Einsum, architecture: Architecture) -> float:
    return _compute_energy(einsum, architecture) * 1e-12 * _compute_cycles(einsum, architecture)


OBJECTIVES: dict[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective("energy", lambda stats: stats.energy_pJ, ("delay",), _compute_energy),
        Objective("delay", lambda stats: float(stats.cycles), ("energy",), _compute_cycles),
        Objective("edp", lambda stats: stats.edp, ("delay",), _compute_edp),
        Objective("last-level-accesses", _last_level),
    )
}
"""By name. ``accesses-LEVEL`` comes on top, one for each level: see :func:`objective_of`."""

PREFIX = "accesses-"


def objective_of(name: str) -> Objective:
    """The objective called ``name``; :class:`InputError` when there is none."""
    name = METRICS.get(name, name)
    if name.startswith(PREFIX):
        level = name[len(PREFIX) :]
        return Objective(name, lambda stats: _accesses(stats.levels[level]) if level in stats.levels else 0.0)
    if name not in OBJECTIVES:
        raise InputError(None, f"objective {name}", f"objectives are {', '.join(OBJECTIVES)} and {PREFIX}LEVEL")
    return OBJECTIVES[name]


def value_of(name: str, stats: Stats) -> float:
    """The figure that the objective ``name`` makes small: pJ, cycles, J * cycle, or words over all instances."""
    return objective_of(name).value(stats)


def counted_level(name: str, architecture: Architecture) -> int | None:
    """Index of the level whose accesses the objective counts; None for other objectives and for fan-outs, which have none.

    Raises
    ------
    InputError
        When no level has the name.
    """
    name = METRICS.get(name, name)
    if name == "last-level-accesses":
        return max(i for i, level in enumerate(architecture.levels) if not level.is_fanout)
    if not name.startswith(PREFIX):
        return None
    level = name[len(PREFIX) :]
    if level not in architecture.names:
        raise InputError(None, f"objective {name}", f"levels are {', '.join(architecture.names)}")
    index = architecture.index(level)
    return None if architecture.levels[index].is_fanout else index


def completed(names: Sequence[str]) -> tuple[str, ...]:
    """``names`` without aliases and repetitions, and the objectives that break their ties after them."""
    ordered = list(dict.fromkeys(objective_of(name).name for name in names))
    for name in (*objective_of(ordered[0]).then, "energy", "delay"):
        if name not in ordered:
            ordered.append(name)
    return tuple(ordered)
