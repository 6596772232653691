"""Which tensors each level keeps, from ``keep`` and ``bypass`` constraints.

Timeloop tries both for every tensor that a storage level neither keeps nor bypasses by constraint; only the outermost
storage level keeps everything by default. A fan-out keeps nothing.
"""

from __future__ import annotations

from stitchloop.architecture import Architecture
from stitchloop.constraints import Constraints, LevelConstraints
from stitchloop.errors import InputError
from stitchloop.mapspace.space import KeepSpace
from stitchloop.workload import Einsum


def keep_spaces(einsum: Einsum, architecture: Architecture, constraints: Constraints) -> tuple[KeepSpace, ...]:
    """One :class:`KeepSpace` per level. Raises :class:`InputError` on contradictions and unknown tensors."""
    names = tuple(tensor.name for tensor in einsum.tensors)
    outermost = max((i for i, level in enumerate(architecture.levels) if not level.is_fanout), default=-1)
    spaces = []
    for index, (level, entry) in enumerate(zip(architecture.levels, constraints.levels)):
        _check(level.name, entry, names)
        if level.is_fanout:
            if entry.keep:
                raise InputError(
                    entry.place,
                    f"keep: {sorted(entry.keep)} at {level.name}, which is a fan-out and stores nothing",
                    "name a storage level",
                )
            spaces.append(KeepSpace(bypass=frozenset(names)))
            continue
        default = frozenset(names) - entry.bypass if index == outermost else frozenset()
        keep = entry.keep | default
        free = tuple(name for name in names if name not in keep and name not in entry.bypass)
        spaces.append(KeepSpace(keep, entry.bypass, free))
    _check_kept_somewhere(names, architecture, constraints, spaces)
    return tuple(spaces)


def _check(level: str, entry: LevelConstraints, names: tuple[str, ...]) -> None:
    for key, wanted in (("keep", entry.keep), ("bypass", entry.bypass)):
        for name in sorted(wanted - set(names)):
            raise InputError(
                entry.place, f"{key}: {name} at {level} is no tensor of the Einsum", f"its tensors are {', '.join(names)}"
            )
    for name in sorted(entry.keep & entry.bypass):
        raise InputError(
            entry.place,
            f"keep: {name} and bypass: {name} at {level} contradict each other ({entry.place} sets both)",
            "drop one of them",
        )


def _check_kept_somewhere(
    names: tuple[str, ...], architecture: Architecture, constraints: Constraints, spaces: list[KeepSpace]
) -> None:
    for name in names:
        if all(name in space.bypass for space in spaces):
            bypassed = [
                f"bypass: {name} at {level.name} ({entry.place})"
                for level, entry in zip(architecture.levels, constraints.levels)
                if not level.is_fanout
            ]
            place = next(e.place for level, e in zip(architecture.levels, constraints.levels) if not level.is_fanout)
            raise InputError(
                place, f"tensor {name} is bypassed in all storage levels: {', '.join(bypassed)}", "keep it in one of them"
            )
