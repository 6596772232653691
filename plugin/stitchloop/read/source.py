"""An architecture as its readers hand it on: with what only the readers of constraints, mappings and energies need."""

from __future__ import annotations

from dataclasses import dataclass, field

from stitchloop.architecture import Architecture
from stitchloop.read.fields import Field, nearest
from stitchloop.read.levels import Component


@dataclass(frozen=True)
class NodeConstraints:
    """A ``constraints`` mapping inside a node, and the levels that its parts speak of (None: there is none)."""

    written: Field
    node: str
    level: str | None
    spatial_level: str | None


@dataclass
class ArchitectureSource:
    """An architecture together with what only the constraints' reader needs."""

    architecture: Architecture
    constraints: list[NodeConstraints] = field(default_factory=list)
    parallel: list[ParallelNode] = field(default_factory=list)
    fanouts: dict[str, str] = field(default_factory=dict)
    """Name of the fan-out level of each container and component with ``spatial``."""
    containers: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    is_transpiled: bool = False
    components: list[Component] = field(default_factory=list)
    """Everything that the architecture is made of, outermost first."""


@dataclass
class ParallelNode:
    """A ``!Parallel`` node: names of the levels of each branch."""

    written: Field
    branches: list[list[str]] = field(default_factory=list)


def node_names(source: ArchitectureSource) -> list[str]:
    """Every name that a constraint or a mapping directive may target."""
    architecture = source.architecture
    return [*architecture.names, *source.fanouts, architecture.compute.name]


def unknown_target(name: str, source: ArchitectureSource) -> str:
    return nearest(name, node_names(source), "targets are")
