"""The lattice of tile shapes under a vector of spatial factors, and the words of every transfer and tile on it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from stitchloop.mapspace.factors import divisors
from stitchloop.search.arrays import INF, Machine, Plan, Tables, inner, kernel


@lru_cache(maxsize=4096)
def axis(rest: int, primes: tuple[int, ...]) -> tuple[Any, Any]:
    """Divisors of ``rest``, and for each of ``primes`` the index of every divisor times the prime, or -1."""
    own = divisors(rest)
    index = {divisor: i for i, divisor in enumerate(own)}
    return np.array(own), np.array([[index.get(divisor * prime, -1) for divisor in own] for prime in primes])


def place(machine: Machine, spatial: Any, tables: Tables) -> None:
    """What the spatial factors ``spatial[levels, ranks]`` settle at once: factors inside levels, instances, partitions."""
    factors = tables.inner[1:]
    np.multiply.accumulate(spatial, axis=0, out=factors)
    outside = factors[-1] / factors
    np.multiply.reduce(outside, axis=1, out=tables.instances)
    for t in machine.is_output.nonzero()[0]:
        tables.partition[:, t] = machine.words[t]
        if machine.is_plain[t]:
            tables.partition[:, t] /= np.multiply.reduce(outside, axis=1, where=machine.indexes[t])


def lay_lattice(machine: Machine, tables: Tables) -> int:
    """Axes, extents and trips under the spatial factors in ``tables.inner``; the number of nodes."""
    left = machine.size / tables.inner[-1]
    axes = [axis(int(rest), tuple(own)) for rest, own in zip(left.tolist(), machine.primes.tolist())]
    nodes = 1
    for r in machine.axes[::-1].tolist():
        values, successors = axes[r]
        count = len(values)
        tables.count[r], tables.stride[r] = count, nodes
        tables.value[r, :count], tables.successor[r, :, :count] = values, successors
        nodes *= count
    step = nodes
    for r in machine.axes.tolist():
        values = axes[r][0]
        step //= len(values)
        tables.extent[r, :nodes].reshape(-1, len(values), step)[:] = values[:, None]
    trips = tables.trips[:nodes]
    np.multiply.reduce(tables.extent[:, :nodes], axis=0, out=trips)
    np.divide(trips[-1], trips, out=trips)
    tables.cycles[0] = trips[0]
    return nodes


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
    kept: Any, capacity: Any, least: Any, tensors: Any, children: Any, tensor_expression: Any, expression_term: Any,
    term_rank: Any, term_coefficient: Any, factors: Any, extent: Any, trips: Any, different: Any, nodes: int, lengths: Any,
    tile: Any, filled: Any, leave: Any, share: Any, reads: Any,
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
    slides: Any, spans: Any, tensors: Any, children: Any, tensor_expression: Any, expression_term: Any, term_rank: Any,
    term_coefficient: Any, factors: Any, extent: Any, nodes: int, lengths: Any, staying: Any,
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
    place(machine, spatial, tables)
    nodes = lay_lattice(machine, tables)
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


def price_of_leaving(tables: Tables, price: float) -> Any:
    """``float64[levels, nodes]``: what leaving a level costs at ``price`` per word kept in an instance."""
    return tables.leave + (price * tables.instances)[:, None] * tables.filled if price != 0.0 else tables.leave
