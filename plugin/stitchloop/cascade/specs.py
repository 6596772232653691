"""The files of each fusion group: its problem and default mapping in LoopTree's format, and what LoopTree does not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stitchloop.cascade.agreement import Row, agreement
from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.crossing import Crossing, crossing
from stitchloop.cascade.export import export_group
from stitchloop.cascade.export_mapping import MappedGroup, map_group
from stitchloop.cascade.group_export import SINK
from stitchloop.cascade.merge import Node


@dataclass(frozen=True)
class GroupSpec:
    """One group as LoopTree takes it. ``rows`` hold its DRAM traffic against the cascade's, tensor by tensor."""

    number: int
    mapped: MappedGroup
    moved: Crossing
    rows: tuple[Row, ...]

    @property
    def folder(self) -> str:
        return f"group-{self.number:02d}"

    def files(self) -> dict[str, str]:
        """File name below the output folder to its text."""
        from stitchloop.write.files import to_json
        from stitchloop.write.fused import fused_mapping_yaml, fused_problem_yaml

        return {
            f"{self.folder}/fused-problem.yaml": fused_problem_yaml(self.mapped.export.workload),
            f"{self.folder}/fused-mapping.yaml": fused_mapping_yaml(self.mapped.mapping),
            f"{self.folder}/fused.json": to_json(self.document()),
        }

    def document(self) -> dict[str, Any]:
        """``fused.json``: figures of the default mapping in words, the comparison, and what is not expressed."""
        export, stats = self.mapped.export, self.mapped.stats
        return {
            "einsums": [name for node in export.nodes for name in node],
            "fits": self.mapped.fits,
            "buffer_words": self.mapped.capacity,
            "dram_words": self.mapped.dram_words,
            "tile": dict(self.mapped.tile),
            "weights_stay": self.mapped.weights_stay,
            "operations": {step.name: stats.operations[step.name] for step in export.steps if step.stands_for},
            "traffic": [
                {
                    "tensor": row.exported,
                    "holds": list(row.tensors),
                    "direction": "write" if row.is_write else "read",
                    "cascade_words": row.cascade_words,
                    "words": row.words,
                }
                for row in self.rows
            ],
            "not_expressed": list(export.not_expressed),
            "counted_otherwise_by_looptree": [
                str(difference)
                for difference in stats.differences
                if not (isinstance(difference.key, tuple) and difference.key[-1] == SINK)
            ],
        }


def group_specs(cascade: Cascade, groups: Sequence[Sequence[Node]], limit: int | None = None) -> tuple[GroupSpec, ...]:
    """Every group of a grouping for LoopTree.

    Parameters
    ----------
    cascade : Cascade
    groups : sequence of sequences of Node
    limit : int, optional
        Words of the on-chip buffer that the default mappings keep to where they can.
    """
    moved = crossing(cascade, [[name for node in group for name in node] for group in groups])
    specs = []
    for position, group_moves in enumerate(moved):
        mapped = map_group(export_group(cascade, groups, position), limit)
        specs.append(GroupSpec(position + 1, mapped, group_moves, agreement(mapped, group_moves, mapped.stats)))
    return tuple(specs)


def group_files(cascade: Cascade, groups: Sequence[Sequence[Node]], limit: int | None = None) -> dict[str, str]:
    """All files of :func:`group_specs`: ``group-01/fused-problem.yaml`` and so on."""
    return {name: text for spec in group_specs(cascade, groups, limit) for name, text in spec.files().items()}
