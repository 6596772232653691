"""Mapspace constraints as users write them, level by level, with the place where each was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stitchloop.errors import Place

Relation = Literal["=", "<=", ">="]


@dataclass(frozen=True)
class FactorConstraint:
    """``rank relation value``; value 0 with ``=`` means the whole rank that is left."""

    rank: str
    relation: Relation
    value: int
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class LoopConstraint:
    """Constraints on the temporal or on the spatial loops of one level.

    ``permutation`` lists loops innermost first; ranks that it does not list stand outside the listed ones, in any order
    (for spatial loops: after them). ``split`` counts positions of the permutation that lie on X.
    """

    factors: tuple[FactorConstraint, ...] = ()
    permutation: tuple[str, ...] = ()
    outer: tuple[str, ...] = ()
    """Ranks fixed as the outermost, innermost of them first (Timeloop: after ``*`` in a permutation)."""
    split: int | None = None
    no_iteration_over: tuple[str, ...] = ()
    """Data spaces or ranks (``no_iteration_over_dims``): factor 1."""
    maximize: tuple[tuple[str, ...], ...] = ()
    """``maximize_dims``: each group of ranks is made as large as the fan-out admits, in order."""
    maximize_capacity: int | None = None
    """``maximize_dims_capacity``: largest product of a temporal group; spatial groups fill the fan-out."""
    remove_sequential_factors: bool = False
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class LevelConstraints:
    """All constraints on one level, merged from every place that names it."""

    temporal: LoopConstraint = LoopConstraint()
    spatial: LoopConstraint = LoopConstraint()
    keep: frozenset[str] = frozenset()
    bypass: frozenset[str] = frozenset()
    no_coalesce: frozenset[str] = frozenset()
    min_parallelism: float = 0.0
    """Least share of the level's fan-out that spatial loops must use."""
    max_parallelism: float = 1.0
    min_utilization: float = 0.0
    """Least share of the level's capacity that kept tiles must fill."""
    max_overbooked: float = 0.0
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Constraints:
    """One :class:`LevelConstraints` per level of the architecture, inner to outer, with the same indices."""

    levels: tuple[LevelConstraints, ...]
