"""Everything that one run reads, as typed objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stitchloop.architecture import Architecture
from stitchloop.constraints import Constraints
from stitchloop.mapping import Mapping
from stitchloop.options import MapperOptions
from stitchloop.workload import Workload


@dataclass(frozen=True)
class Spec:
    """The inputs of a run. Parts that the given files do not hold are None; ``warnings`` are sentences for the user."""

    architecture: Architecture | None = None
    workload: Workload | None = None
    mapping: Mapping | None = None
    fused_mapping: object | None = None
    """A LoopTree mapping (``type: fused``) as :class:`stitchloop.fused.tree.FusedMapping`."""
    cascade: object | None = None
    """A cascade of extended Einsums as :class:`stitchloop.cascade.cascade.Cascade`."""
    constraints: Constraints | None = None
    options: MapperOptions = MapperOptions()
    warnings: tuple[str, ...] = field(default=(), compare=False)
    files: tuple[str, ...] = field(default=(), compare=False)
    architecture_file: Path | None = field(default=None, compare=False)
    """The file that holds the architecture, where it was read from one."""
