"""What a search returns: the best mapping, its figures, and the certificate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stitchloop.mapping import Mapping
from stitchloop.stats import Stats


@dataclass(frozen=True)
class Certificate:
    """What is proved about a result.

    ``optimal`` means that no mapping of the ``mapspace_size`` mappings of the mapspace has a lower objective under the
    count named in ``counting``; otherwise ``lower_bound`` is the proved bound on the first objective, and ``reason``
    says why the search stopped early.
    """

    optimal: bool
    lower_bound: float
    mapspace_size: int
    evaluated: int
    seconds: float
    counting: str = "timeloop"
    reason: str = ""

    def gap(self, value: float) -> float:
        """Relative distance of ``value`` to the proved bound."""
        return 0.0 if self.optimal or value == 0 else (value - self.lower_bound) / value


@dataclass(frozen=True)
class ParetoPoint:
    values: tuple[float, ...]
    mapping: Mapping
    stats: Stats


@dataclass(frozen=True)
class Result:
    """Outcome of mapping one Einsum. ``values`` are the objectives in the order of ``objective``."""

    objective: tuple[str, ...]
    values: tuple[float, ...]
    mapping: Mapping
    stats: Stats
    certificate: Certificate
    pareto: tuple[ParetoPoint, ...] = ()
    pareto_objective: tuple[str, ...] = ()
    """Names of the objectives of the front, in the order of its points' values."""
    notes: tuple[str, ...] = field(default=())

    def as_json(self, mapping_document: Any) -> dict[str, Any]:
        """The document of ``result.json``; ``mapping_document`` is the mapping in Timeloop's form."""
        c = self.certificate
        return {
            "objective": list(self.objective),
            "value": self.values[0],
            "values": list(self.values),
            "optimal": c.optimal,
            "lower_bound": self.values[0] if c.optimal else c.lower_bound,
            "gap": c.gap(self.values[0]),
            "mapspace_size": c.mapspace_size,
            "evaluated": c.evaluated,
            "seconds": c.seconds,
            "counting": c.counting,
            "reason": c.reason,
            "pareto_objective": list(self.pareto_objective),
            "pareto": [{"values": list(p.values), "cycles": p.stats.cycles, "energy_pJ": p.stats.energy_pJ} for p in self.pareto],
            "notes": list(self.notes),
            "mapping": mapping_document,
        }
