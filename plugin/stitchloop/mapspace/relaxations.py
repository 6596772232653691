"""Ways out of an empty mapspace: one limit lifted by just so much, in words and as the mapspace that is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import cached_property
from math import ceil

from stitchloop.errors import Place
from stitchloop.mapspace.factors import ANY, FactorRange
from stitchloop.mapspace.feasibility import Walk
from stitchloop.mapspace.loops import instances_used
from stitchloop.mapspace.space import LevelSpace, Mapspace


@dataclass(frozen=True)
class Way:
    """One way out: what to change, and the mapspace that it would leave."""

    words: str
    mapspace: Mapspace

    @cached_property
    def suffices(self) -> bool:
        """Whether a valid mapping is left."""
        return Walk(self.mapspace).is_feasible


def more_capacity(mapspace: Mapspace, index: int, words: int) -> Way:
    """A level that holds ``words``."""
    level = mapspace.architecture.levels[index]
    rows = ceil(words * level.multiple_buffering / level.block_size)
    levels = list(mapspace.architecture.levels)
    levels[index] = replace(level, depth=rows)
    architecture = replace(mapspace.architecture, levels=tuple(levels))
    return Way(
        f"raise the capacity of {level.name} to {words} words (depth {rows})", replace(mapspace, architecture=architecture)
    )


def bypassing(mapspace: Mapspace, index: int, name: str) -> Way:
    """A level that may bypass a tensor which it has to keep."""
    tensors = mapspace.levels[index].tensors
    freed = replace(tensors, keep=tensors.keep - {name}, bypass=tensors.bypass | {name})
    return Way(f"let it bypass {name}", _with_level(mapspace, index, replace(mapspace.levels[index], tensors=freed)))


def less_utilization(mapspace: Mapspace, index: int, filled: int) -> Way:
    """A least utilization that ``filled`` words reach."""
    level, space = mapspace.architecture.levels[index], mapspace.levels[index]
    share = rounded_down(filled / (level.capacity or 1))
    asked = f"the least utilization of {level.name}"
    words = f"lower {asked} to {share:g} or less" if share else f"drop {asked}"
    return Way(words, _with_level(mapspace, index, replace(space, min_utilization=share)))


def wider(mapspace: Mapspace, index: int, bounds: dict[str, int]) -> Way:
    """The smallest fan-out that holds spatial ``bounds``, no side narrower than it is."""
    space, level = mapspace.levels[index].spatial, mapspace.architecture.levels[index]
    x, y = space.widened(bounds)
    wide = replace(level, fanout_x=x, fanout_y=y)
    least, most = space.min_used, space.max_used
    assert mapspace.constraints is not None
    entry = mapspace.constraints.levels[index]
    if (least, most) == instances_used(level, entry):
        least, most = instances_used(wide, entry)
    spatial = replace(space, fanout_x=x, fanout_y=y, min_used=least, max_used=most)
    levels = list(mapspace.architecture.levels)
    levels[index] = wide
    compute = mapspace.architecture.compute
    compute = replace(compute, instances=compute.instances * x * y // space.fanout)
    architecture = replace(mapspace.architecture, levels=tuple(levels), compute=compute)
    relaxed = _with_level(replace(mapspace, architecture=architecture), index, replace(mapspace.levels[index], spatial=spatial))
    return Way(f"widen {level.name} to {x} x {y}", relaxed)


def other_parallelism(mapspace: Mapspace, index: int, which: str, reached: int) -> Way:
    """A ``min`` or ``max`` parallelism of one fan-out that ``reached`` instances meet."""
    level, space = mapspace.architecture.levels[index], mapspace.levels[index]
    share = reached / space.spatial.fanout
    if which == "min":
        share, spatial = rounded_down(share), replace(space.spatial, min_used=reached)
    else:
        share, spatial = rounded_up(share), replace(space.spatial, max_used=reached)
    words = f"set {which} parallelism of {level.name} to {share:g}"
    return Way(words, _with_level(mapspace, index, replace(space, spatial=spatial)))


def less_parallelism(mapspace: Mapspace, reached: int) -> Way:
    """A min parallelism of the whole machine that ``reached`` compute units meet."""
    share = rounded_down(reached / mapspace.architecture.compute.instances)
    return Way(f"set min parallelism to {share:g} or less", replace(mapspace, min_parallelism=share))


def without(mapspace: Mapspace, place: Place, clause: str) -> Way:
    """The mapspace without one factor constraint, and without what it implies for its rank elsewhere."""

    def freed(limits: FactorRange) -> FactorRange:
        mine = (place, clause) in limits.sources or any(clause in other for _, other in limits.sources)
        return ANY if mine else limits

    def open_up(level: LevelSpace) -> LevelSpace:
        temporal = {rank: freed(limits) for rank, limits in level.temporal.factors.items()}
        spatial = {rank: freed(limits) for rank, limits in level.spatial.factors.items()}
        return replace(level, temporal=replace(level.temporal, factors=temporal), spatial=replace(level.spatial, factors=spatial))

    words = f"drop {clause}" + (f" ({place})" if place != Place() else "")
    return Way(words, replace(mapspace, levels=tuple(open_up(level) for level in mapspace.levels)))


def rounded_down(share: float) -> float:
    """Four digits of a share, never above it: a limit that is written so is met."""
    return float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal_from_float(share))


def rounded_up(share: float) -> float:
    """Four digits of a share, never below it."""
    return float(Context(prec=4, rounding=ROUND_CEILING).create_decimal_from_float(share))


def said(ways: Sequence[Way]) -> str:
    """All ways in one sentence."""
    return ", or ".join(way.words for way in ways)


def _with_level(mapspace: Mapspace, index: int, level: LevelSpace) -> Mapspace:
    levels = list(mapspace.levels)
    levels[index] = level
    return replace(mapspace, levels=tuple(levels))
