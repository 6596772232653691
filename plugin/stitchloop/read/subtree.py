"""Architectures as Timeloop's executables read them: nested subtrees (the transpiled form), and the older flat lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stitchloop.read.expressions import Scope
from stitchloop.read.fields import Field
from stitchloop.read.levels import Component, Mesh, assemble
from stitchloop.read.source import ArchitectureSource

SUBTREE_KEYS = ("name", "attributes", "local", "subtree", "required_actions")
LOCAL_KEYS = ("name", "class", "subclass", "attributes", "required_actions", "enabled", "area_scale", "energy_scale")
_RANGE = re.compile(r"\s*(?P<low>\d+)\s*(\.\.\s*(?P<high>\d+)\s*)?\]\Z")


def read_subtree(section: Field, variables: Mapping[str, Any]) -> ArchitectureSource:
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


def read_flat(section: Field, variables: Mapping[str, Any]) -> ArchitectureSource:
    """Read ``{arithmetic: {...}, storage: [...]}``, storage innermost first, as Timeloop's first files have it.

    Raises
    ------
    InputError
    """
    section.known(("version", "arithmetic", "storage"))
    warnings: list[str] = []
    components = [_flat(item, variables, "") for item in reversed(section.need("storage").items())]
    components.append(_flat(section.need("arithmetic"), variables, "mac"))
    architecture = assemble("architecture", components, section.place, variables, warnings)
    return ArchitectureSource(architecture, warnings=warnings, is_transpiled=True, components=components)


def _flat(node: Field, variables: Mapping[str, Any], component_class: str) -> Component:
    scope = Scope(dict((node.get("attributes") or node).entries()), variables)
    attributes = {**variables, **scope.all()}
    is_arithmetic = component_class == "mac"
    name = node.get("name") if is_arithmetic else node.need("name")
    text = name.text() if name is not None else "__ARITH__"  # Timeloop's name for a compute unit without one
    component_class = component_class or ("DRAM" if attributes.get("technology") == "DRAM" else "storage")
    component = Component(text, component_class, Mesh(), attributes, node, scope)
    return Component(text, component_class, _mesh(component, component.integer("instances") or 1), attributes, node, scope)
