"""The errors that users see. Each carries its parts as data; the sentence is made from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any


class StitchloopError(Exception):
    """Base of every error that is meant for users. ``exit_status`` is what the command line returns."""

    exit_status = 2


@dataclass(frozen=True)
class Place:
    """Where in the user's input something stands: file, key path, and the line when it is known."""

    file: str | None = None
    path: tuple[str | int, ...] = ()
    line: int | None = None

    def __str__(self) -> str:
        file = self.file or "<input>"
        at_line = f":{self.line}" if self.line is not None else ""
        keys = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.path).lstrip(".")
        return f"{file}{at_line}" + (f": {keys}" if keys else "")


class InputError(StitchloopError):
    """Bad input: where it stands, what was found, and what would do.

    Parameters
    ----------
    place : Place, path or str
        File and key path of the fault.
    found : str
        What stands there, as a clause: ``'factor 3 of rank M'``.
    mend : str
        What would do instead.
    """

    exit_status = 2

    def __init__(self, place: Place | Path | str | None, found: str, mend: str = "") -> None:
        if place is None:
            place = Place()
        elif not isinstance(place, Place):
            place = Place(str(place))
        self.place, self.found, self.mend = place, found, mend
        super().__init__(f"{place}: {found}" + (f"; {mend}" if mend else ""))

    def within(self, files: Iterable[str]) -> InputError:
        """The same of ``files``, where it names none."""
        place = self.place if self.place.file else replace(self.place, file=", ".join(files) or None)
        return InputError(place, self.found, self.mend)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.place, self.found, self.mend)


class InvalidMapping(StitchloopError):
    """A mapping that the hardware or the workload forbids.

    ``message`` is Timeloop's own wording where Timeloop has one, so that scripts that look for it still find it.
    """

    exit_status = 1

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        level: str | None = None,
        size: float | None = None,
        limit: float | None = None,
    ) -> None:
        self.message, self.kind, self.level, self.size, self.limit = message, kind, level, size, limit
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        given: dict[str, Any] = {"kind": self.kind, "level": self.level, "size": self.size, "limit": self.limit}
        return partial(type(self), **given), (self.message,)


@dataclass(frozen=True)
class Obstacle:
    """One reason why no mapping is valid: what forbids it, by how much, and the smallest relaxation that would do."""

    kind: str
    level: str | None
    needed: float | None
    limit: float | None
    sentence: str
    relaxation: str = ""


class NoMapping(StitchloopError):
    """The mapspace holds no valid mapping. ``obstacles`` says why, the nearest miss first."""

    exit_status = 1

    def __init__(self, sentence: str, obstacles: tuple[Obstacle, ...] = ()) -> None:
        self.obstacles = obstacles
        told = [o for o in obstacles if o.sentence not in sentence]
        reasons = [o.sentence + (f"; {o.relaxation}" if o.relaxation else "") for o in told]
        super().__init__("\n  - ".join([sentence + (":" if reasons else ""), *reasons]))
