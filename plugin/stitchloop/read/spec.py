"""Files to a :class:`~stitchloop.spec.Spec`: finds the sections, whatever files they stand in, and has each one read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stitchloop.constraints import Constraints
from stitchloop.errors import InputError
from stitchloop.options import MapperOptions
from stitchloop.read.architecture import read_architecture, read_variables
from stitchloop.read.constraints import ConstraintReader
from stitchloop.read.document import YamlMap, parse
from stitchloop.read.energy import with_energy
from stitchloop.read.fields import Field, nearest
from stitchloop.read.files import is_template, read_text
from stitchloop.read.mapping import read_mapping
from stitchloop.read.options import mapspace_template, read_options
from stitchloop.read.problem import read_einsum
from stitchloop.read.source import ArchitectureSource
from stitchloop.spec import Spec
from stitchloop.workload import Workload

CONSTRAINT_SECTIONS = (
    *("architecture_constraints", "arch_constraints", "mapspace_constraints", "mapspace", "constraints"),
    *("extra_mapping_constraints", "mapping_constraints"),
)
COMPONENT_SECTIONS = ("components", "compound_components")
SECTIONS = (
    *("architecture", "arch", "problem", "mapping", "mapper", "variables", "globals", "ERT", "ART"),
    *("sparse_optimizations", "layout"),
    *CONSTRAINT_SECTIONS,
    *COMPONENT_SECTIONS,
    *("dumped_by_timeloop_front_end", "version"),
)
REPEATABLE = (*CONSTRAINT_SECTIONS, *COMPONENT_SECTIONS, "variables", "globals", "sparse_optimizations", "version", "layout")


VERSIONS = ("0.1", "0.2", "0.3", "0.4")


@dataclass(frozen=True)
class Source:
    """A YAML text in memory; ``name`` stands for the file in messages."""

    name: str
    text: str


Input = str | Path | Source | Mapping[str, Any]


def load_spec(inputs: Sequence[Input], variables: Mapping[str, str] | None = None, *, frontend_compatible: bool = False) -> Spec:
    """Read Timeloop's inputs.

    Parameters
    ----------
    inputs : sequence
        Paths of YAML or Jinja2 files, texts in memory (:class:`Source`) or parsed documents (mappings with the sections
        at the top), in any order.
    variables : mapping of str to str, optional
        Values for Jinja2 files.
    frontend_compatible : bool
        Read spatial permutations of v0.4 files as Timeloop's front end does: unlisted ranks of factor 1 first.

    Returns
    -------
    Spec
        Parts that no input holds are None. Energies have the source ``none`` where no table was found.

    Raises
    ------
    InputError
        For anything that is not well formed, with file, key path and mend.
    """
    sections, files, warnings = _sections(inputs, dict(variables or {}))
    architecture_section = sections.one("architecture")
    names = read_variables(sections.merged("variables"))
    sections.give(names)
    source = read_architecture(architecture_section, names) if architecture_section is not None else None
    if source is not None:
        warnings += source.warnings
        assert architecture_section is not None
        source.architecture, remarks = with_energy(
            source, _components(sections), sections.one("ERT"), sections.one("ART"), _file_of(architecture_section)
        )
        warnings += remarks
    for section in sections.all("sparse_optimizations"):
        if section.value and (not isinstance(section.value, Mapping) or section.value.get("targets")):
            warnings.append(f"{section.place}: sparse optimizations are ignored: tensors count as dense")
    parts = _problem_parts(sections, source, warnings, frontend_compatible)
    architecture = source.architecture if source is not None else None
    mapper = sections.one("mapper")
    options = read_options(mapper, architecture) if mapper is not None else MapperOptions()
    template = mapspace_template([*sections.all("mapspace"), *sections.all("mapspace_constraints")])
    options = replace(
        options,
        imperfect=options.imperfect or template == "ruby",
        perfect=template != "ruby" and not options.imperfect and (options.perfect or template == "uber"),
    )
    return Spec(
        architecture=architecture,
        options=options,
        warnings=tuple(dict.fromkeys(warnings)),
        files=tuple(files),
        architecture_file=_file_of(architecture_section) if architecture_section is not None else None,
        **parts,
    )


def _problem_parts(
    sections: _Sections, source: ArchitectureSource | None, warnings: list[str], frontend_compatible: bool
) -> dict[str, Any]:
    """Workload, mapping and constraints, for whichever kind of problem the input holds."""
    problem, mapping = sections.one("problem"), sections.one("mapping")
    if problem is not None and _is_cascade(problem):
        from stitchloop.cascade.read import read_cascade

        return {"cascade": read_cascade({"problem": problem.value}, problem.place.file)}
    fused = (
        mapping is not None
        and isinstance(mapping.value, Mapping)
        and ("nodes" in mapping.value or mapping.value.get("type") == "fused")
    )
    if fused or (problem is not None and isinstance(problem.value, list | tuple)):
        return _fused_parts(problem, mapping if fused else None)
    if problem is None:
        return {}
    einsum, remarks = read_einsum(problem)
    warnings += remarks
    parts: dict[str, Any] = {"workload": Workload((einsum,))}
    if source is None:
        return parts
    reader = ConstraintReader(source, einsum, frontend_compatible)
    reader.read_nodes()
    node_constraints: Constraints = reader.constraints()
    if mapping is not None and mapping.value:
        parts["mapping"], remarks = read_mapping(mapping, source, einsum, node_constraints)
        warnings += remarks
    for name in CONSTRAINT_SECTIONS:
        for section in sections.all(name):
            reader.read_section(section)
    parts["constraints"] = reader.constraints()
    warnings += reader.warnings
    return parts


def _fused_parts(problem: Field | None, mapping: Field | None) -> dict[str, Any]:
    from stitchloop.read import looptree

    parts: dict[str, Any] = {}
    if problem is not None:
        parts["workload"] = looptree.read_workload(problem)
    if mapping is not None:
        parts["fused_mapping"] = looptree.read_fused_mapping(mapping, parts.get("workload"))
    return parts


def _is_cascade(problem: Field) -> bool:
    return isinstance(problem.value, Mapping) and not {"einsums", "ranks"}.isdisjoint(problem.value)


def _components(sections: _Sections) -> list[Field]:
    """The classes of compound components, flattened."""
    found: list[Field] = []
    for name in COMPONENT_SECTIONS:
        for section in sections.all(name):
            classes = section.get("classes") if isinstance(section.value, Mapping) else section
            for item in classes.items() if classes is not None else []:
                found += item.items() if isinstance(item.value, list | tuple) else [item]
    for component in found:
        component.need("name")
    return found


def _file_of(section: Field) -> Path | None:
    """The file that the architecture stands in; an included one rather than the file that includes it."""
    name = section.value.origin[0] if isinstance(section.value, YamlMap) else None
    path = Path(name) if name else None
    try:
        return path if path is not None and path.is_file() else None
    except (OSError, ValueError):
        return None


@dataclass
class _Sections:
    """The top-level sections of all inputs, by name."""

    fields: dict[str, list[Field]]

    def one(self, name: str) -> Field | None:
        found = self.fields.get(name)
        return found[0] if found else None

    def all(self, name: str) -> list[Field]:
        return self.fields.get(name, [])

    def give(self, names: Mapping[str, Any]) -> None:
        """Let the expressions of all sections use these variables."""
        for fields in self.fields.values():
            for field in fields:
                field.names = names

    def merged(self, name: str) -> Field | None:
        """Several mappings of one name as one; the first to give a key wins."""
        found = self.all(name)
        if len(found) < 2:
            return found[0] if found else None
        merged = YamlMap((found[0].place.file, None))
        for section in found:
            for key, entry in section.entries():
                if key not in merged:
                    merged[key] = entry.value
                    merged.lines[key] = (entry.place.file, entry.place.line)
        return Field(merged, file=found[0].file, key=name, parent=found[0].parent)


def _sections(inputs: Sequence[Input], variables: dict[str, str]) -> tuple[_Sections, list[str], list[str]]:
    """The sections of all inputs, the files that were read, and remarks on variables that nobody asked for."""
    if isinstance(inputs, str | Path | Source | Mapping):
        inputs = [inputs]
    sections = _Sections({})
    files: list[str] = []
    loader: Any = None
    for item in inputs:
        if isinstance(item, Mapping):
            _note(Field(item), sections)
            continue
        name, text = (item.name, item.text) if isinstance(item, Source) else (str(item), read_text(Path(item), str(item)))
        if not isinstance(item, Source):
            files.append(name)
        if is_template(text):
            from stitchloop.read.templates import Loader

            loader = loader or Loader(variables, [Path(other) for other in inputs if isinstance(other, str | Path)])
            document = loader.parse(text, None if isinstance(item, Source) else Path(item), name)
        else:
            document = parse(text, name)
        if document is None:
            raise InputError(name, "an empty file", "give at least one section, such as 'architecture' or 'problem'")
        _note(Field(document, file=name), sections)
    files += loader.files if loader is not None else []
    asked = loader.environment.names if loader is not None else set()
    remarks = [
        f"variable '{name}' changes nothing; {nearest(name, sorted(asked), 'the templates ask for')}"
        for name in variables
        if name not in asked
    ]
    return sections, list(dict.fromkeys(files)), remarks


def _check_version(section: Field) -> None:
    version = section.get("version") if isinstance(section.value, Mapping) and "einsums" not in section.value else None
    if version is not None and version.text() not in VERSIONS:
        version.fail(f"version {version.shown()} of '{section.key}'", "versions read are " + ", ".join(VERSIONS))


def _section_name(name: str) -> str:
    """The section that a key means: like Timeloop's front end, more constraints or components under longer names."""
    if name in SECTIONS:
        return {"arch": "architecture"}.get(name, name)
    return next((part for part in ("constraints", "components") if part in name), name)


def _note(document: Field, sections: _Sections) -> None:
    """File the sections of one document under their names."""
    if not isinstance(document.value, Mapping):
        mend = "give sections such as 'architecture:' and 'problem:' at the top"
        document.fail(f"{document.shown()} as a whole document", mend)
    for name, field in document.entries():
        if "ignore" in name:
            continue
        name = _section_name(name)
        if name not in SECTIONS:
            Field(None, key=name, parent=document).fail(f"unknown section '{name[:60]}'", nearest(name, SECTIONS, "sections are"))
        if field.value in ([], {}):
            continue  # an empty section is as good as none
        _check_version(field)
        kept = sections.fields.setdefault(name, [])
        if kept and name not in REPEATABLE:
            field.fail(f"a second section '{name}' (the first: {kept[0].place})", "give one of them")
        kept.append(field)
