"""What the commands ``model`` and ``map`` do, apart from the command line: one spec in, files and a summary out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stitchloop.cli.options import console
from stitchloop.cli.signals import interruptible
from stitchloop.errors import InputError, InvalidMapping, NoMapping
from stitchloop.spec import Spec
from stitchloop.text import counted
from stitchloop.write.summary import Comparison, Summary, map_summary, model_summary, wrote

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class MapSwitches:
    """Switches of ``stitchloop map`` that are not part of Timeloop's files."""

    compare: bool = False
    """Also evaluate what a random search of 200 valid mappings finds, for comparison."""
    progress: Callable[..., None] | None = None


def run_model(spec: Spec, directory: Path) -> Summary:
    """Evaluate the mapping of ``spec`` with the reference model and write its files.

    Raises
    ------
    InputError
        When the architecture, the problem or the mapping is missing.
    InvalidMapping
        When the hardware or the workload forbids the mapping.
    """
    from stitchloop.model import evaluate
    from stitchloop.read.energy import require_energy
    from stitchloop.write.outputs import write_model_outputs

    architecture, workload = require(spec, "architecture"), require(spec, "workload")
    mapping = require(spec, "mapping")
    require_energy(architecture)
    stats = evaluate(workload.einsum, architecture, mapping)
    written = write_model_outputs(spec, stats, directory)
    summary = model_summary(workload.einsum, architecture, mapping, stats)
    return Summary((*summary.parts, wrote(written)))


def run_map(spec: Spec, directory: Path, switches: MapSwitches | None = None) -> Summary:
    """Find the best mapping of the single Einsum of ``spec``, write Timeloop's files, and sum it up.

    Raises
    ------
    InputError
        When a part is missing or constraints contradict each other.
    NoMapping
        When no mapping is valid.
    """
    from stitchloop.read.energy import require_energy
    from stitchloop.search import map_einsum
    from stitchloop.write.files import check_folder, refuse_inputs
    from stitchloop.write.outputs import mapping_output_names, write_mapping_outputs

    switches = switches or MapSwitches()
    architecture, workload = require(spec, "architecture"), require(spec, "workload")
    require_energy(architecture)
    refuse_inputs(directory, mapping_output_names(spec), spec.files)
    check_folder(directory)
    try:
        with interruptible():
            result = map_einsum(spec, progress=switches.progress)
    except NoMapping:
        if spec.options.diagnostics:
            diagnosis(spec).show(console(stderr=True))
        raise
    written = write_mapping_outputs(spec, result, directory)
    comparison, remarks = _compared(spec, switches)
    summary = map_summary(workload.einsum, architecture, result, comparison)
    tables = diagnosis(spec).parts if spec.options.diagnostics else ()
    return Summary((*summary.parts, *remarks, *tables, wrote(written)))


def _compared(spec: Spec, switches: MapSwitches) -> tuple[Comparison | None, tuple[str, ...]]:
    """What the result is held against: the mapping in the input, or a random search on request; and remarks on it."""
    from stitchloop.model import evaluate

    architecture, workload = require(spec, "architecture"), require(spec, "workload")
    if spec.mapping is not None:
        try:
            stats = evaluate(workload.einsum, architecture, spec.mapping)
        except InvalidMapping as error:
            return None, (f"note: the mapping in the input is invalid, so there is no comparison: {error}",)
        return Comparison("the mapping in the input", stats), ()
    if not switches.compare:
        return None, ()
    from stitchloop.search.baseline import random_search

    found = random_search(spec)
    if not found:
        return None, ("note: the random search found no valid mapping, so there is no comparison",)
    return Comparison(f"the best of {counted(found.valid, 'valid mapping')} drawn at random", found.stats), ()


def diagnosis(spec: Spec) -> Summary:
    """The table of ``diagnostics: true``."""
    from stitchloop.mapspace.diagnostics import diagnose
    from stitchloop.mapspace.mapspace import build_mapspace
    from stitchloop.write.diagnosis import diagnosis_table

    architecture, workload = require(spec, "architecture"), require(spec, "workload")
    return Summary((diagnosis_table(diagnose(build_mapspace(workload.einsum, architecture, spec.constraints, spec.options))),))


_SECTIONS = {
    "architecture": "an `architecture` section",
    "workload": "a `problem` section",
    "mapping": "a `mapping` section",
}


def require(spec: Spec, part: str) -> Any:
    """The named part of ``spec``; :class:`InputError` when no input file holds it."""
    value = getattr(spec, part)
    if value is None:
        files = ", ".join(spec.files) or "the input"
        raise InputError(files, f"{_SECTIONS[part]} is missing", "add the file that holds it")
    return value
