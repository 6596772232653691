"""Each published claim about fused mapping beside what is measured here, with a line on why the two differ.

The claims are those of "Fast Cross-Operator Optimization of Attention Dataflow" (arXiv 2604.03446). Its energy table and the
details of its two accelerators are not known: Accel. 1 is taken as arch/nvdla_like (four arrays of 32 x 32), Accel. 2 as
arch/tpu_like (four arrays of 128 x 128), with energies of their ERTs. TileFlow is stood for by its template with tile sizes
that are optimal for it, which is better than what a genetic search finds.

    python benchmarks/fused_published.py [--json]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from dram_tables import gemm_pair, tables

from stitchloop.content import content_root
from stitchloop.fused.machine import Machine, machine_of
from stitchloop.fused.map import map_shape
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.pair import shape_of
from stitchloop.fused.result import FusedResult
from stitchloop.fused.shape import Shape
from stitchloop.read import load_spec

ROOT = content_root()


@dataclass(frozen=True)
class Claim:
    """A published figure, ours, and why they differ."""

    what: str
    published: str
    ours: str
    remark: str = ""


@cache
def accelerator(number: int) -> Machine:
    """Accel. 1 or 2."""
    name = {1: "nvdla_like", 2: "tpu_like"}[number]
    architecture = load_spec([ROOT / "arch" / f"{name}.yaml"]).architecture
    assert architecture is not None
    return machine_of(architecture)


@cache
def problem(name: str) -> Shape:
    """A shipped problem."""
    workload = load_spec([ROOT / "problems" / f"{name}.yaml"]).workload
    assert workload is not None
    return shape_of(workload)


def best(shape: Shape, machine: Machine, objective: str, ablation: str = "full", **switches: bool) -> FusedResult:
    """The optimum over one mapspace, perfect factors."""
    options = FusedOptions((objective,), perfect=True, softmax="overlapped", ablation=ablation, unfused=False)
    return map_shape(shape, machine, replace(options, **switches))


def recomputation() -> Claim:
    rows = tables()["GPT-3-6.7B"].values()
    gains = [row["without_recomputation"] / row["with_recomputation"] for row in rows]
    helped = [gain for gain in gains if gain > 1]
    return Claim("recomputation lowers GPT-3-6.7B DRAM traffic", "1.20 to 1.31 x", f"{min(helped):.2f} to {max(helped):.2f} x")


def buffer_management() -> Claim:
    """Geometric mean over capacities around the published accelerators."""
    shape, ratios = shape_of(gemm_pair(2048, 128, 2048, 128)), []
    for exponent in range(16, 21):
        machine = replace(accelerator(1), capacity=1 << exponent)
        found = [best(shape, machine, "energy", name).value for name in ("ordering", "buffer")]
        ratios.append(found[0] / found[1])
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return Claim(
        "buffer management alone, energy of GPT-3-6.7B attention",
        "1.14 x",
        f"{mean:.2f} x ({min(ratios):.2f} to {max(ratios):.2f} from 64 K to 1 M words)",
        "the published mean is over workloads and accelerators whose energies are not known",
    )


def against_tileflow(number: int, energy: str, latency: str) -> list[Claim]:
    machine = accelerator(number)
    small = replace(machine, capacity=1 << 14)
    shape = problem("attention/bert_base")
    claims = []
    for objective, published in (("energy", energy), ("latency", latency)):
        ours, theirs = (best(shape, machine, objective, name).value for name in ("full", "tileflow"))
        ours_small, theirs_small = (best(shape, small, objective, name).value for name in ("full", "tileflow"))
        claims.append(
            Claim(
                f"{objective} against TileFlow, BERT-Base, Accel. {number}",
                published,
                f"{ours / theirs - 1:+.1%} ({ours_small / theirs_small - 1:+.1%} with 16 K words of buffer)",
                "its template gets its own optimum here, so only what it cannot express is left; a whole head fits this buffer",
            )
        )
    return claims


def energy_efficiency(name: str, published: str) -> Claim:
    shape, machine = problem(name), accelerator(1)
    fused = map_shape(shape, machine, FusedOptions(("energy",), perfect=True))
    fixed = best(shape, machine, "energy", "tileflow").value
    apart = fused.unfused.energy / fused.value if fused.unfused else math.nan
    return Claim(
        f"energy efficiency, {name}",
        published,
        f"{fixed / fused.value:.2f} x against the TileFlow template, {apart:.2f} x against unfused",
        "energy table and accelerator of the publication are not known",
    )


def reconfigurable() -> Claim:
    ratios = []
    for name in ("attention/bert_base", "attention/gpt3_6_7b", "mlp/768_64_384_64", "mlp/mixer_b16_tokens"):
        machine = accelerator(2)
        fixed, free = (best(problem(name), machine, "edp", reconfigurable=flag).value for flag in (False, True))
        ratios.append(fixed / free)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return Claim(
        "reconfigurable arrays, EDP",
        "1.8 x",
        f"{mean:.2f} x ({min(ratios):.2f} to {max(ratios):.2f}, Accel. 2)",
        "free stationarity already fills a fixed array here, so reshaping gains only where a rank is narrower than the array",
    )


def front_of_palm() -> Claim:
    shape = shape_of(gemm_pair(2048, 256, 2048, 256))
    machine = replace(accelerator(1), capacity=1 << 21)
    options = FusedOptions(perfect=True, pareto=("buffer", "dram"), unfused=False)
    front = map_shape(shape, machine, options).pareto
    window = [p for p in front if 1 << 16 <= p.figures.buffer_demand <= 1 << 20]
    shares = [
        sum(any(f != 1 for f in p.figures.recompute_factor.values()) for p in points) / len(points) for points in (front, window)
    ]
    return Claim(
        "PaLM-62B: Pareto points that recompute",
        "two thirds",
        f"{shares[0]:.0%} of the whole (buffer, DRAM) front, {shares[1]:.0%} of it from 64 K to 1 M words",
        "the published front's axes and range are not known",
    )


def speed() -> Claim:
    shape = problem("attention/gpt3_6_7b")
    options = FusedOptions(perfect=True, unfused=False)
    map_shape(shape, accelerator(1), options)
    start = time.perf_counter()
    result = map_shape(shape, accelerator(1), options)
    seconds = time.perf_counter() - start
    return Claim(
        "mappings proved, and time, GPT-3-6.7B attention at 2048 tokens",
        "7.6e8 in 3.5 s on 8 cores (Orojenesis: 7.2e6 in 1200 s)",
        f"{result.certificate.mapspace_size:.2g} in {seconds:.3f} s on one core",
        "bounds spare the evaluation of nearly all of them",
    )


def claims() -> list[Claim]:
    """All of them, in the order of the publication's summary."""
    parts: list[Callable[[], Claim]] = [speed, recomputation, buffer_management]
    found = [part() for part in parts]
    found += against_tileflow(1, "-50 %", "-69 %") + against_tileflow(2, "-48 %", "-40 %")
    found += [
        energy_efficiency("conv_chain/112_64_192_128_3x3_3x3", "2.34 x"),
        energy_efficiency("conv_chain/112_64_192_128_1x1_1x1", "2.34 x"),
        energy_efficiency("mlp/768_64_384_64", "1.93 x"),
    ]
    return [*found, reconfigurable(), front_of_palm()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    found = claims()
    if parser.parse_args().json:
        print(json.dumps([vars(claim) for claim in found], indent=2))
        return
    for claim in found:
        print(f"{claim.what}\n  published: {claim.published}\n  ours:      {claim.ours}")
        if claim.remark:
            print(f"  remark:    {claim.remark}")


if __name__ == "__main__":
    main()
