"""Mappings per second and core of the matrix evaluator, beside the reference model and Timeloop's recorded rate.

A mapping is one distinct pair of a template and a tiling of a GEMM's mapspace (energy, cycles and validity of each), on one
thread. Timeloop's mapper tried about 25,000 mappings a second on one such core, on tiny problems.

    python benchmarks/matrix_rate.py [--arch arch/nvdla_like.yaml] [--size 512 512 512] [--seconds 10] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from itertools import islice
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402

from stitchloop.errors import InvalidMapping  # noqa: E402
from stitchloop.mapspace import Mapspace, build_mapspace  # noqa: E402
from stitchloop.model import Evaluator  # noqa: E402
from stitchloop.read import load_spec  # noqa: E402
from stitchloop.search.columns import templates, tilings  # noqa: E402
from stitchloop.search.matrix import MatrixEvaluator  # noqa: E402
from stitchloop.workload import Einsum, Tensor, Term  # noqa: E402

TIMELOOP = 25_000
"""Mappings a second that timeloop-mapper (NVlabs/timeloop 4cf6d4c) tried on one core."""


def gemm(m: int, n: int, k: int) -> Einsum:
    """Z[m, n] = A[m, k] * B[k, n]."""

    def tensor(name: str, ranks: str, is_output: bool = False) -> Tensor:
        return Tensor(name, tuple((Term(rank),) for rank in ranks), is_output)

    return Einsum("gemm", ("M", "N", "K"), (m, n, k), (tensor("A", "MK"), tensor("B", "KN"), tensor("Z", "MN", True)))


def matrix_rate(mapspace: Mapspace, seconds: float, columns: int) -> dict[str, float]:
    """Screen patterns with many tilings until the time is up; compiling templates and listing tilings are timed apart."""
    screened = prepared = 0.0
    mappings = valid = 0
    known: dict[object, MatrixEvaluator] = {}
    source = tilings(mapspace, columns)
    while screened < seconds:
        start = time.perf_counter()
        found = next(((p, t) for p, t in source if t.shape[1] >= columns // 2), None)
        if found is None:
            break
        pattern, table = found
        if pattern not in known:
            known = {pattern: MatrixEvaluator(mapspace, templates(mapspace, pattern))}
        ready = time.perf_counter()
        figures = known[pattern].screen(table)
        screened += time.perf_counter() - ready
        prepared += ready - start
        mappings += figures.valid.size
        valid += int(np.count_nonzero(figures.valid))
    return {"mappings": mappings, "valid": valid, "screen_seconds": screened, "prepare_seconds": prepared}


def model_rate(mapspace: Mapspace, seconds: float) -> float:
    """Valid mappings a second through the reference model."""
    model, done, spent = Evaluator(mapspace.einsum, mapspace.architecture), 0, 0.0
    for mapping in islice(mapspace.sample_mappings(seed=1), 200_000):
        start = time.perf_counter()
        try:
            model.evaluate(mapping)
        except InvalidMapping:
            continue
        spent += time.perf_counter() - start
        done += 1
        if spent > seconds:
            break
    return done / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", type=Path, default=Path(__file__).parents[1] / "arch" / "nvdla_like.yaml")
    parser.add_argument("--size", type=int, nargs=3, default=(512, 512, 512), metavar=("M", "N", "K"))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--columns", type=int, default=2048, help="tilings at a time")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    spec = load_spec([given.arch])
    assert spec.architecture is not None
    mapspace = build_mapspace(gemm(*given.size), spec.architecture, spec.constraints)
    result = matrix_rate(mapspace, given.seconds, given.columns)
    rate = result["mappings"] / result["screen_seconds"]
    overall = result["mappings"] / (result["screen_seconds"] + result["prepare_seconds"])
    model = model_rate(mapspace, min(2.0, given.seconds))
    report = {
        **result, "mapspace_size": mapspace.size, "matrix_per_second": rate, "with_preparation_per_second": overall,
        "model_per_second": model, "ratio_to_timeloop": rate / TIMELOOP, "ratio_to_model": rate / model,
    }  # fmt: skip
    if given.json:
        print(json.dumps(report))
        return
    size = " x ".join(map(str, given.size))
    print(f"GEMM {size} on {spec.architecture.name}: {mapspace.size:.3g} mappings in the mapspace, one thread")
    print(f"matrix evaluator      {rate:14,.0f} mappings/s ({result['mappings']:,} in {result['screen_seconds']:.2f} s)")
    print(f"  with its preparation{overall:14,.0f} mappings/s")
    print(f"reference model       {model:14,.0f} mappings/s   ratio {rate / model:10,.0f}")
    print(f"Timeloop, as recorded {TIMELOOP:14,.0f} mappings/s   ratio {rate / TIMELOOP:10,.0f}")


if __name__ == "__main__":
    main()
