"""Typed access to the values of an input document; every complaint names the file, the key path and the mend."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from stitchloop.errors import InputError, Place
from stitchloop.read.document import YamlList, YamlMap

LARGEST = 2**62
"""No size, count or factor may exceed this."""
FARTHEST = 1e50
"""Magnitudes of energies, bandwidths and the like: products of them and of counts stay far within double precision."""
LONGEST = 1000
"""Characters of a name."""


class Field:
    """A value of the input together with where it stands.

    Attributes
    ----------
    value : object
        Mapping, list, string, number, bool or None.
    key : str, int or None
        Key in ``parent``; None for a document.
    names : mapping
        Variables that expressions in it may use.
    """

    __slots__ = ("file", "key", "names", "parent", "value")

    def __init__(self, value: Any, *, file: str | None = None, key: str | int | None = None, parent: Field | None = None) -> None:
        self.value, self.file, self.key, self.parent = value, file, key, parent
        self.names: Mapping[str, Any] = parent.names if parent is not None else {}

    @property
    def place(self) -> Place:
        """File, key path and line."""
        path: list[str | int] = []
        node: Field = self
        while node.parent is not None:
            assert node.key is not None
            path.append(node.key)
            node = node.parent
        file, line = self._origin()
        return Place(file or node.file, tuple(reversed(path)), line)

    def _origin(self) -> tuple[str | None, int | None]:
        node: Field | None = self
        while node is not None:
            if node.parent is not None:
                holder = node.parent.value
                if isinstance(holder, YamlMap) and node.key in holder.lines:
                    return holder.lines[node.key]
                if isinstance(holder, YamlList) and isinstance(node.key, int) and node.key < len(holder.lines):
                    return holder.lines[node.key]
            node = node.parent
        return (None, None)

    def fail(self, found: str, mend: str = "") -> NoReturn:
        """Raise :class:`InputError` at this place."""
        raise InputError(self.place, found, mend)

    def shown(self, most: int = 60) -> str:
        """The value as it may stand in a sentence."""
        if isinstance(self.value, Mapping):
            return "a mapping"
        if isinstance(self.value, list | tuple):
            return f"a list of {len(self.value)}"
        if self.value is None:
            return "nothing"
        try:
            text = repr(self.value)
        except ValueError:
            text = "a huge number"
        return text if len(text) <= most else text[: most - 3] + "..."

    # Structure

    def get(self, key: str) -> Field | None:
        """The field under ``key``; None when there is none or it is null."""
        value = self.value.get(key) if isinstance(self.value, Mapping) else None
        return None if value is None else Field(value, key=key, parent=self)

    def first(self, *keys: str) -> Field | None:
        """The field under the first of several names that is given."""
        for key in keys:
            found = self.get(key)
            if found is not None:
                return found
        return None

    def need(self, key: str, mend: str = "") -> Field:
        """The field under ``key``; an error when it is missing."""
        self.mapping()
        found = self.get(key)
        if found is None:
            self.fail(f"no '{key}'", mend or f"add '{key}'")
        return found

    def mapping(self) -> Mapping[str, Any]:
        if not isinstance(self.value, Mapping):
            self.fail(f"{self.shown()} where a mapping is needed", "write 'key: value' pairs")
        return self.value

    def entries(self) -> Iterator[tuple[str, Field]]:
        """Keys and fields of a mapping, nulls left out."""
        for key, value in self.mapping().items():
            if value is not None:
                yield str(key), Field(value, key=key if isinstance(key, str | int) else str(key), parent=self)

    def items(self) -> list[Field]:
        """The items of a list."""
        if not isinstance(self.value, list | tuple):
            self.fail(f"{self.shown()} where a list is needed", "write '- item' lines or [a, b]")
        return [Field(value, key=index, parent=self) for index, value in enumerate(self.value)]

    def known(self, keys: Iterable[str]) -> None:
        """Refuse keys of a mapping that are not among ``keys``."""
        allowed = set(keys)
        for key in self.mapping():
            if key not in allowed:
                Field(None, key=str(key), parent=self).fail(f"unknown key '{_cut(str(key))}'", nearest(str(key), sorted(allowed)))

    # Scalars

    def text(self) -> str:
        """A string of at most ``LONGEST`` characters; a number is taken as its digits."""
        if isinstance(self.value, str):
            if len(self.value) > LONGEST:
                self.fail(f"{len(self.value)} characters where a word is needed", "write a word")
            if not "".join(self.value.split()).isprintable():
                self.fail(f"{self.shown()} where a word is needed", "write a word without control characters")
            return str(self.value)
        if isinstance(self.value, int | float) and not isinstance(self.value, bool) and abs(self.value) <= LARGEST:
            return str(self.value)
        self.fail(f"{self.shown()} where a word is needed", "write a word")

    def number(self, *, least: float | None = None, above: float | None = None, most: float | None = None) -> float:
        """A number of a size that can be calculated with; a string is evaluated as an arithmetic expression."""
        value = self._evaluated()
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(f"{self.shown()} where a number is needed", "write a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.fail(f"{self.shown()} where a finite number is needed", "write a finite number")
        if number and not 1 / FARTHEST <= abs(number) <= FARTHEST:
            self.fail(f"{self.shown()}", f"0 and magnitudes from {1 / FARTHEST:g} to {FARTHEST:g} are read")
        if least is not None and number < least:
            self.fail(f"{self.shown()}", f"at least {least:g} is needed")
        if above is not None and number <= above:
            self.fail(f"{self.shown()}", f"more than {above:g} is needed")
        if most is not None and number > most:
            self.fail(f"{self.shown()}", f"at most {most:g} is possible")
        return number

    def integer(self, *, least: int = 1, most: int = LARGEST) -> int:
        """An integer in a range; ``16.0`` is one, and a string is evaluated as an arithmetic expression."""
        value = self._evaluated()
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"{self.shown()} where an integer is needed", "write an integer")
        if value < least:
            self.fail(f"{self.shown()}", f"at least {least} is needed")
        if value > most:
            self.fail(f"{self.shown()}", f"at most {most} is possible")
        return value

    def boolean(self) -> bool:
        value = self._evaluated()
        if isinstance(value, bool):
            return value
        if value in (0, 1):
            return bool(value)
        self.fail(f"{self.shown()} where true or false is needed", "write true or false")

    def words(self) -> list[str]:
        """A list of words; one word, or several with commas or blanks between, will do."""
        if isinstance(self.value, str):
            return [word for word in self.value.replace(",", " ").split() if word]
        return [item.text() for item in self.items()]

    def _evaluated(self) -> Any:
        if isinstance(self.value, str):
            from stitchloop.read.expressions import evaluate_field

            return evaluate_field(self, self.names)
        return self.value


class PlacedField(Field):
    """A computed value that speaks for the place where it was written."""

    __slots__ = ("_written_at",)

    def __init__(self, value: Any, place: Place) -> None:
        super().__init__(value)
        self._written_at = place

    @property
    def place(self) -> Place:
        return self._written_at


def nearest(word: str, candidates: Iterable[str], what: str = "") -> str:
    """A mend for an unknown word: the nearest known one, or the list of all."""
    known = list(candidates)
    close = [name for name in known if name.lower() == word.lower()]
    close = close or difflib.get_close_matches(word[:80], known, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return (what or "what would do") + ": " + (", ".join(known) if known else "nothing")


def _cut(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
