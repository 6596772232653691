"""Runs in our environment: maps one Einsum or a fused pair from files, as a script of a user would.

Job: ``inputs``, ``variables``, ``objective``, ``imperfect``, ``capacity`` (fused: words of buffer), ``fused``, ``warm``,
``front`` (also the Pareto front of DRAM traffic, latency and energy, after all that is timed).
"""

import json
import pathlib
import sys
import time

START = time.perf_counter()
from stitchloop.read import load_spec  # noqa: E402

job = json.loads(sys.argv[1])
if job["fused"]:
    from stitchloop.fused.map import map_fused
    from stitchloop.fused.options import FusedOptions
else:
    from stitchloop.search import map_einsum
IMPORTED = time.perf_counter()


def solve(front=()):  # type: ignore[no-untyped-def]
    spec = load_spec(job["inputs"], job["variables"])
    if not job["fused"]:
        return map_einsum(spec)
    more = {"perfect": not job["imperfect"], "unfused": False, "capacity": job.get("capacity"), "pareto": front}
    more["arrays"] = job.get("arrays", "split")
    return map_fused(spec, FusedOptions((job["objective"],), **more))


def fused_figures(found):  # type: ignore[no-untyped-def]
    f, m = found.best.figures, found.machine
    array_reads = sum(sum(op.array_reads.values()) + op.array_rereads for op in f.ops)
    return {
        "cycles": f.cycles, "energy_pJ": f.energy, "dram_words": f.dram, "buffer_words": f.buffer_demand,
        "buffer_reads": array_reads + sum(f.dram_writes.values()),
        "buffer_writes": sum(op.array_writes for op in f.ops) + sum(f.dram_reads.values()),
        "operations": f.operations, "units": m.units,
        "ideal": sum(found.shape.operations(e) for e in range(len(f.ops))) / m.units, "nest": found.nest.splitlines(),
    }  # fmt: skip


def single_figures(found):  # type: ignore[no-untyped-def]
    from peers.nest import accelforge_mapping

    spec = load_spec(job["inputs"], job["variables"])
    s = found.stats
    outermost = list(s.levels.values())[-1]
    return {
        "cycles": s.cycles, "energy_pJ": s.energy_pJ, "computes": s.computes,
        "dram_words": sum(t.reads + t.updates for t in outermost.tensors.values()),
        "mapping": accelforge_mapping(spec, found.mapping, job["names"]) if "names" in job else "",
    }  # fmt: skip


def main() -> None:
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
    before = time.perf_counter()
    found = solve()
    times = [time.perf_counter() - before]
    for _ in range(job.get("warm", 0)):
        before = time.perf_counter()
        solve()
        times.append(time.perf_counter() - before)
    ended = {"import_s": IMPORTED - START, "cold_s": times[0], "warm_s": times[1:]}
    c = found.certificate
    ended |= {"optimal": c.optimal, "mapspace_size": c.mapspace_size}
    ended |= fused_figures(found) if job["fused"] else single_figures(found)
    if job.get("front"):
        ended["front"] = [p.values(("dram", "latency", "energy")) for p in solve(("dram", "latency", "energy")).pareto]
    pathlib.Path(sys.argv[2]).write_text(json.dumps(ended))


main()
