"""Reads files of reference cases: JSON lines, plain or gzipped."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, TextIO

from stitchloop.errors import InputError, Place
from stitchloop.read.fields import Field


def read_cases(path: Path) -> Iterator[dict[str, Any]]:
    """The cases of ``path``, one JSON object a line; blank lines are skipped.

    Raises
    ------
    InputError
        With the line, when the file cannot be read, a line is no JSON object, or ``id``, ``problem``, ``mapping`` or
        ``expected`` is missing.
    """
    try:
        with _open(path) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _case(line, Place(str(path), (), number))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(path, f"cannot be read: {reason}", "give a .jsonl or .jsonl.gz file of reference cases") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _finite(text: str) -> float:
    return float(text) if isfinite(float(text)) else _refuse(text)


def _open(path: Path) -> TextIO:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _case(line: str, place: Place) -> dict[str, Any]:
    try:
        case = json.loads(line, parse_constant=_refuse, parse_float=_finite)
        if "\\ud" in line.lower():
            json.dumps(case, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise InputError(place, f"no JSON: {error}", "write one JSON object a line") from None
    if not isinstance(case, dict):
        raise InputError(place, f"{Field(case).shown()} where an object is needed", "write one JSON object a line")
    for key in ("id", "problem", "mapping", "expected"):
        if key not in case:
            raise InputError(place, f"the case has no `{key}`", "a case has id, problem, mapping and expected")
    if not isinstance(case["expected"], dict):
        raise InputError(place, "`expected` is no object", "give the reference's figures by name")
    return case


def is_fused(case: dict[str, Any]) -> bool:
    """Whether the case's mapping is a LoopTree tree."""
    return isinstance(case["mapping"], dict) and case["mapping"].get("type") == "fused"
