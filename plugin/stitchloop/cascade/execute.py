"""Run a cascade on numpy arrays, literally: each equation over its whole iteration space, iterative ranks step by step.

Meant for small sizes, to test a cascade against a directly written implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stitchloop.cascade.cascade import Cascade, State
from stitchloop.cascade.expression import Access, Binary, Equation, Expression, Name, Number, Reduce, Unary
from stitchloop.cascade.functions import MAP, REDUCE, UNARY
from stitchloop.cascade.order import stable_order

Array = np.ndarray

LARGEST_SPACE = 2**27
"""Points of an iteration space that are still executed."""


def execute(cascade: Cascade, inputs: Mapping[str, Array], order: Sequence[str] | None = None) -> dict[str, Array]:
    """Compute every tensor of a cascade.

    Parameters
    ----------
    cascade : Cascade
    inputs : mapping of str to array
        Every input, weight and initial state, in the shapes that :func:`input_shapes` gives.
    order : sequence of str, optional
        Einsums in the order to run them, default as they stand.

    Returns
    -------
    dict of str to array
        All tensors that the Einsums write, and the final states by their names.

    Raises
    ------
    ValueError
        For a missing input, a wrong shape, an order against the dependences, or a space too large to execute.
    """
    values = _checked_inputs(cascade, inputs)
    for steps in _stages(cascade, tuple(order or (einsum.name for einsum in cascade.einsums))):
        for name in steps:
            for equation in cascade.einsum(name).equations:
                if cascade.volume(equation.ranks) > LARGEST_SPACE:
                    raise ValueError(
                        f"Einsum {name} has {cascade.volume(equation.ranks)} points, too many to execute; make its ranks smaller"
                    )
                values[equation.output.tensor] = np.full(cascade.shape(equation.output.tensor), np.nan)
        _run_stage(cascade, steps, values)
    finals = {state.final: _final_state(cascade, state, values) for state in cascade.states if state.final is not None}
    written = {tensor.name: values[tensor.name] for tensor in cascade.tensors if tensor.producer is not None}
    return written | finals


def input_shapes(cascade: Cascade) -> dict[str, tuple[int, ...]]:
    """Shape of each input, weight and initial state."""
    shapes = {tensor.name: cascade.shape(tensor.name) for tensor in cascade.tensors if tensor.producer is None}
    shapes |= {state.initial: cascade.state_shape(state) for state in cascade.states if isinstance(state.initial, str)}
    return shapes


def random_inputs(cascade: Cascade, seed: int = 0) -> dict[str, Array]:
    """Normally distributed values for every input, the same for the same seed."""
    generator = np.random.default_rng(seed)
    return {name: generator.standard_normal(shape) for name, shape in input_shapes(cascade).items()}


def _checked_inputs(cascade: Cascade, inputs: Mapping[str, Array]) -> dict[str, Array]:
    values = {}
    for name, shape in input_shapes(cascade).items():
        if name not in inputs:
            raise ValueError(f"the input {name} of shape {shape} is missing")
        values[name] = np.asarray(inputs[name], dtype=float)
        if values[name].shape != shape:
            raise ValueError(f"the input {name} has shape {values[name].shape}, not {shape}")
    return values


def _stages(cascade: Cascade, order: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Einsums in order, those that depend on one another through an iterative rank together in one stage."""
    place = {name: position for position, name in enumerate(order)}
    if set(place) != {einsum.name for einsum in cascade.einsums} or len(order) != len(cascade.einsums):
        raise ValueError("the order does not name every Einsum exactly once")
    for name in order:
        if any(place[before] >= place[name] for before in cascade.predecessors[name]):
            raise ValueError(f"the order runs Einsum {name} before one that it depends on")
    stage_of: dict[str, tuple[str, ...]] = {name: (name,) for name in order}
    for members in cascade.recurrences:
        stage = tuple(sorted(members, key=place.__getitem__))
        stage_of.update(dict.fromkeys(stage, stage))
    stages = tuple(dict.fromkeys(stage_of[name] for name in order))
    needs = {stage: {stage_of[p] for name in stage for p in cascade.producers[name]} - {stage} for stage in stages}
    return stable_order(stages, {stage: frozenset(before) for stage, before in needs.items()})


def _run_stage(cascade: Cascade, steps: tuple[str, ...], values: dict[str, Array]) -> None:
    """One pass over the Einsums; where they carry state among themselves, one pass for each step of its ranks."""
    written = {tensor for name in steps for tensor in cascade.einsum(name).output_tensors}
    read = {tensor for name in steps for tensor in cascade.einsum(name).input_tensors}
    ranks = tuple(dict.fromkeys(state.rank for state in cascade.states if state.tensor in written & read))
    for point in np.ndindex(*(cascade.sizes[rank] for rank in ranks)):
        fixed = dict(zip(ranks, map(int, point), strict=True))
        for name in steps:
            for equation in cascade.einsum(name).equations:
                _run(cascade, equation, fixed, values)


def _run(cascade: Cascade, equation: Equation, fixed: Mapping[str, int], values: dict[str, Array]) -> None:
    """Evaluate an equation at the ``fixed`` positions of iterative ranks and over all others."""
    axes = equation.ranks
    positions = {rank: np.array([fixed[rank]]) if rank in fixed else np.arange(cascade.sizes[rank]) for rank in axes}
    grid = {rank: span.reshape([-1 if other == rank else 1 for other in axes]) for rank, span in positions.items()}
    result = _evaluate(cascade, equation.expression, axes, grid, values)
    lengths = tuple(positions[rank].size if rank in equation.output.ranks else 1 for rank in axes)
    kept = np.broadcast_to(result, lengths).reshape([positions[rank].size for rank in equation.output.ranks])
    where = np.ix_(*(positions[rank] for rank in equation.output.ranks)) if equation.output.ranks else ()
    values[equation.output.tensor][where] = kept


def _evaluate(
    cascade: Cascade, node: Expression, axes: tuple[str, ...], grid: Mapping[str, Array], values: Mapping[str, Array]
) -> Array:
    if isinstance(node, Number):
        return np.asarray(float(node.value))
    if isinstance(node, Name):
        return np.asarray(float({**cascade.sizes, **dict(cascade.constants)}[node.name]))
    if isinstance(node, Access):
        return _read(cascade, node, len(axes), grid, values)
    if isinstance(node, Unary):
        return UNARY[node.function](_evaluate(cascade, node.operand, axes, grid, values))
    if isinstance(node, Binary):
        left = _evaluate(cascade, node.left, axes, grid, values)
        return MAP[node.operator].compute(left, _evaluate(cascade, node.right, axes, grid, values))
    assert isinstance(node, Reduce)
    operand = _evaluate(cascade, node.operand, axes, grid, values)
    removed = tuple(position for position, rank in enumerate(axes) if rank in node.ranks)
    spans = np.broadcast_shapes(operand.shape, *(grid[rank].shape for rank in node.ranks))
    return REDUCE[node.operator].compute(np.broadcast_to(operand, spans), axis=removed, keepdims=True)


def _read(cascade: Cascade, access: Access, dimensions: int, grid: Mapping[str, Array], values: Mapping[str, Array]) -> Array:
    """Values of a tensor at affine indices over the grid; outside it, its carried state or its padding."""
    array = values[access.tensor]
    state = cascade.state(access.tensor)
    if state is not None:
        array = _with_past(cascade, state, values)
    one = np.zeros([1] * dimensions, dtype=int)
    where, outside = [], np.zeros([1] * dimensions, dtype=bool)
    for position, (index, extent) in enumerate(zip(access.indices, array.shape, strict=True)):
        span = one + index.offset
        for term in index.terms:
            span = span + term.coefficient * grid[term.rank]
        if state is not None and position == cascade.state_dimension(state):
            span = span + cascade.state_depth(state)
        outside = outside | (span < 0) | (span >= extent)
        where.append(np.clip(span, 0, extent - 1))
    found = array[tuple(where)] if where else array.reshape([1] * dimensions)
    padding = cascade.tensor(access.tensor).padding
    return np.where(outside, 0.0 if padding is None else padding, found) if outside.any() else found


def _with_past(cascade: Cascade, state: State, values: Mapping[str, Array]) -> Array:
    """The tensor with its initial state before its first step."""
    array, axis, depth = values[state.tensor], cascade.state_dimension(state), cascade.state_depth(state)
    shape = list(array.shape)
    shape[axis] = depth
    past = values[state.initial].reshape(shape) if isinstance(state.initial, str) else np.full(shape, float(state.initial))
    return np.concatenate([past, array], axis=axis)


def _final_state(cascade: Cascade, state: State, values: Mapping[str, Array]) -> Array:
    array, axis, depth = _with_past(cascade, state, values), cascade.state_dimension(state), cascade.state_depth(state)
    last = np.take(array, range(array.shape[axis] - depth, array.shape[axis]), axis=axis)
    return last.reshape(cascade.state_shape(state))
