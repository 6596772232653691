"""Cycles and energy from counts: section "Instances, cycles, energy" of the counting rules."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import ceil

from stitchloop.architecture import Energy, Level
from stitchloop.errors import InvalidMapping
from stitchloop.model.bypass import Counts
from stitchloop.model.counting import Counting
from stitchloop.stats import TensorStats


def throttled(level: Level, counts: Iterable[Counts], compute_cycles: int, counting: Counting) -> tuple[int, float]:
    """Cycles of one instance of ``level`` and the slowdown (at most 1) that its bandwidths force on ``compute_cycles``."""
    if level.read_bandwidth is None and level.write_bandwidth is None and level.shared_bandwidth is None:
        return compute_cycles, 1.0
    if not counting.double_cycles:
        return _throttled_exactly(level, list(counts), compute_cycles)
    read = write = 0.0
    for c in counts:
        read += c.reads / compute_cycles
        write += (c.fills + c.updates) / compute_cycles
    slowdown = 1.0
    for bandwidth, demand in (
        (level.read_bandwidth, read),
        (level.write_bandwidth, write),
        (level.shared_bandwidth, write + read),
    ):
        if bandwidth is not None and demand > 0:
            slowdown = min(slowdown, bandwidth / demand)
    if slowdown <= 0:
        raise _never(level)
    return ceil(compute_cycles / slowdown), slowdown


def _throttled_exactly(level: Level, counts: list[Counts], compute_cycles: int) -> tuple[int, float]:
    reads = sum(c.reads for c in counts)
    writes = sum(c.fills + c.updates for c in counts)
    needed = Fraction(compute_cycles)
    for bandwidth, words in (
        (level.read_bandwidth, reads),
        (level.write_bandwidth, writes),
        (level.shared_bandwidth, reads + writes),
    ):
        if bandwidth is not None and words:
            if bandwidth <= 0:
                raise _never(level)
            needed = max(needed, words / Fraction(bandwidth))
    return ceil(needed), float(compute_cycles / needed)


def _never(level: Level) -> InvalidMapping:
    return InvalidMapping(
        f"couldn't map level {level.name}: words to move over a bandwidth of 0", kind="bandwidth", level=level.name, limit=0
    )


def access_energy(counts: Counts | TensorStats, energy: Energy, block: int, instances: int) -> float:
    """pJ of one tensor over all instances; accesses are whole vectors of ``block`` words, rounded up per instance and action."""
    return (
        -(-counts.reads // block) * energy.read
        + -(-counts.fills // block) * energy.write
        + -(-counts.updates // block) * energy.update
    ) * instances
