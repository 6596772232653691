"""The layers of a network: where their files are, what they hold, and which are identical."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stitchloop.errors import InputError, StitchloopError

if TYPE_CHECKING:
    from stitchloop.read import Input
    from stitchloop.spec import Spec

SUFFIXES = (".yaml", ".yml", ".j2", ".jinja", ".jinja2")

TABLES = ("layers.csv", "layers.parquet", "network.json")
"""Files of a whole network, beside the layers' folders."""

WITHOUT_EFFECT = frozenset({"num_threads", "live_status", "diagnostics", "memory_limit_mb", "ignored"})
"""Options that change no result, so that a run may be resumed with others."""


@dataclass(frozen=True)
class Layer:
    """One layer: its name (a folder's), its file, and what was read from it or why it could not be."""

    name: str
    path: Path
    spec: Spec | None = None
    key: str = ""
    """Equal for layers with the same problem (whatever its name), architecture, constraints and options."""
    error: str | None = None


def find_layers(place: Path) -> list[Path]:
    """The problem files of a folder (YAML, sorted by name, hidden ones aside), or those that a text or YAML list names.

    Paths in a list are relative to its folder; in a text list, one stands on a line, and ``#`` starts a remark.

    Raises
    ------
    InputError
        The folder or list does not exist, is empty, or names a file that does not exist.
    """
    if place.is_dir():
        found = sorted(path for path in place.iterdir() if path.suffix in SUFFIXES and _may_be_layer(path))
        if not found:
            raise InputError(str(place), "a folder without YAML files", "name a folder with one problem file per layer")
        return found
    try:
        text = place.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise InputError(str(place), f"cannot be read ({reason})", "name a folder of problem files, or a list of them") from None
    names = _listed(text, place)
    found = [place.parent / name for name in names]
    for path in found:
        if not path.is_file():
            raise InputError(str(place), f"names {path}, which does not exist", "correct the path; it is relative to the list")
    if not found:
        raise InputError(str(place), "an empty list", "name one problem file on a line")
    return found


def _may_be_layer(path: Path) -> bool:
    """Folders, pipes and hidden files are none; a broken link is one, so that its row says what is wrong."""
    return not path.name.startswith(".") and (path.is_file() or not path.exists())


def _listed(text: str, place: Path) -> list[str]:
    if place.suffix in SUFFIXES:
        from stitchloop.read.document import parse

        document = parse(text, str(place))
        if isinstance(document, list) and all(isinstance(name, str) for name in document):
            return list(document)
        if isinstance(document, Mapping) and "problem" in document:
            return [place.name]
        raise InputError(str(place), "neither a list of problem files nor a problem", "list one path per entry")
    lines = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def layer_names(paths: Sequence[Path]) -> list[str]:
    """A folder name for each file: its stem, with its folder's name before it, and a number after it, where stems repeat."""
    stems = [_stem(path) for path in paths]
    names: list[str] = []
    for path, stem in zip(paths, stems, strict=True):
        name = stem if stems.count(stem) == 1 else f"{_safe(path.resolve().parent.name)}_{stem}"
        number = 2
        unique = name
        while unique in names or unique in TABLES:
            unique, number = f"{name}_{number}", number + 1
        names.append(unique)
    return names


def _stem(path: Path) -> str:
    name = path.name
    for suffix in reversed(path.suffixes):
        if suffix in SUFFIXES:
            name = name.removesuffix(suffix)
    return _safe(name)


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "layer"


def read_layers(
    paths: Sequence[Path], shared: Sequence[Input], variables: Mapping[str, str] | None, frontend_compatible: bool
) -> Iterator[Layer]:
    """Each file read together with the shared inputs; a layer that cannot be read carries the error."""
    from stitchloop.read import load_spec

    own_problem = load_spec(shared, variables, frontend_compatible=frontend_compatible).workload is not None
    for name, path in zip(layer_names(paths), paths, strict=True):
        try:
            if own_problem:
                spec = _in_place_of_problem(path, shared, variables or {}, frontend_compatible)
            else:
                spec = load_spec([*shared, path], variables, frontend_compatible=frontend_compatible)
            if spec.workload is None:
                raise InputError(str(path), "a layer without a problem", "give a section problem")
            yield Layer(name, path, spec, layer_key(spec))
        except StitchloopError as error:
            yield Layer(name, path, error=str(error))


def _in_place_of_problem(path: Path, shared: Sequence[Input], variables: Mapping[str, str], frontend_compatible: bool) -> Spec:
    """Read shared inputs that hold a problem: the template variable ``problem`` has to name the layer's file in its place."""
    from stitchloop.read import load_spec

    spec = load_spec(shared, {**variables, "problem": str(path.resolve())}, frontend_compatible=frontend_compatible)
    if spec.workload != load_spec([path], variables, frontend_compatible=frontend_compatible).workload:
        raise InputError(
            str(path), "the shared inputs hold a problem of their own, which the layer cannot replace",
            "leave it out there, or include it as a template by the variable `problem`",
        )  # fmt: skip
    return spec


def layer_key(spec: Spec) -> str:
    """A digest of everything that a layer's result depends on; names of the problem and the order of ranks do not count."""
    import hashlib
    import json

    assert spec.workload is not None
    einsums = [
        {
            "sizes": sorted(einsum.sizes.items()),
            "tensors": sorted((_plain(replace(tensor, rank_names=())) for tensor in einsum.tensors), key=str),
        }
        for einsum in spec.workload.einsums
    ]
    options = {name: value for name, value in _plain(spec.options).items() if name not in WITHOUT_EFFECT}
    document = [einsums, _plain(spec.architecture), _plain(spec.constraints), options]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _plain(thing: Any) -> Any:
    """A typed object as JSON: compared fields only, sets sorted, so that equal objects give equal texts in any process."""
    if is_dataclass(thing) and not isinstance(thing, type):
        return {f.name: _plain(getattr(thing, f.name)) for f in fields(thing) if f.compare}
    if isinstance(thing, Mapping):
        return {str(key): _plain(value) for key, value in sorted(thing.items(), key=lambda entry: str(entry[0]))}
    if isinstance(thing, set | frozenset):
        return sorted(_plain(item) for item in thing)
    if isinstance(thing, list | tuple):
        return [_plain(item) for item in thing]
    return thing if thing is None or isinstance(thing, bool | int | float | str) else str(thing)
