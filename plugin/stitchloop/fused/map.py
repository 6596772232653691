"""Mapping a list of Einsums fused: the best of the whole mapspace, with proof, beside the Einsums mapped one by one."""

from __future__ import annotations

import time
from dataclasses import replace

from stitchloop.errors import InputError, Place
from stitchloop.fused.ablation import mapspace
from stitchloop.fused.array import split_rank
from stitchloop.fused.block import Candidate
from stitchloop.fused.cache import pruned_rows
from stitchloop.fused.evaluate import Evaluator
from stitchloop.fused.exact import figures
from stitchloop.fused.front import pareto
from stitchloop.fused.grouping import Groupings
from stitchloop.fused.machine import Machine, machine_of
from stitchloop.fused.nest import normalised
from stitchloop.fused.options import ALIASES, OBJECTIVES, FusedOptions
from stitchloop.fused.pair import shape_of
from stitchloop.fused.prune import Pruned, prune
from stitchloop.fused.result import FusedResult, Mapped
from stitchloop.fused.select import INTERRUPTED, Found, search
from stitchloop.fused.shape import Shape
from stitchloop.options import LARGEST_IMPERFECT, LARGEST_PERFECT
from stitchloop.result import Certificate
from stitchloop.spec import Spec
from stitchloop.text import counted

MOST_SOFTMAX_OPS = 1e6

ARRAYS = {
    "split": "share each head, cut along one common rank",
    "free": "share each head, cut along any one or two ranks of each Einsum",
    "heads": "take a head each, with a buffer share of its own",
}
"""What several arrays do, for the output."""

COUNTING = "closed forms of fused chains, sound convention"


def map_fused(spec: Spec, options: FusedOptions | None = None) -> FusedResult:
    """Find the best fused mapping of the Einsums of ``spec``.

    Parameters
    ----------
    spec : Spec
        Architecture and a list of Einsums, each reading the output of another (or a single one).
    options : FusedOptions, optional
        Objectives and mapspace; the objectives of the mapper section are used where it is left out.

    Raises
    ------
    InputError
        When a part is missing, or the Einsums do not form a chain.
    NoMapping
        When no template fits the buffer; the smallest that would do is named.
    """
    if spec.architecture is None or spec.workload is None:
        missing = "architecture" if spec.architecture is None else "problem"
        raise InputError(Place(", ".join(spec.files) or None), f"no {missing} section", "add the file that holds it")
    options = checked(options or options_of(spec))
    try:
        machine, shape = machine_of(spec.architecture, options.capacity), shape_of(spec.workload)
        check_sizes(shape, options)
    except InputError as error:
        raise error.within(spec.files) from None
    return map_shape(shape, machine, options)


def options_of(spec: Spec) -> FusedOptions:
    """Options from the mapper section of a spec."""
    return FusedOptions(
        objectives=spec.options.metrics,
        pareto=spec.options.pareto,
        perfect=spec.options.perfect,
        time_limit=spec.options.time_limit,
    )


def checked(options: FusedOptions) -> FusedOptions:
    """The options with objectives under their own names.

    Raises
    ------
    InputError
        For a name that means nothing, a front of one or of more than three objectives, or no objective at all.
    """
    options = replace(options, objectives=_names(options.objectives, "--objective"), pareto=_names(options.pareto, "--pareto"))
    if not options.objectives:
        raise InputError(Place("--objective"), "no objective", f"one of {', '.join(OBJECTIVES)}")
    if len(options.pareto) == 1 or len(options.pareto) > 3:
        raise InputError(Place("--pareto"), f"a Pareto front of {counted(len(options.pareto), 'objective')}", "give two or three")
    if not options.stationarity or set(options.stationarity) - {"WS", "IS", "OS"}:
        raise InputError(Place("--stationarity"), f"'{', '.join(options.stationarity)}'", "some of WS, IS, OS")
    if not 0 <= options.softmax_ops <= MOST_SOFTMAX_OPS:
        raise InputError(Place("--softmax-ops"), f"{options.softmax_ops:g}", f"a number from 0 to {MOST_SOFTMAX_OPS:g}")
    if options.softmax_lanes is not None and options.softmax_lanes < 1:
        raise InputError(Place("--softmax-lanes"), f"{options.softmax_lanes}", "at least 1 operation per cycle")
    mapspace(options.ablation)
    return options


def check_sizes(shape: Shape, options: FusedOptions) -> None:
    """Refuse rank sizes whose tile sizes nobody can go through.

    Raises
    ------
    InputError
        Above :data:`LARGEST_IMPERFECT`, or :data:`LARGEST_PERFECT` where tile sizes divide.
    """
    largest = LARGEST_PERFECT if options.perfect else LARGEST_IMPERFECT
    for rank in sorted(shape.structure.looped):
        if shape.sizes[rank] > largest:
            perfect = not options.perfect and shape.sizes[rank] <= LARGEST_PERFECT
            mend = "add --perfect for tile sizes that divide it" if perfect else f"sizes up to {largest} are mapped"
            place = Place(None, ("problem", shape.rank_names[rank]))
            raise InputError(place, f"size {shape.sizes[rank]}, above {largest}", mend)


def _names(given: tuple[str, ...], option: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(ALIASES.get(name, name) for name in given))
    for name in names:
        if name not in OBJECTIVES:
            raise InputError(Place(option), f"'{name}'", f"for fused work one of {', '.join(OBJECTIVES)}")
    return names


def rows_of(shape: Shape, options: FusedOptions) -> Pruned:
    """The pruned rows of the mapspace that the options ask for."""
    smaller = mapspace(options.ablation)
    if smaller is None or len(shape.structure.ops) == 1:
        return pruned_rows(shape.structure)
    return prune(shape.structure, smaller)


def map_shape(shape: Shape, machine: Machine, options: FusedOptions) -> FusedResult:
    """Find the best mapping of a chain on a machine (as :func:`map_fused`, from typed objects)."""
    start = time.perf_counter()
    pruned = rows_of(shape, options)
    evaluator = Evaluator(shape, machine, options, pruned.rows, fold=_may_fold(options.objectives[:1]))
    found = search(evaluator, options.order, options.time_limit)
    winner = _mapped(evaluator, found.candidate)
    interrupted = found.stopped == INTERRUPTED
    front, front_stopped = ((), INTERRUPTED) if interrupted and options.pareto else _front(evaluator, options)
    seconds = time.perf_counter() - start
    certificate = Certificate(
        not found.stopped,
        _floor(winner, found, options.objectives[0]),
        mapspace_size(evaluator, pruned),
        found.evaluated,
        seconds,
        COUNTING,
        found.stopped,
    )
    notes = _notes(shape, machine, options)
    if front_stopped:
        notes = (*notes, f"Pareto front: {front_stopped}; the points found so far, better ones may be missing")
    result = FusedResult(shape, machine, options, winner, certificate, front, front_stopped, notes=notes)
    if not options.unfused or len(shape.structure.ops) == 1:
        return result
    try:
        if interrupted:
            raise KeyboardInterrupt
        groupings = Groupings(shape, machine, options, map_shape)
        return replace(result, unfused=groupings.alone, grouping=groupings.best(result))
    except KeyboardInterrupt:
        return replace(result, notes=(*notes, "interrupted before the Einsums were mapped one by one, so there is no comparison"))


def _floor(winner: Mapped, found: Found, name: str) -> float:
    """The proved lower bound in the unit of the reported figure."""
    value = winner.figures.objective(name)
    if not found.stopped:
        return value
    return min(value, found.floor * (1e-12 if name == "edp" else 1.0))


def _may_fold(wanted: tuple[str, ...]) -> bool:
    """The folded rank takes the best tile that fits, which is not the one of least buffer demand."""
    return "buffer" not in wanted


def _front(evaluator: Evaluator, options: FusedOptions) -> tuple[tuple[Mapped, ...], str]:
    """The front, and why it is not whole."""
    if not options.pareto:
        return (), ""
    if evaluator.folded is not None and not _may_fold(options.pareto):
        evaluator = Evaluator(evaluator.shape, evaluator.machine, options, evaluator.rows, fold=False)
    candidates, stopped = pareto(evaluator, options.pareto, options.time_limit)
    return tuple(_mapped(evaluator, candidate) for candidate in candidates), stopped


def mapspace_size(evaluator: Evaluator, pruned: Pruned) -> int:
    """Templates times tilings times placements: all mappings that the result is certified over."""
    return pruned.raw * evaluator.tilings * len(evaluator.combos)


def _mapped(evaluator: Evaluator, candidate: Candidate) -> Mapped:
    shape = evaluator.shape
    tiles = dict(candidate.tiles)
    template = normalised(shape, evaluator.rows[candidate.row].template, tiles)
    placements = tuple(evaluator.placements[e][p] for e, p in enumerate(candidate.placements))
    return Mapped(template, tiles, placements, figures(shape, evaluator.machine, evaluator.options, template, tiles, placements))


def _notes(shape: Shape, machine: Machine, options: FusedOptions) -> tuple[str, ...]:
    notes = []
    if options.softmax != "none":
        how = "beside the arrays" if options.softmax == "overlapped" else "before the consumer, one after the other"
        notes.append(f"softmax: {options.softmax_ops:g} operations per element, {how}")
    if machine.inner_storage:
        names = ", ".join(machine.inner_storage)
        notes.append(f"{names} inside the arrays: what a stationarity option keeps there is free of energy")
    if machine.arrays > 1 and options.arrays == "split" and split_rank(shape, machine, options) < 0:
        notes.append(f"no rank is common to all outputs: one of the {machine.arrays} arrays works")
    elif machine.arrays > 1:
        notes.append(f"{machine.arrays} arrays of {machine.rows} x {machine.columns} {ARRAYS[options.arrays]}")
    if options.reconfigurable:
        notes.append("array shapes are chosen for each Einsum (reconfigurable array)")
    if options.ablation != "full":
        notes.append(f"smaller mapspace on request: {options.ablation}")
    inputs = [
        name
        for e, op in enumerate(shape.structure.ops)
        for name, o in zip(shape.tensor_names[e], op.operands)
        if o.kind == "input"
    ]
    for name in sorted({name for name in inputs if inputs.count(name) > 1}):
        notes.append(f"{name} is an input of several Einsums, and each fetches it for itself: no block is shared among them")
    if any(i.stride > i.window for op in shape.structure.ops for i in (*op.ranges, *(i for o in op.operands for i in o.index))):
        notes.append("where a stride is longer than its window, the words between, which nobody reads, are counted too")
    if any(i.window > i.stride for op in shape.structure.ops for o in op.operands for i in o.index):
        notes.append(
            "where a sliding loop starts over, halo rows that happen to lie in the buffer still are counted as read again"
        )
    return tuple(notes)
