"""Arrays that the kernels of the exact search work on.

All words and trips are integers held in doubles, exact below 2**53; energies are doubles. Arrays over the lattice have
one entry per *node*: a divisor of what spatial loops leave of each rank, that is, the temporal loops inside a point of the
nest multiplied up. See :mod:`stitchloop.search.exact` for what the numbers mean and why they suffice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

READ, FILL, UPDATE = range(3)
"""Actions, the last axis of ``Machine.weights``."""

ENERGY = 0
"""The metric that counts whole vectors of words; all others are linear in words."""

INF = np.inf


class Machine(NamedTuple):
    """Einsum and architecture as arrays. Levels inner to outer; ranks and tensors as the Einsum lists them."""

    size: Any
    """int64[ranks]."""
    divisors: Any
    """int64[ranks, *]: divisors of the sizes, ascending, padded with 0."""
    divisor_count: Any
    axes: Any
    """int64[ranks]: ranks in the order of the lattice's axes, outermost first; long runs of equal work stand inside."""
    primes: Any
    """int64[ranks, *]: prime factors, padded with 0."""
    tensor_expression: Any
    """int64[tensors + 1]: first index expression (tensor rank) of each tensor."""
    expression_term: Any
    """int64[expressions + 1]: first term of each expression."""
    term_rank: Any
    term_coefficient: Any
    """int64[terms]: absolute values."""
    sums: Any
    """The same as lists: per tensor and index expression, (rank, coefficient) of every term."""
    is_output: Any
    is_plain: Any
    """Each tensor rank is one rank with coefficient 1, and none occurs twice: box volumes are products of extents."""
    is_diagonal: Any
    """A rank of the Einsum occurs in two tensor ranks."""
    words: Any
    """float64[tensors]: the whole tensor."""
    touched: Any
    """float64[tensors]: words that the Einsum touches; fewer where strides leave gaps."""
    indexes: Any
    """bool[tensors, ranks]."""
    block: Any
    """float64[levels]: words of a vector access."""
    capacity: Any
    """float64[levels]: words, or infinity."""
    least: Any
    """float64[levels]: least words that kept tiles fill."""
    weights: Any
    """float64[metrics, levels, actions]: pJ per vector access (energy), else per word."""
    per_instance: Any
    """bool[metrics]: counts of one instance instead of all."""
    bandwidth: Any
    """float64[levels, 3]: words per cycle of one instance read, written, and both together; infinity when unlimited."""
    buffer_metric: int
    """Index of the metric that sums kept words, the least-buffer tie-break."""


class Plan(NamedTuple):
    """Keep sets and the program for them, as arrays; see :class:`stitchloop.search.program.Program`."""

    kept: Any
    """bool[levels, tensors]."""
    transfer_tensor: Any
    transfer_child: Any
    transfer_parent: Any
    innermost: Any
    """int64[tensors]: innermost level that keeps the tensor."""
    late: Any
    """int64[tensors]: see :class:`stitchloop.search.program.Transfers`."""
    ops: Any
    op_pays: Any
    op_slides: Any
    pay_first: Any
    pay_last: Any
    slides: Any
    """int64[slides, 4]: payment, level and rank of the loop, and what comes after."""
    spans: Any
    """int64[slides, 3]: each slide's first transfer, the one past its last, and the row of ``Tables.staying`` of its first."""
    slot_ops: Any
    root: int


class Tables(NamedTuple):
    """Work space for one vector of spatial factors."""

    count: Any
    """int64[ranks]: divisors per axis of the lattice."""
    value: Any
    """int64[ranks, *]."""
    stride: Any
    pairs: Any
    """int64[ranks, *]: pairs of a divisor and a proper multiple of it, those of the first divisors of an axis."""
    successor: Any
    """int64[ranks, primes, *]: index of ``value * prime``, or -1."""
    inner: Any
    """float64[levels + 1, ranks]: spatial factors inside each level, the level's own excluded."""
    instances: Any
    """float64[levels]."""
    partition: Any
    """float64[levels, tensors]: words of outputs that one instance covers."""
    extent: Any
    """float64[ranks, nodes]."""
    trips: Any
    """float64[nodes]: temporal iterations outside."""
    tile: Any
    """float64[levels, tensors, nodes]: words of the tiles kept."""
    share: Any
    """float64[transfers, nodes]: words delivered to one child, if the run ends at the node without halo."""
    reads: Any
    """float64[transfers, nodes]: words the parent delivers."""
    filled: Any
    """float64[levels, nodes]: kept words, 0 where the capacity is infinite."""
    leave: Any
    """float64[levels, nodes]: infinity where the kept words do not fit, else 0."""
    staying: Any
    """float64[slides' transfers, nodes]: share of the words that a whole loop leaves in the child; see ``Plan.spans``."""
    loose: Any
    """float64[4, slides' transfers, nodes], or without rows: see :func:`stitchloop.search.wraps.loosen`."""
    slide_start: Any
    """int64[slides]: where the values of each slide start."""
    slide_values: Any
    """float64[*]: see :func:`stitchloop.search.slides.value_slides`."""
    value_of_transfer: Any
    """float64[transfers, nodes]."""
    cycles: Any
    """float64[1]: temporal iterations altogether."""
    still: Any
    """bool[levels]: nothing inside the level is looped over in time."""
    different: Any
    """float64[transfers]: different tiles between parent and child, but for fan-outs where they depend on the node."""
    constant: Any
    """float64[metrics]: what the compute units move, whatever the temporal loops."""
    base: Any
    """float64[tensors, 2]: words that the compute units read from the innermost level that keeps the tensor, and update."""
    scratch: Any
    """float64[2, nodes]."""
