"""Layers and stand-ins for the search that the tests of whole networks use. Run as a script: maps slowly, to be killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from stitchloop.errors import NoMapping
from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.model import evaluate
from stitchloop.network import NetworkReport, map_layers
from stitchloop.result import Certificate, Result
from stitchloop.spec import Spec

OPTIMUM = Path(__file__).parent / "data" / "optimum"
SHARED = (OPTIMUM / "tiny.yaml", OPTIMUM / "tiny.ERT.yaml")


def write_gemm(path: Path, m: int, n: int, k: int, name: str = "gemm", order: str = "M, N, K") -> Path:
    """A problem file of Z[m, n] = A[m, k] * B[k, n]."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"""problem:
  version: 0.4
  shape:
    name: {name}
    dimensions: [{order}]
    data_spaces:
    - {{name: A, projection: [[[M]], [[K]]]}}
    - {{name: B, projection: [[[K]], [[N]]]}}
    - {{name: Z, projection: [[[M]], [[N]]], read_write: true}}
  instance: {{M: {m}, N: {n}, K: {k}}}
""")
    return path


def at_the_outermost_level(spec: Spec, threads: int) -> Result:
    """Stands in for the search: all loops at the outermost level, and no proof."""
    assert spec.workload is not None
    assert spec.architecture is not None
    einsum, architecture = spec.workload.einsum, spec.architecture
    every = frozenset(tensor.name for tensor in einsum.tensors)
    nest = tuple(Loop(rank, size) for rank, size in einsum.sizes.items() if size > 1)
    keeps = [frozenset() if level.is_fanout else every for level in architecture.levels]
    mapping = Mapping((*(LevelMapping(keep=keep) for keep in keeps[:-1]), LevelMapping(nest, keep=keeps[-1])))
    stats = evaluate(einsum, architecture, mapping)
    return Result(("edp",), (stats.edp,), mapping, stats, Certificate(False, 0.0, 2**80, 1, 0.0))


def noted(spec: Spec, threads: int) -> Result:
    """The same, noting each search in the file that the environment names."""
    assert spec.workload is not None
    with open(os.environ["SEARCHES"], "a") as log:
        log.write("x".join(map(str, spec.workload.einsum.rank_sizes)) + "\n")
    return at_the_outermost_level(spec, threads)


def slowly(spec: Spec, threads: int) -> Result:
    time.sleep(0.15)
    return noted(spec, threads)


def moody(spec: Spec, threads: int) -> Result:
    """Fails for M = 5 in three ways, by N."""
    assert spec.workload is not None
    sizes = spec.workload.einsum.sizes
    if sizes["M"] == 5:
        if sizes["N"] == 1:
            raise NoMapping("RF is too small by 3 words")
        if sizes["N"] == 2:
            raise ZeroDivisionError("division by zero")
        os.kill(os.getpid(), signal.SIGKILL)
    return at_the_outermost_level(spec, threads)


def map_all(folder: Path, output: Path, mapper: object = at_the_outermost_level, jobs: int = 1) -> NetworkReport:
    layers = sorted(folder.glob("*.yaml"))
    return map_layers(layers, SHARED, output, jobs=jobs, map_layer=mapper)  # type: ignore[arg-type]


if __name__ == "__main__":
    map_all(Path(sys.argv[1]), Path(sys.argv[2]), slowly)
