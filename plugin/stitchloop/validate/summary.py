"""Statistics over the results of many cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stitchloop.validate.result import CaseResult


@dataclass(frozen=True)
class Agreement:
    """How well one quantity agrees over all cases that are valid to both."""

    cases: int
    r2: float | None
    """Coefficient of determination; None where all reference figures are one."""
    max_relative_error: float
    worst: str


@dataclass(frozen=True)
class Summary:
    """What ``stitchloop validate`` reports."""

    reference: str
    cases: int
    exact: int
    counts_exact: int
    figures: int
    figures_equal: int
    invalid: int
    """Cases that are invalid to the reference."""
    validity_agrees: int
    agreements: dict[str, Agreement]
    worst: tuple[CaseResult, ...]
    seconds_per_case: float

    @property
    def is_exact(self) -> bool:
        return self.exact == self.cases

    def as_json(self) -> dict[str, Any]:
        """The document of ``validation.json``."""
        return {
            "reference": self.reference,
            "cases": self.cases,
            "exact": self.exact,
            "counts_exact": self.counts_exact,
            "figures": self.figures,
            "figures_equal": self.figures_equal,
            "invalid": self.invalid,
            "validity_agrees": self.validity_agrees,
            "seconds_per_case": self.seconds_per_case,
            "quantities": {
                name: {"cases": a.cases, "r2": a.r2, "max_relative_error": a.max_relative_error, "worst": a.worst}
                for name, a in self.agreements.items()
            },
            "worst": [
                {
                    "id": result.id,
                    "differences": [
                        {"figure": d.figure, "ours": d.ours, "reference": d.reference} for d in result.differences[:20]
                    ],
                }
                for result in self.worst
            ],
        }


def summarise(results: Sequence[CaseResult], reference: str, most_worst: int = 20) -> Summary:
    """Summary of ``results``; ``reference`` says where the other figures come from."""
    quantities = dict.fromkeys(name for result in results for name in result.points)
    return Summary(
        reference=reference,
        cases=len(results),
        exact=sum(result.is_exact for result in results),
        counts_exact=sum(result.counts_are_exact for result in results),
        figures=sum(result.figures for result in results),
        figures_equal=sum(result.figures - len(result.differences) for result in results),
        invalid=sum(not result.reference_valid for result in results),
        validity_agrees=sum(result.validity_agrees for result in results),
        agreements={name: _agreement(name, results) for name in quantities},
        worst=tuple(sorted((r for r in results if not r.is_exact), key=lambda r: -r.worst)[:most_worst]),
        seconds_per_case=sum(result.seconds for result in results) / len(results) if results else 0.0,
    )


def _agreement(name: str, results: Sequence[CaseResult]) -> Agreement:
    pairs = [(result.id, *result.points[name]) for result in results if name in result.points]
    mean = sum(reference for _, _, reference in pairs) / len(pairs)
    residual = sum((ours - reference) ** 2 for _, ours, reference in pairs)
    spread = sum((reference - mean) ** 2 for _, _, reference in pairs)
    errors = [(abs(ours - reference) / abs(reference) if reference else float(ours != 0), id_) for id_, ours, reference in pairs]
    worst, worst_id = max(errors)
    r2 = 1 - residual / spread if spread else None
    return Agreement(len(pairs), r2, worst, worst_id if worst else "")
