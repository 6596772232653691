"""A mapping of one Einsum: loops and kept tensors, level by level, inner to outer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Loop:
    """``for rank in [0:bound)``. ``last`` is the bound of the last pass of an imperfect loop; 0 means perfect."""

    rank: str
    bound: int
    last: int = 0

    @property
    def residual(self) -> int:
        return self.last or self.bound

    @property
    def is_perfect(self) -> bool:
        return self.residual == self.bound


@dataclass(frozen=True)
class LevelMapping:
    """What one level does: its spatial loops (inside) and its temporal loops (outside them), and what it keeps.

    All loop tuples are **innermost first**, without loops of bound 1.
    """

    temporal: tuple[Loop, ...] = ()
    spatial_x: tuple[Loop, ...] = ()
    spatial_y: tuple[Loop, ...] = ()
    keep: frozenset[str] = frozenset()

    @cached_property
    def spatial(self) -> tuple[Loop, ...]:
        """X before Y, as Timeloop numbers the elements."""
        return self.spatial_x + self.spatial_y

    @cached_property
    def fanout(self) -> int:
        product = 1
        for loop in self.spatial:
            product *= loop.bound
        return product


@dataclass(frozen=True)
class Mapping:
    """One :class:`LevelMapping` per level of the architecture, inner to outer, with the same indices."""

    levels: tuple[LevelMapping, ...]

    @cached_property
    def is_perfect(self) -> bool:
        return all(loop.is_perfect for level in self.levels for loop in level.temporal + level.spatial)
