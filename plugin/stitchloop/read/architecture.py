"""The section ``architecture``, in whichever of Timeloop's formats it stands, and the variables it may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stitchloop.read.expressions import Scope
from stitchloop.read.fields import Field
from stitchloop.read.source import ArchitectureSource
from stitchloop.read.subtree import read_flat, read_subtree
from stitchloop.read.tree import read_tree


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
        return read_tree(section, variables)
    if section.get("subtree") is not None:
        section.known(("version", "subtree", "local", "name", "attributes"))
        return read_subtree(section, variables)
    if section.get("storage") is not None:
        return read_flat(section, variables)
    section.fail("neither 'nodes' nor 'subtree'", "give the tree of a v0.4 architecture under 'nodes'")
