"""Bounded search with factors that do not divide.

Every imperfect mapping is a perfect mapping of a *padded* problem, whose rank sizes are the products of its bounds, with the
last pass of each loop cut short. The search pads ranks to sizes that fit the fan-outs, takes the optimum of each padded
problem, cuts it to the true sizes and lets the reference model count partial tiles exactly. Costs of cut loops do not
depend on shapes alone, so the answer is not proved optimal; the certificate carries a lower bound that holds for every
mapping: no unit computes more than once a cycle, and every touched word crosses the outermost level's bandwidth at least
once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import ceil, prod

from stitchloop.errors import InputError, InvalidMapping
from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.mapspace import build_mapspace
from stitchloop.mapspace.factors import covered, divisors, residual_of
from stitchloop.mapspace.space import Mapspace
from stitchloop.model import TIMELOOP, Evaluator
from stitchloop.search.exact import Search
from stitchloop.search.found import Found
from stitchloop.search.machine import prime_factors, touched
from stitchloop.search.nest import build_mapping
from stitchloop.search.objectives import completed, value_of
from stitchloop.stats import Stats

PADDINGS = 24
"""Padded problems that are searched, those of least volume first."""

PER_RANK = 3
"""Sizes tried for one rank."""

COUNTING = "timeloop, partial tiles counted exactly"
REASON = "imperfect factors: bounded, not proved optimal; Timeloop's own counts are off for them"


def search_imperfect(
    mapspace: Mapspace,
    objectives: Sequence[str],
    deadline: float | None,
    memory_limit_mb: float | None,
    threads: int | None,
    progress: Callable[[float, float, float], None] | None,
) -> Found | None:
    """The best mapping of an imperfect mapspace that padded problems lead to; None when none of them has a valid one."""
    names = completed(objectives)
    evaluator = Evaluator(mapspace.einsum, mapspace.architecture, TIMELOOP)
    bound = lower_bound(mapspace, names[0])
    best: tuple[tuple[float, ...], Mapping, Stats] | None = None
    tried = 0
    stopped = REASON
    paddings = padded_sizes(mapspace)
    for number, sizes in enumerate(paddings):
        if best is not None and deadline is not None and time.perf_counter() > deadline:
            stopped = "time limit"
            break
        try:
            padded = _padded(mapspace, sizes)
        except InputError:
            continue
        outcome = Search(padded, objectives, threads, deadline, memory_limit_mb).run()
        tried += outcome.treated
        if outcome.incumbent.exists:
            mapping = cut(mapspace, build_mapping(padded, outcome.incumbent))
            if mapspace.contains(mapping) is None:
                try:
                    stats = evaluator.evaluate(mapping)
                except InvalidMapping:
                    continue
                values = tuple(value_of(name, stats) for name in names)
                if best is None or values < best[0]:
                    best = values, mapping, stats
        if outcome.stopped_by == "interrupted" and best is not None:
            stopped = outcome.stopped_by
            break
        if progress is not None and best is not None:
            progress((number + 1) / len(paddings), best[0][0], bound)
    if best is None:
        return None
    return Found(best[1], best[2], bound, tried, COUNTING, "" if best[0][0] <= bound else stopped)


def padded_sizes(mapspace: Mapspace) -> list[tuple[int, ...]]:
    """Rank sizes of the padded problems, the true ones first, then by volume."""
    einsum = mapspace.einsum
    sides = sorted({side for level in mapspace.levels for side in (level.spatial.fanout_x, level.spatial.fanout_y) if side > 1})
    options = [_sizes(size, sides) for size in einsum.rank_sizes]
    ranked = sorted(product(*options), key=lambda sizes: (sizes != einsum.rank_sizes, prod(sizes), sizes))
    return ranked[:PADDINGS]


def _sizes(size: int, sides: list[int]) -> list[int]:
    """The size itself and a few slightly larger ones that divide well over fan-outs of these ``sides``."""
    found = {size}
    if size > 1 and max(prime_factors(size)) > 3:
        steps = {step for side in sides for step in divisors(side) if step > 1}
        slack = 0.04 if size > 64 else 0.15
        padded = sorted({step * ceil(size / step) for step in steps if step * ceil(size / step) <= size * (1 + slack)})
        padded.sort(key=lambda number: (-len(divisors(number)), number))
        found |= set(padded[: PER_RANK - 1])
    return sorted(found)


def _padded(mapspace: Mapspace, sizes: tuple[int, ...]) -> Mapspace:
    einsum = replace(mapspace.einsum, rank_sizes=sizes)
    return build_mapspace(einsum, mapspace.architecture, mapspace.constraints)


def cut(mapspace: Mapspace, mapping: Mapping) -> Mapping:
    """The mapping with its loops cut to the true rank sizes: ``n -> ceil(n / bound)`` from the inner end."""
    left = dict(mapspace.einsum.sizes)

    def shorten(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
        kept = []
        for loop in loops:
            bound = min(loop.bound, left[loop.rank])
            if bound > 1:
                last = residual_of(left[loop.rank], bound)
                kept.append(Loop(loop.rank, bound, 0 if last == bound else last))
                left[loop.rank] = covered(left[loop.rank], bound)
        return tuple(kept)

    levels = []
    for level in mapping.levels:
        x, y = shorten(level.spatial_x), shorten(level.spatial_y)
        levels.append(LevelMapping(shorten(level.temporal), x, y, level.keep))
    return Mapping(tuple(levels))


def lower_bound(mapspace: Mapspace, objective: str) -> float:
    """A bound on one objective over all mappings, perfect or not."""
    einsum, architecture = mapspace.einsum, mapspace.architecture
    cycles = ceil(einsum.computes / architecture.compute.instances)
    outermost = max(i for i, level in enumerate(architecture.levels) if not level.is_fanout)
    level = architecture.levels[outermost]
    energy = einsum.computes * architecture.compute.energy.compute
    reads = writes = 0
    for tensor in einsum.tensors:
        if tensor.name in mapspace.levels[outermost].tensors.keep:
            moved = prod(touched(terms, einsum.sizes) for terms in tensor.projection)
            energy += moved / level.block_size * (level.energy.update if tensor.is_output else level.energy.read)
            reads, writes = (reads, writes + moved) if tensor.is_output else (reads + moved, writes)
    for bandwidth, words in (
        (level.read_bandwidth, reads),
        (level.write_bandwidth, writes),
        (level.shared_bandwidth, reads + writes),
    ):
        if bandwidth:
            cycles = max(cycles, ceil(words / bandwidth * (1 - 1e-12)))
    if objective == "energy":
        return energy
    if objective == "delay":
        return float(cycles)
    if objective == "edp":
        return energy * 1e-12 * cycles
    return float(reads + writes) if objective in ("last-level-accesses", f"accesses-{level.name}") else 0.0
