"""Architectures of both formats: the v0.4 tree of nodes, and the transpiled subtree that Timeloop's executables read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stitchloop.architecture import Architecture
from stitchloop.read.document import NODE_TAGS, YamlMap
from stitchloop.read.expressions import Scope, evaluate_field
from stitchloop.read.fields import Field, PlacedField, nearest
from stitchloop.read.levels import Component, Mesh, assemble

NODE_KEYS = {
    "Container": ("name", "attributes", "spatial", "constraints", "sparse_optimizations", "networks", "enabled"),
    "Component": (
        *("name", "class", "subclass", "attributes", "spatial", "constraints", "sparse_optimizations", "enabled"),
        *("required_actions", "area_scale", "energy_scale"),
    ),
    "Hierarchical": ("nodes", "enabled", "name"),
    "Parallel": ("nodes", "enabled", "name"),
    "Pipelined": ("nodes", "enabled", "name"),
    "Nothing": ("name", "class", "attributes", "constraints", "spatial", "enabled"),
}
SUBTREE_KEYS = ("name", "attributes", "local", "subtree", "required_actions")
LOCAL_KEYS = ("name", "class", "subclass", "attributes", "required_actions", "enabled", "area_scale", "energy_scale")
_RANGE = re.compile(r"\s*(?P<low>\d+)\s*(\.\.\s*(?P<high>\d+)\s*)?\]\Z")


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


def read_variables(section: Field | None) -> dict[str, Any]:
    """The section ``variables``, evaluated: its values may refer to one another."""
    values = Scope(dict(section.entries()), {}).all() if section is not None else {}
    values.pop("version", None)
    return values


def read_architecture(section: Field, variables: Mapping[str, Any]) -> ArchitectureSource:
    """Read the section ``architecture``.

    Parameters
    ----------
    section : Field
        With ``nodes`` (v0.4) or ``subtree`` (transpiled).
    variables : mapping
        Values that every expression may use.

    Raises
    ------
    InputError
    """
    section.mapping()
    if section.get("nodes") is not None:
        section.known(("version", "nodes", "name"))
        return _Tree(variables).read(section)
    if section.get("subtree") is not None:
        section.known(("version", "subtree", "local", "name", "attributes"))
        return _read_subtree(section, variables)
    section.fail("neither 'nodes' nor 'subtree'", "give the tree of a v0.4 architecture under 'nodes'")


class _Tree:
    """Flattens a v0.4 tree into components, outermost first.

    As in Timeloop's front end, a container encloses everything that follows: its attributes are inherited and its mesh
    multiplies, also beyond the end of a nested list.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.variables = variables
        self.inherited: dict[str, Any] = dict(variables)
        self.mesh = Mesh()
        self.components: list[Component] = []
        self.constraints: list[NodeConstraints] = []
        self.parallel: list[ParallelNode] = []
        self.branch: list[list[str]] = []
        self.fanouts: dict[str, str] = {}
        self.containers: set[str] = set()
        self.warnings: list[str] = []
        self.name: str | None = None

    def read(self, section: Field) -> ArchitectureSource:
        for node in section.need("nodes").items():
            self._node(node)
        name = self.name or "architecture"
        return ArchitectureSource(
            architecture=assemble(name, self.components, section.place, self.inherited, self.warnings),
            constraints=self.constraints,
            parallel=self.parallel,
            fanouts=self.fanouts,
            containers=self.containers,
            warnings=self.warnings,
            components=self.components,
        )

    def _node(self, node: Field) -> None:
        kind = _kind(node)
        node.known(NODE_KEYS[kind])
        if not self._enabled(node) or kind == "Nothing":
            return
        if kind == "Parallel":
            self._parallel(node)
        elif kind in ("Hierarchical", "Pipelined"):
            if kind == "Pipelined":
                self.warnings.append(f"{node.place}: !Pipelined is read as !Hierarchical")
            for child in node.need("nodes").items():
                self._node(child)
        elif kind == "Container":
            self._container(node)
        else:
            self._component(node)

    def _enabled(self, node: Field) -> bool:
        enabled = node.get("enabled")
        if enabled is None:
            return True
        if isinstance(enabled.value, str):
            return bool(evaluate_field(enabled, self.inherited))
        return enabled.boolean()

    def _parallel(self, node: Field) -> None:
        group = ParallelNode(node)
        outer_branch = self.branch
        for child in node.need("nodes").items():
            if self._has_mesh(child):
                child.fail("'spatial' inside !Parallel", "put the container with 'spatial' above the !Parallel node")
            names: list[str] = []
            group.branches.append(names)
            self.branch = [*outer_branch, names]
            self._node(child)
        self.branch = outer_branch
        self.parallel.append(group)

    def _has_mesh(self, node: Field) -> bool:
        spatial = node.get("spatial") if isinstance(node.value, Mapping) else None
        return spatial is not None and self._spatial(spatial, Scope({}, self.inherited)) != (1, 1)

    def _container(self, node: Field) -> None:
        name = node.need("name").text()
        scope = self._scope(node)
        self.inherited.update(scope.all())
        self.name = self.name or name
        self.containers.add(name)
        if node.get("networks") is not None:
            self.warnings.append(f"{node.place}: networks of '{name}' are not modelled and cost nothing")
        fanout = self._fan_out(node, name, scope)
        self._note_constraints(node, name, fanout, fanout)

    def _component(self, node: Field) -> None:
        name = node.need("name").text()
        scope = self._scope(node)
        component_class = node.need("class", "give the component a class, such as SRAM or intmac").text()
        attributes = {**self.inherited, **scope.all()}
        fanout = self._fan_out(node, name, scope)
        component = Component(name, component_class, self.mesh, attributes, node, scope)
        self.components.append(component)
        if component.is_ignored:
            self.warnings.append(f"{node.place}: '{name}' of class '{component_class}' is not modelled and costs nothing")
            return
        for names in self.branch:
            names.append(name)
        self._note_constraints(node, name, name, fanout)

    def _fan_out(self, node: Field, name: str, scope: Scope) -> str | None:
        """Add the fan-out level of a node with ``spatial``; its name, or None without a fan-out."""
        spatial = node.get("spatial")
        if spatial is None:
            return None
        x, y = self._spatial(spatial, scope)
        if x * y == 1:
            return None
        fanout = f"inter_{name}_spatial"
        self.components.append(Component(fanout, "dummy_storage", self.mesh, {}, node))
        self.fanouts[name] = fanout
        self.mesh = self.mesh.times(x, y, spatial)
        return fanout

    def _spatial(self, spatial: Field, scope: Scope) -> tuple[int, int]:
        spatial.known(("meshX", "meshY"))

        def mesh(key: str) -> int:
            found = spatial.get(key)
            if found is None:
                return 1
            if isinstance(found.value, str):
                found = PlacedField(evaluate_field(found, scope), found.place)  # type: ignore[arg-type]
            return found.integer()

        return mesh("meshX"), mesh("meshY")

    def _scope(self, node: Field) -> Scope:
        attributes = node.get("attributes")
        return Scope(dict(attributes.entries()) if attributes is not None else {}, self.inherited)

    def _note_constraints(self, node: Field, name: str, level: str | None, spatial_level: str | None) -> None:
        constraints = node.get("constraints")
        if constraints is not None:
            self.constraints.append(NodeConstraints(constraints, name, level, spatial_level))
        if node.get("sparse_optimizations") is not None and node.value["sparse_optimizations"]:
            self.warnings.append(f"{node.place}: sparse optimizations of '{name}' are ignored: tensors count as dense")


def _kind(node: Field) -> str:
    """The node's tag; without one (a document that was parsed elsewhere), what its keys say."""
    value = node.value
    if isinstance(value, YamlMap) and value.tag:
        return value.tag
    if not isinstance(value, Mapping):
        kinds = ", ".join("!" + tag for tag in NODE_TAGS)
        node.fail(f"{node.shown()} where an architecture node is needed", f"nodes are {kinds}")
    tag = getattr(getattr(value, "tag", None), "value", None) or value.get("!tag")
    if isinstance(tag, str) and tag.lstrip("!") in NODE_KEYS:
        return tag.lstrip("!")
    return "Component" if "class" in value else "Hierarchical" if "nodes" in value else "Container"


def _read_subtree(section: Field, variables: Mapping[str, Any]) -> ArchitectureSource:
    """The transpiled form: one subtree inside the other, each with its ``local`` components, outermost first."""
    components: list[Component] = []
    inherited: dict[str, Any] = dict(variables)
    warnings: list[str] = []
    multiplier, node, name = 1, section, None
    while (subtree := node.get("subtree")) is not None:
        trees = subtree.items()
        if len(trees) != 1:
            subtree.fail(f"{len(trees)} subtrees side by side", "Timeloop's format holds one subtree in each")
        node = trees[0]
        node.known(SUBTREE_KEYS)
        tree_name, count = _element(node.need("name"))
        name = name or tree_name
        multiplier *= count
        attributes = node.get("attributes")
        inherited.update(Scope(dict(attributes.entries()) if attributes is not None else {}, inherited).all())
        local = node.get("local")
        for component in local.items() if local is not None else []:
            _local(component, multiplier, inherited, components, warnings)
    inherited.pop("version", None)
    # Here the compute unit is known by its class, wherever among its siblings it stands.
    components.sort(key=lambda component: component.is_compute)
    name = (name or "architecture").removesuffix("_top_level")
    architecture = assemble(name, components, section.place, inherited, warnings)
    fanouts = {
        level.name.removeprefix("inter_").removesuffix("_spatial"): level.name for level in architecture.levels if level.is_fanout
    }
    return ArchitectureSource(architecture, fanouts=fanouts, warnings=warnings, is_transpiled=True, components=components)


def _local(node: Field, multiplier: int, inherited: Mapping[str, Any], components: list[Component], warnings: list[str]) -> None:
    node.known(LOCAL_KEYS)
    enabled = node.get("enabled")
    if enabled is not None and not enabled.boolean():
        return
    name, count = _element(node.need("name"))
    attributes = node.get("attributes")
    scope = Scope(dict(attributes.entries()) if attributes is not None else {}, inherited)
    evaluated = {**inherited, **scope.all()}
    component_class = node.need("class").text()
    component = Component(name, component_class, Mesh(), evaluated, node, scope)
    component = Component(name, component_class, _mesh(component, multiplier * count), evaluated, node, scope)
    if component.is_ignored or not (component.is_storage or component.is_compute):
        warnings.append(f"{node.place}: '{name}' of class '{component_class}' is not modelled and costs nothing")
        return
    components.append(component)


def _element(field_: Field) -> tuple[str, int]:
    """``PE[1..256]`` as name and number of instances."""
    name, bracket, rest = field_.text().strip().partition("[")
    match = _RANGE.match(rest) if bracket else None
    if not name or (bracket and match is None):
        field_.fail(f"{field_.shown()} as a name", "write NAME or NAME[1..COUNT]")
    if match is None:
        return name, 1
    low, high = int(match["low"][:30]), int((match["high"] or match["low"])[:30])
    if high < low:
        field_.fail(f"{field_.shown()}, a range that ends before it begins", "write NAME[1..COUNT]")
    return name.rstrip(), high - low + 1


def _mesh(component: Component, instances: int) -> Mesh:
    """Timeloop's defaults: what is missing of meshX and meshY follows from the number of instances."""
    x, y = component.integer("meshX"), component.integer("meshY")
    if x is None and y is None:
        return Mesh(instances, 1)
    if x is not None and y is not None and x * y == instances:
        return Mesh(x, y)
    if x is not None and instances % x == 0 and y in (None, 1):
        return Mesh(x, instances // x)
    if x is None and y is not None and instances % y == 0:
        return Mesh(instances // y, y)
    component.field.fail(f"{instances} instances of '{component.name}' with meshX {x} and meshY {y}", "instances = meshX * meshY")


def node_names(source: ArchitectureSource) -> list[str]:
    """Every name that a constraint or a mapping directive may target."""
    architecture = source.architecture
    return [*architecture.names, *source.fanouts, architecture.compute.name]


def unknown_target(name: str, source: ArchitectureSource) -> str:
    return nearest(name, node_names(source), "targets are")
