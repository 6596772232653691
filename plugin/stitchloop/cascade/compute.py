"""Cycles and buffer accesses of one Einsum on the machine's 2D or 1D mode, for many tile sizes at once.

2D mode. A GEMM of M x N x K (and G independent ones) keeps one operand still in arrays of ``R x C`` PEs:

=========  ===========================  ==================================================================
dataflow   cycles                       words between buffer and array
=========  ===========================  ==================================================================
OS         ceil(M/R) ceil(N/C) K        inputs M K ceil(N/C), weights K N ceil(M/R), outputs M N once
WS         ceil(K/R) ceil(N/C) max(M,l) weights once, inputs M K ceil(N/C), partial sums M N ceil(K/R) times
IS         ceil(K/R) ceil(M/C) max(N,l) inputs once, weights K N ceil(M/C), partial sums M N ceil(K/R) times
=========  ===========================  ==================================================================

with l the cycles that bring a new stationary tile into the array while it works on the last one. Einsums that were merged
over a shared input stand side by side along N. The dataflow is the fastest of those that the architecture names.

1D mode. Every operator of the equation's expression is one operation at each point of its own ranks (a multiply under a sum
is one MAC); a unary function that the PEs lack is composed of ones that they have, or of a polynomial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.expression import Access, Binary, Equation, Expression, Name, Number, Reduce, Unary
from stitchloop.cascade.machine import Machine

Numbers = np.ndarray | float
"""One value for each candidate tiling, or one for all."""

Sizes = Mapping[str, Numbers]
"""Size of each rank within a tile."""

COMPOSED: Mapping[str, tuple[str, ...]] = {
    "neg": ("mac",),
    "abs": ("max",),
    "square": ("mac",),
    "ceil": ("mac",),
    "floor": ("mac",),
    "relu": ("max",),
    "min": ("max",),
    "max": ("mac",),
    "sqrt": ("log", "mac", "exp"),
    "rsqrt": ("log", "mac", "exp"),
    "reciprocal": ("log", "mac", "exp"),
    "power": ("log", "mac", "exp"),
    "sigmoid": ("exp", "mac", "reciprocal"),
    "silu": ("sigmoid", "mac"),
    "tanh": ("mac", "sigmoid", "mac"),
    "softplus": ("exp", "mac", "log"),
    "gelu": ("mac", "silu"),
}
"""What a function is made of where the PEs lack it: rsqrt(x) = exp(-log(x)/2), softplus(x) = log(1 + exp(x)), and so on.

gelu(x) is taken as x sigmoid(1.702 x).
"""

POLYNOMIAL = 8
"""MACs of exp, log, sin or cos where the PEs lack it: range reduction, a polynomial of degree five, scaling back."""


@lru_cache(maxsize=1024)
def function_operations(function: str, native: frozenset[str]) -> tuple[int, int]:
    """MAC-like and special operations of a function on PEs that have the ``native`` ones."""
    if function == "mac":
        return 1, 0
    if function in native:
        return (1, 0) if function in ("max", "min") else (0, 1)
    parts = COMPOSED.get(function)
    if parts is None:
        return POLYNOMIAL, 0
    counts = [function_operations(part, native) for part in parts]
    return sum(plain for plain, _ in counts), sum(special for _, special in counts)


@dataclass(frozen=True)
class Operation:
    """Some operations at each point of some ranks."""

    ranks: frozenset[str]
    plain: int
    special: int


@lru_cache(maxsize=4096)
def equation_operations(equation: Equation, native: frozenset[str]) -> tuple[Operation, ...]:
    """The operations of one equation on a PE; a mere copy takes one as well."""
    found = tuple(_operations(equation.expression, native))
    return found or (Operation(frozenset(equation.output.ranks), 1, 0),)


def _operations(node: Expression, native: frozenset[str]) -> Iterator[Operation]:
    ranks = _free(node)
    if isinstance(node, Unary):
        yield from _operations(node.operand, native)
        yield Operation(ranks, *function_operations(node.function, native))
    elif isinstance(node, Binary):
        yield from _operations(node.left, native)
        yield from _operations(node.right, native)
        if _is_scalar(node.left) and _is_scalar(node.right):
            return
        if node.operator == "divide" and not _is_scalar(node.right):
            yield Operation(_free(node.right), *function_operations("reciprocal", native))
        name = "mac" if node.operator in ("add", "subtract", "multiply", "divide") else node.operator
        yield Operation(ranks, *function_operations(name, native))
    elif isinstance(node, Reduce):
        inner = node.operand
        if node.operator == "sum" and isinstance(inner, Binary) and inner.operator == "multiply":
            yield from _operations(inner.left, native)
            yield from _operations(inner.right, native)
            yield Operation(_free(inner), 1, 0)
        else:
            yield from _operations(inner, native)
            yield Operation(_free(inner), 1, 0)


def _is_scalar(node: Expression) -> bool:
    return not _free(node)


@lru_cache(maxsize=16384)
def _free(node: Expression) -> frozenset[str]:
    if isinstance(node, Number | Name):
        return frozenset()
    if isinstance(node, Access):
        return frozenset(node.ranks)
    if isinstance(node, Unary):
        return _free(node.operand)
    if isinstance(node, Binary):
        return _free(node.left) | _free(node.right)
    return _free(node.operand) - frozenset(node.ranks)


@dataclass(frozen=True)
class Work:
    """What one node (an Einsum, or several merged ones) costs for one tile.

    Attributes
    ----------
    points, operations : Numbers
        Points of the iteration space; operations of the PEs.
    cycles : Numbers
        In its mode, without filling and draining.
    reads, writes : Numbers
        Words between array and buffer (2D mode only; 0 in the 1D mode, whose operands are counted for whole passes).
    partial_sums : Numbers
        Words of partial sums among them.
    live_sums : Numbers
        Words of partial sums that lie in the buffer at one time.
    dataflow : tuple of str or np.ndarray
        Index into ``Machine.dataflows``.
    """

    points: Numbers
    operations: Numbers
    cycles: Numbers
    reads: Numbers = 0.0
    writes: Numbers = 0.0
    partial_sums: Numbers = 0.0
    live_sums: Numbers = 0.0
    dataflow: Numbers = -1.0


def volume(ranks: frozenset[str] | Sequence[str], sizes: Sizes) -> Numbers:
    """Product of rank sizes."""
    product: Numbers = 1.0
    for rank in ranks:
        product = product * sizes[rank]
    return product


@dataclass(frozen=True)
class Gemm:
    """A GEMM-like contraction: which ranks play which part. Merged Einsums give several lists of N."""

    groups: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    contracted: tuple[str, ...]
    streamed: Access
    """The operand that meets all columns; the other one is the weights'."""


def gemms(cascade: Cascade, equations: Sequence[Equation]) -> tuple[Gemm, ...]:
    """The contractions of a node, merged ones in one."""
    merged: dict[Gemm, list[tuple[str, ...]]] = {}
    for equation in equations:
        left, right = equation.inputs
        if cascade.tensor(left.tensor).is_weight:
            left, right = right, left
        out = equation.output.ranks
        shared = Gemm(
            groups=tuple(r for r in out if r in left.ranks and r in right.ranks),
            rows=tuple(r for r in out if r in left.ranks and r not in right.ranks),
            columns=(),
            contracted=equation.reduced,
            streamed=left,
        )
        merged.setdefault(shared, []).append(tuple(r for r in out if r in right.ranks and r not in left.ranks))
    return tuple(replace(gemm, columns=tuple(columns)) for gemm, columns in merged.items())


def array_work(cascade: Cascade, equations: Sequence[Equation], machine: Machine, sizes: Sizes) -> Work:
    """A node in the 2D mode, each contraction in the fastest of the machine's dataflows."""
    parts = [_gemm_work(gemm, machine, sizes) for gemm in gemms(cascade, equations)]
    if len(parts) == 1:
        return parts[0]

    def total(name: str) -> Numbers:
        return sum((getattr(part, name) for part in parts), 0.0)

    return Work(
        total("points"), total("operations"), total("cycles"), total("reads"), total("writes"), total("partial_sums"),
        np.maximum.reduce(np.broadcast_arrays(*(part.live_sums for part in parts))), parts[0].dataflow,
    )  # fmt: skip


def _gemm_work(gemm: Gemm, machine: Machine, sizes: Sizes) -> Work:
    g, m, k = volume(gemm.groups, sizes), volume(gemm.rows, sizes), volume(gemm.contracted, sizes)
    n = sum((volume(columns, sizes) for columns in gemm.columns), 0.0)
    options = [_dataflow(flow, machine, m, n, k) for flow in machine.dataflows]
    per_gemm = [tuple(np.broadcast_arrays(*option, m * n * k)[:-1]) for option in options]
    passes = [np.maximum(np.maximum(o[0], o[1] / machine.near_reads), o[2] / machine.near_writes) for o in per_gemm]
    best = np.argmin(np.stack(passes), axis=0)
    chosen = [np.choose(best, [option[i] for option in per_gemm]) for i in range(5)]
    points = g * m * n * k
    return Work(points, points, g * chosen[0], g * chosen[1], g * chosen[2], g * chosen[3], chosen[4], best)


def _dataflow(
    flow: str, machine: Machine, m: Numbers, n: Numbers, k: Numbers
) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers]:
    """Cycles, reads, writes, partial-sum words (both ways) and live partial sums of one GEMM, one stationary operand."""
    rows, columns = machine.rows, machine.columns
    load = rows * columns / machine.load_bandwidth
    if flow == "OS":
        tiles = np.ceil(m / rows) * np.ceil(n / columns)
        cycles = np.ceil(tiles / machine.arrays) * k
        return cycles, m * k * np.ceil(n / columns) + k * n * np.ceil(m / rows), m * n, 0.0, 0.0
    steps = np.ceil(k / rows)
    if flow == "WS":
        cycles = np.ceil(steps * np.ceil(n / columns) / machine.arrays) * np.maximum(m, load)
        reads, live = k * n + m * k * np.ceil(n / columns), m * np.minimum(n, columns)
    else:
        cycles = np.ceil(steps * np.ceil(m / columns) / machine.arrays) * np.maximum(n, load)
        reads, live = m * k + k * n * np.ceil(m / columns), n * np.minimum(m, columns)
    sums = m * n * (steps - 1)
    return cycles, reads + sums, m * n * steps, 2 * sums, np.where(steps > 1, live, 0.0)


def lane_work(equations: Sequence[Equation], machine: Machine, sizes: Sizes) -> Work:
    """A node in the 1D mode, operator by operator."""
    plain: Numbers = 0.0
    special: Numbers = 0.0
    points: Numbers = 0.0
    for equation in equations:
        points = points + volume(equation.ranks, sizes)
        for operation in equation_operations(equation, machine.functions):
            here = volume(operation.ranks, sizes)
            plain, special = plain + operation.plain * here, special + operation.special * here
    cycles = np.ceil(plain / machine.lanes) + np.ceil(special / machine.special_lanes)
    if machine.lanes == machine.special_lanes:
        cycles = np.ceil((plain + special) / machine.lanes)
    return Work(points, plain + special, cycles)


def ideal_work(equations: Sequence[Equation], machine: Machine, sizes: Sizes) -> Work:
    """A node at the peak of its mode, one operation a point."""
    points: Numbers = 0.0
    for equation in equations:
        points = points + volume(equation.ranks, sizes)
    is_gemm = all(equation.is_gemm for equation in equations)
    return Work(points, points, points / (machine.array_pes if is_gemm else machine.lanes))
