"""``timeloop-mapper.map.yaml``: a mapping in the form that Timeloop writes and reads."""

from __future__ import annotations

from typing import Any

from stitchloop.architecture import Architecture
from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.model.radix import effective
from stitchloop.workload import Einsum


def mapping_document(einsum: Einsum, architecture: Architecture, mapping: Mapping) -> list[dict[str, Any]]:
    """Directives in Timeloop's order: what each level keeps, then its loops, inner to outer.

    Ranks of factor 1 follow the loops of a permutation. Imperfect loops are written ``M4,3`` (bound, last pass), the form
    that Timeloop's executable reads, with the bounds that are reached, since it refuses outer loops that run once.
    """
    if not mapping.is_perfect:
        mapping = effective(mapping)
    directives: list[dict[str, Any]] = []
    for level, level_mapping in zip(architecture.levels, mapping.levels, strict=True):
        names = [tensor.name for tensor in einsum.tensors]
        directives.append(
            {
                "target": level.name,
                "type": "datatype",
                "keep": [name for name in names if name in level_mapping.keep],
                "bypass": [name for name in names if name not in level_mapping.keep],
            }
        )
    for level, level_mapping in zip(architecture.levels, mapping.levels, strict=True):
        if level_mapping.spatial:
            directives.append(_spatial_directive(einsum, level.name, level_mapping))
        directives.append(
            {
                "target": level.name,
                "type": "temporal",
                "factors": _factors(einsum, level_mapping.temporal),
                "permutation": _permutation(einsum, level_mapping.temporal),
            }
        )
    return directives


def format_mapping_yaml(einsum: Einsum, architecture: Architecture, mapping: Mapping) -> str:
    """The whole file, laid out as Timeloop's emitter lays it out."""
    lines = ["mapping:"]
    for directive in mapping_document(einsum, architecture, mapping):
        for index, (key, value) in enumerate(directive.items()):
            lead = "  - " if index == 0 else "    "
            if isinstance(value, list):
                lines.append(f"{lead}{key}:")
                lines.extend([f"      - {item}" for item in value] or ["      []"])
            else:
                lines.append(f"{lead}{key}: {value}")
    return "\n".join(lines) + "\n"


def _spatial_directive(einsum: Einsum, target: str, level: LevelMapping) -> dict[str, Any]:
    return {
        "target": target,
        "type": "spatial",
        "factors": _factors(einsum, level.spatial),
        "permutation": _permutation(einsum, level.spatial),
        "split": len(level.spatial_x),
    }


def _factors(einsum: Einsum, loops: tuple[Loop, ...]) -> str:
    by_rank = {loop.rank: loop for loop in loops}
    one = Loop("", 1)
    single = all(len(rank) == 1 for rank in einsum.ranks)
    return " ".join(_factor(rank, by_rank.get(rank, one), single) for rank in einsum.ranks)


def _factor(rank: str, loop: Loop, single_letters: bool) -> str:
    value = f"{loop.bound}" if loop.is_perfect else f"{loop.bound},{loop.residual}"
    return f"{rank}{value}" if single_letters else f"{rank}={value}"


def _permutation(einsum: Einsum, loops: tuple[Loop, ...]) -> str:
    looped = [loop.rank for loop in loops]
    ranks = looped + [rank for rank in einsum.ranks if rank not in looped]
    return ("" if all(len(rank) == 1 for rank in einsum.ranks) else ",").join(ranks)
