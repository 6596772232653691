"""Reference cases of fused mappings: one LoopTree tree, evaluated by the reference model of fused mappings."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from stitchloop.fused.reference import Convention, FusedStats, evaluate_fused
from stitchloop.read.fields import Field
from stitchloop.read.looptree import read_fused_mapping, read_workload
from stitchloop.validate.result import CaseResult, Difference, compare


def run_fused_case(case: Mapping[str, Any], convention: Convention = "looptree", file: str = "<input>") -> CaseResult:
    """Evaluate a case and compare with LoopTree's figures.

    LoopTree reads a buffer's capacity at one sample point. Where the blocks of a buffer differ in size, a recorded capacity
    below our maximum is accepted; everywhere else it has to be equal.

    Parameters
    ----------
    case : mapping
        ``id``, ``problem``, ``mapping`` and ``expected`` with ``capacity``, ``reads``, ``writes`` and ``ops``.
    convention : {'looptree', 'sound'}
    file : str
        Where the case stands, for messages.

    Raises
    ------
    InputError
        When the case cannot be read.
    """
    document = Field({"problem": case["problem"], "mapping": case["mapping"]}, file=f"{file}: case {case['id']}")
    workload = read_workload(document.need("problem"))
    mapping = read_fused_mapping(document.need("mapping"), workload)
    start = time.perf_counter()
    stats = evaluate_fused(workload, mapping, convention, compare=False)
    seconds = time.perf_counter() - start
    got, expected = figures(stats), case["expected"]
    differences, compared = compare(expected, got)
    return CaseResult(
        id=str(case["id"]),
        kind="fused",
        got=got,
        differences=tuple(_unexplained(differences, stats)),
        figures=compared,
        points=_points(expected, got),
        seconds=seconds,
    )


def figures(stats: FusedStats) -> dict[str, dict[str, int]]:
    """The figures of an evaluation under the keys of ``expected``."""
    document = stats.as_json()
    return {
        "capacity": document["capacity"],
        "reads": document["reads"],
        "writes": document["writes"],
        "ops": document["operations"],
    }


def _unexplained(differences: Iterable[Difference], stats: FusedStats) -> Iterable[Difference]:
    for difference in differences:
        quantity, _, key = difference.figure.partition(".")
        is_sampled = quantity == "capacity" and int(key) in stats.capacity_varies
        if not (is_sampled and difference.ours is not None and difference.reference <= difference.ours):
            yield difference


def _points(expected: Mapping[str, Any], got: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Totals that the summary correlates: words moved, operations, and what the buffers need."""
    points = {}
    for quantity in ("reads", "writes", "ops"):
        if expected.get(quantity):
            points[quantity] = (float(sum(got[quantity].values())), float(sum(expected[quantity].values())))
    return points
