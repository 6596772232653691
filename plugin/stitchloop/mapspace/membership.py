"""Checks one mapping against every constraint of a mapspace, and says which one it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from stitchloop.errors import Place
from stitchloop.mapping import Loop, Mapping
from stitchloop.mapspace.factors import FactorRange, covered, residual_of
from stitchloop.mapspace.orders import LoopSpace
from stitchloop.mapspace.space import Mapspace


def violation(mapspace: Mapspace, mapping: Mapping) -> str | None:
    """The first constraint that the mapping breaks, as a sentence; None when it is in the mapspace.

    Fan-outs are checked one by one, X and Y apart, as Timeloop's mapper does (its model checks whole meshes only). The
    other limits of the hardware, capacity above all, are the reference model's business.
    """
    if len(mapping.levels) != len(mapspace.levels):
        return f"the mapping has {len(mapping.levels)} levels, the architecture {len(mapspace.levels)}"
    for sentences in (
        _loops(mapspace, mapping),
        _ranks(mapspace, mapping),
        _keeps(mapspace, mapping),
        _limits(mapspace, mapping),
    ):
        for sentence in sentences:
            return sentence
    return None


def tile_at(mapping: Mapping, index: int) -> dict[str, int]:
    """Bounds of the largest tile that one instance of level ``index`` holds: all loops of it and of the levels inside."""
    tile: dict[str, int] = {}
    for level in mapping.levels[: index + 1]:
        for loop in level.temporal + level.spatial:
            tile[loop.rank] = tile.get(loop.rank, 1) * loop.bound
    return tile


def _nest(mapping: Mapping, slot: tuple[int, bool]) -> tuple[Loop, ...]:
    level = mapping.levels[slot[0]]
    return tuple(loop for loop in (level.spatial if slot[1] else level.temporal) if loop.bound > 1)


def _named(mapspace: Mapspace, slot: tuple[int, bool]) -> str:
    return f"{mapspace.architecture.levels[slot[0]].name} ({'spatial' if slot[1] else 'temporal'})"


def _loops(mapspace: Mapspace, mapping: Mapping) -> Iterator[str]:
    """Bounds, orders and layouts, slot by slot."""
    for slot in mapspace.slots:
        space, nest, name = mapspace.loops(slot), _nest(mapping, slot), _named(mapspace, slot)
        order = [loop.rank for loop in nest]
        unknown = [rank for rank in order if rank not in space.factors]
        if unknown:
            yield f"{name} loops over {unknown[0]}, which is no rank of the Einsum"
            return
        if len(set(order)) != len(order):
            yield f"{name} has two loops over rank {next(rank for rank in order if order.count(rank) > 1)}"
            return
        bounds = {loop.rank: loop.bound for loop in nest}
        for rank, limits in space.factors.items():
            if not limits.admits(bounds.get(rank, 1)):
                yield f"{rank}={bounds.get(rank, 1)} at {name} breaks {_said(limits)}"
        yield from _orders(mapspace, mapping, slot, space, order, name)


def _orders(
    mapspace: Mapspace, mapping: Mapping, slot: tuple[int, bool], space: LoopSpace, order: list[str], name: str
) -> Iterator[str]:
    where = f" ({space.place})" if space.place != Place() else ""
    if not space.admits_order(order):
        outer = f" with {list(space.outer)} outermost" if space.outer else ""
        yield (
            f"the loops at {name} stand in the order {order}, innermost first, "
            f"against the permutation {list(space.inner)}{outer}{where}"
        )
    elif slot[1]:
        level, spatial = mapping.levels[slot[0]], mapspace.levels[slot[0]].spatial
        x = [loop.rank for loop in level.spatial_x if loop.bound > 1]
        y = [loop.rank for loop in level.spatial_y if loop.bound > 1]
        if not spatial.admits_layout(x, y):
            yield f"{x} on X and {y} on Y at {name} do not follow split {spatial.split} of {list(spatial.inner)}{where}"


def _said(limits: FactorRange) -> str:
    named = [f"{clause}" + (f" ({place})" if place != Place() else "") for place, clause in limits.sources]
    return " and ".join(named) or f"the range {limits.low} to {limits.high}"


def _ranks(mapspace: Mapspace, mapping: Mapping) -> Iterator[str]:
    """Every rank is covered, by bounds that divide unless imperfect ones are admitted."""
    for rank, size in mapspace.einsum.sizes.items():
        left = size
        for slot in mapspace.slots:
            for loop in _nest(mapping, slot):
                if loop.rank != rank:
                    continue
                if not mapspace.imperfect and (left % loop.bound or not loop.is_perfect):
                    yield f"{rank}={loop.bound} at {_named(mapspace, slot)} does not divide what is left of rank {rank}, {left}"
                    return
                if loop.bound > left or loop.residual != residual_of(left, loop.bound):
                    yield (
                        f"{rank}={loop.bound},{loop.residual} at {_named(mapspace, slot)} "
                        f"does not fit what is left of rank {rank}, {left}"
                    )
                    return
                left = covered(left, loop.bound)
        if left != 1:
            yield f"the loops over rank {rank} leave {left} of its size {size} uncovered"


def _keeps(mapspace: Mapspace, mapping: Mapping) -> Iterator[str]:
    for (level, space), mapped in zip(mapspace.named(), mapping.levels):
        tensors = space.tensors
        for name in sorted(tensors.keep - mapped.keep):
            yield f"{level.name} bypasses {name}, which it has to keep ({space.place})"
        for name in sorted(mapped.keep - tensors.keep - frozenset(tensors.free)):
            why = "a fan-out stores nothing" if level.is_fanout else f"which it has to bypass ({space.place})"
            yield f"{level.name} keeps {name}, {why}"


def _limits(mapspace: Mapspace, mapping: Mapping) -> Iterator[str]:
    """Fan-outs, parallelism, utilisation and sequential factors."""
    for index, ((level, space), mapped) in enumerate(zip(mapspace.named(), mapping.levels)):
        used, spatial = mapped.fanout, space.spatial
        for side, loops, there in (("X", mapped.spatial_x, spatial.fanout_x), ("Y", mapped.spatial_y, spatial.fanout_y)):
            if prod(loop.bound for loop in loops) > there:
                yield f"{level.name} uses {prod(loop.bound for loop in loops)} instances along {side} of {there}"
        if used < spatial.min_used or (spatial.max_used is not None and used > spatial.max_used):
            most = spatial.max_used or spatial.fanout
            yield (
                f"{level.name} uses {used} instances, where parallelism constraints ask for "
                f"{spatial.min_used} to {most} ({space.place})"
            )
        if space.min_utilization > 0 and level.capacity:
            filled = sum(mapspace.einsum.tensor(name).volume(tile_at(mapping, index)) for name in mapped.keep)
            if filled < level.capacity * space.min_utilization:
                yield (
                    f"{level.name} holds {filled} words, below the least utilization, "
                    f"{space.min_utilization:g} of its {level.capacity} ({space.place})"
                )
        if space.remove_sequential_factors and mapped.temporal:
            below = next((inner.temporal for inner in reversed(mapping.levels[:index]) if inner.temporal), ())
            if below and below[-1].rank == mapped.temporal[0].rank:
                yield (
                    f"rank {below[-1].rank} is looped over twice in a row, at {level.name} and just inside it, "
                    "against remove_sequential_factors"
                )
    used, total = prod(level.fanout for level in mapping.levels), mapspace.architecture.compute.instances
    if not mapspace.min_parallelism <= used / total <= max(mapspace.max_parallelism, 1 / total):
        bounds = f"{mapspace.min_parallelism:g} to {mapspace.max_parallelism:g}"
        yield f"{used} of {total} compute units are in use, where parallelism constraints ask for a share of {bounds}"
