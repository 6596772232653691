"""Jinja2 files with the helper functions of Timeloop's front end, in a language without unbounded work.

``include(path, keys)``, ``include_all(pattern, keys)``, ``include_text(path)``, ``add_to_path(folder)``, ``cwd()``,
``find_path(path)`` and ``path_exists(path)`` look beside the file that calls them, then in the added folders.

A template may read only files that are not hidden and lie, links resolved, in one of these folders or below: that of a
file named by the user (on the command line or as the value of a variable), the folder above it, the working folder when
it holds such a file, and the folders named by the environment variable ``STITCHLOOP_INCLUDE_PATH``.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from stitchloop.errors import InputError, Place
from stitchloop.read.document import INCLUDE_TAG, MAX_TEXT, YamlList, YamlMap, parse
from stitchloop.read.files import is_template, read_text, sentence
from stitchloop.read.sandbox import BoundedEnvironment, TemplateRefused

MAX_FILES = 2000
MAX_TOTAL = 4 * MAX_TEXT
MAX_INCLUDE_DEPTH = 30


class Loader:
    """Reads files, rendered and with everything they include.

    Parameters
    ----------
    variables : mapping of str to str
        Values for the templates.
    named : sequence of path
        Files that the user named; they say where includes may reach.
    """

    def __init__(self, variables: Mapping[str, Any], named: Sequence[Path]) -> None:
        self.variables = dict(variables)
        self.roots = _roots([*named, *(Path(value) for value in variables.values() if _names_file(value))])
        self.environment = BoundedEnvironment()
        self.open: list[Path] = []
        self.files: list[str] = []
        self.characters = 0

    def load(self, path: Path, shown: str, folders: Sequence[Path] = ()) -> Any:
        """The document of a file."""
        return self.parse(read_text(path, shown), path, shown, folders)

    def parse(self, text: str, path: Path | None, shown: str, folders: Sequence[Path] = ()) -> Any:
        """The document of a text that stands in ``path`` (None: in no file, so that it can include nothing beside it)."""
        if not is_template(text):
            return parse(text, shown)
        includes: list[Any] = []
        rendered = self._render(text, path, shown, list(folders), includes)
        return parse(rendered, shown, includes=includes, lines_known=rendered.count("\n") == text.rstrip("\n").count("\n"))

    def _render(self, text: str, path: Path | None, shown: str, folders: list[Path], includes: list[Any]) -> str:
        real = path.resolve() if path is not None else None
        if real is not None:
            if real in self.open:
                chain = " -> ".join(item.name for item in [*self.open[self.open.index(real) :], real])
                raise InputError(shown, f"files that include one another in a circle ({chain})", "break the circle")
            if len(self.open) >= MAX_INCLUDE_DEPTH:
                raise InputError(shown, f"includes nested more than {MAX_INCLUDE_DEPTH} deep", "flatten them")
            self.open.append(real)
        try:
            helpers = _Helpers(self, real, shown, folders, includes)
            template = self.environment.template(text)
            parts, size = [], 0
            for part in template.generate({**self.variables, **helpers.functions()}):
                size += len(part)
                if size > MAX_TEXT:
                    raise TemplateRefused(f"a template that writes more than {MAX_TEXT} characters")
                parts.append(part)
            return "".join(parts)
        except InputError:
            raise
        except jinja2.UndefinedError as error:
            found = f"a template variable without a value ({error.message})"
            raise InputError(shown, found, "give it with --set NAME=VALUE") from None
        except jinja2.TemplateSyntaxError as error:
            place = Place(shown, (), error.lineno)
            found = f"a template that cannot be read ({error.message})"
            raise InputError(place, found, "check '{{ }}' and '{% %}' there") from None
        except TemplateRefused as error:
            raise InputError(shown, str(error), "write the file without it") from None
        except RecursionError:
            raise InputError(shown, "a template nested too deep", "flatten it") from None
        except Exception as error:  # whatever a template's own expressions run into
            raise InputError(shown, f"a template that fails ({sentence(error)})", "mend the expression") from None
        finally:
            if real is not None:
                self.open.pop()

    def note(self, path: Path, shown: str, text: str) -> None:
        """Count an included file against the bounds."""
        self.files.append(str(path))
        self.characters += len(text)
        if len(self.files) > MAX_FILES or self.characters > MAX_TOTAL:
            raise InputError(shown, f"more than {MAX_FILES} included files or {MAX_TOTAL} characters", "include less")


class _Helpers:
    """The functions that one file's template may call."""

    def __init__(self, loader: Loader, path: Path | None, shown: str, folders: list[Path], includes: list[Any]) -> None:
        self.loader, self.path, self.shown, self.folders, self.includes = loader, path, shown, folders, includes

    def functions(self) -> dict[str, Any]:
        return {
            "include": self.include,
            "include_all": self.include_all,
            "include_text": self.include_text,
            "add_to_path": self.add_to_path,
            "cwd": self.cwd,
            "find_path": self.find_path,
            "path_exists": self.path_exists,
        }

    def include(self, path: str, keys: str = "") -> str:
        found = self._need(path)
        return self._refer(_index(self._load(found), keys, self.shown, path))

    def include_all(self, pattern: str, keys: str = "") -> str:
        joined = YamlList((self.shown, None))
        for path in self._search(pattern) or [self._need(pattern)]:
            value = _index(self._load(path), keys, self.shown, path.name)
            joined.extend(value if isinstance(value, list) else [value])
        return self._refer(joined)

    def include_text(self, path: str) -> str:
        found = self._need(path)
        text = read_text(found, str(found))
        self.loader.note(found, self.shown, text)
        if not is_template(text):
            return text
        return self.loader._render(text, found, str(found), list(self.folders), self.includes)

    def add_to_path(self, folder: str) -> str:
        for base in self._bases(folder):
            path = Path(os.path.normpath(base / folder))
            if path.is_dir() and self._is_allowed(path):
                self.folders.append(path)
                return ""
        raise TemplateRefused(f"add_to_path of '{folder}', which is no folder that templates may read")

    def cwd(self) -> str:
        if self.path is None:
            raise TemplateRefused("cwd() in a text that stands in no file")
        return str(self.path.parent)

    def find_path(self, path: str) -> str:
        return str(self._need(path))

    def path_exists(self, path: str) -> bool:
        return bool(self._search(path))

    def _load(self, path: Path) -> Any:
        shown = str(path)
        text = read_text(path, shown)
        self.loader.note(path, self.shown, text)
        return self.loader.parse(text, path, shown, self.folders)

    def _refer(self, value: Any) -> str:
        self.includes.append(value)
        return f"{INCLUDE_TAG} {len(self.includes) - 1}"

    def _bases(self, path: str) -> list[Path]:
        if os.path.isabs(path):
            return [Path("/")]
        return ([self.path.parent] if self.path is not None else []) + self.folders

    def _search(self, pattern: str) -> list[Path]:
        if not isinstance(pattern, str) or "\0" in pattern or "**" in pattern or len(pattern) > 4096:
            raise TemplateRefused("a path that is no path")
        found: list[Path] = []
        for base in self._bases(pattern):
            path = os.path.normpath(os.path.join(base, pattern))
            matches = sorted(glob.glob(path)) if glob.has_magic(pattern) else [path]
            for match in map(Path, matches):
                if self._is_allowed(match) and match.is_file() and match not in found:
                    found.append(match)
        return found

    def _need(self, path: str) -> Path:
        found = self._search(path)
        if found:
            return found[0]
        for base in self._bases(path):
            candidate = Path(os.path.normpath(os.path.join(base, path)))
            if not self._is_allowed(candidate):
                allowed = ", ".join(map(str, self.loader.roots)) or "none"
                mend = f"templates may read below {allowed}; name more folders in the variable STITCHLOOP_INCLUDE_PATH"
                raise InputError(self.shown, f"an include of '{path}', outside the folders that it may read", mend)
        looked = ", ".join(dict.fromkeys(map(str, self._bases(path)))) or "no folder"
        raise InputError(self.shown, f"an include of '{path}', which is no file", f"looked in {looked}")

    def _is_allowed(self, path: Path) -> bool:
        real = path.resolve()
        for root in self.loader.roots:
            if real.is_relative_to(root):
                return not any(part.startswith(".") for part in real.relative_to(root).parts)
        return False


def _index(value: Any, keys: str, shown: str, path: str) -> Any:
    for key in filter(None, str(keys).split(".")):
        if not isinstance(value, YamlMap) or key not in value:
            raise InputError(shown, f"'{keys}' asked of '{path}', which has no '{key}'", "name a key path of that file")
        value = value[key]
    return value


def _roots(named: Sequence[Path]) -> list[Path]:
    roots: list[Path] = []
    working = Path.cwd()
    for path in named:
        folder = path.resolve().parent
        candidates = [folder, folder.parent]
        if folder.is_relative_to(working):
            candidates.append(working)
        roots += [item for item in candidates if item not in roots and item != item.parent]
    extra = os.environ.get("STITCHLOOP_INCLUDE_PATH", "")
    return roots + [Path(item).resolve() for item in extra.split(os.pathsep) if item]


def _names_file(value: Any) -> bool:
    try:
        return isinstance(value, str) and os.path.isfile(value)
    except (OSError, ValueError):
        return False
