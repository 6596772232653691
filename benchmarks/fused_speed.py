"""Time, memory and mapspace of the fused search, each case in a process of its own, with the pruning cache warm and cold apart.

``seconds_warm``: one search in a running process (shape, rows from the shipped set or the cache, evaluation, proof).
``seconds_cold``: the same in a fresh process with pruning done anew. Published: 7.6e8 mappings in 3.5 s on eight cores for
GPT-3-6.7B at 2048 tokens, under 25 s at 128K tokens, time growing with the 0.4th power of the sequence length.

    python benchmarks/fused_speed.py [--json] [--case NAME]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from typing import Any

CASES = {
    "gpt3_6.7b_512": ((512, 128, 512, 128), True, "edp"),
    "gpt3_6.7b_2048": ((2048, 128, 2048, 128), True, "edp"),
    "gpt3_6.7b_8192": ((8192, 128, 8192, 128), True, "edp"),
    "gpt3_6.7b_32768": ((32768, 128, 32768, 128), True, "edp"),
    "gpt3_6.7b_131072": ((131072, 128, 131072, 128), True, "edp"),
    "gpt3_6.7b_2048_energy": ((2048, 128, 2048, 128), True, "energy"),
    "gpt3_6.7b_2048_latency": ((2048, 128, 2048, 128), True, "latency"),
    "gpt3_6.7b_2048_dram": ((2048, 128, 2048, 128), True, "dram"),
    "gpt3_6.7b_2048_imperfect": ((2048, 128, 2048, 128), False, "edp"),
    "gpt3_6.7b_2048_imperfect_energy": ((2048, 128, 2048, 128), False, "energy"),
    "gpt3_6.7b_2048_imperfect_dram": ((2048, 128, 2048, 128), False, "dram"),
    "gpt3_6.7b_131072_imperfect": ((131072, 128, 131072, 128), False, "edp"),
    "primes_1021_61": ((1021, 61, 1021, 61), False, "latency"),
}
"""Sizes I, K, L, J; perfect factors only; objective."""

REPEATS = 5


def measure(name: str) -> dict[str, Any]:
    """Run one case in this process."""
    import resource

    sizes, perfect, objective = CASES[name]
    from dram_tables import gemm_pair

    from stitchloop.fused.evaluate import Evaluator
    from stitchloop.fused.machine import Machine, Port
    from stitchloop.fused.map import map_shape
    from stitchloop.fused.options import FusedOptions
    from stitchloop.fused.pair import shape_of
    from stitchloop.fused.prune import prune
    from stitchloop.fused.select import best

    machine = Machine(1 << 19, 32, 32, 4, Port(shared=30), 128, 128, 16.56, 18.4, 3.275, 3.275)
    options = FusedOptions((objective,), perfect=perfect, unfused=False)
    start = time.perf_counter()
    shape = shape_of(gemm_pair(*sizes))
    best(Evaluator(shape, machine, options, prune(shape.structure).rows), options.order)
    cold = time.perf_counter() - start
    map_shape(shape, machine, options)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = map_shape(shape_of(gemm_pair(*sizes)), machine, options)
        times.append(time.perf_counter() - start)
    return {
        "seconds_cold": cold,
        "seconds_warm": min(times),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "mapspace_size": result.certificate.mapspace_size,
        "optimal": result.certificate.optimal,
        "cycles": result.best.figures.cycles,
        "cycles_over_compute_bound": result.best.figures.cycles * machine.units / sum(shape.operations(e) for e in (0, 1)),
    }


def growth_exponent(found: dict[str, dict[str, Any]]) -> float:
    """Slope of log time over log sequence length (least squares)."""
    points = [
        (math.log(CASES[name][0][0]), math.log(row["seconds_warm"]))
        for name, row in found.items()
        if name.removeprefix("gpt3_6.7b_").isdigit()
    ]
    if len(points) < 2:
        return math.nan
    x, y = (sum(values) / len(points) for values in zip(*points))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--here", choices=list(CASES), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(measure(arguments.here)))
        return
    found = {}
    for name in arguments.case or CASES:
        run = subprocess.run([sys.executable, __file__, "--here", name], capture_output=True, text=True, check=True)
        found[name] = json.loads(run.stdout)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'case':<34}{'cold s':>9}{'warm s':>9}{'MB':>7}{'mapspace':>11}  optimal  cycles/bound")
    for name, row in found.items():
        print(
            f"{name:<34}{row['seconds_cold']:9.3f}{row['seconds_warm']:9.4f}{row['peak_mb']:7.0f}{row['mapspace_size']:11.2e}"
            f"  {row['optimal']!s:<7}  {row['cycles_over_compute_bound']:.4f}"
        )
    print(f"growth of warm time with sequence length: power {growth_exponent(found):.2f} (published 0.4)")
    print("published at 2048 tokens: 3.5 s for 7.6e8 mappings on eight cores; at 128K tokens under 25 s")


if __name__ == "__main__":
    main()
