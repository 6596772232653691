"""From a search to a result: checks every answer against the mapspace and the reference model, and writes the certificate."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from stitchloop.errors import InputError, NoMapping
from stitchloop.mapspace import build_mapspace
from stitchloop.mapspace.space import Mapspace
from stitchloop.model import TIMELOOP, Evaluator
from stitchloop.result import Certificate, Result
from stitchloop.search.exact import Outcome, Search
from stitchloop.search.nest import build_mapping
from stitchloop.search.objectives import value_of
from stitchloop.spec import Spec

Progress = Callable[[float, float, float], None]


def map_spec(
    spec: Spec, time_limit: float | None, memory_limit_mb: float | None, threads: int | None, progress: Progress | None
) -> Result:
    """See :func:`stitchloop.search.map_einsum`."""
    if spec.architecture is None or spec.workload is None:
        missing = "architecture" if spec.architecture is None else "problem"
        raise InputError(None, f"no {missing} among the input files", f"give a file with a section {missing}")
    options = spec.options
    mapspace = build_mapspace(spec.workload.einsum, spec.architecture, spec.constraints, options)
    return search_mapspace(
        mapspace,
        options.metrics,
        options.pareto,
        options.time_limit if time_limit is None else time_limit,
        options.memory_limit_mb if memory_limit_mb is None else memory_limit_mb,
        options.num_threads if threads is None else threads,
        progress,
    )


def search_mapspace(
    mapspace: Mapspace,
    objectives: Sequence[str],
    pareto: Sequence[str] = (),
    time_limit: float | None = None,
    memory_limit_mb: float | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """See :func:`stitchloop.search.search`."""
    start = time.perf_counter()
    deadline = None if time_limit is None else start + time_limit
    outcome = Search(mapspace, objectives, threads, deadline, memory_limit_mb, progress).run()
    if not outcome.incumbent.exists:
        raise NoMapping("no mapping of the mapspace is valid", obstacles_of(mapspace))
    return _result(mapspace, objectives, outcome, time.perf_counter() - start)


def obstacles_of(mapspace: Mapspace) -> tuple:
    """Why there is no valid mapping."""
    from stitchloop.mapspace.obstacles import obstacles

    return tuple(obstacles(mapspace))


def _result(mapspace: Mapspace, objectives: Sequence[str], outcome: Outcome, seconds: float) -> Result:
    mapping = build_mapping(mapspace, outcome.incumbent)
    broken = mapspace.contains(mapping)
    if broken is not None:
        raise AssertionError(f"the search left the mapspace: {broken}")
    stats = Evaluator(mapspace.einsum, mapspace.architecture, TIMELOOP).evaluate(mapping)
    values = tuple(value_of(name, stats) for name in objectives)
    scale = 1e-12 if objectives[0] == "edp" else 1.0
    bound = min(values[0], outcome.bound * scale)
    certificate = Certificate(
        optimal=not outcome.stopped_by,
        lower_bound=bound,
        mapspace_size=mapspace.size,
        evaluated=outcome.treated,
        seconds=seconds,
        reason=outcome.stopped_by,
    )
    return Result(tuple(objectives), values, mapping, stats, certificate)
