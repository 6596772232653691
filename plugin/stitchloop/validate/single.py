"""Reference cases of single Einsums: one mapping, evaluated by the reference model."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from stitchloop.architecture import Architecture
from stitchloop.errors import InputError, InvalidMapping
from stitchloop.mapping import Mapping
from stitchloop.model import CLEAN, TIMELOOP, Evaluator
from stitchloop.read.files import read_text
from stitchloop.stats import LevelStats, Stats
from stitchloop.validate.result import CaseResult, Difference, compare
from stitchloop.workload import Einsum

WRITEBACK = "aborts: more is written back than delivered"
"""What the reference files say where the tool aborts."""


class Inputs(NamedTuple):
    """A case, read."""

    einsum: Einsum
    architecture: Architecture
    mapping: Mapping


class SingleCases:
    """Runs the cases of one file; architectures and tables that a case names are looked for beside it."""

    def __init__(self, path: Path, convention: str = "tool") -> None:
        self.path = path
        self.counting = TIMELOOP if convention == "tool" else CLEAN
        self._texts: dict[str, str] = {}

    def read(self, case: dict[str, Any]) -> Inputs:
        """Read the inputs of ``case``; raises :class:`InputError`."""
        from stitchloop.read import Source, load_spec, require_energy

        name = f"{self.path}: case {case['id']}"
        arch, ert = (self._text(case, key, name) for key in ("arch", "ert"))
        document = {"problem": case["problem"], "mapping": case["mapping"]}
        try:
            spec = load_spec([Source(f"{name}, architecture", arch), Source(f"{name}, ERT", ert), document])
        except InputError as error:
            raise error.within([name]) from None
        if spec.architecture is None or spec.workload is None or spec.mapping is None:
            raise InputError(name, "architecture, problem or mapping is missing", "a case has all three")
        require_energy(spec.architecture)
        return Inputs(spec.workload.einsum, spec.architecture, spec.mapping)

    def run(self, case: dict[str, Any], expected: dict[str, Any] | None = None) -> CaseResult:
        """Evaluate ``case`` and compare with ``expected``, by default the case's own figures."""
        inputs = self.read(case)
        expected = case["expected"] if expected is None else expected
        evaluator = Evaluator(inputs.einsum, inputs.architecture, self.counting)
        start = time.perf_counter()
        stats: Stats | None = None
        try:
            stats = evaluator.evaluate(inputs.mapping)
            got = figures(inputs.architecture, stats)
        except InvalidMapping as invalid:
            got = refusal(invalid)
        seconds = time.perf_counter() - start
        expected_valid = bool(expected.get("valid"))
        if expected_valid and stats is not None:
            differences, compared = compare(expected, got)
        else:
            differences, compared = _compare_verdicts(expected, got), 1
        return CaseResult(
            id=str(case["id"]),
            kind="single",
            got=got,
            differences=tuple(differences),
            figures=compared,
            valid=stats is not None,
            reference_valid=expected_valid,
            points=_points(expected, stats) if expected_valid and stats is not None else {},
            seconds=seconds,
        )

    def _text(self, case: dict[str, Any], key: str, name: str) -> str:
        """The YAML text of the case's architecture or ERT: inline, or in a file beside the case file."""
        inline, file = case.get(f"{key}_yaml"), case.get(key)
        if isinstance(inline, str):
            return inline
        if not isinstance(file, str):
            raise InputError(name, f"neither `{key}` nor `{key}_yaml`", "name a file beside the cases, or give its text")
        if file not in self._texts:
            folder = self.path.parent.resolve()
            path = folder / file
            if "\0" in file or not path.resolve().is_relative_to(folder):
                raise InputError(name, f"`{key}: {file}` leads out of {folder}", "name a file beside the cases")
            self._texts[file] = read_text(path, f"{name}, `{key}: {file}`")
        return self._texts[file]


def figures(architecture: Architecture, stats: Stats) -> dict[str, Any]:
    """Figures under the names of the reference files, rounded as the tool prints them, and ``energy_pJ`` unrounded."""
    levels: dict[str, Any] = {
        architecture.compute.name: {
            "instances": stats.compute.instances,
            "computes": stats.compute.computes,
            "cycles": stats.compute.cycles,
            "energy_pJ": round(stats.compute.energy_pJ, 2),
        }
    }
    for level in architecture.storage:
        levels[level.name] = _level_figures(level.energy.vector_access, stats.levels[level.name])
    return {
        "valid": True,
        "levels": levels,
        "cycles": stats.cycles,
        "computes": stats.computes,
        "energy_uJ": round(stats.energy_pJ / 1e6, 2),
        "fJ_per_compute": round(stats.energy_pJ * 1000 / stats.computes, 2),
        "utilization_percent": round(stats.utilization * 100, 2),
        "energy_pJ": stats.energy_pJ,
    }


def _level_figures(vector_access_pJ: float, level: LevelStats) -> dict[str, Any]:
    found: dict[str, Any] = {
        "vector_access_pJ": round(vector_access_pJ, 2),
        "leakage_pJ": round(level.leakage_pJ, 2),
        "cycles": level.cycles,
        "throttle": round(level.throttle, 2),
    }
    for name, s in level.tensors.items():
        found[name] = {
            "capacity": s.capacity,
            "instances": s.instances,
            "reads": s.reads,
            "fills": s.fills,
            "updates": s.updates,
            "reductions": s.reductions,
            "energy_pJ": round(s.energy_pJ, 2),
        }
    return found


def refusal(invalid: InvalidMapping) -> dict[str, Any]:
    """What is dumped for an invalid mapping: the tool's message, the level, and by how much."""
    message = WRITEBACK if invalid.kind == "writeback" else f"ERROR: {invalid.message}"
    got: dict[str, Any] = {"valid": False, "message": message, "kind": invalid.kind}
    for name in ("level", "size", "limit"):
        value = getattr(invalid, name)
        if value is not None:
            got[name] = value
    return got


def _compare_verdicts(expected: dict[str, Any], got: dict[str, Any]) -> list[Difference]:
    """Whether both refuse the mapping, and with the same level, size and limit where the reference names a level."""
    if expected.get("valid") or got["valid"]:
        agree = expected.get("valid") == got["valid"]
        return [] if agree else [Difference("valid", got.get("message", True), _verdict(expected))]
    reference = str(expected.get("message", ""))
    wanted = re.search(r"couldn't map level (\S+): (.*)", reference)
    ours = re.search(r"couldn't map level (\S+): (.*)", got["message"])
    same = wanted.groups() == ours.groups() if wanted and ours else reference in ("", got["message"])
    return [] if same else [Difference("message", got["message"], reference)]


def _verdict(expected: dict[str, Any]) -> Any:
    return True if expected.get("valid") else expected.get("message", False)


def _points(expected: dict[str, Any], stats: Stats) -> dict[str, tuple[float, float]]:
    """Energy in pJ, from the reference's most precise figure, and cycles."""
    points: dict[str, tuple[float, float]] = {}
    per_compute, computes, cycles = (_number(expected.get(name)) for name in ("fJ_per_compute", "computes", "cycles"))
    if per_compute is not None and computes is not None:
        points["energy"] = (stats.energy_pJ, per_compute * computes / 1000)
    if cycles is not None:
        points["cycles"] = (float(stats.cycles), cycles)
    return points


def _number(value: Any) -> float | None:
    """A figure of the reference as a float; None where it is missing or no number."""
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None
