"""What evaluating a mapping gives: counts per instance, as Timeloop prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PARTIAL_TILES = "exact partial tiles"
"""Name of the count of imperfect mappings, for which the tool's own figures are no reference."""


@dataclass(frozen=True)
class TensorStats:
    """One tensor at one level. Counts are words per instance; ``energy_pJ`` is over all instances, without leakage."""

    partition: int
    capacity: int
    instances: int
    reads: int
    fills: int
    updates: int
    reductions: int
    energy_pJ: float


@dataclass(frozen=True)
class LevelStats:
    """One storage level: its cycles and throttling, leakage over all instances, and the tensors that it keeps."""

    cycles: int
    throttle: float
    """``Bandwidth throttling``: 1 when no bandwidth stretches the cycles."""
    leakage_pJ: float
    tensors: Mapping[str, TensorStats]
    energy_pJ: float
    """Accesses and leakage over all instances, added up in Timeloop's order."""


@dataclass(frozen=True)
class ComputeStats:
    computes: int
    instances: int
    cycles: int
    energy_pJ: float


@dataclass(frozen=True)
class Stats:
    """Result of the reference model for one mapping. ``levels`` holds storage levels by name, inner to outer."""

    compute: ComputeStats
    levels: Mapping[str, LevelStats]
    cycles: int
    energy_pJ: float
    utilization: float
    """Share of 1: computes / all compute units / cycles."""
    edp: float
    """J * cycle, as Timeloop prints it."""
    binding: str
    """Name of the level (or compute unit) whose bandwidth or count of cycles sets ``cycles``."""
    counting: str = "timeloop"
    """How the figures were counted: ``timeloop``, or ``exact partial tiles`` for an imperfect mapping, where the tool is off."""

    @property
    def computes(self) -> int:
        return self.compute.computes

    def as_json(self) -> dict[str, Any]:
        """The document of ``stats.json`` (see the design's command line contract)."""
        return {
            "cycles": self.cycles,
            "energy_pJ": self.energy_pJ,
            "computes": self.computes,
            "utilization": self.utilization,
            "edp_J_cycle": self.edp,
            "binding": self.binding,
            "counting": self.counting,
            "compute": {"instances": self.compute.instances, "energy_pJ": self.compute.energy_pJ},
            "levels": {
                name: {
                    tensor: {
                        "reads": s.reads,
                        "fills": s.fills,
                        "updates": s.updates,
                        "reductions": s.reductions,
                        "capacity": s.capacity,
                        "instances": s.instances,
                        "energy_pJ": s.energy_pJ,
                    }
                    for tensor, s in level.tensors.items()
                }
                for name, level in self.levels.items()
            },
            "level_totals": {
                name: {
                    "cycles": level.cycles,
                    "throttle": level.throttle,
                    "leakage_pJ": level.leakage_pJ,
                    "energy_pJ": level.energy_pJ,
                }
                for name, level in self.levels.items()
            },
        }
