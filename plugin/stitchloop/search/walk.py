"""Walking a cheapest nest through filled slots: its loops, what it costs in every metric, the words it moves, its cycles."""

from __future__ import annotations

from typing import Any

import numpy as np

from stitchloop.search.arrays import INF, Machine, Plan, Tables, Tiles, inner, kernel, tiles_of
from stitchloop.search.prices import priced, rate_of
from stitchloop.search.program import END, EXIT, FREE, PAY, SLIDE
from stitchloop.search.slides import slid_words


@inner
def begin_words(innermost: Any, base: Any, words: Any) -> None:
    """Start ``words`` with what the compute units move."""
    for i in range(words.shape[0]):
        for t in range(words.shape[1]):
            inside = 1.0 if i == innermost[t] else 0.0
            words[i, t, 0], words[i, t, 1] = base[t, 0] * inside, base[t, 1] * inside


@inner
def add_words(
    plan: Plan, tiles: Tiles, is_output: Any, partition: Any, trips: Any, shares: Any, all_reads: Any,
    op: Any, node: int, bound: int, singles: Any, sums: Any, words: Any,
) -> None:  # fmt: skip
    """Add what operation ``op`` at ``node`` moves to ``words``, and what that costs at the rates ``singles[metric]`` to ``sums``.

    ``bound`` is that of its loop.
    """
    pays = op[9] - op[8]
    for k in range(pays + op[11] - op[10]):
        slide = np.int64(-1)
        if k < pays:
            payment = plan.op_pays[op[8] + k]
        else:
            slide = plan.op_slides[op[10] + k - pays]
            payment = plan.slides[slide, 0]
        for q in range(plan.pay_first[payment], plan.pay_last[payment]):
            t, child, parent = plan.transfer_tensor[q], plan.transfer_child[q], plan.transfer_parent[q]
            share, reads = shares[q, node], all_reads[q, node]
            if slide >= 0:
                level, rank = plan.slides[slide, 1], plan.slides[slide, 2]
                share, reads = slid_words(tiles, t, child, share, reads, trips[node], level, rank, node, bound)
            for m in range(singles.shape[0]):
                sums[m] += priced(rate_of(singles[m, q]), share, reads)
            if is_output[t]:
                words[parent, t, 0] += max(0.0, reads - partition[parent, t])
                words[parent, t, 1] += reads
                if child >= 0:
                    words[child, t, 1] += max(0.0, share - partition[child, t])
            else:
                words[parent, t, 0] += reads
                if child >= 0:
                    words[child, t, 1] += share


@inner
def pace(bandwidth: Any, words: Any, cycles: float) -> float:
    """Cycles of the nest that moves ``words``, in the order of operations in which the tool rounds."""
    longest = cycles
    for i in range(bandwidth.shape[0]):
        read, write = 0.0, 0.0
        for t in range(words.shape[1]):
            read += words[i, t, 0] / cycles
            write += words[i, t, 1] / cycles
        slowdown = 1.0
        if read > 0.0:
            slowdown = min(slowdown, bandwidth[i, 0] / read)
        if write > 0.0:
            slowdown = min(slowdown, bandwidth[i, 1] / write)
        if write + read > 0.0:
            slowdown = min(slowdown, bandwidth[i, 2] / (write + read))
        longest = max(longest, np.ceil(cycles / slowdown))
    return longest


@inner
def next_step(
    plan: Plan, tiles: Tiles, trips: Any, shares: Any, all_reads: Any, count: Any, stride: Any, value: Any,
    rates: Any, payments: Any, slots: Any, slot: int, node: int,
) -> tuple[int, int]:  # fmt: skip
    """A cheapest operation of ``slot`` at ``node``, of equal ones the first, and the node it leads to; -1 when none is valid."""
    ops = plan.ops
    best = INF
    chosen: Any = np.int64(-1)
    target: Any = np.int64(node)
    for o in range(plan.slot_ops[slot, 0], plan.slot_ops[slot, 1]):
        op = ops[o]
        kind, source, rank = op[0], op[2], op[3]
        if kind == END:
            return o, node
        cost = 0.0
        for k in range(op[8], op[9]):
            cost += payments[plan.op_pays[k], node]
        loops, step, i, last = kind != EXIT and kind != PAY, stride[rank], np.int64(0), np.int64(0)
        if loops:
            i, last = (node // step) % count[rank], count[rank] - 1
        for j in range(i + 1 if loops and kind != FREE else i, last + 1):
            bound = value[rank, j] // value[rank, i]
            if loops and (value[rank, j] % value[rank, i] or bound < op[5] or bound > op[6]):
                continue
            there = node + (j - i) * step
            total = cost + slots[source, there]
            if total >= best:
                continue
            if kind == SLIDE:
                for s in range(op[10], op[11]):
                    slide = plan.op_slides[s]
                    payment, level, loop = plan.slides[slide, 0], plan.slides[slide, 1], plan.slides[slide, 2]
                    price = 0.0
                    for q in range(plan.pay_first[payment], plan.pay_last[payment]):
                        t, child = plan.transfer_tensor[q], plan.transfer_child[q]
                        share, reads = shares[q, node], all_reads[q, node]
                        share, reads = slid_words(tiles, t, child, share, reads, trips[node], level, loop, node, bound)
                        price += priced(rate_of(rates[q]), share, reads)
                    total += price
            if total < best:
                best, chosen, target = total, o, there
    return chosen, target


@kernel
def walk(
    machine: Machine, plan: Plan, tables: Tables, rates: Any, singles: Any, payments: Any, slots: Any, sums: Any, loops: Any
) -> tuple[int, float]:
    """Follow a cheapest nest through filled slots; of equal ways the first.

    ``loops[k] = (level, rank, bound)``, innermost first; returns how many, or -1 when there is no valid nest, and the cycles.
    ``sums[metric]`` gets what the nest costs in every metric, constants left out; ``singles[metric]`` are its rates.
    """
    ops, tiles, words, trips, kept = plan.ops, tiles_of(machine, tables), tables.words, tables.trips, plan.kept
    share, reads, partition = tables.share, tables.reads, tables.partition
    for m in range(sums.shape[0]):
        sums[m] = 0.0
    begin_words(plan.innermost, tables.base, words)
    slot: Any = np.int64(plan.root)
    node: Any = np.int64(0)
    found: Any = np.int64(0)
    while True:
        o, target = next_step(
            plan, tiles, trips, share, reads, tables.count, tables.stride, tables.value, rates, payments, slots, slot, node
        )
        if o < 0:
            return -1, 0.0
        op = ops[o]
        if op[0] == END:
            return found, pace(machine.bandwidth, words, tables.cycles[0])
        bound = np.int64(trips[node] / trips[target])
        add_words(plan, tiles, machine.is_output, partition, trips, share, reads, op, node, bound, singles, sums, words)
        if op[0] == EXIT:
            for t in range(kept.shape[1]):
                if kept[op[4], t]:
                    sums[machine.buffer_metric] += tables.filled[op[4], node] * tables.instances[op[4]]
                    break
        if bound > 1:
            loops[found, 0], loops[found, 1], loops[found, 2] = op[4], op[3], bound
            found += 1
        slot, node = op[2], target
