"""The passes of a program over the lattice: dynamic programming from the outer end of the nest to the inner."""

from __future__ import annotations

from typing import Any

from stitchloop.search.arrays import INF, Machine, Plan, Tables, inner, kernel
from stitchloop.search.program import END, EXIT, FREE, PAY, SLIDE


@inner
def run_loop(
    plan: Plan, tables: Tables, o: int, nodes: int, cost: Any, target: Any, origin: Any, slides: Any, first: int, last: int
) -> None:
    """Operation ``o``: pay ``cost``, and loop over a rank that slides the tiles of the tensors ``plan.op_slides[first:last]``."""
    rank, least, most = plan.ops[o, 3], plan.ops[o, 5], plan.ops[o, 6]
    count, step = tables.count[rank], tables.stride[rank]
    value = tables.value[rank]
    at = 0
    for start in range(0, nodes, count * step):
        for i in range(count):
            for j in range(i + 1, count):
                if value[j] % value[i]:
                    continue
                bound = value[j] // value[i]
                if bound >= least and bound <= most:
                    here, there = start + i * step, start + j * step
                    if last == first:
                        for k in range(step):
                            target[here + k] = min(target[here + k], cost[here + k] + origin[there + k])
                    elif last == first + 1:
                        one = tables.slide_start[plan.op_slides[first]] + at
                        for k in range(step):
                            total = cost[here + k] + origin[there + k] + slides[one + k]
                            target[here + k] = min(target[here + k], total)
                    else:
                        for k in range(step):
                            total = cost[here + k] + origin[there + k]
                            for s in range(first, last):
                                total += slides[tables.slide_start[plan.op_slides[s]] + at + k]
                            target[here + k] = min(target[here + k], total)
                at += step


@kernel
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

    ``payments`` and ``slides`` are priced; with ``relaxed``, slides by lower bounds over all bounds. ``buffers`` is the cost of
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
                    target[p] = min(target[p], cost[p])
                continue
            first, last = ops[o, 10], ops[o, 11]
            if relaxed:
                for s in range(first, last):
                    at = tables.slide_start[plan.op_slides[s]]
                    for p in range(nodes):
                        cost[p] += slides[at + p]
                if kind == SLIDE and ops[o, 12]:
                    for p in range(nodes):
                        target[p] = min(target[p], cost[p] + origin[p])
                    continue
                last = first
            run_loop(plan, tables, o, nodes, cost, target, origin, slides, first, last)
