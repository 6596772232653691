"""From a search to a result: checks every answer against the mapspace and the reference model, and writes the certificate.

Which count a certificate speaks of:

- The search's count equals the model's, mapping by mapping, when no tensor rank sums several ranks and no compute units
  stand side by side under the innermost level (:func:`counts_as_model`). The certificate then says ``timeloop``.
- Otherwise a mapspace of up to :data:`LISTED` mappings is listed through the reference model, but for spatial bounds and
  keep sets that a lower bound of the model's count rules out (:mod:`stitchloop.search.listing`): ``timeloop`` again.
- Larger ones are certified under the same count without link transfers and without the two artefacts by which a wrap passes
  for a slide or for rest; halo reuse along the innermost moving loop is in. Then a second search looks for the least bound
  under the full count (:mod:`stitchloop.search.wraps`). If that is the optimum's own value, the certificate says
  ``timeloop``; else a note says how far below no mapping can be, and mappings that links make better are tried
  (:mod:`stitchloop.search.linked`). The figures reported are always the model's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stitchloop.errors import InputError, InvalidMapping, NoMapping, Obstacle
from stitchloop.mapping import Mapping
from stitchloop.mapspace import build_mapspace
from stitchloop.mapspace.mapspace import check_sizes
from stitchloop.mapspace.space import Mapspace
from stitchloop.model import TIMELOOP, Evaluator
from stitchloop.options import METRICS
from stitchloop.result import Certificate, ParetoPoint, Result
from stitchloop.search.found import INTERRUPTED, TIME_LIMIT, Found
from stitchloop.search.machine import mixes_signs
from stitchloop.search.objectives import completed, objective_of, value_of
from stitchloop.spec import Spec
from stitchloop.stats import Stats
from stitchloop.text import counted

if TYPE_CHECKING:
    from stitchloop.search.exact import Outcome, Search

Progress = Callable[[float, float, float], None]

LISTED = 100_000
"""Mapspaces up to this size are listed where the search's count is not the model's."""

WRITTEN_BACK = "the least mapping is invalid under the tool's count, which has an output written back too seldom"

UNREPAIRED = "remove_sequential_factors: no good mapping was found that keeps it; this is the best of some random ones"

SAMPLES = 100
SAMPLING = 0.5
"""Random mappings, and seconds, that a search interrupted before its first mapping spends on one."""

WITHOUT = "timeloop without link transfers and short wraps"
"""The count of the search where tensor ranks sum several ranks."""


def map_spec(
    spec: Spec, time_limit: float | None, memory_limit_mb: float | None, threads: int | None, progress: Progress | None
) -> Result:
    """See :func:`stitchloop.search.map_einsum`."""
    if spec.architecture is None or spec.workload is None:
        missing = "architecture" if spec.architecture is None else "problem"
        raise InputError(None, f"no {missing} among the input files", f"give a file with a section {missing}")
    options = spec.options
    try:
        check_sizes(spec.workload.einsum, options.imperfect)
        mapspace = build_mapspace(spec.workload.einsum, spec.architecture, spec.constraints, options)
    except InputError as error:
        raise error.within(spec.files) from None
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
    if pareto and not 2 <= len(pareto) <= 3:
        raise InputError("--pareto", f"a Pareto front of {counted(len(pareto), 'objective')}", "give two or three")
    start = time.perf_counter()
    deadline = None if time_limit is None else start + time_limit
    if mapspace.imperfect:
        from stitchloop.search.imperfect import search_imperfect

        found = search_imperfect(mapspace, objectives, deadline, memory_limit_mb, threads, progress)
    else:
        try:
            found = _search(mapspace, objectives, deadline, memory_limit_mb, threads, progress)
        except KeyboardInterrupt:
            found = _sampled(mapspace, objectives)
        strays = found is not None and mapspace.contains(found.mapping) is not None
        if found is not None and strays and found.stopped_by != INTERRUPTED:
            found = _without_sequential(mapspace, objectives, found, deadline, memory_limit_mb, threads)
            if found is None and mapspace.size > LISTED:
                found = _sampled(mapspace, objectives, UNREPAIRED)
        interrupted = found is not None and found.stopped_by == INTERRUPTED
        if mapspace.size <= LISTED and not interrupted and (strays or not counts_as_model(mapspace)):
            from stitchloop.search.listing import list_mappings

            found = list_mappings(mapspace, completed(objectives), found, deadline)
    if found is None:
        raise NoMapping("no mapping of the mapspace is valid", obstacles_of(mapspace))
    points, complete = _front(mapspace, pareto, deadline, memory_limit_mb, threads) if pareto else ((), True)
    broken = mapspace.contains(found.mapping)
    if broken is not None:
        raise AssertionError(f"the search left the mapspace: {broken}")
    values = tuple(value_of(name, found.stats) for name in objectives)
    reason = found.stopped_by or ("" if complete else _unproved(mapspace))
    floor = objective_of(objectives[0]).floor(mapspace.einsum, mapspace.architecture)
    certificate = Certificate(
        optimal=not reason,
        lower_bound=min(values[0], max(found.bound, floor)),
        mapspace_size=mapspace.size,
        evaluated=found.evaluated,
        seconds=time.perf_counter() - start,
        counting=found.counting,
        reason=reason,
    )
    front = tuple(METRICS.get(name, name) for name in pareto)
    notes = found.notes
    if pareto and not mapspace.imperfect and mapspace.size > LISTED and not counts_as_model(mapspace):
        notes = (*notes, f"the Pareto front is that of the count {WITHOUT!r}; its figures are those of the full count")
    return Result(tuple(objectives), values, found.mapping, found.stats, certificate, points, front, notes)


def counts_as_model(mapspace: Mapspace) -> bool:
    """Whether the search counts every mapping as the model does, link transfers and wraps included.

    Tiles of a tensor whose ranks stand alone have no halo, and no wrap looks like a step: the strides of a rank's loops grow
    by their bounds. Neighbours never hold each other's next tile: temporal strides are multiples of what the spatial loops
    inside cover. Only compute units below the innermost level pass on what they share.
    """
    einsum = mapspace.einsum
    if mapspace.levels[0].spatial.fanout > 1:
        return False
    for tensor in einsum.tensors:
        ranks = [term.rank for terms in tensor.projection for term in terms if einsum.sizes[term.rank] > 1]
        sums = any(len({term.rank for term in terms if einsum.sizes[term.rank] > 1}) > 1 for terms in tensor.projection)
        if sums or len(set(ranks)) < len(ranks):
            return False
        if tensor.is_output and any(abs(term.coefficient) != 1 for terms in tensor.projection for term in terms):
            return False
    return True


def obstacles_of(mapspace: Mapspace) -> tuple[Obstacle, ...]:
    """Why there is no valid mapping."""
    from stitchloop.mapspace.obstacles import obstacles

    return tuple(obstacles(mapspace))


def _scale(name: str) -> float:
    """What turns the search's first goal into the objective's unit (J instead of pJ)."""
    return 1e-12 if name == "edp" else 1.0


def _search(
    mapspace: Mapspace,
    objectives: Sequence[str],
    deadline: float | None,
    memory_limit_mb: float | None,
    threads: int | None,
    progress: Progress | None,
) -> Found | None:
    from stitchloop.search.exact import Search
    from stitchloop.search.nest import build_mapping

    scale = _scale(completed(objectives)[0])
    search = Search(mapspace, objectives, threads, deadline, memory_limit_mb, _scaled(progress, scale))
    exact, asked = counts_as_model(mapspace), len(dict.fromkeys(objective_of(name).name for name in objectives))
    listed = mapspace.size <= LISTED or mixes_signs(mapspace.einsum)
    full = None if exact or listed or not search.is_short else _full_first(search, asked)
    outcome = search.run()
    if not outcome.incumbent.exists:
        small = mapspace.size <= LISTED and outcome.stopped_by != INTERRUPTED
        return None if small or not outcome.stopped_by else _sampled(mapspace, objectives, outcome.stopped_by)
    mapping = build_mapping(mapspace, outcome.incumbent)
    stats = _figures(mapspace, mapping)
    if stats is None:
        return None if mapspace.size <= LISTED else _sampled(mapspace, objectives, WRITTEN_BACK)
    found = Found(mapping, stats, outcome.bound * scale, outcome.treated, TIMELOOP.name, outcome.stopped_by)
    if exact:
        return found
    found = replace(found, counting=WITHOUT)
    if listed or outcome.stopped_by or mapspace.contains(mapping) is not None:
        return found
    try:
        if full is None:
            other = search.under_full_count(stats, asked)
            search.surveys.clear()
            full = other, other.run()
        return _with_links(search, *full, found, asked)
    except KeyboardInterrupt:
        return replace(found, stopped_by=INTERRUPTED)


def _figures(mapspace: Mapspace, mapping: Mapping) -> Stats | None:
    """The tool's figures of a mapping; None when its count finds the mapping invalid."""
    try:
        return Evaluator(mapspace.einsum, mapspace.architecture, TIMELOOP).evaluate(mapping)
    except InvalidMapping:
        return None


def _full_first(search: Search, asked: int) -> tuple[Search, Outcome] | None:
    """The search under the full count before all but a taste of ``search``, which learns its bounds."""
    from stitchloop.search.nest import build_mapping

    search.taste()
    if search.stopped or not search.incumbent.exists:
        return None
    stats = _figures(search.space, build_mapping(search.space, search.incumbent))
    if stats is None:
        return None
    full = search.under_full_count(stats, asked)
    outcome = full.run()
    search.stopped = outcome.stopped_by if outcome.stopped_by in (INTERRUPTED, TIME_LIMIT) else ""
    search.learn(full)
    return full, outcome


def _scaled(progress: Progress | None, scale: float) -> Progress | None:
    """``progress`` in the objective's unit."""
    return None if progress is None else lambda share, best, bound: progress(share, best * scale, bound * scale)


def _sampled(mapspace: Mapspace, objectives: Sequence[str], reason: str = INTERRUPTED) -> Found | None:
    """The best of some random mappings, for who interrupts a search before it has one."""
    from stitchloop.search.baseline import sample

    drawn = sample(mapspace, completed(objectives)[0], SAMPLES, 1_000_000, seconds=SAMPLING)
    return None if drawn is None else Found(drawn.mapping, drawn.stats, 0.0, drawn.tried, TIMELOOP.name, reason)


def _with_links(search: Search, full: Search, outcome: Outcome, found: Found, asked: int) -> Found:
    """The optimum under the tool's full count instead of the search's: proved, or with a note on what is not.

    ``asked``: how many of the search's goals were asked for; the others break ties.
    """
    from stitchloop.search.linked import refine
    from stitchloop.search.nest import FIRST, build_mapping

    name, space = search.names[0], search.space
    mapping, stats = found.mapping, found.stats

    def met_by(stats: Stats) -> int:
        """How many goals no mapping can better, one after another."""
        own, bounds = full.goals_of(stats), outcome.incumbent.goals
        if outcome.stopped_by:
            return int(own[0] <= outcome.bound)
        unequal = next((g for g in range(len(full.names)) if own[g] != bounds[g]), len(full.names))
        return len(full.names) if tuple(own) < tuple(bounds) else unequal

    if met_by(stats) < asked and outcome.incumbent.index != FIRST:
        _, mapping, stats = refine(space, search.names, [found.mapping, build_mapping(space, outcome.incumbent)], search.deadline)
    better = replace(found, mapping=mapping, stats=stats, evaluated=found.evaluated + outcome.treated)
    value = value_of(name, stats)
    least = min(value, outcome.bound * _scale(name))
    met = met_by(stats)
    if met >= asked:
        ties = f"of mappings that are equal in what was asked for this is the best under the count {WITHOUT!r}"
        notes = () if met >= len(search.names) else (ties,)
        return replace(better, bound=value, counting=TIMELOOP.name, notes=notes)
    if met:
        note = (
            f"proved optimal under the count {WITHOUT!r}; with links and wraps no mapping has less {name}, but one with as "
            f"little may have less {search.names[met]}"
        )
        return replace(better, notes=(note,))
    note = (
        f"proved optimal under the count {WITHOUT!r}; with links and wraps no mapping has {name} below {least:.6g} "
        f"({(value - least) / value:.1%} below this one)"
    )
    return replace(better, notes=(note,))


def _without_sequential(
    mapspace: Mapspace,
    objectives: Sequence[str],
    found: Found,
    deadline: float | None,
    memory_limit_mb: float | None,
    threads: int | None,
) -> Found | None:
    """A mapping that keeps ``remove_sequential_factors`` instead of ``found``, which breaks it and whose bound holds."""
    from stitchloop.search.finalists import Finalists
    from stitchloop.search.sequential import asks, repairs, without_loops

    if not asks(mapspace):
        return found
    finalists = Finalists(mapspace, completed(objectives))
    other = _search(without_loops(mapspace), objectives, deadline, memory_limit_mb, threads, None)
    for mapping in (*repairs(mapspace, found.mapping), *([other.mapping] if other is not None else [])):
        finalists.offer(mapping)
    if finalists.best is None:
        return None
    _, mapping, stats = finalists.best
    proved = finalists.value <= found.bound * (1 + 1e-11) and not found.stopped_by
    reason = "" if proved else found.stopped_by or "remove_sequential_factors: the bound is that of the mapspace without it"
    return Found(mapping, stats, found.bound, found.evaluated, found.counting, reason)


def _unproved(mapspace: Mapspace) -> str:
    """Why the optimum is proved and the front is not."""
    if mapspace.imperfect:
        return (
            "Pareto front over imperfect factors: every point is exact and the first objective proved, not that none is missing"
        )
    return "Pareto front incomplete: time or memory limit"


def _front(
    mapspace: Mapspace, objectives: Sequence[str], deadline: float | None, memory_limit_mb: float | None, threads: int | None
) -> tuple[tuple[ParetoPoint, ...], bool]:
    """The Pareto front with the model's figures; whether it is complete."""
    from stitchloop.search.finalists import Finalists, Points
    from stitchloop.search.front import search_front
    from stitchloop.search.nest import build_mapping
    from stitchloop.search.sequential import asks

    if mapspace.imperfect:
        from stitchloop.search.imperfect_front import search_imperfect_front

        found, proved = search_imperfect_front(mapspace, objectives, deadline, memory_limit_mb, threads)
        return tuple(ParetoPoint(*point) for point in found), proved
    if mapspace.size <= LISTED and (asks(mapspace) or not counts_as_model(mapspace)):
        from stitchloop.search.listing import list_front

        listed, whole = list_front(mapspace, objectives, deadline)
        return tuple(ParetoPoint(*point) for point in listed), whole
    front = search_front(mapspace, objectives, deadline, memory_limit_mb)
    points = Points(objectives)
    finalists = Finalists(mapspace, objectives, points)
    valid = [finalists.offer(build_mapping(mapspace, nest)) is not None for nest in front.nests]
    return tuple(ParetoPoint(*point) for point in points.points), front.complete and all(valid)
