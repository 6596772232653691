"""The lattice of tile shapes under a vector of spatial factors, and the words of every transfer and tile on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from stitchloop.search.arrays import INF, Machine, Plan, Tables
from stitchloop.search.compiled import Flags1, Flags2, Floats1, Floats2, Floats3, Ints1, Ints2, Ints3, inner, kernel

BLOCK = 256
"""Least nodes of a block, if there are as many."""


@kernel
def lay_lattice(
    spatial: Ints2, size: Ints1, divisors: Ints2, divisor_count: Ints1, primes: Ints2, axes: Ints1, inside: Floats2,
    count: Ints1, stride: Ints1, value: Ints2, pairs: Ints2, successor: Ints3, extent: Floats2, trips: Floats1, cycles: Floats1,
) -> int:  # fmt: skip
    """Factors inside levels, axes, extents and trips under the factors ``spatial[levels, ranks]``; the number of nodes."""
    nodes, total, last = 1, 1.0, spatial.shape[0]
    for a in range(axes.shape[0] - 1, -1, -1):
        r = axes[a]
        inside[0, r] = 1.0
        for i in range(last):
            inside[i + 1, r] = inside[i, r] * spatial[i, r]
        left, own = size[r] // np.int64(inside[last, r]), 0
        for k in range(divisor_count[r]):
            if left % divisors[r, k] == 0:
                value[r, own] = divisors[r, k]
                own += 1
        for q in range(primes.shape[1]):
            for i in range(own):
                successor[r, q, i] = -1
                for j in range(i + 1, own):
                    if value[r, j] == value[r, i] * primes[r, q]:
                        successor[r, q, i] = j
        pairs[r, 0] = 0
        for i in range(own):
            pairs[r, i + 1] = pairs[r, i]
            for j in range(i + 1, own):
                pairs[r, i + 1] += value[r, j] % value[r, i] == 0
        count[r], stride[r] = own, nodes
        nodes *= own
        total *= left
    cycles[0] = total
    for p in range(nodes):
        trips[p] = total
    for r in range(count.shape[0]):
        step, own = stride[r], count[r]
        for start in range(0, nodes, own * step):
            for i in range(own):
                factor = float(value[r, i])
                for p in range(start + i * step, start + (i + 1) * step):
                    extent[r, p] = factor
                    trips[p] /= factor
    return nodes


@kernel
def count_instances(
    inside: Floats2, is_output: Flags1, is_plain: Flags1, indexes: Flags2, words: Floats1, instances: Floats1, partition: Floats2
) -> None:
    """Instances of every level, and the words of every output that one of them covers, from the factors inside levels."""
    levels, ranks = instances.shape[0], inside.shape[1]
    for i in range(levels):
        instances[i] = 1.0
        for r in range(ranks):
            instances[i] *= inside[levels, r] / inside[i + 1, r]
        for t in range(is_output.shape[0]):
            if is_output[t]:
                covered = 1.0
                for r in range(ranks):
                    if is_plain[t] and indexes[t, r]:
                        covered *= inside[levels, r] / inside[i + 1, r]
                partition[i, t] = words[t] / covered


@inner
def fill_lengths(
    first: int, last: int, term_rank: Any, term_coefficient: Any, factors: Any, extent: Any, nodes: int, out: Any
) -> None:
    """Length of the index expression of terms ``first`` to ``last`` over ``extent`` by the spatial ``factors`` of each rank."""
    base = 1.0
    for k in range(first, last):
        base -= term_coefficient[k]
    for p in range(nodes):
        out[p] = base
    for k in range(first, last):
        slope, own = term_coefficient[k] * factors[term_rank[k]], extent[term_rank[k]]
        for p in range(nodes):
            out[p] += slope * own[p]


@kernel
def count_words(
    kept: Flags2, capacity: Floats1, least: Floats1, tensors: Ints1, children: Ints1, tensor_expression: Ints1,
    expression_term: Ints1, term_rank: Ints1, term_coefficient: Ints1, factors: Floats2, extent: Floats2, trips: Floats1,
    different: Floats1, nodes: int, lengths: Floats1, tile: Floats3, filled: Floats2, leave: Floats2, share: Floats2,
    reads: Floats2,
) -> None:  # fmt: skip
    """Words of every kept tile (spatial loops up to and with the level's, temporal ones as the node says) and transfer."""
    for level in range(kept.shape[0]):
        held, total, most = False, filled[level], capacity[level]
        for p in range(nodes):
            total[p] = 0.0
        for tensor in range(kept.shape[1]):
            if not kept[level, tensor]:
                continue
            held, own = True, tile[level, tensor]
            for p in range(nodes):
                own[p] = 1.0
            for e in range(tensor_expression[tensor], tensor_expression[tensor + 1]):
                first, last = expression_term[e], expression_term[e + 1]
                fill_lengths(first, last, term_rank, term_coefficient, factors[level + 1], extent, nodes, lengths)
                for p in range(nodes):
                    own[p] *= lengths[p]
            for p in range(nodes if most < INF else 0):
                total[p] += own[p]
        for p in range(nodes):
            leave[level, p] = INF if held and (total[p] > most or total[p] < least[level]) else 0.0
    for q in range(tensors.shape[0]):
        late, own = children[q] < 0, tile[children[q], tensors[q]]
        for p in range(nodes):
            share[q, p] = 0.0 if late else own[p] * trips[p]
            reads[q, p] = (trips[0] if late else share[q, p]) * different[q]


@kernel
def fill_staying(
    slides: Ints2, spans: Ints2, tensors: Ints1, children: Ints1, tensor_expression: Ints1, expression_term: Ints1,
    term_rank: Ints1, term_coefficient: Ints1, factors: Floats2, extent: Floats2, nodes: int, lengths: Floats1,
    staying: Floats2,
) -> None:  # fmt: skip
    """Share of each tile that a whole loop over a slide's rank at the slide's level leaves in the child."""
    for slide in range(slides.shape[0]):
        level, rank = slides[slide, 1], slides[slide, 2]
        moved = extent[rank]
        for q in range(spans[slide, 0], spans[slide, 1]):
            out, tensor = staying[spans[slide, 2] + q - spans[slide, 0]], tensors[q]
            for p in range(nodes):
                out[p] = 1.0
            for e in range(tensor_expression[tensor], tensor_expression[tensor + 1]):
                first, last = expression_term[e], expression_term[e + 1]
                distance = 0.0
                for k in range(first, last):
                    if term_rank[k] == rank:
                        distance = term_coefficient[k] * factors[level + 1, rank]
                if distance == 0.0:
                    continue
                fill_lengths(first, last, term_rank, term_coefficient, factors[children[q] + 1], extent, nodes, lengths)
                for p in range(nodes):
                    out[p] *= max(0.0, lengths[p] - distance * moved[p]) / lengths[p]


def lay(machine: Machine, plan: Plan, spatial: Any, tables: Tables) -> int:
    """Fill what the spatial factors ``spatial[levels, ranks]`` and ``tables.different`` settle; the number of nodes."""
    nodes = lay_lattice(
        spatial, machine.size, machine.divisors, machine.divisor_count, machine.primes, machine.axes, tables.inner, tables.count,
        tables.stride, tables.value, tables.pairs, tables.successor, tables.extent, tables.trips, tables.cycles,
    )  # fmt: skip
    outputs = machine.is_output, machine.is_plain, machine.indexes, machine.words
    count_instances(tables.inner, *outputs, tables.instances, tables.partition)
    terms = machine.tensor_expression, machine.expression_term, machine.term_rank, machine.term_coefficient
    words = tables.tile, tables.filled, tables.leave, tables.share, tables.reads
    tiles = (*terms, tables.inner, tables.extent)
    count_words(
        plan.kept, machine.capacity, machine.least, plan.transfer_tensor, plan.transfer_child, *tiles, tables.trips,
        tables.different, nodes, tables.scratch[0], *words,
    )  # fmt: skip
    if len(plan.slides):
        tensors, children = plan.transfer_tensor, plan.transfer_child
        fill_staying(plan.slides, plan.spans, tensors, children, *tiles, nodes, tables.scratch[0], tables.staying)
    return nodes


def block_of(tables: Tables, nodes: int) -> int:
    """Nodes of the blocks that passes take one after another: those inside one point of some outer axes."""
    return min((step for step in tables.stride.tolist() if step >= BLOCK), default=nodes)


def price_of_leaving(tables: Tables, price: float) -> Any:
    """``float64[levels, nodes]``: what leaving a level costs at ``price`` per word kept in an instance."""
    return tables.leave + (price * tables.instances)[:, None] * tables.filled if price != 0.0 else tables.leave
