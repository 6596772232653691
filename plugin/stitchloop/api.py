"""``call_mapper`` and ``call_model``: the calls of ``pytimeloop.timeloopfe.v4``, answered by Stitchloop."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from types import NoneType
from typing import Any

from stitchloop.architecture import Architecture
from stitchloop.errors import InputError
from stitchloop.spec import Spec
from stitchloop.stats import Stats
from stitchloop.write.files import make_folder, write_atomically


@dataclass(frozen=True)
class OutputStats:
    """Figures of one run under the names of pytimeloop's ``OutputStats``. Energies in J, areas in m^2, latency in s."""

    percent_utilization: float
    computes: int
    cycles: int
    cycle_seconds: float
    per_component_energy: Mapping[str, float]
    per_component_area: Mapping[str, float]
    variables: Mapping[str, Any]
    mapping: str
    accesses: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def latency(self) -> float:
        return self.cycles * self.cycle_seconds

    @property
    def energy(self) -> float:
        return sum(self.per_component_energy.values())

    @property
    def area(self) -> float:
        return sum(self.per_component_area.values())

    @property
    def computes_per_second(self) -> float:
        return self.computes / self.latency

    @property
    def computes_per_joule(self) -> float:
        return self.computes / self.energy if self.energy else inf

    @property
    def computes_per_second_per_square_meter(self) -> float:
        return self.computes_per_second / self.area if self.area else inf


def call_mapper(
    specification: Any,
    output_dir: str,
    environment: Mapping[str, str] | None = None,
    extra_input_files: Iterable[str] | None = None,
    dump_intermediate_to: str | None = None,
    log_to: Any = None,
    extra_args: Iterable[str] = (),
    return_proc: bool = False,
) -> Any:
    """Find the best mapping of one Einsum and write Timeloop's files into ``output_dir``.

    Parameters
    ----------
    specification
        A ``Specification`` of pytimeloop, a path of a YAML file (or the name of a shipped one), or a list of such paths.
    output_dir
        Made when missing.
    extra_input_files
        More YAML files.
    log_to
        A path or an open text file that gets the one-screen summary.
    extra_args
        Further arguments of ``stitchloop map``; they imply a process of its own, as ``return_proc`` does.
    environment, dump_intermediate_to
        Taken for the sake of the signature: environment variables of the process; a path that gets the input as it was read.
    return_proc
        Start a process and return its ``subprocess.Popen``.

    Returns
    -------
    OutputStats
        pytimeloop's own where a ``Specification`` was given, else :class:`OutputStats`.

    Raises
    ------
    InputError, NoMapping
        As the command line reports them.
    """
    return _call("map", "timeloop-mapper", specification, output_dir, environment, extra_input_files, dump_intermediate_to,
                 log_to, extra_args, return_proc)  # fmt: skip


def call_model(
    specification: Any,
    output_dir: str,
    environment: Mapping[str, str] | None = None,
    extra_input_files: Iterable[str] | None = None,
    dump_intermediate_to: str | None = None,
    log_to: Any = None,
    extra_args: Iterable[str] = (),
    return_proc: bool = False,
) -> Any:
    """Evaluate the given mapping; arguments and result as for :func:`call_mapper`.

    Raises
    ------
    InputError, InvalidMapping
        As the command line reports them.
    """
    return _call("model", "timeloop-model", specification, output_dir, environment, extra_input_files, dump_intermediate_to,
                 log_to, extra_args, return_proc)  # fmt: skip


def _call(
    command: str,
    prefix: str,
    specification: Any,
    output_dir: str,
    environment: Mapping[str, str] | None,
    extra_input_files: Iterable[str] | None,
    dump_intermediate_to: str | None,
    log_to: Any,
    extra_args: Iterable[str],
    return_proc: bool,
) -> Any:
    _check(output_dir, environment, log_to)
    directory = Path(output_dir)
    make_folder(directory)
    paths = [
        *_input_paths(specification, directory, command == "model"),
        *map(Path, _words("extra_input_files", extra_input_files)),
    ]
    _check_texts({"dump_intermediate_to": dump_intermediate_to, "log_to": log_to}, paths)
    if dump_intermediate_to is not None:
        _dump(paths, Path(dump_intermediate_to))
    extra = _words("extra_args", extra_args)
    if return_proc or extra or environment:
        process = _start([command, *extra, *map(str, paths), "-o", str(directory)], environment, log_to)
        if return_proc:
            return process
        _wait(process, directory)
        return _parse(specification, directory, prefix, paths)
    from stitchloop.cli.run import run_map, run_model
    from stitchloop.fused.call import is_fused, run_fused
    from stitchloop.read import load_spec

    spec = load_spec(paths)
    if is_fused(command, spec):
        summary = run_fused(command, spec, directory)
    else:
        summary = run_map(spec, directory) if command == "map" else run_model(spec, directory)
    _log(summary.text, log_to)
    return _parse(specification, directory, prefix, paths, spec)


def _check(output_dir: Any, environment: Any, log_to: Any) -> None:
    """Raise :class:`InputError` on arguments of types that would fail later, after a search perhaps."""
    if not isinstance(output_dir, (str, Path)) or not str(output_dir).strip():
        raise InputError(None, f"output_dir {output_dir!r}", "give a path")
    if environment is not None and not (
        isinstance(environment, Mapping) and all(isinstance(word, str) for pair in environment.items() for word in pair)
    ):
        raise InputError(None, f"environment {environment!r}", "give a dictionary of names and values, both text")
    if not (log_to is None or isinstance(log_to, (str, Path)) or hasattr(log_to, "write")):
        raise InputError(None, f"log_to {log_to!r}", "give a path or an open text file")


def _check_texts(targets: Mapping[str, Any], inputs: list[Path]) -> None:
    """Raise :class:`InputError` when a text is to be written over an input, or where no file can be."""
    protected = {path.resolve() for path in inputs}
    for name, target in targets.items():
        if target is None or hasattr(target, "write"):
            continue
        if not isinstance(target, (str, Path)):
            raise InputError(None, f"{name} {target!r}", "give a path")
        path = Path(target)
        if path.resolve() in protected:
            raise InputError(str(path), f"{name} would overwrite an input file", "name another")
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise InputError(str(path), f"{name} cannot be a file there", "name a file in a folder that exists")


def _words(name: str, given: Iterable[Any] | None) -> list[str]:
    if isinstance(given, (str, Path)) or not isinstance(given, (Iterable, NoneType)):
        raise InputError(None, f"{name} of type {type(given).__name__}", "give a list")
    return [str(item) for item in given or ()]


def _dump(paths: list[Path], target: Path) -> None:
    from stitchloop.read.files import read_text

    text = "\n".join(read_text(path, str(path)) for path in paths)
    try:
        write_atomically(target, text)
    except OSError as error:
        raise InputError(str(target), f"cannot be written ({error.strerror})", "name another dump_intermediate_to") from None


def _input_paths(specification: Any, directory: Path, for_model: bool) -> list[Path]:
    from stitchloop.content import resolve

    if isinstance(specification, (str, Path)):
        return [resolve(specification)]
    if isinstance(specification, (list, tuple)) and all(isinstance(item, (str, Path)) for item in specification):
        return [resolve(item) for item in specification]
    if hasattr(specification, "_process"):
        return [_transpile(specification, directory, for_model)]
    found = type(specification).__name__
    raise InputError(None, f"a specification of type {found}", "give a Specification of pytimeloop or a list of YAML paths")


def _transpile(specification: Any, directory: Path, for_model: bool) -> Path:
    """Let pytimeloop write its one-file form, as its own ``call_mapper`` does."""
    try:
        from pytimeloop.timeloopfe.common.backend_calls import _specification_to_yaml_string
    except ImportError:
        raise InputError(None, "a Specification, but pytimeloop cannot be imported", "give a list of YAML paths") from None
    path = directory / "parsed-processed-input.yaml"
    path.write_text(_specification_to_yaml_string(specification, for_model))
    return path


def _start(arguments: list[str], environment: Mapping[str, str] | None, log_to: Any) -> subprocess.Popen[bytes]:
    import os

    try:
        stream = open(log_to, "w") if isinstance(log_to, (str, Path)) else log_to  # noqa: SIM115
        if stream is not None:
            stream.fileno()
    except (OSError, AttributeError) as error:
        why = getattr(error, "strerror", None) or "no file of the system"
        raise InputError(
            None, f"log_to {log_to!r} cannot be written by a process ({why})", "give a path or an open file"
        ) from None
    return subprocess.Popen(
        [sys.executable, "-m", "stitchloop.cli.app", *arguments],
        env={**os.environ, **(environment or {})},
        stdout=stream,
        stderr=subprocess.STDOUT if stream is not None else None,
    )


def _wait(process: subprocess.Popen[bytes], directory: Path) -> None:
    status = process.wait()
    if status != 0:
        raise RuntimeError(f"stitchloop ended with status {status}; its messages say why (outputs would be in {directory})")


def _log(text: str, log_to: Any) -> None:
    if isinstance(log_to, (str, Path)):
        write_atomically(Path(log_to), text)
    elif log_to is not None:
        log_to.write(text)


def _parse(specification: Any, directory: Path, prefix: str, paths: list[Path], spec: Spec | None = None) -> Any:
    if hasattr(specification, "_parse_timeloop_output"):
        return specification._parse_timeloop_output(str(directory), prefix=prefix)
    import json

    from stitchloop.read import load_spec

    spec = spec or load_spec(paths)
    if spec.architecture is None:
        raise InputError(", ".join(spec.files) or None, "no architecture", "add the file that holds it")
    document = json.loads((directory / "stats.json").read_text())
    map_text = directory / (f"{prefix}.map.txt" if "compute" in document else "fused-mapping.yaml")
    return output_stats(spec.architecture, document, map_text.read_text() if map_text.exists() else "")


def output_stats(architecture: Architecture, document: Mapping[str, Any] | Stats, mapping_text: str) -> OutputStats:
    """Turn a ``stats.json`` document (or :class:`~stitchloop.stats.Stats`) into :class:`OutputStats`."""
    if isinstance(document, Stats):
        document = document.as_json()
    unit = architecture.compute
    if "compute" not in document:
        return _fused_stats(architecture, document, mapping_text)
    energy = {unit.name: document["compute"]["energy_pJ"] * 1e-12}
    energy |= {name: level["energy_pJ"] * 1e-12 for name, level in document["level_totals"].items()}
    accesses = {
        name: {
            action: float(sum(t[action] * t["instances"] for t in tensors.values())) for action in ("reads", "fills", "updates")
        }
        for name, tensors in document["levels"].items()
    }
    return OutputStats(
        percent_utilization=document["utilization"] * 100,
        computes=document["computes"],
        cycles=document["cycles"],
        cycle_seconds=architecture.cycle_seconds,
        per_component_energy=energy,
        per_component_area=_areas(architecture),
        variables=dict(architecture.variables),
        mapping=mapping_text,
        accesses=accesses,
    )


def _areas(architecture: Architecture) -> dict[str, float]:
    unit = architecture.compute
    area = {level.name: (level.area_um2 or 0.0) * level.instances * 1e-12 for level in architecture.storage}
    return area | {unit.name: (unit.area_um2 or 0.0) * unit.instances * 1e-12}


def _fused_stats(architecture: Architecture, document: Mapping[str, Any], mapping_text: str) -> OutputStats:
    """The same for fused work."""
    from stitchloop.fused.call import component_energies, level_accesses

    unit = architecture.compute
    utilization = document.get("utilization", document["computes"] / max(1, document["cycles"] * unit.instances))
    return OutputStats(
        percent_utilization=utilization * 100,
        computes=document["computes"],
        cycles=document["cycles"],
        cycle_seconds=architecture.cycle_seconds,
        per_component_energy=component_energies(document),
        per_component_area=_areas(architecture),
        variables=dict(architecture.variables),
        mapping=mapping_text,
        accesses=level_accesses(document),
    )
