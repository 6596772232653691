"""Energy and area reference tables (ERT, ART), as Accelergy writes them in versions 0.2 to 0.4."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stitchloop.architecture import Energy
from stitchloop.read.fields import Field

READ_ACTIONS = ("random_read", "read")
WRITE_ACTIONS = ("random_fill", "random_write", "fill", "write")
UPDATE_ACTIONS = ("random_update", "random_write", "update", "write")
COMPUTE_ACTIONS = ("mac_random", "mult_random", "mac", "mult", "compute")

_RANGE = re.compile(r"\[\s*\d+\s*(\.\.\s*\d+\s*)?\]\s*$")


@dataclass(frozen=True)
class Tables:
    """Energies (pJ) and areas (um^2) by component name."""

    energies: Mapping[str, Energy] = field(default_factory=dict)
    areas: Mapping[str, float] = field(default_factory=dict)


def component_of(name: str) -> str:
    """``GLB`` of ``system_top_level.GLB[1..4]``, the way Timeloop looks a component up."""
    return _RANGE.sub("", name).rsplit(".", 1)[-1].strip()


def read_ert(section: Field, source: str = "") -> dict[str, Energy]:
    """Energy per action of every component, noted as coming from ``source`` (otherwise the table's file).

    An action with several entries (arguments) counts its most expensive one, as in Timeloop; an action that is missing
    counts the most expensive of all.

    Raises
    ------
    InputError
        For a table that is not of Accelergy's form, or a component that appears twice.
    """
    source = source or f"ERT in {section.place.file or '<input>'}"
    energies: dict[str, Energy] = {}
    for name, table in _tables(section):
        component = component_of(name)
        if component in energies:
            table.fail(f"a second energy table for '{component}'", "keep one table for each component")
        energies[component] = _energy(_actions(table), source)
    return energies


def read_art(section: Field) -> dict[str, float]:
    """Area of one instance of every component, in um^2."""
    return {component_of(name): table.need("area").number(least=0) for name, table in _tables(section)}


def _tables(section: Field) -> Iterator[tuple[str, Field]]:
    tables = section.get("tables")
    if tables is None:
        return
    if isinstance(tables.value, Mapping):
        yield from tables.entries()
        return
    for table in tables.items():
        yield table.need("name").text(), table


def _actions(table: Field) -> dict[str, float]:
    """Energy of each action; version 0.2 keeps actions as keys, later versions as a list."""
    actions = table.get("actions") or (table if table.get("name") is None else table.need("actions"))
    energies: dict[str, float] = {}

    def note(name: str, energy: Field) -> None:
        energies[name] = max(energies.get(name, 0.0), energy.number(least=0))

    if isinstance(actions.value, Mapping):
        for name, action in actions.entries():
            variants = action.items() if isinstance(action.value, list | tuple) else [action]
            for variant in variants:
                note(name, variant.need("energy") if isinstance(variant.value, Mapping) else variant)
    else:
        for action in actions.items():
            note(action.need("name").text(), action.need("energy"))
    return energies


def _energy(actions: Mapping[str, float], source: str) -> Energy:
    most = max(actions.values(), default=0.0)

    def of(names: tuple[str, ...]) -> float:
        return next((actions[name] for name in names if name in actions), most)

    return Energy(
        read=of(READ_ACTIONS),
        write=of(WRITE_ACTIONS),
        update=of(UPDATE_ACTIONS),
        compute=of(COMPUTE_ACTIONS),
        leak=actions.get("leak", 0.0),
        vector_access=most,
        source=source,
    )
