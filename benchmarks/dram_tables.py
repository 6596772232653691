"""Least DRAM traffic of fused pairs against buffer size, with and without recomputation, over all divisor tilings.

Figures are multiples of the compulsory traffic (every tensor that leaves or enters the chip, once). Published: recomputation
lowers the traffic of GPT-3-6.7B attention by 1.20 to 1.31.

    python benchmarks/dram_tables.py [--json] [--imperfect]
"""

from __future__ import annotations

import argparse
import json
import time

from stitchloop.fused.cache import pruned_rows
from stitchloop.fused.evaluate import Evaluator
from stitchloop.fused.machine import Machine
from stitchloop.fused.options import OBJECTIVES, FusedOptions
from stitchloop.fused.pair import shape_of
from stitchloop.fused.select import best
from stitchloop.fused.shape import Shape
from stitchloop.workload import Einsum, Tensor, Term, Workload

WORKLOADS = {
    "GPT-3-6.7B": ((2048, 128, 2048, 128), range(13, 21)),
    "BERT-Base": ((512, 64, 512, 64), range(13, 19)),
    "BERT-4096": ((4096, 64, 4096, 64), range(13, 21)),
    "PaLM-62B": ((2048, 256, 2048, 256), range(13, 22)),
    "MLP": ((768, 64, 384, 64), range(13, 17)),
}
"""Sizes I, K, L, J of the pair S = AB, E = SD, and binary logarithms of the capacities in words."""


def gemm_pair(i: int, k: int, l: int, j: int) -> Workload:  # noqa: E741
    """S[i,l] = A[i,k] B[k,l]; E[i,j] = S[i,l] D[l,j]."""

    def tensor(name: str, ranks: str, is_output: bool = False) -> Tensor:
        return Tensor(name, tuple((Term(rank),) for rank in ranks.split()), is_output)

    producer = (tensor("A", "I1 K1"), tensor("B", "K1 L1"), tensor("S", "I1 L1", True))
    consumer = (tensor("S", "I2 L2"), tensor("D", "L2 J2"), tensor("E", "I2 J2", True))
    return Workload(
        (Einsum("Producer", ("I1", "K1", "L1"), (i, k, l), producer), Einsum("Consumer", ("I2", "L2", "J2"), (i, l, j), consumer))
    )


def least_traffic(shape: Shape, capacity: int, recompute: bool, perfect: bool = True) -> int:
    """Words over the DRAM interface for one head."""
    rows = [row for row in pruned_rows(shape.structure).rows if recompute or not row.recomputes]
    options = FusedOptions(("dram",), perfect=perfect)
    found, _ = best(Evaluator(shape, Machine(capacity, 1, 1), options, rows), options.order)
    return round(found.screened[OBJECTIVES.index("dram")])


def tables(perfect: bool = True) -> dict[str, dict[str, dict[str, float]]]:
    """For each workload and capacity the traffic without and with recomputation, over the compulsory traffic."""
    out: dict[str, dict[str, dict[str, float]]] = {}
    for name, (sizes, exponents) in WORKLOADS.items():
        shape = shape_of(gemm_pair(*sizes))
        out[name] = {}
        for exponent in exponents:
            values = [least_traffic(shape, 1 << exponent, flag, perfect) / shape.compulsory for flag in (False, True)]
            out[name][str(1 << exponent)] = {"without_recomputation": values[0], "with_recomputation": values[1]}
    return out


def megabytes_of_one_gpt3_head() -> dict[str, float]:
    """DRAM traffic of one GPT-3-6.7B head, 8-bit words, 64 KB, with perfect and imperfect tile sizes (AccelForge: 8.91 and
    5.77)."""
    shape = shape_of(gemm_pair(2048, 128, 2048, 128))
    return {kind: least_traffic(shape, 1 << 16, True, kind == "perfect") / 1e6 for kind in ("perfect", "imperfect")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--imperfect", action="store_true", help="tile sizes that need not divide the rank sizes")
    arguments = parser.parse_args()
    start = time.perf_counter()
    found = tables(not arguments.imperfect)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for name, rows in found.items():
        print(f"\n{name} {WORKLOADS[name][0]}\n{'words':>10} {'without':>9} {'with':>9} {'gain':>7}")
        for words, row in rows.items():
            without, with_ = row["without_recomputation"], row["with_recomputation"]
            print(f"{words:>10} {without:9.3f} {with_:9.3f} {without / with_:7.3f}")
    print(f"\nall tables in {time.perf_counter() - start:.2f} s; published gain of recomputation for GPT-3-6.7B: 1.20 to 1.31")
    for kind, value in megabytes_of_one_gpt3_head().items():
        print(f"GPT-3-6.7B, one head, 8-bit words, 64 KB, {kind} tile sizes: {value:.2f} MB")


if __name__ == "__main__":
    main()
