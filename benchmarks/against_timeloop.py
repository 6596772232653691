"""Our mapper against Timeloop's on the same architecture, constraints and problems, for users who have Timeloop installed.

``timeloop-mapper`` gets the same mapspace in the one-file form that it reads, and is stopped after the wall-clock time that
our search took (at least ``--least`` seconds, for it has to start up), and after ``--factor`` times that (at most ``--most``).
All figures are those of ``timeloop-model`` for the mappings found, where it is on PATH, else of our equal model. Ratios above
1 say how many times worse Timeloop's mapping is; its search is random, so they vary. Of its algorithms ``random`` did best in
such runs, and is the default here.

    python benchmarks/against_timeloop.py FILES... [--layers FILES...] [--objective edp] [--algorithm random] [--factor 100]

``FILES`` are Timeloop's input files (architecture, constraints, tables, variables; a problem, unless there are layers), or
names of the shipped content, such as ``nvdla_like problems/resnet18/02_conv2``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from stitchloop.constraints import LevelConstraints, LoopConstraint
from stitchloop.content import resolve
from stitchloop.errors import InputError, StitchloopError
from stitchloop.layers import read_layers
from stitchloop.mapping import Mapping
from stitchloop.model import evaluate
from stitchloop.read import load_spec, require_energy
from stitchloop.read.options import parse_metrics
from stitchloop.search import map_einsum
from stitchloop.spec import Spec
from stitchloop.validate.single import Inputs
from stitchloop.validate.timeloop import PROGRAM, Timeloop, inputs_document
from stitchloop.workload import Einsum

MAPPER = "timeloop-mapper"
NEVER = 2**32 - 1
"""Invalid mappings in a row after which Timeloop gives up: its largest number."""
GRACE = 60.0
"""Seconds that the mapper has to write its files after the signal to stop."""


class Found(NamedTuple):
    """What one search found: the objective's value under the common model, and the seconds that it took."""

    value: float | None
    seconds: float


class Row(NamedTuple):
    layer: str
    objective: str
    ours: Found
    optimal: str
    """``yes``; ``yes*`` where that is proved under a count without some of Timeloop's artefacts; ``no``."""
    equal_time: Found
    longer: Found


def main() -> int:
    """Run the comparison; exit status 1 when ours is worse anywhere, 2 for bad input or without Timeloop."""
    options = arguments()
    mapper = shutil.which(MAPPER)
    if mapper is None:
        print(f"{MAPPER} is not on PATH: install Timeloop (https://timeloop.csail.mit.edu) to compare with it", file=sys.stderr)
        return 2
    try:
        rows = list(compare_all(options, mapper))
    except StitchloopError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    if options.json:
        print(json.dumps([row._asdict() for row in rows]))
    summarise(rows)
    return int(any(ratio(row.ours, row.longer) < 1 - 1e-6 for row in rows if row.longer.value is not None))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="Timeloop's input files, or names of shipped content")
    parser.add_argument("--layers", nargs="*", type=Path, default=[], help="one problem file each, instead of a problem in FILES")
    parser.add_argument("--objective", nargs="*", default=["edp"], help="edp, energy, delay; each in a run of its own")
    parser.add_argument("--algorithm", default="random", help="Timeloop's search: random, hybrid, random_pruned, exhaustive")
    parser.add_argument("--factor", type=float, default=100, help="how many times our seconds Timeloop gets in the second run")
    parser.add_argument("--least", type=float, default=1.0, help="least seconds for Timeloop")
    parser.add_argument("--most", type=float, default=60.0, help="most seconds for Timeloop")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of either mapper")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="variables of Jinja2 files")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON too")
    return parser.parse_args()


def compare_all(options: argparse.Namespace, mapper: str) -> Iterator[Row]:
    model = Timeloop.find() if shutil.which(PROGRAM) else None
    print(f"{MAPPER} ({options.algorithm}) and stitchloop, {options.threads} threads each", flush=True)
    print(f"figures of both under {PROGRAM if model else 'the model of stitchloop'}", flush=True)
    print(f"{'layer':<28} {'objective':<9} {'ours':>11} {'s':>7} {'opt':<4} {'equal time':>11} {'s':>6} {'ratio':>7} "
          f"{'longer':>11} {'s':>6} {'ratio':>7}", flush=True)  # fmt: skip
    warm = False
    for name, spec in specs(options):
        for objective in options.objective:
            metrics = parse_metrics(objective, spec.architecture, "--objective")
            wanted = replace(spec, options=replace(spec.options, metrics=metrics))
            if not warm:
                map_einsum(wanted, threads=options.threads)
                warm = True
            row = compare(wanted, name, objective, options, mapper, model)
            print(line(row), flush=True)
            yield row


def specs(options: argparse.Namespace) -> Iterator[tuple[str, Spec]]:
    """The spec of the files, or one for each layer, with its name."""
    variables = dict(setting.split("=", 1) for setting in options.set)
    files = [resolve(file) for file in options.files]
    if not options.layers:
        yield "", complete(load_spec(files, variables))
        return
    for layer in read_layers([resolve(path) for path in options.layers], files, variables, frontend_compatible=False):
        if layer.spec is None:
            raise InputError(layer.name, layer.error or "cannot be read", "mend it or leave it out")
        yield layer.name, complete(layer.spec)


def complete(spec: Spec) -> Spec:
    """The spec, if nothing that a search needs is missing."""
    if spec.architecture is None or spec.workload is None:
        raise InputError(None, "no architecture or no problem among the files", "give both, or problems under --layers")
    require_energy(spec.architecture)
    return spec


def compare(spec: Spec, layer: str, objective: str, options: argparse.Namespace, mapper: str, model: Timeloop | None) -> Row:
    einsum = spec.workload.einsum
    start = time.perf_counter()
    result = map_einsum(spec, threads=options.threads)
    seconds = time.perf_counter() - start
    ours = Found(value(objective, spec, result.mapping, model), seconds)
    document = mapper_document(spec, objective, options)
    runs = []
    for budget in (seconds, options.factor * seconds):
        budget = min(options.most, max(options.least, budget))
        mapping, took = run_timeloop(mapper, document, budget, spec)
        runs.append(Found(None if mapping is None else value(objective, spec, mapping, model), took))
    proof = result.certificate
    optimal = "no" if not proof.optimal else "yes" if proof.counting == "timeloop" else "yes*"
    return Row(layer or einsum.name, objective, ours, optimal, *runs)


def value(objective: str, spec: Spec, mapping: Mapping, model: Timeloop | None) -> float:
    """Energy in pJ, cycles, or their product in J * cycle."""
    inputs = Inputs(spec.workload.einsum, spec.architecture, mapping)
    if model is None:
        stats = evaluate(*inputs)
        energy, cycles = stats.energy_pJ, stats.cycles
    else:
        figures = model.evaluate(inputs)
        if not figures["valid"]:
            raise InputError(None, f"{PROGRAM} refuses a mapping: {figures['message']}", "report it with the input files")
        energy, cycles = figures["fJ_per_compute"] * figures["computes"] / 1000, figures["cycles"]
    return {"energy": energy, "delay": cycles, "cycles": cycles, "edp": energy * 1e-12 * cycles}[objective]


def run_timeloop(mapper: str, document: dict[str, Any], seconds: float, spec: Spec) -> tuple[Mapping | None, float]:
    """Let the mapper search for some seconds and read back the best mapping that it found, if any."""
    with tempfile.TemporaryDirectory(prefix="stitchloop-") as folder:
        inputs = Path(folder) / "parsed-processed-input.yaml"
        inputs.write_text(json.dumps(document), encoding="utf-8")
        start = time.perf_counter()
        process = subprocess.Popen(
            [mapper, str(inputs), "-o", folder], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        took = time.perf_counter() - start
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        found = Path(folder) / f"{MAPPER}.map.yaml"
        stats = Path(folder) / f"{MAPPER}.stats.txt"
        if not found.is_file() or not stats.is_file() or not stats.read_text(encoding="utf-8").strip():
            return None, took
        parts = {name: part for name, part in document.items() if name in ("architecture", "problem")}
        return load_spec([parts, found]).mapping, took


def mapper_document(spec: Spec, objective: str, options: argparse.Namespace) -> dict[str, Any]:
    """The same mapspace for Timeloop's mapper, which is to go on until it is stopped."""
    einsum = spec.workload.einsum
    targets = []
    levels = spec.constraints.levels if spec.constraints is not None else [LevelConstraints()] * len(spec.architecture.levels)
    for level, limits in zip(spec.architecture.levels, levels, strict=True):
        if level.is_fanout:
            ones = ",".join(f"{rank}=1" for rank in einsum.ranks)
            targets.append({"target": level.name, "type": "temporal", "factors": ones, "permutation": "".join(einsum.ranks)})
            targets.append({"target": level.name, "type": "bypass", "bypass": [tensor.name for tensor in einsum.tensors]})
        else:
            targets += loops(level.name, "temporal", limits.temporal)
            targets += kept(level.name, einsum, limits)
        if level.fanout_x * level.fanout_y > 1:
            targets += loops(level.name, "spatial", limits.spatial)
    return inputs_document(einsum, spec.architecture) | {
        "architecture_constraints": {"targets": targets},
        "mapper": {
            "algorithm": options.algorithm,
            "optimization_metrics": [objective],
            "num_threads": options.threads,
            "search_size": 0,
            "timeout": NEVER,
            "victory_condition": 0,
            "live_status": False,
        },
    }


def loops(target: str, kind: str, limits: LoopConstraint) -> list[dict[str, Any]]:
    """Factors, permutation and split of one level."""
    written: dict[str, Any] = {}
    if limits.factors:
        written["factors"] = ",".join(f"{factor.rank}{factor.relation}{factor.value}" for factor in limits.factors)
    if limits.permutation or limits.outer:
        written["permutation"] = "".join(limits.permutation) + ("_" + "".join(limits.outer) if limits.outer else "")
    if limits.split is not None:
        written["split"] = limits.split
    return [{"target": target, "type": kind, **written}] if written else []


def kept(target: str, einsum: Einsum, limits: LevelConstraints) -> list[dict[str, Any]]:
    names = [tensor.name for tensor in einsum.tensors]
    keep, bypass = ([name for name in names if name in chosen] for chosen in (limits.keep, limits.bypass))
    return [{"target": target, "type": "bypass", "keep": keep, "bypass": bypass}] if keep or bypass else []


def ratio(ours: Found, other: Found) -> float:
    """How many times worse the other value is; infinite when it found nothing."""
    if other.value is None or ours.value is None:
        return float("inf")
    return other.value / ours.value


def line(row: Row) -> str:
    ours = row.ours
    shown = f"{row.layer:<28.28} {row.objective:<9} {ours.value:>11.5g} {ours.seconds:>7.2f} {row.optimal:<4}"
    for found in (row.equal_time, row.longer):
        figure = "none" if found.value is None else f"{found.value:.5g}"
        shown += f" {figure:>11} {found.seconds:>6.1f} {ratio(ours, found):>7.3f}"
    return shown


def summarise(rows: list[Row]) -> None:
    if any(row.optimal == "yes*" for row in rows):
        print("*: optimal under a count without link transfers and short wraps, which Timeloop's model has")
    for name, kind in (("equal time", "equal_time"), ("the longer time", "longer")):
        ratios = sorted(ratio(row.ours, getattr(row, kind)) for row in rows)
        worse, median = sum(each < 1 - 1e-6 for each in ratios), ratios[len(ratios) // 2]
        print(f"at {name}: median ratio {median:.3f}, largest {ratios[-1]:.3g}, ours worse in {worse} of {len(rows)}")


if __name__ == "__main__":
    sys.exit(main())
