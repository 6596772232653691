"""Milliseconds of the reference model for one mapping, and how many times faster than Timeloop's model that is.

Run: python benchmarks/reference_model.py
With ``timeloop-model`` on PATH the same mappings are timed there; else its rate as measured before stands in (0.2 s a mapping
as a process on one core).
"""

from __future__ import annotations

import statistics
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from stitchloop.architecture import Architecture
from stitchloop.errors import InputError, InvalidMapping
from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.model import Evaluator
from stitchloop.validate.cases import read_cases
from stitchloop.validate.single import Inputs, SingleCases
from stitchloop.validate.timeloop import Timeloop
from stitchloop.workload import Einsum

CASES = Path(__file__).parents[1] / "tests" / "data" / "single"
MEASURED_BEFORE = 0.2


def seconds(einsum: Einsum, architecture: Architecture, mapping: Mapping, repeats: int = 5) -> float:
    """Least time of one evaluation, valid or not."""
    evaluator = Evaluator(einsum, architecture)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        with suppress(InvalidMapping):
            evaluator.evaluate(mapping)
        best = min(best, time.perf_counter() - start)
    return best


def timeloop_seconds(inputs: list[Inputs]) -> tuple[float, str]:
    """Mean time of ``timeloop-model`` over a few mappings, and where the figure comes from."""
    try:
        timeloop = Timeloop.find()
    except InputError:
        return MEASURED_BEFORE, "measured before"
    start = time.perf_counter()
    for each in inputs:
        timeloop.evaluate(each)
    return (time.perf_counter() - start) / len(inputs), "measured now"


def imperfect(gemm: Inputs) -> Inputs:
    """A GEMM of 1021 x 61 x 1021 on the same machine: 32 x 32 elements, partial tiles at every level."""
    einsum = replace(gemm.einsum, rank_sizes=(1021, 1021, 61))
    everything = frozenset(tensor.name for tensor in einsum.tensors)
    rows = [LevelMapping() for _ in gemm.architecture.levels]
    rows[0] = LevelMapping((Loop("K", 4, 1),), keep=everything)
    rows[1] = LevelMapping((), (Loop("M", 32, 29),), (Loop("N", 32, 29),))
    rows[-2] = LevelMapping((Loop("K", 2, 2), Loop("N", 4)), keep=everything)
    rows[-1] = LevelMapping((Loop("N", 8), Loop("K", 8), Loop("M", 32)), keep=everything)
    return Inputs(einsum, gemm.architecture, Mapping(tuple(rows)))


def main() -> None:
    groups: dict[str, list[Inputs]] = {}
    for file in ("cases.jsonl.gz", "fuzz.jsonl.gz"):
        reader = SingleCases(CASES / file)
        for case in read_cases(CASES / file):
            name = str(case.get("arch", "random architectures")).removesuffix(".yaml")
            groups.setdefault(name, []).append(reader.read(case))
    gemm = next(each for each in groups["nvdla_like"] if each.einsum.ranks == ("M", "N", "K"))
    groups["nvdla_like, 1021 x 61 x 1021 imperfect"] = [imperfect(gemm)]
    baseline, source = timeloop_seconds(groups["flat16x16"][:10])
    table = Table("architecture", "PEs", "mappings", "median ms", "largest ms", "times faster")
    table.caption = f"than timeloop-model, {baseline:.3g} s a mapping ({source})"
    for name, inputs in groups.items():
        taken = [seconds(*each) for each in inputs]
        median = statistics.median(taken)
        most = max(each.architecture.compute.instances for each in inputs)
        table.add_row(
            name, str(most), str(len(taken)), f"{median * 1e3:.2f}", f"{max(taken) * 1e3:.2f}", f"{baseline / median:.0f}"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
