"""Why no mapping is valid: the limit that forbids it, by how much, and the smallest relaxation that would do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, inf, prod
from typing import TYPE_CHECKING

from stitchloop.errors import Obstacle, Place
from stitchloop.mapspace.factors import ANY, FactorRange
from stitchloop.mapspace.feasibility import Step, Walk
from stitchloop.mapspace.orders import SpatialSpace
from stitchloop.mapspace.space import LevelSpace, Mapspace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stitchloop.mapspace.feasibility import Table

MOST_CONSTRAINTS = 24
"""How many constraints are tried without, one by one."""


def obstacles(mapspace: Mapspace) -> tuple[Obstacle, ...]:
    """What forbids every mapping, the nearest miss first; nothing when tiles, fan-outs and constraints leave some.

    Each obstacle alone would do when it is lifted as its ``relaxation`` says. Where no single limit would, the obstacles
    have to be lifted together, and their sentences say so.
    """
    walk = Walk(mapspace)
    if walk.is_feasible:
        return tuple(_sequential(mapspace))
    alone = [obstacle for number in range(len(walk.steps)) for obstacle in _alone(walk, number)]
    alone += _machine(walk)
    dropped = tuple(_droppable(mapspace))
    if not alone and not dropped:
        return _together(walk)
    ranked = sorted(alone, key=_excess)
    if ranked and dropped:
        ranked[0] = replace(ranked[0], relaxation=ranked[0].relaxation + "".join(f", or drop {clause}" for clause, _ in dropped))
        return tuple(ranked)
    return tuple(ranked) or tuple(_constraint(clause, place) for clause, place in dropped)


def _excess(obstacle: Obstacle) -> float:
    """By what factor a limit is missed."""
    if not obstacle.needed or not obstacle.limit:
        return inf
    return max(obstacle.needed / obstacle.limit, obstacle.limit / obstacle.needed)


def _alone(walk: Walk, number: int) -> Iterator[Obstacle]:
    """The obstacle at one step, if lifting it alone leaves a mapping."""
    step, before, after = walk.steps[number], walk.forward[number], walk.backward[number + 1]
    if step.kind == "spatial":
        yield from _fanout(walk, step, before, after, "")
    elif step.kind == "capacity":
        yield from _capacity(walk, step, before * after >= walk.least_used, "")


def _together(walk: Walk) -> tuple[Obstacle, ...]:
    """Every limit that the walk from inside runs into, each lifted before it goes on."""
    found: list[Obstacle] = []
    table = walk.forward[0]
    for number, step in enumerate(walk.steps):
        after, ahead = walk.take(step, table), walk.lifted[number + 1]
        if not (after * ahead).any():
            more = "; other limits have to be lifted with this one"
            if step.kind == "spatial":
                found += _fanout(walk, step, table, ahead * walk.least_used, more)
            else:
                found += _capacity(walk, step, table * ahead > 0, more)
            after = walk.take(step, table, relaxed=True)
        table = after
    return tuple(found) or tuple(_machine(walk))


def _capacity(walk: Walk, step: Step, states: NDArray[np.bool_], more: str) -> Iterator[Obstacle]:
    """Too much has to be kept at a level, or too little can be."""
    import numpy as np

    level, space = walk.mapspace.architecture.levels[step.index], walk.mapspace.levels[step.index]
    if level.capacity is None or level.is_fanout or not states.any():
        return
    least = np.where(states, walk.words(step.index, space.tensors.keep), np.iinfo(np.int64).max)
    if least.min() > level.capacity:
        yield _overflow(walk, step.index, int(least.argmin()), more)
        return
    most = np.where(states, walk.words(step.index, space.tensors.keep | frozenset(space.tensors.free)), -1)
    filled, wanted = int(most.max()), level.capacity * space.min_utilization
    if filled < wanted:
        share = filled / level.capacity
        yield Obstacle(
            "min_utilization", level.name, wanted, float(filled),
            f"{level.name} can be filled with {filled} words at most, below the least utilization of {space.min_utilization:g} "
            f"of its {level.capacity} ({space.place}){more}",
            f"lower the least utilization of {level.name} to {share:.4g} or less",
        )  # fmt: skip
    elif wanted > 0:
        yield Obstacle(
            "min_utilization", level.name, wanted, float(level.capacity),
            f"no tiles fill {level.name} to between {ceil(wanted)} and {level.capacity} words{more}",
            f"lower the least utilization of {level.name}, {space.min_utilization:g} ({space.place})",
        )  # fmt: skip


def _overflow(walk: Walk, index: int, number: int, more: str) -> Obstacle:
    level, space, tile = walk.mapspace.architecture.levels[index], walk.mapspace.levels[index], walk.state(number)
    parts = {name: walk.mapspace.einsum.tensor(name).volume(tile) for name in sorted(space.tensors.keep)}
    words, limit = sum(parts.values()), level.capacity or 0
    shape = ", ".join(f"{rank}={extent}" for rank, extent in tile.items() if extent > 1) or "a single point"
    rows = ceil(words * level.multiple_buffering / level.block_size)
    return Obstacle(
        "capacity", level.name, float(words), float(limit),
        f"the smallest tile at {level.name} ({shape}) needs {words} words ("
        + ", ".join(f"{name} {size}" for name, size in parts.items())
        + f"), {words - limit} more than its capacity of {limit}{more}",
        f"raise the capacity of {level.name} to {words} words (depth {rows})"
        + "".join(f", or let it bypass {name}" for name, size in parts.items() if words - size <= limit),
    )  # fmt: skip


def _fanout(walk: Walk, step: Step, before: Table, after: Table, more: str) -> Iterator[Obstacle]:
    """Spatial loops that need more instances than there are, or fewer than parallelism asks for."""
    space, name = walk.mapspace.levels[step.index].spatial, walk.mapspace.architecture.levels[step.index].name
    if not before.any() or not after.any():
        return
    most, everything = space.fanout, prod(walk.mapspace.einsum.rank_sizes)
    while not (vectors := _joining(walk, step.index, before, after, most)) and most < everything:
        most *= 2
    fitting = [prod(vector.values()) for vector in vectors if space.fits(vector)]
    if fitting:
        yield from _parallelism(space, name, fitting, more)
    elif vectors:
        nearest = min(vectors, key=lambda vector: prod(vector.values()))
        used = prod(nearest.values())
        loops = ", ".join(f"{rank}={bound}" for rank, bound in nearest.items() if bound > 1)
        sides = "" if used > space.fanout else ", each rank wholly on X or wholly on Y" + _split(space.split)
        yield Obstacle(
            "mesh", name, float(used), float(space.fanout),
            f"the spatial loops {loops} at {name} need {used} instances, which do not fit its fan-out of "
            f"{space.fanout_x} x {space.fanout_y}{sides}{more}",
            f"give {name} a fan-out that holds {loops}",
        )  # fmt: skip


def _joining(walk: Walk, index: int, before: Table, after: Table, most: int) -> list[dict[str, int]]:
    """Spatial bounds of a level, with a product of at most ``most``, that lead from reachable tiles to completable ones."""
    return [
        bounds
        for bounds, moved in walk.spatial_vectors(index, before, most)
        if (moved * after * walk.units(bounds) >= walk.least_used).any()
    ]


def _parallelism(space: SpatialSpace, name: str, products: list[int], more: str) -> Iterator[Obstacle]:
    """Spatial loops fit, but none of the ``products`` of instances that they use is one that parallelism asks for."""
    below = [used for used in products if used < space.min_used]
    above = [used for used in products if space.max_used is not None and used > space.max_used]
    if len(below) + len(above) < len(products):
        return
    which, reached, needed = ("min", max(below), space.min_used) if below else ("max", min(above), space.max_used or 0)
    yield Obstacle(
        "parallelism", name, float(needed), float(reached),
        f"spatial loops at {name} can use {reached} instances of {space.fanout} at {'most' if which == 'min' else 'least'}, "
        f"while {which} parallelism asks for {needed}{more}",
        f"set {which} parallelism of {name} to {reached / space.fanout:.4g}",
    )  # fmt: skip


def _split(split: int | None) -> str:
    return "" if split is None else f", split {split}"


def _machine(walk: Walk) -> Iterator[Obstacle]:
    """The machine's least parallelism."""
    reached, total = walk.most_used, walk.mapspace.architecture.compute.instances
    if 0 < reached < walk.least_used:
        yield Obstacle(
            "parallelism", walk.mapspace.architecture.compute.name, float(walk.least_used), float(reached),
            f"at most {reached} of {total} compute units can be used, "
            f"below the min parallelism of {walk.mapspace.min_parallelism:g}",
            f"set min parallelism to {reached / total:.4g} or less",
        )  # fmt: skip


def _droppable(mapspace: Mapspace) -> Iterator[tuple[str, Place]]:
    """Constraints any one of which, dropped, leaves a mapping: (in words, place)."""
    sources: dict[tuple[Place, str], None] = {}
    for index, spatial in mapspace.slots:
        loops = mapspace.loops((index, spatial))
        by_nature = loops.fanout == 1 if isinstance(loops, SpatialSpace) else mapspace.architecture.levels[index].is_fanout
        if not by_nature:
            sources.update(dict.fromkeys(source for limits in loops.factors.values() for source in limits.sources))
    for source in list(sources)[:MOST_CONSTRAINTS]:
        if Walk(_without(mapspace, source)).is_feasible:
            place, clause = source
            yield clause + (f" ({place})" if place != Place() else ""), place


def _without(mapspace: Mapspace, source: tuple[Place, str]) -> Mapspace:
    """The mapspace without one factor constraint, and without what it implies for its rank elsewhere."""

    def freed(limits: FactorRange) -> FactorRange:
        return ANY if source in limits.sources or any(source[1] in clause for _, clause in limits.sources) else limits

    def open_up(level: LevelSpace) -> LevelSpace:
        temporal = {rank: freed(limits) for rank, limits in level.temporal.factors.items()}
        spatial = {rank: freed(limits) for rank, limits in level.spatial.factors.items()}
        return replace(level, temporal=replace(level.temporal, factors=temporal), spatial=replace(level.spatial, factors=spatial))

    return replace(mapspace, levels=tuple(open_up(level) for level in mapspace.levels))


def _constraint(clause: str, place: Place) -> Obstacle:
    return Obstacle("constraint", None, None, None, f"{clause} leaves no valid mapping", f"drop {clause}")


def _sequential(mapspace: Mapspace) -> Iterator[Obstacle]:
    """Tiles fit everywhere, so only the order of loops can stand in the way."""
    for level, space in mapspace.named():
        if space.remove_sequential_factors:
            where = f"remove_sequential_factors at {level.name} ({space.place})"
            yield Obstacle(
                "order", level.name, None, None, f"{where} and the permutations leave no order of loops", f"drop {where}"
            )
