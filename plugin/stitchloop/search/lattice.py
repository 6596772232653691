"""The lattice of tile shapes under a vector of spatial factors, and the words of every transfer and tile on it."""

from __future__ import annotations

from typing import Any

from stitchloop.search.arrays import INF, Machine, Plan, Tables, Tiles, inner, kernel, tiles_of


@inner
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


@inner
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


@inner
def fill_volume(tiles: Tiles, tensor: int, level: int, nodes: int, out: Any) -> None:
    """Words of the tensor's tile at ``level``: spatial loops up to and with the level's, temporal ones as the node says."""
    for p in range(nodes):
        out[p] = 1.0
    for e in range(tiles.tensor_expression[tensor], tiles.tensor_expression[tensor + 1]):
        first, last = tiles.expression_term[e], tiles.expression_term[e + 1]
        if last == first:
            continue
        if last == first + 1:
            r = tiles.term_rank[first]
            c = float(tiles.term_coefficient[first])
            inner = tiles.inner[level + 1, r] * c
            for p in range(nodes):
                out[p] *= tiles.extent[r, p] * inner + (1.0 - c)
            continue
        for p in range(nodes):
            length = 1.0
            for k in range(first, last):
                r = tiles.term_rank[k]
                length += tiles.term_coefficient[k] * (tiles.extent[r, p] * tiles.inner[level + 1, r] - 1.0)
            out[p] *= length


@inner
def count_words(machine: Machine, plan: Plan, spatial: Any, tables: Tables, nodes: int) -> None:
    """Fill the words of every transfer and the tiles kept, for every node."""
    levels, tiles = spatial.shape[0], tiles_of(machine, tables)
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
                fill_volume(tiles, t, i, nodes, tables.scratch)
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
        fill_volume(tiles, t, child, nodes, tables.share[q])
        for p in range(nodes):
            tables.share[q, p] *= tables.trips[p]
            tables.reads[q, p] = tables.share[q, p] * tables.different[q]


@kernel
def lay(machine: Machine, plan: Plan, spatial: Any, tables: Tables) -> int:
    """Fill what the spatial factors ``spatial[levels, ranks]`` and ``tables.different`` settle; the number of nodes."""
    place(machine, spatial, tables)
    nodes = lay_lattice(machine, spatial, tables)
    count_words(machine, plan, spatial, tables, nodes)
    return nodes
