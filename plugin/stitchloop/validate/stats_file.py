"""Reads the figures of Timeloop's ``stats.txt``, under the names of the reference files."""

from __future__ import annotations

import re
from typing import Any

_SECTION = re.compile(r"^=== (.+?) ===[ \t]*\n(?=\s*\n?\s*SPECS)", re.MULTILINE)
_FIELD = re.compile(r"^ +([A-Z][^:\n]*?) *: (-?[\d.]+(?:e[+-]?\d+)?)", re.MULTILINE)
_TENSOR = re.compile(r"^    (\S+):[ \t]*\n", re.MULTILINE)

LEVEL_FIELDS = {
    "Cycles": "cycles",
    "Bandwidth throttling": "throttle",
    "Vector access energy": "vector_access_pJ",
    "Leakage energy (total)": "leakage_pJ",
}
TENSOR_FIELDS = {
    "Partition size": "partition",
    "Utilized capacity": "capacity",
    "Utilized instances (max)": "instances",
    "Scalar reads (per-instance)": "reads",
    "Scalar fills (per-instance)": "fills",
    "Scalar updates (per-instance)": "updates",
    "Temporal reductions (per-instance)": "reductions",
    "Energy (total)": "energy_pJ",
}
COMPUTE_MARK = "Compute energy"
"""A field that only the section of the compute units has; the tool leaves that section out where they cost no energy."""
COMPUTE_FIELDS = {
    "Utilized instances": "instances",
    "Computes (total)": "computes",
    "Cycles": "cycles",
    "Energy (total)": "energy_pJ",
}


def parse_stats(text: str) -> dict[str, Any]:
    """Figures of one ``stats.txt``; ``ValueError`` when it has no summary."""
    buffers, _, summary = text.partition("Summary Stats\n")
    headings = list(_SECTION.finditer(buffers))
    ends = [heading.start() for heading in headings[1:]] + [len(buffers)]
    levels: dict[str, Any] = {}
    for heading, end in zip(headings, ends, strict=True):
        section = buffers[heading.end() : end].split("\nNetworks\n")[0]
        levels[heading[1]] = _compute(section) if COMPUTE_MARK in section else _level(section)
    return {
        "valid": True,
        "levels": levels,
        "cycles": int(_find(r"^Cycles: (\d+)", summary)),
        "computes": int(_find(r"^Computes = (\d+)", summary)),
        "energy_uJ": float(_find(r"^Energy: ([\d.e+]+) uJ", summary)),
        "fJ_per_compute": float(_find(r"^ +Total += ([\d.e+]+)", summary)),
        "utilization_percent": float(_find(r"^Utilization: ([\d.e+]+)%", summary)),
    }


def _compute(section: str) -> dict[str, Any]:
    return _named(section, COMPUTE_FIELDS)


def _level(section: str) -> dict[str, Any]:
    tensors = list(_TENSOR.finditer(section))
    level = _named(section[: tensors[0].start()] if tensors else section, LEVEL_FIELDS)
    ends = [tensor.start() for tensor in tensors[1:]] + [len(section)]
    for tensor, end in zip(tensors, ends):
        level[tensor[1]] = _named(section[tensor.end() : end], TENSOR_FIELDS)
    return level


def _named(text: str, names: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in _FIELD.finditer(text):
        name = names.get(field[1])
        if name is not None:
            found[name] = float(field[2]) if name.endswith("_pJ") or name == "throttle" else int(field[2])
    return found


def _find(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise ValueError(f"no line like `{pattern}` in the stats file")
    return match[1]
