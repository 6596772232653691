"""The v0.4 tree of architecture nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stitchloop.errors import Place
from stitchloop.read.document import NODE_TAGS, YamlMap
from stitchloop.read.expressions import Scope, evaluate_field
from stitchloop.read.fields import Field, PlacedField
from stitchloop.read.levels import Component, Mesh, assemble
from stitchloop.read.source import ArchitectureSource, NodeConstraints, ParallelNode

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


def read_tree(section: Field, variables: Mapping[str, Any]) -> ArchitectureSource:
    """Read an architecture with ``nodes``.

    Raises
    ------
    InputError
    """
    return _Tree(variables).read(section)


class _Tree:
    """Flattens a v0.4 tree into components, outermost first.

    As in Timeloop's front end, a container encloses everything that follows: its attributes are inherited and its mesh
    multiplies, also beyond the end of a nested list.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.variables = variables
        self.inherited: dict[str, Any] = dict(variables)
        self.places: dict[str, Place] = {}
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
        name = _name(node)
        scope = self._scope(node)
        self.inherited.update(scope.all())
        self.places.update({key: scope.place(key) for key in scope.fields})
        self.name = self.name or name
        self.containers.add(name)
        if node.get("networks") is not None:
            self.warnings.append(f"{node.place}: networks of '{name}' are not modelled and cost nothing")
        fanout = self._fan_out(node, name, scope)
        self._note_constraints(node, name, fanout, fanout)

    def _component(self, node: Field) -> None:
        name = _name(node)
        scope = self._scope(node)
        component_class = node.need("class", "give the component a class, such as SRAM or intmac").text()
        attributes = {**self.inherited, **scope.all()}
        fanout = self._fan_out(node, name, scope)
        component = Component(name, component_class, self.mesh, attributes, node, scope, dict(self.places))
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


def _name(node: Field) -> str:
    written = node.need("name")
    return written.text() or written.fail("an empty name", "name the node")


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
