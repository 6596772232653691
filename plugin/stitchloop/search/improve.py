"""Neighbours of an imperfect mapping: other bounds of one rank, other orders, other keep sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.mapspace.factors import FactorRange, covered, residual_of
from stitchloop.mapspace.space import Mapspace

Slot = tuple[int, bool]


def neighbours(mapspace: Mapspace, mapping: Mapping) -> Iterator[Mapping]:
    """Mappings one step away; constraints on single bounds hold, others may be broken."""
    yield from _other_bounds(mapspace, mapping)
    yield from other_orders(mapping)
    yield from _other_keeps(mapspace, mapping)


def bounds_of(mapspace: Mapspace, mapping: Mapping, rank: str) -> list[int]:
    """The rank's bound in every slot of the mapspace."""
    found = []
    for index, spatial in mapspace.slots:
        level = mapping.levels[index]
        loops = level.spatial if spatial else level.temporal
        found.append(next((loop.bound for loop in loops if loop.rank == rank), 1))
    return found


def _other_bounds(mapspace: Mapspace, mapping: Mapping) -> Iterator[Mapping]:
    for rank, size in mapspace.einsum.sizes.items():
        limits = mapspace.limits(rank)
        open_slots = [i for i, limit in enumerate(limits) if limit.exact is None]
        bounds = bounds_of(mapspace, mapping, rank)
        seen = {tuple(bounds)}
        for i in open_slots:
            left = size
            for bound in bounds[:i]:
                left = covered(left, bound)
            passes = covered(left, bounds[i])
            steps = {bounds[i] - 1, bounds[i] + 1, bounds[i] // 2, bounds[i] * 2, 1, left, covered(left, passes + 1)}
            if passes > 1:
                steps.add(covered(left, passes - 1))
            for step in sorted(step for step in steps if 1 <= step <= left and limits[i].admits(step)):
                for absorber in open_slots:
                    if absorber != i:
                        chain = _chain(size, bounds, i, step, absorber)
                        if chain is not None and chain not in seen and all(map(_admits, limits, chain)):
                            seen.add(chain)
                            yield from _with_bounds(mapspace, mapping, rank, chain)


def _admits(limits: FactorRange, bound: int) -> bool:
    return limits.admits(bound)


def _chain(size: int, bounds: list[int], changed: int, step: int, absorber: int) -> tuple[int, ...] | None:
    """The bounds with one changed and another one taking what that leaves; None when they do not cover the rank."""
    wanted = [step if i == changed else bound for i, bound in enumerate(bounds)]
    left, chain = size, []
    for i, bound in enumerate(wanted):
        if i == absorber:
            bound = covered(left, prod(wanted[i + 1 :]))
        bound = min(bound, left)
        chain.append(bound)
        left = covered(left, bound)
    return tuple(chain) if left == 1 else None


def _with_bounds(mapspace: Mapspace, mapping: Mapping, rank: str, chain: tuple[int, ...]) -> Iterator[Mapping]:
    """The mapping with these bounds of one rank; loops that are new stand innermost or outermost in their slot."""
    left = mapspace.einsum.sizes[rank]
    loops: dict[Slot, Loop] = {}
    for slot, bound in zip(mapspace.slots, chain):
        last = residual_of(left, bound)
        loops[slot] = Loop(rank, bound, 0 if last == bound else last)
        left = covered(left, bound)
    variants: list[list[LevelMapping]] = [[]]
    for index, level in enumerate(mapping.levels):
        temporal = _placed(level.temporal, loops[index, False])
        spatial = [(x, level.spatial_y) for x in _placed(level.spatial_x, loops[index, True])]
        if not any(loop.rank == rank for loop in level.spatial_x):
            spatial += [(level.spatial_x, y) for y in _placed(level.spatial_y, loops[index, True])]
        if any(loop.rank == rank for loop in level.spatial_y):
            spatial = [(level.spatial_x, y) for y in _placed(level.spatial_y, loops[index, True])]
        options = [replace(level, temporal=t, spatial_x=x, spatial_y=y) for t in temporal for x, y in spatial]
        options = list(dict.fromkeys(options))
        variants = [[*variant, option] for variant in variants for option in options]
    for variant in variants:
        yield Mapping(tuple(variant))


def _placed(loops: tuple[Loop, ...], loop: Loop) -> list[tuple[Loop, ...]]:
    """The loops with the one over the same rank replaced, dropped, or added at either end."""
    at = next((i for i, own in enumerate(loops) if own.rank == loop.rank), None)
    new = (loop,) if loop.bound > 1 else ()
    if at is not None:
        return [loops[:at] + new + loops[at + 1 :]]
    return [loops] if not new else list(dict.fromkeys([loops + new, new + loops]))


def other_orders(mapping: Mapping) -> Iterator[Mapping]:
    """One temporal loop taken out and put back elsewhere in its level."""
    for index, level in enumerate(mapping.levels):
        loops = level.temporal
        for i in range(len(loops)):
            for j in range(len(loops)):
                if j != i and j != i - 1:
                    rest = loops[:i] + loops[i + 1 :]
                    yield _with_level(mapping, index, replace(level, temporal=(*rest[:j], loops[i], *rest[j:])))


def _other_keeps(mapspace: Mapspace, mapping: Mapping) -> Iterator[Mapping]:
    for index, level in enumerate(mapping.levels):
        for name in mapspace.levels[index].tensors.free:
            yield _with_level(mapping, index, replace(level, keep=level.keep ^ {name}))


def _with_level(mapping: Mapping, index: int, level: LevelMapping) -> Mapping:
    return Mapping((*mapping.levels[:index], level, *mapping.levels[index + 1 :]))
