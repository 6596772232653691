"""``timeloop-mapper.ERT.yaml`` and ``.ART.yaml``: the energy and area tables that a run used."""

from __future__ import annotations

from typing import Any

import yaml

from stitchloop.architecture import Architecture


def energy_table(architecture: Architecture) -> str:
    """The ERT in Accelergy's form: pJ per action and instance, for every component that has energies."""
    tables: list[dict[str, Any]] = []
    for level in reversed(architecture.storage):
        e = level.energy
        actions = [("read", e.read), ("write", e.write), ("update", e.update), ("leak", e.leak)]
        tables.append(_table(level.name, level.instances, actions))
    unit = architecture.compute
    tables.append(_table(unit.name, unit.instances, [("compute", unit.energy.compute), ("leak", unit.energy.leak)]))
    return yaml.safe_dump({"ERT": {"version": "0.4", "tables": tables}}, sort_keys=False)


def area_table(architecture: Architecture) -> str:
    """The ART in Accelergy's form: um^2 per instance; 0 where the area is not known."""
    components = [(level.name, level.instances, level.area_um2) for level in reversed(architecture.storage)]
    components.append((architecture.compute.name, architecture.compute.instances, architecture.compute.area_um2))
    tables = [{"name": _qualified(name, count), "area": float(area or 0.0)} for name, count, area in components]
    return yaml.safe_dump({"ART": {"version": "0.4", "tables": tables}}, sort_keys=False)


def _table(name: str, instances: int, actions: list[tuple[str, float]]) -> dict[str, Any]:
    return {"name": _qualified(name, instances), "actions": [{"name": action, "energy": float(pj)} for action, pj in actions]}


def _qualified(name: str, instances: int) -> str:
    return f"system_top_level.{name}[1..{instances}]"
