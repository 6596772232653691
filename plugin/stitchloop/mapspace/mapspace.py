"""From constraints to the mapspace that they leave; contradictions are errors that name both sides."""

from __future__ import annotations

from stitchloop.architecture import Architecture
from stitchloop.constraints import Constraints, LevelConstraints
from stitchloop.errors import InputError, Place
from stitchloop.mapspace.keeps import keep_spaces
from stitchloop.mapspace.loops import loop_spaces
from stitchloop.mapspace.space import KeepSpace, LevelSpace, Mapspace
from stitchloop.options import LARGEST_IMPERFECT, LARGEST_PERFECT, MapperOptions
from stitchloop.workload import Einsum

__all__ = ["KeepSpace", "LevelSpace", "Mapspace", "build_mapspace"]

MOST_COMPUTES = 1 << 62
"""Points of an iteration space that the search counts in 64 bits."""


def build_mapspace(
    einsum: Einsum,
    architecture: Architecture,
    constraints: Constraints | None = None,
    options: MapperOptions | None = None,
) -> Mapspace:
    """The mapspace of one Einsum on one architecture under constraints, as Timeloop's mapper defines it.

    Parameters
    ----------
    constraints : Constraints, optional
        One entry per level, with the architecture's indices; None leaves everything free.
    options : MapperOptions, optional
        ``imperfect`` admits bounds that do not divide.

    Raises
    ------
    InputError
        Constraints that contradict each other, the Einsum or the architecture; both sides are named with their places.
    """
    given = constraints or Constraints(tuple(LevelConstraints() for _ in architecture.levels))
    if len(given.levels) != len(architecture.levels):
        raise InputError(
            None,
            f"constraints for {len(given.levels)} levels, while the architecture has {len(architecture.levels)}",
            "give one entry per level, inner to outer",
        )
    imperfect = options is not None and options.imperfect
    loops = loop_spaces(einsum, architecture, given, imperfect)
    keeps = keep_spaces(einsum, architecture, given)
    levels = tuple(
        LevelSpace(
            temporal=temporal,
            spatial=spatial,
            tensors=tensors,
            min_utilization=max(level.min_utilization, entry.min_utilization),
            remove_sequential_factors=entry.temporal.remove_sequential_factors,
            place=entry.place,
        )
        for level, entry, (temporal, spatial), tensors in zip(architecture.levels, given.levels, loops, keeps)
    )
    least, most = machine_parallelism(architecture, given)
    return Mapspace(einsum, architecture, levels, imperfect, least, most, given)


def check_sizes(einsum: Einsum, imperfect: bool) -> None:
    """Refuse what a search cannot go through or count: :class:`InputError` for a large rank, or too many computes."""
    largest = LARGEST_IMPERFECT if imperfect else LARGEST_PERFECT
    for rank, size in einsum.sizes.items():
        if size > largest:
            mend = f"sizes up to {largest} are mapped"
            mend += f", up to {LARGEST_PERFECT} with factors that divide" if imperfect else ""
            raise InputError(Place(None, ("problem", "instance", rank)), f"size {size}, above {largest}", mend)
    if einsum.computes > MOST_COMPUTES:
        place = Place(None, ("problem", "instance"))
        raise InputError(place, f"{einsum.computes} computes", f"at most {MOST_COMPUTES} are mapped; give smaller sizes")


def machine_parallelism(architecture: Architecture, constraints: Constraints) -> tuple[float, float]:
    """Bounds on the share of all compute units in use: those set at the innermost storage level, as Timeloop reads them."""
    innermost = next((i for i, level in enumerate(architecture.levels) if not level.is_fanout), 0)
    entry = constraints.levels[innermost]
    if entry.min_parallelism > entry.max_parallelism:
        raise InputError(
            entry.place,
            f"min parallelism {entry.min_parallelism:g} and max parallelism {entry.max_parallelism:g} contradict each other",
            "lower the first or raise the second",
        )
    return entry.min_parallelism, entry.max_parallelism
