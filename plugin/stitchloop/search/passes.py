"""The passes of a program over the lattice: dynamic programming from the outer end of the nest to the inner."""

from __future__ import annotations

from typing import Any

from stitchloop.search.arrays import INF
from stitchloop.search.compiled import Floats1, Floats2, Ints1, Ints2, Ints3, inner, kernel
from stitchloop.search.program import END, EXIT, FREE, STEP


@inner
def run_loop(
    least: int, most: int, value: Any, pairs: Any, count: int, step: int, low: int, block: int, cost: Any, origin: Any,
    own: Any, starts: Any, slides: Any, sums: Any, target: Any,
) -> None:  # fmt: skip
    """Pay ``cost`` and the slides ``own``, and loop over a rank of ``count`` divisors ``step`` nodes apart."""
    at = (low // (count * step)) * pairs[count] * step
    first, after, length = 0, count, step
    if step >= block:
        first = (low // step) % count
        after, length = first + 1, block
        at += pairs[first] * step + low % step
    for start in range(low, low + block, count * step):
        for i in range(first, after):
            here = start + (i - first) * step
            for j in range(i + 1, count):
                if value[j] % value[i]:
                    continue
                bound = value[j] // value[i]
                if bound >= least and bound <= most:
                    there = here + (j - i) * step
                    paid, beyond, into = cost[here - low :], origin[there : there + length], target[here : here + length]
                    for k in range(length):
                        sums[k] = paid[k] + beyond[k]
                    for slide in own:
                        slid = slides[starts[slide] + at : starts[slide] + at + length]
                        for k in range(length):
                            sums[k] += slid[k]
                    for k in range(length):
                        into[k] = min(into[k], sums[k])
                at += step


@inner
def run_freely(successors: Any, count: int, step: int, low: int, block: int, target: Any) -> None:
    """Loop over a rank of ``count`` divisors ``step`` nodes apart at no cost."""
    for q in range(successors.shape[0]):
        if successors[q, 0] < 0:
            continue
        if step >= block:
            i = (low // step) % count
            ahead = low + (successors[q, i] - i) * step
            into, beyond = target[low : low + block], target[ahead : ahead + block]
            for p in range(block if ahead > low else 0):
                into[p] = min(into[p], beyond[p])
            continue
        for start in range(low, low + block, count * step):
            for i in range(count - 1, -1, -1):
                here, there = start + i * step, start + successors[q, i] * step
                if there >= start:
                    for k in range(step):
                        target[here + k] = min(target[here + k], target[there + k])


@kernel
def run_program(
    ops: Ints2, op_pays: Ints1, op_slides: Ints1, counts: Ints1, strides: Ints1, values: Ints2, all_pairs: Ints2,
    successors: Ints3, leave: Floats2, starts: Ints1, nodes: int, block: int, payments: Floats2, slides: Floats1, relaxed: bool,
    scratch: Floats2, slots: Floats2,
) -> None:  # fmt: skip
    """Fill ``slots[slot, node]`` with the least cost from there to the end of the nest.

    ``payments`` and ``slides`` are priced; with ``relaxed``, slides by lower bounds over all bounds. ``leave[level, node]`` is
    the cost of leaving a level, ``scratch[2, nodes]`` is work space. All operations are run on a ``block`` of nodes before the
    block inside it: nodes depend on nodes outside only, and a block stays near the processor.
    """
    cost, sums = scratch[0], scratch[1]
    for low in range(nodes - block, -1, -block):
        high = low + block
        for o in range(ops.shape[0]):
            op = ops[o]
            kind, rank = op[0], op[3]
            target, origin = slots[op[1]], slots[op[2]]
            into, beyond = target[low:high], origin[low:high]
            count, step = counts[rank], strides[rank]
            if op[7]:
                for p in range(block):
                    into[p] = INF
            if kind == END:
                if high == nodes:
                    target[nodes - 1] = 0.0
                continue
            if kind == FREE:
                for p in range(block):
                    into[p] = beyond[p]
                run_freely(successors[rank], count, step, low, block, target)
                continue
            level, first, last, loops = op[4], op[10], op[11], kind >= STEP
            for p in range(block):
                cost[p] = 0.0 if loops else beyond[p]
            if kind == EXIT:
                left = leave[level, low:high]
                for p in range(block):
                    cost[p] += left[p]
            for k in range(op[8], op[9]):
                paid = payments[op_pays[k], low:high]
                for p in range(block):
                    cost[p] += paid[p]
            if relaxed:
                for s in range(first, last):
                    slid = slides[starts[op_slides[s]] + low : starts[op_slides[s]] + high]
                    for p in range(block):
                        cost[p] += slid[p]
                first = last
            if not loops:
                for p in range(block):
                    into[p] = min(into[p], cost[p])
            elif relaxed and op[12]:
                for p in range(block):
                    into[p] = min(into[p], cost[p] + beyond[p])
            else:
                own, value, pairs = op_slides[first:last], values[rank], all_pairs[rank]
                run_loop(
                    op[5], op[6], value, pairs, count, step, low, block, cost, origin, own, starts, slides, sums, target
                )  # fmt: skip
