"""Why no mapping is valid: the limit that forbids it, by how much, and the smallest relaxation that would do.

A relaxation is named only where the mapspace that it leaves was found to hold a valid mapping.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, inf, prod
from typing import TYPE_CHECKING

from stitchloop.errors import Obstacle, Place
from stitchloop.mapspace.diagnostics import diagnose
from stitchloop.mapspace.feasibility import Step, Walk
from stitchloop.mapspace.orders import SpatialSpace
from stitchloop.mapspace.relaxations import (
    Way,
    bypassing,
    less_parallelism,
    less_utilization,
    more_capacity,
    other_parallelism,
    rounded_up,
    said,
    wider,
    without,
)
from stitchloop.mapspace.space import Mapspace
from stitchloop.text import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stitchloop.mapspace.feasibility import Table

MOST_CONSTRAINTS = 24
"""How many constraints are tried without, one by one."""

MOST_STATES = 200_000
"""Tiles (products of the ranks' divisors) up to which levels are looked at together; beyond, each by itself."""


@dataclass(frozen=True)
class Blocked:
    """What forbids mappings at one step, and the ways to lift it."""

    obstacle: Obstacle
    ways: tuple[Way, ...]

    def told(self, ways: list[Way], more: str = "") -> Obstacle:
        return replace(self.obstacle, sentence=self.obstacle.sentence + more, relaxation=said(ways))


def obstacles(mapspace: Mapspace) -> tuple[Obstacle, ...]:
    """What forbids every mapping, the nearest miss first; nothing when tiles, fan-outs and constraints leave some.

    Each obstacle alone would do when it is lifted as its ``relaxation`` says. Where no single limit would, the obstacles
    have to be lifted together, and their sentences say so.
    """
    walk = Walk(mapspace)
    if walk.states > MOST_STATES:
        return tuple(_level_by_level(mapspace))
    if walk.is_feasible:
        return (*_most_parallelism(mapspace), *_sequential(mapspace))
    alone = []
    for blocked in (found for number in range(len(walk.steps)) for found in _alone(walk, number)):
        if ways := [way for way in blocked.ways if way.suffices]:
            alone.append(blocked.told(ways))
    dropped = list(_droppable(mapspace))
    if not alone and not dropped:
        return tuple(_together(mapspace))
    ranked = sorted(alone, key=_excess)
    if ranked and dropped:
        drops = said([way for way, _ in dropped])
        ranked[0] = replace(ranked[0], relaxation=f"{ranked[0].relaxation}, or {drops}")
    return tuple(ranked) or tuple(_constraint(way, place) for way, place in dropped)


def _excess(obstacle: Obstacle) -> float:
    """By what factor a limit is missed."""
    if not obstacle.needed or not obstacle.limit:
        return inf
    return max(obstacle.needed / obstacle.limit, obstacle.limit / obstacle.needed)


def _alone(walk: Walk, number: int) -> Iterator[Blocked]:
    """What is in the way at one step, when all the others are as they are."""
    step, before, after = walk.steps[number], walk.forward[number], walk.backward[number + 1]
    if step.kind == "spatial":
        yield from _fanout(walk, step, before, after)
    elif step.kind == "capacity":
        yield from _capacity(walk, step, before * after >= walk.least_used)
    if number == len(walk.steps) - 1:
        yield from _machine(walk)


def _together(mapspace: Mapspace) -> Iterator[Obstacle]:
    """Every limit that the walk from inside runs into, each lifted before it goes on."""
    for _ in range(3 * len(mapspace.levels)):
        walk = Walk(mapspace)
        blocked = next(_first(walk), None)
        if walk.is_feasible or blocked is None:
            return
        yield blocked.told([blocked.ways[0]], "; other limits have to be lifted with this one")
        mapspace = blocked.ways[0].mapspace


def _first(walk: Walk) -> Iterator[Blocked]:
    """What is in the way first, going from inside to outside, whatever the limits outside."""
    table = walk.forward[0]
    for number, step in enumerate(walk.steps):
        after, ahead = walk.take(step, table), walk.lifted[number + 1]
        if not (after * ahead).any():
            if step.kind == "spatial":
                yield from _fanout(walk, step, table, ahead * walk.least_used)
            else:
                yield from _capacity(walk, step, table * ahead > 0)
            return
        table = after
    yield from _machine(walk)


def _capacity(walk: Walk, step: Step, states: NDArray[np.bool_]) -> Iterator[Blocked]:
    """Too much has to be kept at a level, or too little can be."""
    import numpy as np

    mapspace, index = walk.mapspace, step.index
    level, space = mapspace.architecture.levels[index], mapspace.levels[index]
    if level.capacity is None or level.is_fanout or not states.any():
        return
    least = np.where(states, walk.words(index, space.tensors.keep), np.iinfo(np.int64).max)
    if least.min() > level.capacity:
        yield _overflow(walk, index, int(least.argmin()))
        return
    wanted, filled = level.capacity * space.min_utilization, 0
    for kept in space.tensors.sets():
        words = walk.words(index, kept)
        filled = max(filled, int(words[states & (words <= level.capacity)].max(initial=0)))
    if filled >= wanted:
        return
    may = ", ".join(sorted(space.tensors.keep | set(space.tensors.free))) or "nothing"
    yield Blocked(
        Obstacle(
            "min_utilization", level.name, wanted, float(filled),
            f"{level.name}, which may keep {may}, can be filled with {filled} of its {level.capacity} words at most, "
            f"{ceil(wanted) - filled} less than its least utilization of {space.min_utilization:g} asks for, {ceil(wanted)}",
        ),
        (less_utilization(mapspace, index, filled),),
    )  # fmt: skip


def _overflow(walk: Walk, index: int, number: int) -> Blocked:
    mapspace, tile = walk.mapspace, walk.state(number)
    level, space = mapspace.architecture.levels[index], mapspace.levels[index]
    parts = {name: mapspace.einsum.tensor(name).volume(tile) for name in sorted(space.tensors.keep)}
    words, limit = sum(parts.values()), level.capacity or 0
    shape = ", ".join(f"{rank}={extent}" for rank, extent in tile.items() if extent > 1) or "a single point"
    obstacle = Obstacle(
        "capacity", level.name, float(words), float(limit),
        f"the smallest tile at {level.name} ({shape}) needs {words} words ("
        + ", ".join(f"{name} {size}" for name, size in parts.items())
        + f"), {words - limit} more than its capacity of {limit}",
    )  # fmt: skip
    return Blocked(obstacle, (more_capacity(mapspace, index, words), *(bypassing(mapspace, index, name) for name in parts)))


def _fanout(walk: Walk, step: Step, before: Table, after: Table) -> Iterator[Blocked]:
    """Spatial loops that need more instances than there are, or fewer than parallelism asks for."""
    mapspace, index = walk.mapspace, step.index
    space, name = mapspace.levels[index].spatial, mapspace.architecture.levels[index].name
    if not before.any() or not after.any():
        return
    most, everything = space.fanout, prod(mapspace.einsum.rank_sizes)
    while not (vectors := _joining(walk, index, before, after, most)) and most < everything:
        most *= 2
    fitting = [prod(vector.values()) for vector in vectors if space.fits(vector)]
    if fitting:
        yield from _parallelism(mapspace, index, fitting)
    elif vectors:
        ways = [wider(mapspace, index, vector) for vector in vectors]
        way, nearest = min(zip(ways, vectors), key=lambda pair: (*_mesh(pair[0], index), prod(pair[1].values())))
        used = prod(nearest.values())
        loops = ", ".join(f"{rank}={bound}" for rank, bound in nearest.items() if bound > 1)
        sides = "" if used > space.fanout else ", each rank wholly on X or wholly on Y" + _split(space.split)
        yield Blocked(
            Obstacle(
                "mesh", name, float(used), float(space.fanout),
                f"the spatial loops {loops} at {name} need {used} instances, which do not fit its fan-out of "
                f"{space.fanout_x} x {space.fanout_y}{sides}",
            ),
            (way,),
        )  # fmt: skip


def _mesh(way: Way, index: int) -> tuple[int, int]:
    space = way.mapspace.levels[index].spatial
    return space.fanout, space.fanout_x


def _joining(walk: Walk, index: int, before: Table, after: Table, most: int) -> list[dict[str, int]]:
    """Spatial bounds of a level, with a product of at most ``most``, that lead from reachable tiles to completable ones."""
    return [
        bounds
        for bounds, moved in walk.spatial_vectors(index, before, most)
        if (moved * after * walk.units(bounds) >= walk.least_used).any()
    ]


def _parallelism(mapspace: Mapspace, index: int, products: list[int]) -> Iterator[Blocked]:
    """Spatial loops fit, but none of the ``products`` of instances that they use is one that parallelism asks for."""
    space, name = mapspace.levels[index].spatial, mapspace.architecture.levels[index].name
    below = [used for used in products if used < space.min_used]
    above = [used for used in products if space.max_used is not None and used > space.max_used]
    if len(below) + len(above) < len(products):
        return
    which, reached, needed = ("min", max(below), space.min_used) if below else ("max", min(above), space.max_used or 0)
    yield Blocked(
        Obstacle(
            "parallelism", name, float(needed), float(reached),
            f"spatial loops at {name} can use {counted(reached, 'instance')} of {space.fanout} "
            f"at {'most' if which == 'min' else 'least'}, "
            f"while {which} parallelism asks for {needed}",
        ),
        (other_parallelism(mapspace, index, which, reached),),
    )  # fmt: skip


def _split(split: int | None) -> str:
    return "" if split is None else f", split {split}"


def _machine(walk: Walk) -> Iterator[Blocked]:
    """The machine's least parallelism."""
    reached, total = walk.most_used, walk.mapspace.architecture.compute.instances
    if 0 < reached < walk.least_used:
        yield Blocked(
            Obstacle(
                "parallelism", walk.mapspace.architecture.compute.name, float(walk.least_used), float(reached),
                f"at most {reached} of {total} compute units can be used, "
                f"below the min parallelism of {walk.mapspace.min_parallelism:g}",
            ),
            (less_parallelism(walk.mapspace, reached),),
        )  # fmt: skip


def _most_parallelism(mapspace: Mapspace) -> Iterator[Obstacle]:
    """The machine's greatest parallelism, below what spatial factors ask for."""
    total, unit = mapspace.architecture.compute.instances, mapspace.architecture.compute.name
    least = prod(limits.low for level in mapspace.levels for limits in level.spatial.factors.values())
    most = max(1, int(mapspace.max_parallelism * total))
    if least > most:
        yield Obstacle(
            "parallelism", unit, float(most), float(least),
            f"spatial factors keep at least {least} of {total} compute units in use, "
            f"above the max parallelism of {mapspace.max_parallelism:g}",
            f"set max parallelism to {rounded_up(least / total):g} or more",
        )  # fmt: skip


def _droppable(mapspace: Mapspace) -> Iterator[tuple[Way, Place]]:
    """Constraints any one of which, dropped, leaves a mapping, with their places."""
    sources: dict[tuple[Place, str], None] = {}
    for index, spatial in mapspace.slots:
        loops = mapspace.loops((index, spatial))
        by_nature = loops.fanout == 1 if isinstance(loops, SpatialSpace) else mapspace.architecture.levels[index].is_fanout
        if not by_nature:
            sources.update(dict.fromkeys(source for limits in loops.factors.values() for source in limits.sources))
    for place, clause in list(sources)[:MOST_CONSTRAINTS]:
        way = without(mapspace, place, clause)
        if way.suffices:
            yield way, place


def _constraint(way: Way, place: Place) -> Obstacle:
    clause = way.words.removeprefix("drop ")
    return Obstacle("constraint", None, None, None, f"{clause} leaves no valid mapping", way.words)


def _sequential(mapspace: Mapspace) -> Iterator[Obstacle]:
    """Tiles fit everywhere, so only the order of loops can stand in the way."""
    for level, space in mapspace.named():
        if space.remove_sequential_factors:
            where = f"remove_sequential_factors at {level.name} ({space.place})"
            yield Obstacle(
                "order", level.name, None, None, f"{where} and the permutations leave no order of loops", f"drop {where}"
            )


def _level_by_level(mapspace: Mapspace) -> Iterator[Obstacle]:
    """Levels that forbid every mapping by themselves; what they need together is not looked at."""
    impossible = [level for level in diagnose(mapspace) if level.verdict == "impossible"]
    for level in impossible:
        if level.capacity is not None and level.least_words > level.capacity:
            yield Obstacle(
                "capacity", level.level, float(level.least_words), float(level.capacity),
                f"the smallest tiles of {level.keep} at {level.level} need {level.least_words} words, "
                f"{level.least_words - level.capacity} more than its capacity of {level.capacity}",
                f"raise the capacity of {level.level} to at least {level.least_words} words",
            )  # fmt: skip
        else:
            yield Obstacle(
                "mesh", level.level, float(level.least_instances), float(level.fanout),
                f"the spatial loops at {level.level} need {level.least_instances} instances or more, "
                f"which do not fit its fan-out of {level.fanout}",
                f"lower the factors of its spatial loops, or widen {level.level}",
            )  # fmt: skip
    if not impossible:
        yield Obstacle(
            "together", None, None, None,
            "the limits of several levels together leave no mapping; no level forbids all by itself",
            "raise those that --diagnostics calls tight",
        )  # fmt: skip
