"""Pruned rows on disk: shipped with the package for common structures, and kept in the user's cache for the rest.

Entries hold templates only, under the structure's key; what they cost is compiled again on loading, so that an entry can
never disagree with the code about a formula. ``GENERATION`` changes with the rules of enumeration and pruning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from stitchloop.cache import fetch, keep
from stitchloop.fused.prune import Pruned, prune
from stitchloop.fused.shape import Structure
from stitchloop.fused.template import Template, compile_row

GENERATION = 1

SHIPPED = Path(__file__).with_name("pruned.json")


def digest(structure: Structure) -> str:
    return hashlib.sha256(f"{GENERATION}:{structure.key}".encode()).hexdigest()[:32]


def pruned_rows(structure: Structure, *, use_cache: bool = True) -> Pruned:
    """The pruned rows of a structure: shipped, from the user's cache, or derived now (and then cached).

    Nothing depends on the cache: an entry that cannot be read is derived again, and a folder that cannot be written to is
    left alone.
    """
    if not use_cache:
        return prune(structure)
    key = digest(structure)
    entry = _shipped().get(key)
    if entry is not None:
        return decoded(structure, entry)
    name = f"pruned-{key}.json"
    try:
        return decoded(structure, json.loads(fetch(name) or b""))
    except (ValueError, KeyError, TypeError, IndexError):
        pass
    pruned = prune(structure)
    keep(name, json.dumps(encoded(pruned), separators=(",", ":")).encode())
    return pruned


@lru_cache(maxsize=1)
def _shipped() -> Mapping[str, Any]:
    try:
        return json.loads(SHIPPED.read_text())
    except (OSError, ValueError):
        return {}


def encoded(pruned: Pruned) -> dict[str, Any]:
    """A pruned set as plain data."""
    return {
        "raw": pruned.raw,
        "distinct": pruned.distinct,
        "by_repeats": [[[sorted(r) for r in repeats], count] for repeats, count in pruned.raw_by_repeats.items()],
        "templates": [[r.template.shared, r.template.inner, r.template.levels, r.template.held] for r in pruned.rows],
    }


def decoded(structure: Structure, entry: Mapping[str, Any]) -> Pruned:
    """The set that :func:`encoded` wrote, compiled anew."""
    rows = tuple(compile_row(structure, template) for template in _templates(entry["templates"]))
    by_repeats = {tuple(frozenset(r) for r in repeats): int(count) for repeats, count in entry["by_repeats"]}
    return Pruned(rows, int(entry["raw"]), by_repeats, int(entry["distinct"]))


def _templates(items: Any) -> Iterator[Template]:
    for shared, inner, levels, held in items:
        yield Template(tuple(shared), _nested(inner), _nested(levels), _nested(held))


def _nested(items: Any) -> Any:
    return tuple(tuple(item) for item in items)
