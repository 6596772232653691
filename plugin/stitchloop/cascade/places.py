"""Where each key of a document stands, so that errors name the line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stitchloop.errors import InputError, Place
from stitchloop.read.document import Origin, YamlList, YamlMap

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Places:
    """File and line of each key of one document. ``prefix`` is where the paths given to :meth:`error` begin."""

    file: str | None = None
    origins: Mapping[KeyPath, Origin] = field(default_factory=dict)
    prefix: KeyPath = ()

    @classmethod
    def of_document(cls, document: Any, file: str | None = None) -> Places:
        """Origins of a document from :func:`stitchloop.read.document.parse`; mappings of Python know only their ``file``."""
        return cls(file, dict(_origins(document, ())))

    def below(self, key: str | int) -> Places:
        return replace(self, prefix=(*self.prefix, key))

    def error(self, path: KeyPath, found: str, mend: str) -> InputError:
        """The error for a key path, at the line of the nearest key that is known."""
        full = (*self.prefix, *path)
        known = next((self.origins[full[:n]] for n in range(len(full), 0, -1) if full[:n] in self.origins), (None, None))
        return InputError(Place(known[0] or self.file, full, known[1]), found, mend)


def _origins(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Origin]]:
    if isinstance(value, Mapping):
        lines = value.lines if isinstance(value, YamlMap) else {}
        for key, below in value.items():
            if key in lines:
                yield (*path, key), lines[key]
            yield from _origins(below, (*path, key))
    elif isinstance(value, YamlList):
        for position, below in enumerate(value):
            if position < len(value.lines):
                yield (*path, position), value.lines[position]
            yield from _origins(below, (*path, position))
