"""Walking a cheapest nest through filled slots: its loops, what it costs in every metric, the words it moves, its cycles."""

from __future__ import annotations

from typing import Any

import numpy as np

from stitchloop.search.arrays import INF, Machine, Plan, Tables, inner, kernel
from stitchloop.search.prices import priced, rate_of
from stitchloop.search.program import END, EXIT, FREE, PAY, SLIDE
from stitchloop.search.slides import slid_words, slide_value


@inner
def begin_words(plan: Plan, tables: Tables) -> None:
    """Start ``tables.words`` with what the compute units move."""
    for i in range(tables.words.shape[0]):
        for t in range(tables.words.shape[1]):
            tables.words[i, t, 0] = 0.0
            tables.words[i, t, 1] = 0.0
    for t in range(plan.innermost.shape[0]):
        tables.words[plan.innermost[t], t, 0] = tables.base[t, 0]
        tables.words[plan.innermost[t], t, 1] = tables.base[t, 1]


@inner
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
                share, reads = slid_words(machine, plan, tables, q, plan.slides[slide, 1], plan.slides[slide, 2], node, bound)
            if machine.is_output[t]:
                tables.words[parent, t, 0] += max(0.0, reads - tables.partition[parent, t])
                tables.words[parent, t, 1] += reads
                if child >= 0:
                    tables.words[child, t, 1] += max(0.0, share - tables.partition[child, t])
            else:
                tables.words[parent, t, 0] += reads
                if child >= 0:
                    tables.words[child, t, 1] += share


@kernel
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


@kernel
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


@inner
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
                sums[m] += priced(rate_of(singles[m, q]), tables.share[q, node], tables.reads[q, node])
        for s in range(ops[o, 10], ops[o, 11]):
            sums[m] += slide_value(machine, plan, tables, singles[m], plan.op_slides[s], node, bound)
    add_words(machine, plan, tables, o, node, bound)
    if kind == EXIT and plan.kept[level].any():
        sums[machine.buffer_metric] += tables.filled[level, node] * tables.instances[level]
    if bound > 1:
        loops[found, 0], loops[found, 1], loops[found, 2] = level, rank, bound
        found += 1
    return found
