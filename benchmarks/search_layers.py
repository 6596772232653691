"""Layers x designs x objectives: seconds, proof, and mappings certified per second against Timeloop's rate.

    python benchmarks/search_layers.py [--examples DIR] [--designs NAME...] [--every N] [--threads N] [--repeat]

Layers come from Timeloop's public exercises (``layer_shapes/``, beside the designs); every distinct one is mapped. Timeloop
tries about 25,000 mappings a second on one such core; the last column is the ratio of the certified rate to that.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace
from pathlib import Path

from stitchloop.read import load_spec
from stitchloop.search import map_einsum
from stitchloop.spec import Spec

TIMELOOP_RATE = 25_000
OBJECTIVES = ("energy", "delay", "edp")
NETWORKS = ("resnet18", "mobilenet_v3", "vgg16", "vision_transformer")
HERE = Path(__file__).resolve().parents[1]


def designs(examples: Path, names: list[str]) -> dict[str, Spec]:
    """Example designs as transpiled and as written, and the NVDLA-like architecture that we ship."""
    found = {}
    for name in ("simple_weight_stationary", "eyeriss_like"):
        recorded = examples / name / "recorded"
        ert = recorded / "timeloop-mapper.ERT.yaml"
        found[f"{name}/transpiled"] = load_spec([recorded / "parsed-processed-input.yaml", ert])
        found[f"{name}/written"] = load_spec([examples / "top.yaml.jinja2", ert], {"architecture": name})
    arch = HERE / "arch" / "nvdla_like"
    found["nvdla_like"] = load_spec([arch if arch.exists() else HERE / "arch" / "nvdla_like.yaml"])
    return {name: spec for name, spec in found.items() if not names or name in names}


def layers(examples: Path) -> dict[str, Spec]:
    """Every distinct layer of the networks, by the name of its first file."""
    found: dict[str, Spec] = {}
    seen = set()
    for network in NETWORKS:
        for path in sorted((examples / "layer_shapes" / network).glob("*.yaml")):
            spec = load_spec([path])
            assert spec.workload is not None
            if spec.workload.einsums not in seen:
                seen.add(spec.workload.einsums)
                found[f"{network}/{path.stem}"] = spec
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=Path, default=HERE.parent / "shared" / "reference" / "timeloop-examples")
    parser.add_argument("--designs", nargs="*", default=[])
    parser.add_argument("--every", type=int, default=1, help="map every Nth layer only")
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    chosen = list(layers(arguments.examples).items())[:: arguments.every]
    heads = f"{'design':34} {'layer':22} {'objective':9} {'seconds':>8} {'cpu':>7} {'optimal':>7}"
    print(f"{heads} {'value':>12} {'mappings/s':>11} {'ratio':>9}")
    slowest: dict[str, float] = {}
    for name, design in designs(arguments.examples, arguments.designs).items():
        map_einsum(replace(design, workload=chosen[0][1].workload))
        for layer, spec in chosen:
            for objective in OBJECTIVES:
                case = replace(design, workload=spec.workload, options=replace(design.options, metrics=(objective,)))
                start, cpu = time.perf_counter(), time.process_time()
                result = map_einsum(case, threads=arguments.threads)
                seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
                slowest[name] = max(slowest.get(name, 0.0), seconds)
                rate = result.certificate.mapspace_size / seconds
                print(
                    f"{name:34} {layer:22} {objective:9} {seconds:8.3f} {cpu:7.3f} {result.certificate.optimal!s:>7} "
                    f"{result.values[0]:12.6g} {rate:11.3g} {rate / TIMELOOP_RATE:9.3g}",
                    flush=True,
                )
    for name, seconds in slowest.items():
        print(f"slowest on {name}: {seconds:.3f} s")
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
