"""The files of one run, put together: what ``model`` and ``map`` leave in the output folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stitchloop.architecture import Architecture
from stitchloop.mapping import Mapping
from stitchloop.result import Result
from stitchloop.spec import Spec
from stitchloop.stats import Stats
from stitchloop.workload import Einsum
from stitchloop.write.files import to_json, write_files
from stitchloop.write.mapping_yaml import format_mapping_yaml, mapping_document
from stitchloop.write.nest_text import format_nest
from stitchloop.write.stats_text import format_stats
from stitchloop.write.tables_yaml import area_table, energy_table


def write_model_outputs(spec: Spec, stats: Stats, directory: Path, prefix: str = "timeloop-model") -> list[Path]:
    """``PREFIX.stats.txt``, ``PREFIX.map.txt``, the ERT and ART used, and ``stats.json``. Returns the paths."""
    assert spec.architecture is not None
    assert spec.workload is not None
    assert spec.mapping is not None
    contents = _common(spec.workload.einsum, spec.architecture, spec.mapping, stats, prefix)
    return write_files(directory, contents, spec.files)


def write_mapping_outputs(spec: Spec, result: Result, directory: Path) -> list[Path]:
    """As :func:`write_model_outputs`, with ``PREFIX.map.yaml`` and ``result.json``; the prefix is the mapper's ``out_prefix``."""
    assert spec.architecture is not None
    assert spec.workload is not None
    einsum, architecture = spec.workload.einsum, spec.architecture
    prefix = spec.options.out_prefix
    contents = _common(einsum, architecture, result.mapping, result.stats, prefix)
    contents[f"{prefix}.map.yaml"] = format_mapping_yaml(einsum, architecture, result.mapping)
    contents["result.json"] = to_json(result_document(einsum, architecture, result))
    return write_files(directory, contents, spec.files)


def mapping_output_names(spec: Spec) -> list[str]:
    """Names of the files of :func:`write_mapping_outputs`."""
    endings = ("stats.txt", "map.txt", "ERT.yaml", "ART.yaml", "map.yaml")
    return [*(f"{spec.options.out_prefix}.{ending}" for ending in endings), "stats.json", "result.json"]


def result_document(einsum: Einsum, architecture: Architecture, result: Result) -> dict[str, Any]:
    """The document of ``result.json``; each point of a Pareto front carries its mapping."""
    document = result.as_json(mapping_document(einsum, architecture, result.mapping))
    for entry, point in zip(document["pareto"], result.pareto, strict=True):
        entry["mapping"] = mapping_document(einsum, architecture, point.mapping)
    return document


def _common(einsum: Einsum, architecture: Architecture, mapping: Mapping, stats: Stats, prefix: str) -> dict[str, str | bytes]:
    return {
        f"{prefix}.stats.txt": format_stats(einsum, architecture, stats),
        f"{prefix}.map.txt": format_nest(einsum, architecture, mapping, stats),
        f"{prefix}.ERT.yaml": energy_table(architecture),
        f"{prefix}.ART.yaml": area_table(architecture),
        "stats.json": to_json(
            stats.as_json() | {"area_mm2": total_area_mm2(architecture), "energy_source": _sources(architecture)}
        ),
    }


def total_area_mm2(architecture: Architecture) -> float:
    """Area of all instances of all components whose area is known, in mm^2."""
    parts = [(level.area_um2, level.instances) for level in architecture.storage]
    parts.append((architecture.compute.area_um2, architecture.compute.instances))
    return sum((area or 0.0) * count for area, count in parts) / 1e6


def _sources(architecture: Architecture) -> list[str]:
    """Which files or engines gave the energies, each once."""
    sources = [level.energy.source for level in architecture.storage] + [architecture.compute.energy.source]
    return list(dict.fromkeys(sources))
