"""Roofline points: operations per byte over DRAM against operations a second."""

from __future__ import annotations

from dataclasses import dataclass

from stitchloop.cascade.machine import Machine
from stitchloop.cascade.performance import Performance


@dataclass(frozen=True)
class Point:
    """A group or an Einsum on the roofline.

    ``intensity`` in operations (points of iteration spaces) per byte, ``rate`` in operations a second, ``mode`` 2D, 1D or both.
    """

    name: str
    mode: str
    intensity: float
    rate: float
    seconds: float


def group_points(performance: Performance) -> list[Point]:
    """One point per group."""
    found = []
    for number, group in enumerate(performance.groups, start=1):
        points = sum(einsum.points for einsum in group.einsums)
        traffic = group.volume.total * performance.machine.word_bytes
        modes = {einsum.mode for einsum in group.einsums}
        name = group.names[0] if len(group.names) == 1 else f"{group.names[0]}..{group.names[-1]}"
        found.append(_point(f"{number}: {name}", "/".join(sorted(modes)), points, traffic, group.seconds))
    return found


def einsum_points(performance: Performance) -> list[Point]:
    """One point per Einsum, with the DRAM traffic on its own account; those that move nothing have infinite intensity."""
    return [
        _point(e.name, e.mode, e.points, e.dram_words * performance.machine.word_bytes, e.seconds)
        for group in performance.groups
        for e in group.einsums
    ]


def _point(name: str, mode: str, points: float, traffic: float, seconds: float) -> Point:
    return Point(name, mode, points / traffic if traffic else float("inf"), points / seconds if seconds else 0.0, seconds)


def ceilings(machine: Machine) -> dict[str, float]:
    """Peak operations a second of each mode."""
    return {"2D": machine.array_pes * machine.clock_hz, "1D": machine.lanes * machine.clock_hz}


def attainable(machine: Machine, mode: str, intensity: float) -> float:
    """The roof over a point."""
    return min(ceilings(machine)[mode], intensity * machine.dram_bytes_per_second)
