"""Evaluates a mapping with an installed Timeloop, for comparison.

Timeloop's programs do not read v0.4 architectures; they are given the one-file form that its front end hands to them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stitchloop.architecture import Architecture, Compute, Level
from stitchloop.errors import InputError
from stitchloop.mapping import Mapping
from stitchloop.validate.single import WRITEBACK, Inputs
from stitchloop.validate.stats_file import parse_stats
from stitchloop.workload import Einsum

PROGRAM = "timeloop-model"
SECONDS = 600
ROOT = "system_top_level"


@dataclass(frozen=True)
class Timeloop:
    """The program ``timeloop-model`` of an installed Timeloop."""

    program: str

    @classmethod
    def find(cls) -> Timeloop:
        """Look for it on PATH; raises :class:`InputError` when it is not there."""
        program = shutil.which(PROGRAM)
        if program is None:
            mend = "install Timeloop, or leave --engine out to compare with the figures in the case file"
            raise InputError("--engine timeloop", f"no {PROGRAM} on PATH", mend)
        return cls(program)

    def evaluate(self, inputs: Inputs) -> dict[str, Any]:
        """Timeloop's figures of one mapping, under the names of the reference files."""
        with tempfile.TemporaryDirectory(prefix="stitchloop-") as folder:
            document = Path(folder) / "parsed-processed-input.yaml"
            document.write_text(json.dumps(transpiled(*inputs)), encoding="utf-8")
            command = [self.program, str(document), "-o", folder]
            try:
                run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
            except subprocess.TimeoutExpired:
                raise InputError("--engine timeloop", f"{PROGRAM} took more than {SECONDS} s", "take a smaller case") from None
            stats = Path(folder) / f"{PROGRAM}.stats.txt"
            text = stats.read_text(encoding="utf-8") if stats.is_file() else ""
            if run.returncode == 0 and text.strip():
                return without_partitions(parse_stats(text))
            return {"valid": False, "message": _reason(run.stdout + run.stderr)}


def without_partitions(figures: dict[str, Any]) -> dict[str, Any]:
    for level in figures["levels"].values():
        for tensor in level.values():
            if isinstance(tensor, dict):
                tensor.pop("partition", None)
    return figures


def _reason(output: str) -> str:
    """The line in which the tool says why it failed; it says nothing where an assertion aborts it."""
    failures = [line.strip() for line in output.splitlines() if line.lstrip().startswith("ERROR")]
    return failures[0] if failures else WRITEBACK


def transpiled(einsum: Einsum, architecture: Architecture, mapping: Mapping) -> dict[str, Any]:
    """One document with everything that the program reads. YAML takes JSON as it is."""
    from stitchloop.write.mapping_yaml import mapping_document

    return inputs_document(einsum, architecture) | {"mapping": mapping_document(einsum, architecture, mapping)}


def inputs_document(einsum: Einsum, architecture: Architecture) -> dict[str, Any]:
    """Architecture, problem and tables, for the model and the mapper alike."""
    parts: list[Level | Compute] = [*architecture.levels[::-1], architecture.compute]
    return {
        "architecture": {
            "version": "0.4",
            "subtree": [
                {
                    "name": ROOT,
                    "attributes": {"global_cycle_seconds": architecture.cycle_seconds, "technology": "45nm"},
                    "local": [_compute(part) if isinstance(part, Compute) else _level(part) for part in parts],
                }
            ],
        },
        "problem": _problem(einsum),
        "ERT": {"version": "0.4", "tables": [{"name": _full_name(part), "actions": _actions(part)} for part in parts]},
        "ART": {"version": "0.4", "tables": [{"name": _full_name(part), "area": part.area_um2 or 0.0} for part in parts]},
    }


def _full_name(part: Level | Compute) -> str:
    return f"{ROOT}.{part.name}[1..{part.instances}]"


def _level(level: Level) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "width": level.datawidth * level.block_size,
        "datawidth": level.datawidth,
        "meshX": level.mesh_x,
        "meshY": level.mesh_y,
        "multiple_buffering": level.multiple_buffering,
        "min_utilization": level.min_utilization,
    }
    if level.is_fanout:
        attributes.update(depth=1, width=1, datawidth=1)
    elif level.depth is not None:
        attributes["depth"] = level.depth
    for name in ("read_bandwidth", "write_bandwidth", "shared_bandwidth"):
        if getattr(level, name) is not None:
            attributes[name] = getattr(level, name)
    kind = "dummy_storage" if level.is_fanout else "DRAM" if level.technology == "DRAM" else "SRAM"
    return {"name": f"{level.name}[1..{level.instances}]", "class": kind, "attributes": attributes}


def _compute(compute: Compute) -> dict[str, Any]:
    attributes = {"datawidth": compute.word_bits, "meshX": compute.mesh_x, "meshY": compute.mesh_y}
    return {"name": f"{compute.name}[1..{compute.instances}]", "class": "intmac", "attributes": attributes}


def _actions(part: Level | Compute) -> list[dict[str, Any]]:
    names = ("compute", "leak") if isinstance(part, Compute) else ("read", "write", "update", "leak")
    return [{"name": name, "energy": getattr(part.energy, name)} for name in names]


def _problem(einsum: Einsum) -> dict[str, Any]:
    """The Einsum in Timeloop's form; every coefficient other than 1 gets a name."""
    coefficients: dict[int, str] = {}
    spaces = []
    for tensor in einsum.tensors:
        projection = []
        for terms in tensor.projection:
            expression = []
            for term in terms:
                if term.coefficient == 1:
                    expression.append([term.rank])
                else:
                    name = coefficients.setdefault(term.coefficient, f"coefficient{len(coefficients)}")
                    expression.append([term.rank, name])
            projection.append(expression)
        spaces.append({"name": tensor.name, "projection": projection, "read_write": tensor.is_output})
    shape = {
        "name": einsum.name,
        "dimensions": list(einsum.ranks),
        "coefficients": [{"name": name, "default": value} for value, name in coefficients.items()],
        "data_spaces": spaces,
    }
    return {"version": "0.4", "shape": shape, "instance": einsum.sizes}
