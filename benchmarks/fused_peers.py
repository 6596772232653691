"""Fused mapping of one attention head beside another exact fused mapper, AccelForge, in the same run.

Same pair, same machine (DRAM and one buffer, DRAM energy only, so that its objective is DRAM traffic), whole processes with
imports, peak memory of each. AccelForge (PyPI, MIT) is installed into an environment of the benchmark's own, of Python 3.12
or later, in the folder given with --environment (made when missing).

    python benchmarks/fused_peers.py [--json] [--case NAME] --environment DIR [--python /path/to/python3.12]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CASES = {
    "bert_base_64KB": ((512, 64, 512, 64), 1 << 16),
    "gpt3_6.7b_64KB": ((2048, 128, 2048, 128), 1 << 16),
    "gpt3_6.7b_256KB": ((2048, 128, 2048, 128), 1 << 18),
}
"""Sizes I, K, L, J and words of buffer; words of 8 bits."""

OURS = """
import json, sys, time, resource
start = time.perf_counter()
sys.path.insert(0, {folder!r})
from dram_tables import gemm_pair
from stitchloop.fused.machine import Machine
from stitchloop.fused.map import map_shape
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.pair import shape_of
def run():
    start = time.perf_counter()
    options = FusedOptions(("dram",), perfect={perfect}, unfused=False)
    result = map_shape(shape_of(gemm_pair(*{sizes})), Machine({words}, 1, 1), options)
    return result.best.figures.dram, time.perf_counter() - start
words, first = run()
again = min(run()[1] for _ in range(3))
print(json.dumps({{"dram_bytes": words, "seconds_search": first, "seconds_warm": again}}))
"""

THEIRS = """
import json, sys, time
import accelforge as af
from accelforge.frontend.spec import Spec
from accelforge.mapper import Metrics
from accelforge.mapper.FFM.mappings import Mappings
Mappings.render = lambda self, **_: ""  # spare it the picture, which needs graphviz
def run():
    spec = Spec.from_yaml({arch!r}, {workload!r})
    spec.mapper.metrics = Metrics.ENERGY
    start = time.perf_counter()
    result = spec.map_workload_to_arch(print_progress=False)
    return float(result.energy()) / 8, time.perf_counter() - start
bytes_, first = run()
again = run()[1]
print(json.dumps({{"dram_bytes": bytes_, "seconds_search": first, "seconds_warm": again}}))
"""

ARCHITECTURE = """
arch:
  nodes:
  - !Memory
    name: MainMemory
    size: inf
    leak_power: 0
    area: 0
    tensors: {{keep: ~Intermediates, may_keep: All}}
    actions:
    - {{name: read, energy: 1, throughput: inf}}
    - {{name: write, energy: 1, throughput: inf}}
  - !Memory
    name: GlobalBuffer
    size: {bits}
    leak_power: 0
    area: 0
    tensors: {{keep: All}}
    actions:
    - {{name: read, energy: 0, throughput: inf}}
    - {{name: write, energy: 0, throughput: inf}}
  - !Compute
    name: MAC
    leak_power: 0
    area: 0
    actions:
    - {{name: compute, energy: 0, throughput: 1}}
"""

WORKLOAD = """
workload:
  rank_sizes: {{I: {0}, K: {1}, L: {2}, J: {3}}}
  bits_per_value: {{All: 8}}
  einsums:
  - name: Scores
    tensor_accesses:
    - {{name: Q, projection: [i, k]}}
    - {{name: KT, projection: [k, l]}}
    - {{name: S, projection: [i, l], output: True}}
    renames: {{input: Q, weight: KT}}
  - name: Output
    tensor_accesses:
    - {{name: S, projection: [i, l]}}
    - {{name: V, projection: [l, j]}}
    - {{name: O, projection: [i, j], output: True}}
    renames: {{input: S, weight: V}}
"""


def environment(folder: Path, python: str) -> Path:
    """The interpreter of the peer's environment, made on first use."""
    interpreter = folder / "bin" / "python"
    if not interpreter.exists():
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(interpreter), "-m", "pip", "install", "-q", "accelforge"], check=True)
    return interpreter


def process(interpreter: str, program: str, folder: Path) -> dict[str, Any]:
    """Run a program in a process of its own: what it prints, its whole time, and its peak memory."""
    start = time.perf_counter()
    child = subprocess.Popen([interpreter, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    assert child.stdout is not None
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"a peer failed with status {status}: {child.stderr.read()[-2000:] if child.stderr else ''}")
    found = json.loads(output.strip().splitlines()[-1])
    repeats = found["seconds_warm"] * (3 if "dram_tables" in program else 1)
    return {**found, "seconds_process": time.perf_counter() - start - repeats, "peak_mb": usage.ru_maxrss / 1024}


def compare(name: str, peer: Path, scratch: Path) -> dict[str, Any]:
    """One case: ours with perfect and imperfect factors, and AccelForge."""
    sizes, words = CASES[name]
    arch, workload = scratch / "peer_arch.yaml", scratch / "peer_workload.yaml"
    arch.write_text(ARCHITECTURE.format(bits=words * 8))
    workload.write_text(WORKLOAD.format(*sizes))
    folder = str(Path(__file__).parent)
    found = {
        f"ours_{kind}": process(
            sys.executable, OURS.format(folder=folder, sizes=sizes, words=words, perfect=kind == "perfect"), scratch
        )
        for kind in ("perfect", "imperfect")
    }
    found["accelforge"] = process(str(peer), THEIRS.format(arch=str(arch), workload=str(workload)), scratch)
    ours, theirs = found["ours_perfect"], found["accelforge"]
    found["ratios"] = {
        "process_time": theirs["seconds_process"] / ours["seconds_process"],
        "warm_time": theirs["seconds_warm"] / ours["seconds_warm"],
        "dram": theirs["dram_bytes"] / ours["dram_bytes"],
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--environment", type=Path, required=True, help="folder of the peer's virtual environment")
    parser.add_argument("--python", default="python3.12", help="interpreter to make it with")
    arguments = parser.parse_args()
    peer = environment(arguments.environment, arguments.python)
    found = {name: compare(name, peer, arguments.environment) for name in arguments.case or CASES}
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'case':<18}{'mapper':<16}{'process s':>10}{'search s':>10}{'warm s':>9}{'peak MB':>9}{'DRAM MB':>9}")
    for name, rows in found.items():
        for mapper, row in rows.items():
            if mapper != "ratios":
                times = f"{row['seconds_process']:10.2f}{row['seconds_search']:10.3f}{row['seconds_warm']:9.4f}"
                print(f"{name:<18}{mapper:<16}{times}{row['peak_mb']:9.0f}{row['dram_bytes'] / 1e6:9.3f}")
        r = rows["ratios"]
        print(f"  AccelForge over ours: process {r['process_time']:.1f}, warm {r['warm_time']:.0f}, DRAM traffic {r['dram']:.2f}")


if __name__ == "__main__":
    main()
