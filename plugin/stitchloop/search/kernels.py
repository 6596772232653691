"""Compiled kernels of the exact search: costs over the lattice of tile shapes, and the passes of a program.

All words and trips are integers held in doubles, exact below 2**53; energies are doubles. Arrays over the lattice have
one entry per *node*: a divisor of what spatial loops leave of each rank, that is, the temporal loops inside a point of the
nest multiplied up. See :mod:`stitchloop.search.exact` for what the numbers mean and why they suffice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from stitchloop.search.program import END, EXIT, FREE, PAY, SLIDE

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
    """int64[slides, 3]: payment, level and rank of the loop."""
    slot_ops: Any
    root: int


class Tables(NamedTuple):
    """Work space for one vector of spatial factors."""

    count: Any
    """int64[ranks]: divisors per axis of the lattice."""
    value: Any
    """int64[ranks, *]."""
    stride: Any
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
    share: Any
    """float64[transfers, nodes]: words delivered to one child, if the run ends at the node without halo."""
    reads: Any
    """float64[transfers, nodes]: words the parent delivers."""
    fits: Any
    """bool[levels, nodes]."""
    filled: Any
    """float64[levels, nodes]: kept words."""
    slide_start: Any
    """int64[slides]: where the values of each slide start."""
    value_of_transfer: Any
    """float64[transfers, nodes]."""
    value_of_payment: Any
    """float64[payments, nodes]."""
    cycles: Any
    """float64[1]: temporal iterations altogether."""
    floor: Any
    """float64[metrics]: least cost of all transfers."""
    still: Any
    """bool[levels]: nothing inside the level is looped over in time."""
    different: Any
    """float64[transfers]: different tiles between parent and child, but for fan-outs where they depend on the node."""
    constant: Any
    """float64[metrics]: what the compute units move, whatever the temporal loops."""
    base: Any
    """float64[tensors, 2]: words that the compute units read from the innermost level that keeps the tensor, and update."""
    words: Any
    """float64[levels, tensors, 2]: words read and written, of one nest."""
    scratch: Any
    """float64[nodes]."""


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def lay_lattice(machine: Machine, spatial: Any, tables: Tables) -> int:
    """Axes of the lattice under the spatial factors ``spatial[levels, ranks]``; returns the number of nodes."""
    levels, ranks = spatial.shape
    nodes = 1
    for k in range(ranks - 1, -1, -1):
        r = machine.axes[k]
        rest = machine.size[r]
        for i in range(levels):
            rest //= spatial[i, r]
        count = 0
        for d in range(machine.divisor_count[r]):
            if rest % machine.divisors[r, d] == 0:
                tables.value[r, count] = machine.divisors[r, d]
                count += 1
        tables.count[r] = count
        tables.stride[r] = nodes
        nodes *= count
        for q in range(machine.primes.shape[1]):
            prime = machine.primes[r, q]
            j = 0
            for i in range(count):
                tables.successor[r, q, i] = -1
                if prime > 1:
                    while j < count and tables.value[r, j] < tables.value[r, i] * prime:
                        j += 1
                    if j < count and tables.value[r, j] == tables.value[r, i] * prime:
                        tables.successor[r, q, i] = j
    for p in range(nodes):
        tables.trips[p] = 1.0
    for r in range(ranks):
        k, step = tables.count[r], tables.stride[r]
        most = float(tables.value[r, k - 1])
        for start in range(0, nodes, k * step):
            for i in range(k):
                extent = float(tables.value[r, i])
                outer = most / extent
                for p in range(start + i * step, start + (i + 1) * step):
                    tables.extent[r, p] = extent
                    tables.trips[p] *= outer
    return nodes


@njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
def fill_volume(machine: Machine, tables: Tables, tensor: int, level: int, nodes: int, out: Any) -> None:
    """Words of the tensor's tile at ``level``: spatial loops up to and with the level's, temporal ones as the node says."""
    for p in range(nodes):
        out[p] = 1.0
    for e in range(machine.tensor_expression[tensor], machine.tensor_expression[tensor + 1]):
        first, last = machine.expression_term[e], machine.expression_term[e + 1]
        if last == first:
            continue
        if last == first + 1:
            r = machine.term_rank[first]
            c = float(machine.term_coefficient[first])
            inner = tables.inner[level + 1, r] * c
            for p in range(nodes):
                out[p] *= tables.extent[r, p] * inner + (1.0 - c)
            continue
        for p in range(nodes):
            length = 1.0
            for k in range(first, last):
                r = machine.term_rank[k]
                length += machine.term_coefficient[k] * (tables.extent[r, p] * tables.inner[level + 1, r] - 1.0)
            out[p] *= length


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def place(machine: Machine, spatial: Any, tables: Tables) -> None:
    """What the spatial factors ``spatial[levels, ranks]`` settle at once: cycles, instances, partitions."""
    levels, ranks = spatial.shape
    cycles = 1.0
    for r in range(ranks):
        rest = machine.size[r]
        tables.inner[0, r] = 1.0
        for i in range(levels):
            rest //= spatial[i, r]
            tables.inner[i + 1, r] = tables.inner[i, r] * spatial[i, r]
        cycles *= rest
    tables.cycles[0] = cycles
    outside = 1.0
    for i in range(levels - 1, -1, -1):
        tables.instances[i] = outside
        for r in range(ranks):
            outside *= spatial[i, r]
    for t in range(machine.is_output.shape[0]):
        covered = machine.words[t]
        for i in range(levels - 1, -1, -1):
            tables.partition[i, t] = covered
            if machine.is_plain[t]:
                for e in range(machine.tensor_expression[t], machine.tensor_expression[t + 1]):
                    for k in range(machine.expression_term[e], machine.expression_term[e + 1]):
                        covered /= spatial[i, machine.term_rank[k]]


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def count_words(machine: Machine, plan: Plan, spatial: Any, tables: Tables, nodes: int) -> None:
    """Fill the words of every transfer and the tiles kept, for every node."""
    levels = spatial.shape[0]
    for i in range(levels):
        if not plan.kept[i].any():
            continue
        for p in range(nodes):
            tables.filled[i, p] = 0.0
        if machine.capacity[i] == INF:
            for p in range(nodes):
                tables.fits[i, p] = True
            continue
        for t in range(machine.is_output.shape[0]):
            if plan.kept[i, t]:
                fill_volume(machine, tables, t, i, nodes, tables.scratch)
                for p in range(nodes):
                    tables.filled[i, p] += tables.scratch[p]
        most, least = machine.capacity[i], machine.least[i]
        for p in range(nodes):
            tables.fits[i, p] = tables.filled[i, p] <= most and tables.filled[i, p] >= least
    for q in range(plan.transfer_tensor.shape[0]):
        t, child = plan.transfer_tensor[q], plan.transfer_child[q]
        if child < 0:
            for p in range(nodes):
                tables.share[q, p] = 0.0
                tables.reads[q, p] = tables.cycles[0] * tables.different[q]
            continue
        fill_volume(machine, tables, t, child, nodes, tables.share[q])
        for p in range(nodes):
            tables.share[q, p] *= tables.trips[p]
            tables.reads[q, p] = tables.share[q, p] * tables.different[q]


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def mix_metrics(machine: Machine, plan: Plan, tables: Tables, mix: Any, rates: Any) -> None:
    """``rates[transfer]``: what one word costs in the mixture ``mix`` (a weight per metric) of metrics; see :func:`priced`."""
    weights = machine.weights
    for q in range(plan.transfer_tensor.shape[0]):
        t, child, parent = plan.transfer_tensor[q], plan.transfer_child[q], plan.transfer_parent[q]
        fed = child >= 0
        own, outer = tables.instances[child] if fed else 0.0, tables.instances[parent]
        output = machine.is_output[t]
        rates[q, 0] = mix[ENERGY] * weights[ENERGY, child, FILL] * own
        rates[q, 1] = mix[ENERGY] * weights[ENERGY, parent, READ] * outer
        rates[q, 2] = mix[ENERGY] * weights[ENERGY, parent, UPDATE] * outer if output else 0.0
        rates[q, 3], rates[q, 4] = machine.block[child], machine.block[parent]
        rates[q, 5] = tables.partition[child, t] if output and fed else 0.0
        rates[q, 6] = tables.partition[parent, t] if output else 0.0
        rates[q, 7], rates[q, 8], rates[q, 9] = 0.0, 0.0, 0.0
        for m in range(1, mix.shape[0]):
            if mix[m] != 0.0:
                if machine.per_instance[m]:
                    own, outer = 1.0, 1.0
                else:
                    own, outer = tables.instances[child], tables.instances[parent]
                if not fed:
                    own = 0.0
                rates[q, 7] += mix[m] * weights[m, child, FILL] * own
                rates[q, 8] += mix[m] * weights[m, parent, READ] * outer
                if output:
                    rates[q, 9] += mix[m] * weights[m, parent, UPDATE] * outer


@njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
def priced(rate: Any, share: float, reads: float) -> float:
    """Cost of a transfer: ``share`` words to one child, ``reads`` words from the parent, both per instance.

    ``rate`` holds the energies of a fill, a read and an update over all instances, the vectors of child and parent, the
    words of an output whose first read is elided at child and parent, and the linear costs of a fill, a read, an update.
    """
    fills = max(0.0, share - rate[5])
    again = max(0.0, reads - rate[6])
    energy = rate[0] * np.ceil(fills / rate[3]) + rate[1] * np.ceil(again / rate[4]) + rate[2] * np.ceil(reads / rate[4])
    return energy + rate[7] * fills + rate[8] * again + rate[9] * reads


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def value_payments(plan: Plan, tables: Tables, rates: Any, nodes: int, out: Any) -> None:
    """``out[payment, node]``: what the payments cost at ``rates``."""
    for q in range(plan.transfer_tensor.shape[0]):
        fill, read, update, inside, outside = rates[q, 0], rates[q, 1], rates[q, 2], rates[q, 3], rates[q, 4]
        own, whole, linear_fill, linear_read, linear_update = rates[q, 5], rates[q, 6], rates[q, 7], rates[q, 8], rates[q, 9]
        share, reads, into = tables.share[q], tables.reads[q], tables.value_of_transfer[q]
        for p in range(nodes):
            fills = max(0.0, share[p] - own)
            again = max(0.0, reads[p] - whole)
            energy = fill * np.ceil(fills / inside) + read * np.ceil(again / outside) + update * np.ceil(reads[p] / outside)
            into[p] = energy + linear_fill * fills + linear_read * again + linear_update * reads[p]
    for k in range(plan.pay_first.shape[0]):
        for p in range(nodes):
            out[k, p] = tables.value_of_transfer[plan.pay_first[k], p]
        for q in range(plan.pay_first[k] + 1, plan.pay_last[k]):
            for p in range(nodes):
                out[k, p] += tables.value_of_transfer[q, p]


@njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
def overlap(machine: Machine, tables: Tables, tensor: int, child: int, level: int, rank: int, node: int) -> float:
    """Words of the child's tile that stay when the tile moves one step of a loop over ``rank`` at ``level``."""
    kept = 1.0
    moved = tables.extent[rank, node] * tables.inner[level + 1, rank]
    for e in range(machine.tensor_expression[tensor], machine.tensor_expression[tensor + 1]):
        length = 1.0
        distance = 0.0
        for k in range(machine.expression_term[e], machine.expression_term[e + 1]):
            r = machine.term_rank[k]
            length += machine.term_coefficient[k] * (tables.extent[r, node] * tables.inner[child + 1, r] - 1.0)
            if r == rank:
                distance += machine.term_coefficient[k] * moved
        kept *= max(0.0, length - distance)
    return kept


@njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
def fill_staying(
    machine: Machine, tables: Tables, q: int, t: int, child: int, level: int, rank: int, nodes: int, out: Any
) -> None:
    """``out[node]``: words of transfer ``q`` that stay in the child over all steps of a loop over ``rank`` at ``level``."""
    for p in range(nodes):
        out[p] = tables.share[q, p]
    for e in range(machine.tensor_expression[t], machine.tensor_expression[t + 1]):
        first, last = machine.expression_term[e], machine.expression_term[e + 1]
        coefficient = 0.0
        for k in range(first, last):
            if machine.term_rank[k] == rank:
                coefficient = machine.term_coefficient[k] * tables.inner[level + 1, rank]
        if coefficient == 0.0:
            continue
        if last == first + 2:
            a, b = machine.term_rank[first], machine.term_rank[first + 1]
            by_a = machine.term_coefficient[first] * tables.inner[child + 1, a]
            by_b = machine.term_coefficient[first + 1] * tables.inner[child + 1, b]
            base = 1.0 - machine.term_coefficient[first] - machine.term_coefficient[first + 1]
            extent_a, extent_b, moved = tables.extent[a], tables.extent[b], tables.extent[rank]
            for p in range(nodes):
                length = base + by_a * extent_a[p] + by_b * extent_b[p]
                out[p] *= max(0.0, length - coefficient * moved[p]) / length
            continue
        for p in range(nodes):
            length = 1.0
            for k in range(first, last):
                r = machine.term_rank[k]
                length += machine.term_coefficient[k] * (tables.extent[r, p] * tables.inner[child + 1, r] - 1.0)
            out[p] *= max(0.0, length - coefficient * tables.extent[rank, p]) / length


@njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
def slide_value(machine: Machine, plan: Plan, tables: Tables, rates: Any, slide: int, node: int, bound: int) -> float:
    """Payment of a tensor whose run ends at ``node`` in a loop that slides its tile ``bound - 1`` times per pass."""
    payment, level, rank = plan.slides[slide, 0], plan.slides[slide, 1], plan.slides[slide, 2]
    total = 0.0
    trips = tables.trips[node]
    for q in range(plan.pay_first[payment], plan.pay_last[payment]):
        share, reads = tables.share[q, node], tables.reads[q, node]
        stays = overlap(machine, tables, plan.transfer_tensor[q], plan.transfer_child[q], level, rank, node)
        saved = stays * trips * (1.0 - 1.0 / bound)
        total += priced(rates[q], np.rint(share - saved), np.rint(reads - saved * (reads / share)))
    return total


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def relax_slides(machine: Machine, plan: Plan, tables: Tables, rates: Any, nodes: int, endless: bool, out: Any) -> None:
    """``out[slide * nodes + node]``: a lower bound of the slide's values over all bounds.

    The bound is taken as large as what is left of the rank, or without end if ``endless``.
    """
    for slide in range(plan.slides.shape[0]):
        at = slide * nodes
        tables.slide_start[slide] = at
        payment, level, rank = plan.slides[slide, 0], plan.slides[slide, 1], plan.slides[slide, 2]
        most = float(tables.value[rank, tables.count[rank] - 1])
        extent = tables.extent[rank]
        for p in range(nodes):
            out[at + p] = 0.0
        for q in range(plan.pay_first[payment], plan.pay_last[payment]):
            t, child = plan.transfer_tensor[q], plan.transfer_child[q]
            staying = tables.scratch
            fill_staying(machine, tables, q, t, child, level, rank, nodes, staying)
            fill, read, update, inside, outside = rates[q, 0], rates[q, 1], rates[q, 2], rates[q, 3], rates[q, 4]
            own, whole = rates[q, 5], rates[q, 6]
            linear_fill, linear_read, linear_update = rates[q, 7], rates[q, 8], rates[q, 9]
            for p in range(nodes):
                part = 1.0 if endless else 1.0 - extent[p] / most
                left = 1.0 - (part + 1e-12) * staying[p] / tables.share[q, p]
                share, reads = tables.share[q, p] * left, tables.reads[q, p] * left
                fills, again = max(0.0, share - own), max(0.0, reads - whole)
                vectors = fill * np.ceil(fills / inside) + read * np.ceil(again / outside)
                vectors += update * np.ceil(reads / outside)
                out[at + p] += vectors + (linear_fill * fills + linear_read * again + linear_update * reads)


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def value_slides(machine: Machine, plan: Plan, tables: Tables, rates: Any, nodes: int, out: Any) -> None:
    """``out``: :func:`slide_value` of every slide, node and bound.

    A slide's values stand together, ordered by the axes outside its rank, then by pairs (from, to) along the rank's axis,
    ``to`` a proper multiple of ``from``, then by the axes inside.
    """
    at = 0
    for slide in range(plan.slides.shape[0]):
        tables.slide_start[slide] = at
        payment, level, rank = plan.slides[slide, 0], plan.slides[slide, 1], plan.slides[slide, 2]
        count, step = tables.count[rank], tables.stride[rank]
        size = 0
        for i in range(count):
            for j in range(i + 1, count):
                size += step * (tables.value[rank, j] % tables.value[rank, i] == 0)
        size *= nodes // (count * step)
        for k in range(size):
            out[at + k] = 0.0
        for q in range(plan.pay_first[payment], plan.pay_last[payment]):
            t, child = plan.transfer_tensor[q], plan.transfer_child[q]
            staying = tables.scratch
            fill_staying(machine, tables, q, t, child, level, rank, nodes, staying)
            fill, read, update, inside, outside = rates[q, 0], rates[q, 1], rates[q, 2], rates[q, 3], rates[q, 4]
            own, whole = rates[q, 5], rates[q, 6]
            linear_fill, linear_read, linear_update = rates[q, 7], rates[q, 8], rates[q, 9]
            k = at
            for start in range(0, nodes, count * step):
                for i in range(count):
                    for j in range(i + 1, count):
                        if tables.value[rank, j] % tables.value[rank, i]:
                            continue
                        part = 1.0 - float(tables.value[rank, i]) / float(tables.value[rank, j])
                        for p in range(start + i * step, start + (i + 1) * step):
                            saved = staying[p] * part
                            share = np.rint(tables.share[q, p] - saved)
                            reads = np.rint(tables.reads[q, p] - saved * (tables.reads[q, p] / tables.share[q, p]))
                            fills, again = max(0.0, share - own), max(0.0, reads - whole)
                            vectors = fill * np.ceil(fills / inside) + read * np.ceil(again / outside)
                            vectors += update * np.ceil(reads / outside)
                            out[k] += vectors + (linear_fill * fills + linear_read * again + linear_update * reads)
                            k += 1
        at += size


@njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
def run_slide(plan: Plan, tables: Tables, o: int, nodes: int, cost: Any, target: Any, origin: Any, slides: Any) -> None:
    """Operation ``o``: pay, and loop over a rank that slides the tiles of some of the tensors paid."""
    ops = plan.ops
    rank, least, most = ops[o, 3], ops[o, 5], ops[o, 6]
    count, step = tables.count[rank], tables.stride[rank]
    first, last = ops[o, 10], ops[o, 11]
    at = 0
    for start in range(0, nodes, count * step):
        for i in range(count):
            for j in range(i + 1, count):
                if tables.value[rank, j] % tables.value[rank, i]:
                    continue
                bound = tables.value[rank, j] // tables.value[rank, i]
                if bound >= least and bound <= most:
                    here, there = start + i * step, start + j * step
                    one = tables.slide_start[plan.op_slides[first]] + at
                    if last == first + 1:
                        for k in range(step):
                            total = cost[here + k] + origin[there + k] + slides[one + k]
                            if total < target[here + k]:
                                target[here + k] = total
                    else:
                        for k in range(step):
                            total = cost[here + k] + origin[there + k]
                            for s in range(first, last):
                                total += slides[tables.slide_start[plan.op_slides[s]] + at + k]
                            if total < target[here + k]:
                                target[here + k] = total
                at += step


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def run_program(
    plan: Plan,
    machine: Machine,
    tables: Tables,
    buffers: float,
    nodes: int,
    payments: Any,
    slides: Any,
    relaxed: bool,
    slots: Any,
) -> None:
    """Fill ``slots[slot, node]`` with the least cost from there to the end of the nest.

    ``payments`` and ``slides`` are priced; with ``relaxed``, slides by :func:`relax_slides`. ``buffers`` is the cost of
    keeping a word.
    """
    ops = plan.ops
    for o in range(ops.shape[0]):
        kind, into, source, rank, level = ops[o, 0], ops[o, 1], ops[o, 2], ops[o, 3], ops[o, 4]
        target, origin = slots[into], slots[source]
        if kind == END:
            for p in range(nodes):
                target[p] = INF
            target[nodes - 1] = 0.0
        elif kind == EXIT:
            if not plan.kept[level].any():
                for p in range(nodes):
                    target[p] = origin[p]
            else:
                for p in range(nodes):
                    target[p] = origin[p] if tables.fits[level, p] else INF
                if buffers != 0.0:
                    for p in range(nodes):
                        target[p] += buffers * tables.filled[level, p] * tables.instances[level]
        elif kind == FREE:
            for p in range(nodes):
                target[p] = origin[p]
            count, step = tables.count[rank], tables.stride[rank]
            for q in range(machine.primes.shape[1]):
                if machine.primes[rank, q] == 0:
                    break
                for start in range(0, nodes, count * step):
                    for i in range(count - 1, -1, -1):
                        j = tables.successor[rank, q, i]
                        if j >= 0:
                            for k in range(step):
                                here, there = start + i * step + k, start + j * step + k
                                if target[there] < target[here]:
                                    target[here] = target[there]
        else:
            if ops[o, 7]:
                for p in range(nodes):
                    target[p] = INF
            cost = tables.scratch
            if kind == PAY:
                for p in range(nodes):
                    cost[p] = origin[p]
            else:
                for p in range(nodes):
                    cost[p] = 0.0
            for k in range(ops[o, 8], ops[o, 9]):
                paid = payments[plan.op_pays[k]]
                for p in range(nodes):
                    cost[p] += paid[p]
            if kind == PAY:
                for p in range(nodes):
                    if cost[p] < target[p]:
                        target[p] = cost[p]
                continue
            if kind == SLIDE and relaxed:
                for s in range(ops[o, 10], ops[o, 11]):
                    first = tables.slide_start[plan.op_slides[s]]
                    for p in range(nodes):
                        cost[p] += slides[first + p]
                if ops[o, 12]:
                    for p in range(nodes):
                        total = cost[p] + origin[p]
                        if total < target[p]:
                            target[p] = total
                    continue
            elif kind == SLIDE:
                run_slide(plan, tables, o, nodes, cost, target, origin, slides)
                continue
            count, step = tables.count[rank], tables.stride[rank]
            for start in range(0, nodes, count * step):
                for i in range(count):
                    for j in range(i + 1, count):
                        if tables.value[rank, j] % tables.value[rank, i]:
                            continue
                        bound = tables.value[rank, j] // tables.value[rank, i]
                        if bound < ops[o, 5] or bound > ops[o, 6]:
                            continue
                        here, there = start + i * step, start + j * step
                        for k in range(step):
                            total = cost[here + k] + origin[there + k]
                            if total < target[here + k]:
                                target[here + k] = total


@njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
def begin_words(plan: Plan, tables: Tables) -> None:
    """Start ``tables.words`` with what the compute units move."""
    for i in range(tables.words.shape[0]):
        for t in range(tables.words.shape[1]):
            tables.words[i, t, 0] = 0.0
            tables.words[i, t, 1] = 0.0
    for t in range(plan.innermost.shape[0]):
        tables.words[plan.innermost[t], t, 0] = tables.base[t, 0]
        tables.words[plan.innermost[t], t, 1] = tables.base[t, 1]


@njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
def add_words(machine: Machine, plan: Plan, tables: Tables, o: int, node: int, bound: int) -> None:
    """Add to ``tables.words`` what operation ``o`` at ``node`` moves; ``bound`` is that of its loop."""
    ops = plan.ops
    pays = ops[o, 9] - ops[o, 8]
    for k in range(pays + ops[o, 11] - ops[o, 10]):
        slide = np.int64(-1)
        if k < pays:
            payment = plan.op_pays[ops[o, 8] + k]
        else:
            slide = plan.op_slides[ops[o, 10] + k - pays]
            payment = plan.slides[slide, 0]
        for q in range(plan.pay_first[payment], plan.pay_last[payment]):
            t, child, parent = plan.transfer_tensor[q], plan.transfer_child[q], plan.transfer_parent[q]
            share, reads = tables.share[q, node], tables.reads[q, node]
            if slide >= 0:
                stays = overlap(machine, tables, t, child, plan.slides[slide, 1], plan.slides[slide, 2], node)
                saved = stays * tables.trips[node] * (1.0 - 1.0 / bound)
                share, reads = np.rint(share - saved), np.rint(reads - saved * (reads / share))
            if machine.is_output[t]:
                tables.words[parent, t, 0] += max(0.0, reads - tables.partition[parent, t])
                tables.words[parent, t, 1] += reads
                if child >= 0:
                    tables.words[child, t, 1] += max(0.0, share - tables.partition[child, t])
            else:
                tables.words[parent, t, 0] += reads
                if child >= 0:
                    tables.words[child, t, 1] += share


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def pace(machine: Machine, tables: Tables) -> float:
    """Cycles of the nest that ``tables.words`` describes, in the order of operations in which the tool rounds."""
    cycles = tables.cycles[0]
    longest = cycles
    for i in range(machine.block.shape[0]):
        read, write = 0.0, 0.0
        for t in range(machine.is_output.shape[0]):
            read += tables.words[i, t, 0] / cycles
            write += tables.words[i, t, 1] / cycles
        slowdown = 1.0
        if read > 0.0:
            slowdown = min(slowdown, machine.bandwidth[i, 0] / read)
        if write > 0.0:
            slowdown = min(slowdown, machine.bandwidth[i, 1] / write)
        if write + read > 0.0:
            slowdown = min(slowdown, machine.bandwidth[i, 2] / (write + read))
        longest = max(longest, np.ceil(cycles / slowdown))
    return longest


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def walk(
    machine: Machine, plan: Plan, tables: Tables, rates: Any, singles: Any, payments: Any, slots: Any, sums: Any, loops: Any
) -> int:
    """Follow a cheapest nest through filled slots; of equal ways the first.

    ``loops[k] = (level, rank, bound)``, innermost first; returns how many, or -1 when there is no valid nest.
    ``sums[metric]`` gets what the nest costs in every metric, constants left out; ``singles[metric]`` are its rates.
    """
    ops = plan.ops
    for m in range(sums.shape[0]):
        sums[m] = 0.0
    begin_words(plan, tables)
    slot: Any = np.int64(plan.root)
    node: Any = np.int64(0)
    found: Any = np.int64(0)
    while True:
        best = INF
        chosen: Any = np.int64(-1)
        target: Any = np.int64(0)
        for o in range(plan.slot_ops[slot, 0], plan.slot_ops[slot, 1]):
            kind, source, rank = ops[o, 0], ops[o, 2], ops[o, 3]
            if kind == END:
                return found
            cost = 0.0
            for k in range(ops[o, 8], ops[o, 9]):
                cost += payments[plan.op_pays[k], node]
            if kind in (EXIT, PAY):
                total = cost + slots[source, node]
                if total < best:
                    best, chosen, target = total, o, node
                continue
            count, step = tables.count[rank], tables.stride[rank]
            i = (node // step) % count
            for j in range(i if kind == FREE else i + 1, count):
                if tables.value[rank, j] % tables.value[rank, i]:
                    continue
                bound = tables.value[rank, j] // tables.value[rank, i]
                if bound < ops[o, 5] or bound > ops[o, 6]:
                    continue
                there = node + (j - i) * step
                total = cost + slots[source, there]
                if total >= best:
                    continue
                if kind == SLIDE:
                    for s in range(ops[o, 10], ops[o, 11]):
                        total += slide_value(machine, plan, tables, rates, plan.op_slides[s], node, bound)
                if total < best:
                    best, chosen, target = total, o, there
        if chosen < 0:
            return -1
        found = record(machine, plan, tables, singles, chosen, node, target, sums, loops, found)
        slot, node = ops[chosen, 2], target


@njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
def record(
    machine: Machine, plan: Plan, tables: Tables, singles: Any, o: int, node: int, target: int, sums: Any, loops: Any, found: int
) -> int:
    """Add what operation ``o`` from ``node`` to ``target`` costs to ``sums``, and its loop, if any, to ``loops``."""
    ops = plan.ops
    kind, rank, level = ops[o, 0], ops[o, 3], ops[o, 4]
    bound = 1
    if target != node:
        step, count = tables.stride[rank], tables.count[rank]
        bound = tables.value[rank, (target // step) % count] // tables.value[rank, (node // step) % count]
    for m in range(sums.shape[0]):
        for k in range(ops[o, 8], ops[o, 9]):
            payment = plan.op_pays[k]
            for q in range(plan.pay_first[payment], plan.pay_last[payment]):
                sums[m] += priced(singles[m, q], tables.share[q, node], tables.reads[q, node])
        for s in range(ops[o, 10], ops[o, 11]):
            sums[m] += slide_value(machine, plan, tables, singles[m], plan.op_slides[s], node, bound)
    add_words(machine, plan, tables, o, node, bound)
    if kind == EXIT and plan.kept[level].any():
        sums[machine.buffer_metric] += tables.filled[level, node] * tables.instances[level]
    if bound > 1:
        loops[found, 0], loops[found, 1], loops[found, 2] = level, rank, bound
        found += 1
    return found
