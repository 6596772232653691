"""Where energies come from: a table in the input, else Accelergy where it is installed, else a table beside the architecture."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stitchloop.architecture import Architecture, Compute, Energy, Level
from stitchloop.errors import InputError
from stitchloop.read.document import Quoted, parse
from stitchloop.read.fields import Field
from stitchloop.read.files import read_text
from stitchloop.read.levels import Component, with_tables
from stitchloop.read.source import ArchitectureSource
from stitchloop.read.tables import read_art, read_ert

ACCELERGY_SECONDS = 600
STORAGE_ACTIONS = ("read", "write", "update", "leak")
COMPUTE_ACTIONS = ("compute", "leak")

Estimates = tuple[dict[str, Energy], dict[str, float]]
"""Energies and areas by component name."""


def require_energy(architecture: Architecture) -> None:
    """Raise :class:`InputError` when a storage level or the compute unit has no energies."""
    parts: list[Level | Compute] = [*architecture.storage, architecture.compute]
    missing = [part.name for part in parts if part.energy.source == "none"]
    if not missing:
        return
    if len(missing) == len(parts):
        found = f"no energies for architecture '{architecture.name}'"
    else:
        found = f"no energies for {', '.join(missing)} of architecture '{architecture.name}'"
    mend = "give an ERT file among the inputs, or install Accelergy, or put the ERT beside the architecture as NAME.ERT.yaml"
    raise InputError("ERT", found, mend)


def with_energy(
    source: ArchitectureSource, components: list[Field], ert: Field | None, art: Field | None, beside: Path | None
) -> tuple[Architecture, list[str]]:
    """The architecture with its energies and areas, from the first of the three sources that has them.

    Parameters
    ----------
    components : list of Field
        Compound components of the input, for Accelergy.
    ert, art : Field or None
        Tables of the input.
    beside : Path or None
        File of the architecture, beside which tables may stand.

    Returns
    -------
    Architecture and warnings
        Energies stay at source ``none`` where there is no table (see :func:`require_energy`).
    """
    architecture, warnings = source.architecture, []
    areas = read_art(art) if art is not None else {}
    if ert is not None:
        return with_tables(architecture, read_ert(ert), areas), []
    command = accelergy_command()
    if command is not None:
        try:
            energies, estimated = run_accelergy(command, source, components)
            return with_tables(architecture, energies, {**estimated, **areas}), []
        except InputError as error:
            warnings.append(str(error))
    found = _tables_beside(architecture, beside)
    if found is not None:
        energies, estimated = found
        return with_tables(architecture, energies, {**estimated, **areas}), warnings
    return with_tables(architecture, {}, areas), warnings


def accelergy_command() -> list[str] | None:
    """How Accelergy is called on this machine; None where it is not installed."""
    executable = shutil.which("accelergy")
    if executable is not None:
        return [executable]
    try:
        installed = importlib.util.find_spec("accelergy") is not None
    except (ImportError, ValueError):
        installed = False
    return [sys.executable, "-c", "from accelergy.accelergy_console import main; main()"] if installed else None


def run_accelergy(command: list[str], source: ArchitectureSource, components: list[Field]) -> Estimates:
    """Have Accelergy estimate every component. Returns energies and areas by name.

    Raises
    ------
    InputError
        When it fails, runs too long, or writes no ERT.
    """
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory(prefix="stitchloop-accelergy-") as folder:
        inputs = Path(folder, "architecture.yaml")
        document = accelergy_document(source, components)
        inputs.write_text(_dumped(document), encoding="utf-8")
        try:
            done = subprocess.run(
                [*command, str(inputs), "-o", folder],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=ACCELERGY_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            found = f"Accelergy does not run ({type(error).__name__})"
            raise InputError("Accelergy", found, "give an ERT file instead") from None
        ert, art = Path(folder, "ERT.yaml"), Path(folder, "ART.yaml")
        if done.returncode != 0 or not ert.is_file():
            said = " ".join((done.stderr or done.stdout).split())[-300:] or "it said nothing"
            raise InputError("Accelergy", f"Accelergy gave no ERT ({said})", "give an ERT file instead")
        energies = read_ert(_section(ert, "ERT", "Accelergy's ERT"), "Accelergy")
        areas = read_art(_section(art, "ART", "Accelergy's ART")) if art.is_file() else {}
        return energies, areas


def accelergy_document(source: ArchitectureSource, components: list[Field]) -> dict[str, Any]:
    """The architecture as Accelergy reads it: one subtree of components with all their attributes."""
    local = [_local(component) for component in source.components if not component.is_fanout and not component.is_ignored]
    attributes = _words({"technology": "SET ME", **source.architecture.variables})
    attributes |= {"version": 0.4, "global_cycle_seconds": source.architecture.cycle_seconds}
    tree = {"name": "system_top_level", "attributes": attributes, "local": local}
    document: dict[str, Any] = {"architecture": {"version": 0.4, "subtree": [tree]}}
    if components:
        document["compound_components"] = {"version": 0.4, "classes": [_plain(component.value) for component in components]}
    return document


def _local(component: Component) -> dict[str, Any]:
    node = component.field.value
    attributes = _words(component.attributes)
    attributes |= {"meshX": component.mesh.x, "meshY": component.mesh.y}
    local: dict[str, Any] = {
        "name": f"{component.name}[1..{component.mesh.x * component.mesh.y}]",
        "class": component.component_class,
        "attributes": attributes,
        "required_actions": list(COMPUTE_ACTIONS if component.is_compute else STORAGE_ACTIONS),
    }
    for key in ("subclass", "area_scale", "energy_scale"):
        if node.get(key) is not None:
            local[key] = _plain(node[key])
    return local


def _words(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluated attributes; strings that are left are words and no expressions."""
    plain = {key: _plain(value) for key, value in attributes.items() if value is not None}
    return {key: Quoted(value) if isinstance(value, str) else value for key, value in plain.items()}


def _dumped(document: dict[str, Any]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes words in quotes, and nothing by reference."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    Dumper.add_representer(Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"'))
    return yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def _plain(value: Any) -> Any:
    """The value as PyYAML's safe dumper takes it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _tables_beside(architecture: Architecture, path: Path | None) -> Estimates | None:
    """Tables that stand beside the architecture's file and speak of all its components."""
    for ert in _places(path, "ERT"):
        energies = read_ert(_section(ert, "ERT", str(ert)))
        if not {architecture.compute.name, *(level.name for level in architecture.storage)} <= energies.keys():
            continue
        art = ert.with_name(ert.name.replace("ERT.yaml", "ART.yaml"))
        return energies, read_art(_section(art, "ART", str(art))) if art.is_file() else {}
    return None


def _places(path: Path | None, table: str) -> list[Path]:
    if path is None:
        return []
    stem = path.name.removesuffix(".yaml").removesuffix(".yml")
    names = (
        *(f"{stem}.{table}.yaml", f"{stem}/{table}.yaml", f"{table}.yaml", f"timeloop-mapper.{table}.yaml"),
        f"recorded/timeloop-mapper.{table}.yaml",
    )
    return [path.parent / name for name in names if (path.parent / name).is_file()]


def _section(path: Path, key: str, shown: str) -> Field:
    document = Field(parse(read_text(path, shown), shown), file=shown)
    return document.need(key)
