"""Fused work behind ``call_mapper`` and ``call_model``: which inputs are fused, and their figures as component energies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stitchloop.spec import Spec
from stitchloop.write.summary import Summary


def is_fused(command: str, spec: Spec) -> bool:
    """Whether ``map`` gets a list of Einsums, or ``model`` a LoopTree mapping."""
    if command == "model":
        return spec.fused_mapping is not None
    return spec.workload is not None and len(spec.workload.einsums) > 1


def run_fused(command: str, spec: Spec, directory: Path) -> Summary:
    """Map or evaluate, and write the files that the command line writes.

    Raises
    ------
    InputError, NoMapping, InvalidMapping
        As the command line reports them.
    """
    if command == "model":
        from stitchloop.fused.model_command import run as run_model

        return run_model(spec, directory)
    from stitchloop.fused.run import run as run_map

    return run_map(spec, directory)


def component_energies(document: Mapping[str, Any]) -> dict[str, float]:
    """Energy of each part in J, from the ``stats.json`` of fused work."""
    return {name: energy * 1e-12 for name, energy in document["energy_by_part_pJ"].items()}


def level_accesses(document: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Words by level and action; actions that a level does not count are left out."""
    actions = ("reads", "fills", "updates", "writes")
    return {
        name: {
            action: float(sum(t[action] for t in tensors.values()))
            for action in actions
            if any(action in t for t in tensors.values())
        }
        for name, tensors in document["levels"].items()
    }
