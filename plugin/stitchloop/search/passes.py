"""The passes of a program over the lattice: dynamic programming from the outer end of the nest to the inner."""

from __future__ import annotations

from typing import Any

from stitchloop.search.arrays import INF, inner, kernel
from stitchloop.search.program import END, EXIT, FREE, PAY


@inner
def run_loop(
    op: Any, value: Any, count: int, step: int, nodes: int, cost: Any, origin: Any,
    own: Any, starts: Any, slides: Any, target: Any,
) -> None:  # fmt: skip
    """Operation ``op``: pay ``cost`` and the slides ``own``, and loop over a rank of ``count`` divisors ``step`` nodes apart."""
    least, most = op[5], op[6]
    at = 0
    for start in range(0, nodes, count * step):
        for i in range(count):
            for j in range(i + 1, count):
                if value[j] % value[i]:
                    continue
                bound = value[j] // value[i]
                if bound >= least and bound <= most:
                    here, there = start + i * step, start + j * step
                    if own.shape[0] == 0:
                        for k in range(step):
                            target[here + k] = min(target[here + k], cost[here + k] + origin[there + k])
                    elif own.shape[0] == 1:
                        one = starts[own[0]] + at
                        for k in range(step):
                            total = cost[here + k] + origin[there + k] + slides[one + k]
                            target[here + k] = min(target[here + k], total)
                    else:
                        for k in range(step):
                            total = cost[here + k] + origin[there + k]
                            for slide in own:
                                total += slides[starts[slide] + at + k]
                            target[here + k] = min(target[here + k], total)
                at += step


@kernel
def run_program(
    ops: Any, kept: Any, op_pays: Any, op_slides: Any, primes: Any, axes: Any, successors: Any, fits: Any, filled: Any,
    buffers: Any, starts: Any, nodes: int, payments: Any, slides: Any, relaxed: bool, cost: Any, slots: Any,
) -> None:  # fmt: skip
    """Fill ``slots[slot, node]`` with the least cost from there to the end of the nest.

    ``payments`` and ``slides`` are priced; with ``relaxed``, slides by lower bounds over all bounds. ``buffers[level]`` is the
    cost of keeping a word in all instances, ``axes`` are ``Tables.count``, ``stride`` and ``value``, ``cost`` is work space.
    """
    counts, strides, values = axes
    for o in range(ops.shape[0]):
        op = ops[o]
        kind, rank, level = op[0], op[3], op[4]
        target, origin = slots[op[1]], slots[op[2]]
        count, step, value = counts[rank], strides[rank], values[rank]
        if kind == END:
            for p in range(nodes):
                target[p] = INF
            target[nodes - 1] = 0.0
        elif kind == EXIT:
            held = False
            for t in range(kept.shape[1]):
                held |= kept[level, t]
            for p in range(nodes):
                target[p] = origin[p]
            if held:
                fitting, words, price = fits[level], filled[level], buffers[level]
                for p in range(nodes):
                    target[p] = target[p] if fitting[p] else INF
                if price != 0.0:
                    for p in range(nodes):
                        target[p] += price * words[p]
        elif kind == FREE:
            for p in range(nodes):
                target[p] = origin[p]
            for q in range(primes.shape[1]):
                successor = successors[rank, q]
                if primes[rank, q] == 0:
                    break
                for start in range(0, nodes, count * step):
                    for i in range(count - 1, -1, -1):
                        here, there = start + i * step, start + successor[i] * step
                        if there >= start:
                            for k in range(step):
                                target[here + k] = min(target[here + k], target[there + k])
        else:
            if op[7]:
                for p in range(nodes):
                    target[p] = INF
            for p in range(nodes):
                cost[p] = origin[p] if kind == PAY else 0.0
            for k in range(op[8], op[9]):
                paid = payments[op_pays[k]]
                for p in range(nodes):
                    cost[p] += paid[p]
            own = op_slides[op[10] : op[11]]
            if relaxed:
                for slide in own:
                    at = starts[slide]
                    for p in range(nodes):
                        cost[p] += slides[at + p]
                own = own[:0]
            if kind == PAY:
                for p in range(nodes):
                    target[p] = min(target[p], cost[p])
            elif relaxed and op[12]:
                for p in range(nodes):
                    target[p] = min(target[p], cost[p] + origin[p])
            else:
                run_loop(op, value, count, step, nodes, cost, origin, own, starts, slides, target)
