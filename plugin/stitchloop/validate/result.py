"""What running one reference case gives, and how it is compared with what the reference tool gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

PRINTED = 0.005
"""Half of the last of the two decimals that the reference tool prints."""


@dataclass(frozen=True)
class Difference:
    """One figure that is not the reference's; ``figure`` is its path, as ``levels.GLB.Inputs.reads``."""

    figure: str
    ours: Any
    reference: Any

    @property
    def relative(self) -> float:
        """Relative distance of two numbers; infinite where one is missing or no number."""
        if isinstance(self.ours, int | float) and isinstance(self.reference, int | float):
            try:
                return abs(self.ours - self.reference) / max(abs(self.reference), 1e-300)
            except OverflowError:
                return float("inf")
        return float("inf")

    @property
    def is_count(self) -> bool:
        """An integer of the reference, which has to be equal."""
        return isinstance(self.reference, int) and not isinstance(self.reference, bool)


@dataclass(frozen=True)
class CaseResult:
    """One case: what we got, what differs, and the points for the statistics.

    Attributes
    ----------
    id : str
    kind : str
        ``single`` or ``fused``.
    got : mapping
        Our figures under the keys of ``expected``, with ``energy_pJ`` unrounded where the case has an energy.
    differences : tuple of Difference
        Empty when every figure is the reference's.
    figures : int
        Figures compared.
    valid, reference_valid : bool
        Whether the mapping is valid to us and to the reference.
    points : mapping of str to (ours, reference)
        Quantities that the summary correlates, such as ``energy`` (pJ) and ``cycles``.
    seconds : float
        What evaluating the mapping took, without reading files.
    """

    id: str
    kind: str
    got: Mapping[str, Any]
    differences: tuple[Difference, ...] = ()
    figures: int = 0
    valid: bool = True
    reference_valid: bool = True
    points: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def is_exact(self) -> bool:
        return not self.differences

    @property
    def counts_are_exact(self) -> bool:
        """Every integer of the reference is equal, and so is the verdict on validity."""
        return self.valid == self.reference_valid and not any(difference.is_count for difference in self.differences)

    @property
    def validity_agrees(self) -> bool:
        """Same verdict, and for an invalid mapping the same reason with the same level, size and limit."""
        return self.valid == self.reference_valid and (self.valid or self.is_exact)

    @property
    def worst(self) -> float:
        """Largest relative difference of the case."""
        return max((difference.relative for difference in self.differences), default=0.0)


def compare(expected: Mapping[str, Any], got: Mapping[str, Any]) -> tuple[list[Difference], int]:
    """Differences between two trees of figures, and how many figures were compared.

    Integers must be equal, floats within the rounding of two printed decimals, everything else equal. What ``expected`` has
    not is not compared.
    """
    differences = []
    figures = 0
    for path, reference in leaves(expected):
        ours: Any = got
        for key in path:
            ours = ours.get(key) if isinstance(ours, Mapping) else None
        figures += 1
        if not _equal(ours, reference):
            differences.append(Difference(".".join(path), ours, reference))
    return differences, figures


def leaves(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The figures of a tree with their paths, in order."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _equal(ours: Any, reference: Any) -> bool:
    if isinstance(reference, float) and isinstance(ours, int | float):
        return abs(ours - reference) <= PRINTED + 1e-9 * abs(reference) + 1e-12
    return bool(ours == reference)
