"""Our mapping of one Einsum as AccelForge writes mappings, so that its model can evaluate it."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import yaml

from stitchloop.architecture import Architecture
from stitchloop.errors import InvalidMapping
from stitchloop.mapping import Loop, Mapping
from stitchloop.model import Evaluator
from stitchloop.spec import Spec


def sunk(spec: Spec, mapping: Mapping) -> Mapping:
    """The mapping with every temporal loop as far inside as costs nothing.

    In Timeloop a loop costs no refill of an inner level whose tensors it does not index, wherever it stands; in AccelForge a
    level holds on to a tensor over the loops below its place only. Each step is kept only if cycles and energy stay.
    """
    assert spec.architecture is not None
    assert spec.workload is not None
    model = Evaluator(spec.workload.einsum, spec.architecture)
    storage = [i for i, level in enumerate(spec.architecture.levels) if not level.is_fanout]
    best, stats = mapping, model.evaluate(mapping)
    for place in range(len(storage) - 1, 0, -1):
        for loop in best.levels[storage[place]].temporal:
            for inner in range(place):
                moved = _moved(best, loop, storage[place], storage[inner])
                try:
                    found = model.evaluate(moved)
                except InvalidMapping:
                    continue
                if found.cycles <= stats.cycles and found.energy_pJ <= stats.energy_pJ:
                    best, stats = moved, found
                    break
    return best


def _moved(mapping: Mapping, loop: Loop, source: int, target: int) -> Mapping:
    levels = list(mapping.levels)
    levels[source] = replace(levels[source], temporal=tuple(x for x in levels[source].temporal if x != loop))
    here = levels[target].temporal
    same = [x for x in here if x.rank == loop.rank]
    others = tuple(x for x in here if x.rank != loop.rank)
    levels[target] = replace(levels[target], temporal=(*others, Loop(loop.rank, loop.bound * prod(x.bound for x in same))))
    return Mapping(tuple(levels))


def accelforge_mapping(spec: Spec, mapping: Mapping, names: dict[str, Any]) -> str:
    """The YAML of a perfect mapping.

    ``names``: of ``ranks``, ``tensors`` and storage ``levels`` here to those there, of each fan-out in ``spatial`` to
    (component, name of X, name of Y), and the names of ``einsum`` and ``compute``.
    """
    assert spec.architecture is not None
    assert spec.workload is not None
    if not mapping.is_perfect:
        return ""
    return _Writer(spec.architecture, dict(spec.workload.einsum.sizes), names).text(sunk(spec, mapping))


class _Writer:
    def __init__(self, architecture: Architecture, sizes: dict[str, int], names: dict[str, Any]) -> None:
        self.architecture, self.left, self.names = architecture, sizes, names

    def text(self, mapping: Mapping) -> str:
        lines = ["mapping:", "  nodes:"]
        for level, here in zip(reversed(self.architecture.levels), reversed(mapping.levels), strict=True):
            if level.is_fanout:
                component, x, y = self.names["spatial"][level.name]
                lines += self._loops(here.spatial_y, "Spatial", {"component": component, "name": y})
                lines += self._loops(here.spatial_x, "Spatial", {"component": component, "name": x})
                continue
            for tensor in sorted(here.keep):
                there = self.names["tensors"][tensor]
                lines.append(self._node("Storage", {"tensors": [there], "component": self.names["levels"][level.name]}))
            lines += self._loops(here.temporal, "Temporal", {})
        lines.append(self._node("Compute", {"einsum": self.names["einsum"], "component": self.names["compute"]}))
        return "\n".join(lines) + "\n"

    def _loops(self, loops: tuple[Loop, ...], kind: str, more: dict[str, str]) -> list[str]:
        lines = []
        for loop in reversed(loops):
            self.left[loop.rank] //= loop.bound
            rank = self.names["ranks"][loop.rank]
            lines.append(self._node(kind, {"rank_variable": rank, "tile_shape": self.left[loop.rank], **more}))
        return lines

    def _node(self, kind: str, fields: dict[str, Any]) -> str:
        return f"  - !{kind} {yaml.safe_dump(fields, default_flow_style=True, width=1000).strip()}"
