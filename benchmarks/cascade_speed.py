"""How long stitching, the optimal grouping and a sweep take, each beside its target or a plainer way to the same answer.

Run: python benchmarks/cascade_speed.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from joblib import Parallel, delayed

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.endtoend import Runs
from stitchloop.cascade.evaluate import Model
from stitchloop.cascade.machine import Machine, machine_of
from stitchloop.cascade.optimum import best_grouping, optimal
from stitchloop.cascade.read import load_cascade, read_cascade
from stitchloop.cascade.stitch import stitch
from stitchloop.cascade.strategies import ALL_STRATEGIES, evaluate
from stitchloop.content import content_root
from stitchloop.read import load_spec

MODELS = ("370m", "2.8b")
CONTEXTS = [2**k + offset for k in range(11, 21) for offset in (0, 2 ** (k - 1))]


def machine(name: str = "mambalaya") -> Machine:
    architecture = load_spec([content_root() / "arch" / f"{name}.yaml"]).architecture
    assert architecture is not None
    return machine_of(architecture, name)


def mamba(model: str) -> Cascade:
    return load_cascade(content_root() / "problems" / "mamba" / f"mamba-{model}.yaml")


def long_cascade(count: int) -> Cascade:
    """A chain of elementwise Einsums, reductions, broadcasts and GEMMs in turn."""
    kinds = (
        "T{n}[b,i,d] = T{p}[b,i,e] * W{n}[e,d]",
        "T{n}[b,i,d] = exp(T{p}[b,i,d])",
        "T{n}[b,i] = T{p}[b,i,d] * V{n}[d]",
        "T{n}[b,i,d] = T{p}[b,i] * T{q}[b,i,d]",
        "T{n}[b,i,e] = T{p}[b,i,d] * W{n}[d,e]",
    )
    texts = [kinds[n % len(kinds)].format(n=n, p=n - 1, q=n - 2) for n in range(1, count)]
    einsums = ["T0[b,i,d] = X[b,i,d] * G[d]", *texts]
    ranks = {"B": {"size": 64, "batch": True}, "I": {"size": 2048, "iterative": True}, "D": 1024, "E": 1024}
    return read_cascade({"ranks": ranks, "einsums": einsums})


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def sweep_part(model: str, contexts: list[int]) -> list[float]:
    """Six strategies at some contexts."""
    runs = Runs(mamba(model), machine())
    return [runs.layer(strategy, context).seconds for context in contexts for strategy in ALL_STRATEGIES]


def one_by_one(model: Model, nodes: tuple[Any, ...]) -> float:
    """The dynamic program that evaluates every last group in full, without a bound."""
    best = [0.0]
    for stop in range(1, len(nodes) + 1):
        best.append(min(best[start] + model.group(nodes[start:stop]).seconds for start in range(stop)))
    return best[-1]


def stitching() -> None:
    chain = long_cascade(500)
    for strategy in ALL_STRATEGIES[:-1]:
        seconds, found = timed(lambda strategy=strategy: stitch(chain, strategy))
        print(f"stitch 500 Einsums, {strategy:11}{len(found.groups):4} groups {seconds:6.3f} s (target 1 s, {1 / seconds:.1f}x)")


def grouping() -> None:
    for name in MODELS:
        layer = mamba(name)
        seconds, (stitching, _) = timed(lambda layer=layer: optimal(Model(layer, machine())))
        count = len(stitching.groups)
        print(f"optimal grouping, mamba-{name}: {count} groups, {seconds:.2f} s (target 10 s, {10 / seconds:.0f}x)")
        nodes = stitching.nodes
        fast, grouped = timed(lambda layer=layer, nodes=nodes: best_grouping(Model(layer, machine()), nodes))
        plain, same = timed(lambda layer=layer, nodes=nodes: one_by_one(Model(layer, machine()), nodes))
        agree = abs(same / grouped.seconds - 1) < 1e-6
        print(
            f"  one order with bounds {fast:.2f} s, all groups in full {plain:.2f} s: {plain / fast:.1f}x, same answer: {agree}"
        )


def sweep() -> None:
    cases = [(model, CONTEXTS[half::2]) for model in MODELS for half in (0, 1)]
    seconds, found = timed(lambda: Parallel(n_jobs=2)(delayed(sweep_part)(*case) for case in cases))
    layers = sum(len(row) for row in found)
    sizes = f"{len(CONTEXTS)} contexts x {len(MODELS)} models x {len(ALL_STRATEGIES)} strategies"
    print(f"sweep of {sizes}: {layers} layers, {seconds:.1f} s (target 30 s, {30 / seconds:.1f}x)")


def main() -> None:
    stitching()
    grouping()
    sweep()
    seconds, _ = timed(lambda: evaluate(Model(mamba("370m"), machine()), "full"))
    print(f"one layer, fully fused, all partitionings: {seconds * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
