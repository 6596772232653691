"""One Einsum side by side with AccelForge: GEMMs on its TPU v4i, and sizes that do not divide.

AccelForge is an exact mapper from the package registry. Every mapping of ours is also evaluated by its model, so energies and
latencies in one table come from one count. Both mappers prove their optimum in the mapspace of that architecture: weights rest
in the arrays, K and N lie over their rows and columns. Ours may split M alone over the four local buffers and keeps the weights
in the global buffer (see ``peers/tpu_v4i.yaml``); the peer may split any rank and bypass that buffer.

On the NVDLA-like architecture the peer keeps weights in the arrays, ours chooses; only cycles are compared there, against the
larger of two bounds: 4096 MACs a cycle, and every tensor once through DRAM.

    python benchmarks/peers_gemm.py [--repeats 3] [--long] [--python PYTHON3.12] [--json FILE]
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from peers.environment import ACCELFORGE
from peers.problems import gemm
from peers.process import Measured, fastest
from peers.report import TIMES, arguments, attempt, interpreter, load, save, time_line, time_ratio, verdict

HERE = Path(__file__).parent / "peers"
NVDLA = Path(__file__).parents[1] / "arch" / "nvdla_like.yaml"
SIZES = ((128, 128, 128), (512, 512, 512), (1024, 256, 768))
"""M, N, K."""
PRIME = (1021, 1021, 61)
OBJECTIVES = {"energy": "ENERGY", "delay": "LATENCY"}
NAMES = {
    "ranks": {"M": "m", "N": "n", "K": "k"},
    "tensors": {"A": "A", "B": "B", "Z": "Z"},
    "levels": {name: name for name in ("MainMemory", "GlobalBuffer", "LocalBuffer", "Register")},
    "spatial": {
        "inter_Z_spatial": ("LocalBuffer", "Z", "Z"),
        "inter_PE_spatial": ("ProcessingElement", "reuse_input", "reuse_output"),
    },
    "einsum": "Gemm",
    "compute": "MAC",
}
"""Ours to AccelForge's, for its TPU v4i."""
FASTER = 20
BOUND_LIMIT, BOUND_SECONDS, BOUND_MB = 1.05, 5.0, 1024


def ours(arch: Path, size: tuple[int, int, int], objective: str, imperfect: bool, repeats: int, **more: Any) -> Measured:
    inputs = [str(arch), gemm(*size, objective, imperfect)]
    job = {"inputs": inputs, "variables": {}, "objective": objective, "imperfect": imperfect, "fused": False, "warm": 3, **more}
    return fastest(sys.executable, "run_stitchloop.py", job, repeats)


def peer_job(arch: str, size: tuple[int, int, int], bits: int, objective: str, **more: Any) -> dict[str, Any]:
    variables = {"M": size[0], "N": size[1], "K": size[2], "BITS": bits, **more.pop("variables", {})}
    workload = str(HERE / "gemm.accelforge.yaml")
    return {"arch": arch, "workload": workload, "variables": variables, "metric": OBJECTIVES[objective], **more}


def energy_nj(run: Measured) -> float:
    return sum(run.answer["energy_pJ"].values()) / 1e3


def tpu(size: tuple[int, int, int], objective: str, python: Path | None, given: Namespace) -> dict[str, Any]:
    """One GEMM on AccelForge's TPU v4i."""
    print(f"\nGEMM {' x '.join(map(str, size))} (M, N, K) on TPU v4i, least {objective}")
    mine = ours(HERE / "tpu_v4i.yaml", size, objective, False, given.repeats, names=NAMES)
    print(TIMES)
    print(time_line("Stitchloop", mine))
    peer = attempt(python, "run_accelforge.py", peer_job("tpu_v4i", size, 8, objective, warm=1))
    ours_there = attempt(python, "run_accelforge.py", peer_job("tpu_v4i", size, 8, objective, mapping=mine.answer["mapping"]))
    if peer is None or ours_there is None:
        return {"ours": mine.answer}
    print(time_line("AccelForge", peer))
    print(time_ratio("times faster", mine, peer))
    print(f"{'under the model of AccelForge':<40}{'energy nJ':>16}{'latency ns':>12}")
    for name, run in (("Stitchloop's mapping", ours_there), ("AccelForge's mapping", peer)):
        print(f"{name:<40}{energy_nj(run):16.3f}{run.answer['latency_s'] * 1e9:12.2f}")
    energy = energy_nj(ours_there) / energy_nj(peer)
    latency = ours_there.answer["latency_s"] / peer.answer["latency_s"]
    print(f"{'ratio ours / AccelForge':<40}{energy:16.4f}{latency:12.4f}")
    verdict(f"whole process at least {FASTER} times faster (wall)", peer.whole_s >= FASTER * mine.whole_s)
    verdict(f"in process at least {FASTER} times faster", peer.warm_s >= FASTER * mine.warm_s)
    verdict(f"{objective} no worse under the peer's model", (energy if objective == "energy" else latency) <= 1 + 1e-6)
    return {
        "ours": mine.answer, "ours_whole_s": mine.whole_s, "ours_peak_mb": mine.peak_mb, "peer": peer.answer,
        "peer_whole_s": peer.whole_s, "peer_peak_mb": peer.peak_mb, "ours_under_peer_model": ours_there.answer,
    }  # fmt: skip


def prime(python: Path | None, given: Namespace) -> dict[str, Any]:
    """Sizes that do not divide: cycles over the compute bound."""
    m, n, k = PRIME
    print(f"\nGEMM {m} x {k} x {n} (M, K, N) on the NVDLA-like architecture, imperfect factors, least delay")
    compute, dram = m * n * k / 4096, (m * k + k * n + m * n) / 30
    bound = max(compute, dram)
    print(f"compute bound {compute:.0f} cycles; each tensor once through DRAM at 30 words a cycle: {dram:.0f}; the larger counts")
    mine = ours(NVDLA, PRIME, "delay", True, given.repeats)
    print(TIMES + f"{'cycles / bound':>16}")
    print(time_line("Stitchloop, imperfect", mine) + f"{mine.answer['cycles'] / bound:16.4f}")
    found: dict[str, Any] = {"ours": mine.answer, "ours_whole_s": mine.whole_s, "ours_peak_mb": mine.peak_mb}
    runs = [("AccelForge, default", False)] + ([("AccelForge, imperfect", True)] if given.long else [])
    variables = {"CAPACITY": 8 * 2**20, "SPLIT": "", "FILL": 0}
    for name, imperfect in runs:
        job = peer_job(str(HERE / "nvdla_like.accelforge.yaml"), PRIME, 16, "delay", variables=variables, imperfect=imperfect)
        peer = attempt(python, "run_accelforge.py", job)
        if peer is not None:
            print(time_line(name, peer) + f"{peer.answer['latency_s'] * 1e9 / bound:16.4f}")
            print(time_ratio("times faster", mine, peer))
            found[name] = {**peer.answer, "whole_s": peer.whole_s, "peak_mb": peer.peak_mb}
    verdict(f"within {BOUND_LIMIT - 1:.0%} of the bound", mine.answer["cycles"] <= BOUND_LIMIT * bound)
    verdict(f"whole process under {BOUND_SECONDS:.0f} s and 1 GiB", mine.whole_s < BOUND_SECONDS and mine.peak_mb < BOUND_MB)
    return found


def main() -> None:
    given = arguments(__doc__.splitlines()[0])
    print(load())
    python = interpreter(ACCELFORGE, given)
    found: dict[str, Any] = {}
    for size in SIZES:
        for objective in OBJECTIVES:
            found[f"{'x'.join(map(str, size))} {objective}"] = tpu(size, objective, python, given)
    found["prime"] = prime(python, given)
    save(given, found)


if __name__ == "__main__":
    main()
