"""The passes of a program over the lattice: dynamic programming from the outer end of the nest to the inner."""

from __future__ import annotations

from typing import Any

from stitchloop.search.arrays import INF
from stitchloop.search.compiled import Floats1, Floats2, Ints1, Ints2, Ints3, inner, kernel
from stitchloop.search.program import END, EXIT, FREE, STEP


@inner
def run_loop(
    least: int, most: int, value: Any, count: int, step: int, nodes: int, cost: Any, origin: Any,
    own: Any, starts: Any, slides: Any, sums: Any, target: Any,
) -> None:  # fmt: skip
    """Pay ``cost`` and the slides ``own``, and loop over a rank of ``count`` divisors ``step`` nodes apart."""
    at = 0
    for start in range(0, nodes, count * step):
        for i in range(count):
            for j in range(i + 1, count):
                if value[j] % value[i]:
                    continue
                bound = value[j] // value[i]
                if bound >= least and bound <= most:
                    here, there = start + i * step, start + j * step
                    for k in range(step):
                        sums[k] = cost[here + k] + origin[there + k]
                    for slide in own:
                        one = starts[slide] + at
                        for k in range(step):
                            sums[k] += slides[one + k]
                    for k in range(step):
                        target[here + k] = min(target[here + k], sums[k])
                at += step


@kernel
def run_program(
    ops: Ints2, op_pays: Ints1, op_slides: Ints1, counts: Ints1, strides: Ints1, values: Ints2, successors: Ints3,
    leave: Floats2, starts: Ints1, nodes: int, payments: Floats2, slides: Floats1, relaxed: bool, scratch: Floats2,
    slots: Floats2,
) -> None:  # fmt: skip
    """Fill ``slots[slot, node]`` with the least cost from there to the end of the nest.

    ``payments`` and ``slides`` are priced; with ``relaxed``, slides by lower bounds over all bounds. ``leave[level, node]`` is
    the cost of leaving a level, ``scratch[2, nodes]`` is work space.
    """
    cost, sums = scratch[0], scratch[1]
    for o in range(ops.shape[0]):
        op = ops[o]
        kind, rank = op[0], op[3]
        target, origin = slots[op[1]], slots[op[2]]
        count, step, value = counts[rank], strides[rank], values[rank]
        if op[7]:
            for p in range(nodes):
                target[p] = INF
        if kind == END:
            target[nodes - 1] = 0.0
        elif kind == FREE:
            for p in range(nodes):
                target[p] = origin[p]
            for q in range(successors.shape[1]):
                if successors[rank, q, 0] < 0:
                    continue
                for start in range(0, nodes, count * step):
                    for i in range(count - 1, -1, -1):
                        here, there = start + i * step, start + successors[rank, q, i] * step
                        if there >= start:
                            for k in range(step):
                                target[here + k] = min(target[here + k], target[there + k])
        else:
            level, first, last, loops = op[4], op[10], op[11], kind >= STEP
            for p in range(nodes):
                cost[p] = 0.0 if loops else origin[p]
            if kind == EXIT:
                for p in range(nodes):
                    cost[p] += leave[level, p]
            for k in range(op[8], op[9]):
                paid = payments[op_pays[k]]
                for p in range(nodes):
                    cost[p] += paid[p]
            if relaxed:
                for s in range(first, last):
                    at = starts[op_slides[s]]
                    for p in range(nodes):
                        cost[p] += slides[at + p]
                first = last
            if not loops:
                for p in range(nodes):
                    target[p] = min(target[p], cost[p])
            elif relaxed and op[12]:
                for p in range(nodes):
                    target[p] = min(target[p], cost[p] + origin[p])
            else:
                own = op_slides[first:last]
                run_loop(op[5], op[6], value, count, step, nodes, cost, origin, own, starts, slides, sums, target)
