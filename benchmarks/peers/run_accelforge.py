"""Runs in AccelForge's environment: maps a workload, or evaluates a given mapping, with its public Python interface.

Job: ``arch``, ``workload`` (paths, or names of its examples), ``variables``, ``metric``, ``imperfect``, ``warm`` (further runs in
the same process), ``mapping`` (text; evaluate it instead of mapping). Energies are answered in pJ, traffic in bits.
"""

import json
import pathlib
import sys
import time

START = time.perf_counter()
import accelforge  # noqa: E402
from accelforge.mapper import Metrics  # noqa: E402
from accelforge.mapper.FFM.mappings import Mappings  # noqa: E402

IMPORTED = time.perf_counter()


def no_picture(self, *arguments, **options):
    """The mapper writes a picture of every mapping, for which Graphviz would have to be installed; it is left out."""
    return ""


def path_of(kind, name):
    return name if "/" in name else getattr(getattr(accelforge.examples, kind), name)


def specification(job):
    paths = [path_of("arches", job["arch"]), path_of("workloads", job["workload"])]
    if job.get("mapping"):
        pathlib.Path("mapping.yaml").write_text(job["mapping"])
        paths.append("mapping.yaml")
    spec = accelforge.Spec.from_yaml(*paths, jinja_parse_data=job["variables"])
    spec.mapper.metrics = getattr(Metrics, job["metric"])
    if job.get("imperfect"):
        spec.mapper.explore_imperfect_spatial_loops = True
        spec.mapper.explore_imperfect_temporal_loops = True
    return spec


def solve(job):
    spec = specification(job)
    return spec.evaluate_mapping() if job.get("mapping") else spec.map_workload_to_arch(print_progress=False)


def nest(node, depth=0):
    lines = []
    for child in node.nodes:
        if hasattr(child, "nodes"):
            lines += ["  " * depth + type(child).__name__, *nest(child, depth + 1)]
        elif "reserved for" not in str(child):
            lines.append("  " * depth + str(child))
    return lines


def figures(found):
    actions = found.actions(per_component=True, per_tensor=True)
    return {
        "mappings": len(found),
        "energy_pJ": {name: 1e12 * float(value) for name, value in found.energy(per_component=True).items()},
        "seconds": {name: float(value) for name, value in found.latency(per_component=True).items()},
        "latency_s": float(found.latency()),
        "bits": {"/".join(map(str, key)): float(value) for key, value in actions.items()},
        "nest": nest(found.mapping()) if len(found) == 1 else [],
    }


def main():
    job = json.loads(sys.argv[1])
    Mappings.render = no_picture
    before = time.perf_counter()
    found = solve(job)
    times = [time.perf_counter() - before]
    for _ in range(job.get("warm", 0)):
        before = time.perf_counter()
        solve(job)
        times.append(time.perf_counter() - before)
    answer = {"import_s": IMPORTED - START, "cold_s": times[0], "warm_s": times[1:], **figures(found)}
    pathlib.Path(sys.argv[2]).write_text(json.dumps(answer))


main()
