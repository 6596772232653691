"""Loop spaces of every level from factor, permutation and split constraints."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from stitchloop.architecture import Architecture, Level
from stitchloop.constraints import Constraints, LevelConstraints, LoopConstraint
from stitchloop.errors import InputError, Place
from stitchloop.mapspace.factors import FactorRange, divisors, reachable
from stitchloop.mapspace.orders import LoopSpace, SpatialSpace
from stitchloop.mapspace.wishes import Wish, contradiction, merge
from stitchloop.workload import Einsum


@dataclass
class Slot:
    """One slot while its constraints are being gathered."""

    name: str
    spatial: bool
    constraint: LoopConstraint
    space: LoopSpace
    wishes: dict[str, list[Wish]] = field(default_factory=dict)

    def add(self, wish: Wish) -> None:
        self.wishes.setdefault(wish.rank, []).append(wish)

    def range_of(self, rank: str) -> FactorRange:
        return merge(self.wishes.get(rank, ()))


def loop_spaces(
    einsum: Einsum, architecture: Architecture, constraints: Constraints, imperfect: bool
) -> tuple[tuple[LoopSpace, SpatialSpace], ...]:
    """(temporal, spatial) loop space of every level, inner to outer.

    Raises
    ------
    InputError
        Unknown ranks, permutations that repeat a rank, bounds that contradict each other or the rank's size, and spatial
        bounds that no layout fits into the fan-out.
    """
    slots: list[Slot] = []
    for index, (level, entry) in enumerate(zip(architecture.levels, constraints.levels)):
        whole_machine = not level.is_fanout and all(inner.is_fanout for inner in architecture.levels[:index])
        slots += [
            _spatial_slot(einsum, level, entry, whole_machine),
            _temporal_slot(einsum, level, entry, orderless(index, level)),
        ]
    for slot in slots:
        _gather(einsum, slot)
    for slot in sorted(slots, key=lambda slot: not slot.spatial):
        _maximize(einsum, slot, slots)
    for rank in einsum.ranks:
        _settle_rest(einsum, rank, slots)
        _check_rank(einsum, rank, slots, imperfect)
    spaces = [_with_factors(einsum, slot) for slot in slots]
    for slot, space in zip(slots, spaces):
        if isinstance(space, SpatialSpace):
            _check_fanout(slot, space)
    return tuple((temporal, spatial) for spatial, temporal in zip(spaces[::2], spaces[1::2]) if isinstance(spatial, SpatialSpace))


def orderless(index: int, level: Level) -> bool:
    """Whether the order of a level's temporal loops has no effect: level 0 above a single unit moves a word every step."""
    return index == 0 and level.fanout_x * level.fanout_y == 1


def _temporal_slot(einsum: Einsum, level: Level, entry: LevelConstraints, canonical: bool) -> Slot:
    name = f"{level.name} (temporal)"
    inner, free, outer = _order(einsum, name, entry.temporal)
    space = LoopSpace(einsum.ranks, {}, inner, free, outer, canonical, entry.temporal.place)
    slot = Slot(name, False, entry.temporal, space)
    if level.is_fanout:
        for rank in einsum.ranks:
            slot.add(Wish(rank, "=", 1, Place(), f"{rank}=1 (a fan-out has no temporal loops)", name))
    return slot


def _spatial_slot(einsum: Einsum, level: Level, entry: LevelConstraints, whole_machine: bool) -> Slot:
    name = f"{level.name} (spatial)"
    given = entry.spatial
    inner, free, outer = _order(einsum, name, given)
    if given.split is not None and given.split < 0:
        raise InputError(given.place, f"split: {given.split} at {name} is negative", "give the number of positions on X")
    if given.remove_sequential_factors:
        raise InputError(given.place, f"remove_sequential_factors at {name} has a meaning for temporal loops only", "remove it")
    least, most = (1, None) if whole_machine else instances_used(level, entry)
    space = SpatialSpace(
        einsum.ranks, {}, inner, free, outer, False, given.place,
        fanout_x=level.fanout_x, fanout_y=level.fanout_y, split=given.split, min_used=least, max_used=most,
    )  # fmt: skip
    slot = Slot(name, True, given, space)
    if space.fanout == 1:
        for rank in einsum.ranks:
            slot.add(Wish(rank, "=", 1, Place(), f"{rank}=1 (one instance below, no fan-out)", name))
    return slot


def instances_used(level: Level, entry: LevelConstraints) -> tuple[int, int | None]:
    """Parallelism bounds of one level's fan-out as numbers of instances (the innermost storage level's are the machine's)."""
    total = level.fanout_x * level.fanout_y
    if entry.min_parallelism > entry.max_parallelism:
        raise InputError(
            entry.place,
            f"min parallelism {entry.min_parallelism:g} and max parallelism {entry.max_parallelism:g} at {level.name} "
            "contradict each other",
            "lower the first or raise the second",
        )
    asked = entry.min_parallelism > 0 or entry.max_parallelism < 1
    if total == 1 and asked:
        raise InputError(
            entry.place,
            f"a parallelism constraint at {level.name}, which has no fan-out, would change nothing",
            "name the container whose fan-out is meant, or the innermost storage level for the share of all compute units",
        )
    instances = range(1, total + 1)
    least = 1 + bisect_left(instances, entry.min_parallelism, key=lambda used: used / total)
    most = max(1, bisect_right(instances, entry.max_parallelism, key=lambda used: used / total))
    return least, None if most == total else most


def _order(einsum: Einsum, name: str, given: LoopConstraint) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    listed = given.permutation + given.outer
    for rank in listed:
        _known(einsum, rank, f"permutation at {name}", given.place)
        if listed.count(rank) > 1:
            raise InputError(
                given.place,
                f"the permutation {list(given.permutation)} with outer {list(given.outer)} at {name} lists rank {rank} twice, "
                "which puts it in two positions that contradict each other",
                "list each rank once",
            )
    return given.permutation, tuple(rank for rank in einsum.ranks if rank not in listed), given.outer


def _known(einsum: Einsum, rank: str, what: str, place: Place) -> None:
    if rank not in einsum.sizes:
        raise InputError(place, f"{what} names rank {rank}, which Einsum {einsum.name} does not have", _ranks(einsum))


def _ranks(einsum: Einsum) -> str:
    return "its ranks are " + ", ".join(f"{rank}={size}" for rank, size in einsum.sizes.items())


def _gather(einsum: Einsum, slot: Slot) -> None:
    """Turn factor and no-iteration constraints into wishes."""
    for factor in slot.constraint.factors:
        what = f"{factor.rank}{factor.relation}{factor.value}"
        place = factor.place if factor.place != Place() else slot.constraint.place
        _known(einsum, factor.rank, f"{what} at {slot.name}", place)
        size = einsum.sizes[factor.rank]
        least = 0 if factor.relation == "=" else 1
        if factor.value < least or (factor.relation != "<=" and factor.value > size):
            raise InputError(
                place,
                f"{what} at {slot.name} and the size of rank {factor.rank}, {size}, contradict each other",
                f"give a value from {least} to {size}",
            )
        slot.add(Wish(factor.rank, factor.relation, factor.value, place, what, slot.name))
    tensors = {tensor.name: tensor for tensor in einsum.tensors}
    for name in slot.constraint.no_iteration_over:
        if name not in tensors:
            _known(einsum, name, f"no_iteration_over at {slot.name}", slot.constraint.place)
        for rank in einsum.ranks:
            if rank == name or (name in tensors and rank in tensors[name].ranks):
                clause = f"{rank}=1 (no iteration over {name})"
                slot.add(Wish(rank, "=", 1, slot.constraint.place, clause, slot.name))
    for wishes in slot.wishes.values():
        rests = [wish for wish in wishes if wish.is_rest]
        for wish in wishes:
            if rests and wish.relation == "=" and not wish.is_rest:
                raise contradiction(rests[0], wish)
        merge(wishes)


def _maximize(einsum: Einsum, slot: Slot, slots: list[Slot]) -> None:
    """Fix the bounds of each group of ``maximize_dims`` to the largest product that fits, as the front end does.

    Candidates divide what the bounds fixed so far leave of a rank; of equal products the one that gives most to the rank
    listed first is taken. A spatial group has to fit the fan-out in some layout, a temporal one its given capacity.
    """
    for group in slot.constraint.maximize:
        place = slot.constraint.place
        for rank in group:
            _known(einsum, rank, f"maximize_dims at {slot.name}", place)
            for wish in slot.wishes.get(rank, ()):
                if wish.place != Place() or wish.relation == "=":
                    raise contradiction(Wish(rank, ">=", 1, place, f"maximize_dims {list(group)}", slot.name), wish)
        left = [einsum.sizes[rank] // prod(_fixed(other, rank) for other in slots) or 1 for rank in group]
        best = max(
            (bounds for bounds in product(*(divisors(size) for size in left)) if _fits(slot, dict(zip(group, bounds)))),
            key=lambda bounds: (prod(bounds), bounds),
            default=tuple(1 for _ in group),
        )
        for rank, bound in zip(group, best):
            slot.add(Wish(rank, "=", bound, place, f"{rank}={bound} (maximize_dims {list(group)})", slot.name))


def _fixed(slot: Slot, rank: str) -> int:
    return slot.range_of(rank).exact or 1


def _fits(slot: Slot, bounds: dict[str, int]) -> bool:
    lows = {rank: slot.range_of(rank).low for rank in slot.wishes} | bounds
    if isinstance(slot.space, SpatialSpace):
        return slot.space.fits(lows)
    if slot.constraint.maximize_capacity is None:
        raise InputError(
            slot.constraint.place,
            f"maximize_dims at {slot.name} without maximize_dims_capacity",
            "temporal loops have no fan-out to fill: say how large the product of their bounds may be",
        )
    return prod(lows.values()) <= slot.constraint.maximize_capacity


def _settle_rest(einsum: Einsum, rank: str, slots: list[Slot]) -> None:
    """Resolve ``rank = 0``: this slot takes all that the other fixed bounds leave, and every slot still open takes 1."""
    rests = [(slot, wish) for slot in slots for wish in slot.wishes.get(rank, ()) if wish.is_rest]
    if not rests:
        return
    slot, wish = rests[0]
    for other, second in rests[1:]:
        if other is not slot:
            raise contradiction(wish, second, f"both claim all that is left of rank {rank}")
    fixed = [other for other in slots if other is not slot and other.range_of(rank).exact is not None]
    taken = prod(_fixed(other, rank) for other in fixed)
    if einsum.sizes[rank] % taken == 0:
        slot.add(Wish(rank, "=", einsum.sizes[rank] // taken, wish.place, wish.clause, wish.slot))
        slot.range_of(rank)
        for other in slots:
            if other is not slot and other not in fixed:
                other.add(
                    Wish(rank, "=", 1, wish.place, f"{rank}=1 (the rest is taken by {wish.clause} at {wish.slot})", other.name)
                )
                other.range_of(rank)


def _check_rank(einsum: Einsum, rank: str, slots: list[Slot], imperfect: bool) -> None:
    ranges = [slot.range_of(rank) for slot in slots]
    size = einsum.sizes[rank]
    if reachable(size, ranges, imperfect):
        return
    wishes = [wish for slot in slots for wish in slot.wishes.get(rank, ()) if not wish.is_rest]
    binding = [wish for wish in wishes if (wish.relation, wish.value) not in (("=", 1), (">=", 1))]
    fixed = prod(limits.exact or 1 for limits in ranges)
    divides = size % fixed == 0 or imperfect
    said = binding if len(binding) > 1 or (binding and not divides) else binding + [w for w in wishes if w not in binding]
    at = next((wish.place for wish in said if wish.place != Place()), Place())
    if not divides:
        fix = "fixes" if len(said) == 1 else "fix"
        why = f"{fix} a product of {fixed}, which does not divide the size of rank {rank}, {size}"
    elif all(limits.exact is not None for limits in ranges):
        why = f"fix a product of {fixed}, while the size of rank {rank} is {size}"
    else:
        why = (
            f"leave no {'chain of bounds' if imperfect else 'factors'} that cover{'s' if imperfect else ''} rank {rank} = {size}"
        )
    raise InputError(at, f"{_joined(said)} {why}", "change or remove one of them")


def _joined(wishes: list[Wish]) -> str:
    words = [str(wish) for wish in dict.fromkeys(wishes)]
    shown = words[:6] + ([f"{len(words) - 6} more"] if len(words) > 6 else [])
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]


def _with_factors(einsum: Einsum, slot: Slot) -> LoopSpace:
    return replace(slot.space, factors={rank: slot.range_of(rank) for rank in einsum.ranks})


def _check_fanout(slot: Slot, space: SpatialSpace) -> None:
    """Least spatial bounds that fit no layout contradict the fan-out."""
    lows = {rank: limits.low for rank, limits in space.factors.items()}
    used = prod(lows.values())
    most = space.max_used if space.max_used is not None else used
    if used <= most and space.fits(lows):
        return
    said = [wish for wishes in slot.wishes.values() for wish in wishes if wish.relation != "<=" and wish.value > 1]
    at = next((wish.place for wish in said if wish.place != Place()), slot.constraint.place)
    how, mend = f"mesh {space.fanout_x} x {space.fanout_y}", "lower one of them"
    if used > most:
        how += f", max parallelism {most} instances"
        mend += f", or raise the max parallelism to {used} instances"
    elif used <= space.fanout:
        how += ", each rank wholly on X or wholly on Y" + ("" if space.split is None else f", split {space.split}")
    if not space.fits(lows):
        x, y = space.widened(lows)
        mend += f", or widen the fan-out to {x} x {y}"
    need = "needs" if len(said) == 1 else "need"
    raise InputError(at, f"{_joined(said)} {need} {used} instances; that and the fan-out ({how}) contradict each other", mend)
