"""Runs every case of a file and collects the results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from stitchloop.errors import InputError
from stitchloop.validate.cases import is_fused, read_cases
from stitchloop.validate.result import CaseResult
from stitchloop.write.files import write_files

Engine = Literal["reference", "timeloop"]
Convention = Literal["tool", "clean"]


def run_cases(
    path: Path, *, engine: Engine = "reference", convention: Convention = "tool", advance: Callable[[], None] = lambda: None
) -> list[CaseResult]:
    """Run every case of ``path``.

    Parameters
    ----------
    engine
        ``reference`` compares with the figures in the file, ``timeloop`` with what an installed Timeloop gives now.
    convention
        ``tool`` counts as the reference tool counts, artefacts included; ``clean`` without them.
    advance
        Called after each case.

    Raises
    ------
    InputError
        When the file or a case cannot be read, or the engine is not installed.
    """
    results = list(_results(read_cases(path), path, engine, convention, advance))
    if not results:
        raise InputError(path, "no case in this file", "give one JSON object a line")
    return results


def _results(
    cases: Iterable[dict[str, Any]], path: Path, engine: Engine, convention: Convention, advance: Callable[[], None]
) -> Iterator[CaseResult]:
    from stitchloop.validate.single import SingleCases

    single = SingleCases(path, convention)
    if engine == "timeloop":
        from stitchloop.validate.timeloop import Timeloop

        timeloop = Timeloop.find()
    for case in cases:
        if is_fused(case):
            if engine == "timeloop":
                raise InputError(path, f"case {case['id']} is fused", "timeloop-model evaluates single Einsums only")
            yield _fused(case, path, convention)
        elif engine == "timeloop":
            yield single.run(case, timeloop.evaluate(single.read(case)))
        else:
            yield single.run(case)
        advance()


def _fused(case: dict[str, Any], path: Path, convention: Convention) -> CaseResult:
    from stitchloop.validate.fused import run_fused_case

    return run_fused_case(case, "looptree" if convention == "tool" else "sound", str(path))


def write_dump(results: Sequence[CaseResult], path: Path) -> None:
    """One line per case: ``{"id": ..., "got": {...}}``."""
    lines = (json.dumps({"id": result.id, "got": result.got}) + "\n" for result in results)
    write_files(path.parent, {path.name: "".join(lines)})
