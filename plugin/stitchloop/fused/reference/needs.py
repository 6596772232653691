"""Spaces, and what several readers of one tensor need of it together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stitchloop.fused.reference.axis import Axis, Loop, levels_of, merged, silent, summed, truncated
from stitchloop.fused.reference.sets import EMPTY, NotSeparable, intersection, size, union
from stitchloop.fused.structure import Structure
from stitchloop.workload import Tensor


@dataclass(frozen=True)
class Space:
    """An Einsum's iteration space as its loops visit it.

    Attributes
    ----------
    ranks : dict
        The axis of each rank of the Einsum.
    idle : tuple of Axis
        Loops above that cut no rank of the Einsum, each iteration of which it runs again in full.
    gates : frozenset of int
        Levels of loops above in whose first iteration only it runs.
    skips : bool
        It also leaves out iterations in which nothing is missing.
    computed : int
        Points of the intermediate that it computes, each as often as it is computed.
    restarts : frozenset of int
        Levels of the loops above at whose steps nothing of the intermediate is kept.
    """

    ranks: dict[str, Axis]
    idle: tuple[Axis, ...] = ()
    gates: frozenset[int] = frozenset()
    skips: bool = False
    computed: int = 0
    restarts: frozenset[int] = frozenset()

    def seen_from(self, depth: int) -> Space:
        """The space as the loops above ``depth`` step through it."""
        return replace(
            self,
            ranks={rank: truncated(axis, depth) for rank, axis in self.ranks.items()},
            idle=tuple(axis for axis in (truncated(axis, depth) for axis in self.idle) if levels_of(axis)),
        )

    def dimensions(self, tensor: Tensor) -> tuple[Axis, ...]:
        """The axis of each rank of a tensor; raises :class:`NotSeparable` if two of them share a rank of the Einsum."""
        used = [term.rank for terms in tensor.projection for term in terms]
        if len(used) != len(set(used)):
            raise NotSeparable(f"{tensor.name}: a rank stands in two dimensions")
        return tuple(summed([(term.coefficient, self.ranks[term.rank]) for term in terms]) for terms in tensor.projection)

    def others(self, tensor: Tensor) -> tuple[Axis, ...]:
        """Silent axes of all loops that do not index the tensor."""
        axes = tuple(silent(axis) for rank, axis in self.ranks.items() if rank not in tensor.ranks and levels_of(axis))
        return axes + self.idle


@dataclass(frozen=True)
class Need:
    """What is needed of a tensor in each iteration of the loops above a branch; see :class:`Space` for the parts."""

    dimensions: tuple[Axis, ...]
    idle: tuple[Axis, ...]
    gates: frozenset[int]
    skips: bool


def needed(structure: Structure, tensor: str, readers: Sequence[str], depth: int, known: dict[str, Space]) -> Need:
    """What some readers of a tensor need in all.

    Raises
    ------
    NotSeparable
        Where that is no product over axes.
    """
    together: Need | None = None
    for reader in readers:
        space = known[reader].seen_from(depth)
        access = structure.paths[reader].einsum.tensor(tensor)
        need = Need(space.dimensions(access), space.others(access), space.gates, space.skips)
        together = need if together is None or need == together else _united(together, need)
        if together is None:
            raise NotSeparable(f"the readers of {tensor} need different parts of it")
    assert together is not None
    return together


def common_part(tensor: str, needs: Sequence[Need]) -> Need:
    """What several needs have in common; raises :class:`NotSeparable` where that is no product over axes."""
    common = needs[0]
    for need in needs[1:]:
        if need != common:
            pairs = zip(common.dimensions, need.dimensions, strict=True)
            found = _joined(common, need, [merged(a, b, intersection) for a, b in pairs])
            if found is None:
                raise NotSeparable(f"the readers of {tensor} have too little in common")
            common = found
    return common


def _united(one: Need, other: Need) -> Need | None:
    """The union of two needs where it is a product again: one holds the other, or they differ in one dimension only."""
    for small, large in ((one, other), (other, one)):
        pairs = list(zip(small.dimensions, large.dimensions, strict=True))
        held = [merged(a, b, lambda _, b: b) for a, b in pairs]
        if (
            None not in held
            and held == [merged(a, b, union) for a, b in pairs]
            and large.gates <= small.gates
            and not large.skips
        ):
            return large
    pairs = list(zip(one.dimensions, other.dimensions, strict=True))
    if sum(a != b for a, b in pairs) > 1:
        return None
    return _joined(one, other, [merged(a, b, union) for a, b in pairs])


def _joined(one: Need, other: Need, dimensions: list[Axis | None]) -> Need | None:
    if any(axis is None or axis == EMPTY for axis in dimensions) or one.gates != other.gates:
        return None
    axes = tuple(axis for axis in dimensions if axis is not None)
    moving = frozenset().union(*map(levels_of, axes))
    idle, rest = ([axis for axis in need.idle if not levels_of(axis) & moving] for need in (one, other))
    covered = moving.union(*map(levels_of, idle))
    if sum(len(levels_of(axis)) for axis in axes) != len(moving) or idle != rest or not _levels(one) | _levels(other) <= covered:
        return None
    skips = one.skips or other.skips or any(leaves(a) != leaves(b) for a, b in zip(one.dimensions, axes, strict=True))
    return Need(axes, tuple(idle), one.gates, skips)


def _levels(need: Need) -> frozenset[int]:
    return frozenset().union(*map(levels_of, (*need.dimensions, *need.idle)))


def visits(axis: Axis) -> int:
    """Points over all leaves, each as often as it is visited."""
    if not isinstance(axis, Loop):
        return size(axis)
    return sum(run.count * visits(run.tree) for run in axis.runs)


def leaves(axis: Axis) -> int:
    """Innermost iterations in which the axis visits anything."""
    if not isinstance(axis, Loop):
        return 1 if axis else 0
    return sum(run.count * leaves(run.tree) for run in axis.runs)
