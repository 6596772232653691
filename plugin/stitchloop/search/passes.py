"""The passes of a program over the lattice: dynamic programming from the outer end of the nest to the inner."""

from __future__ import annotations

from typing import Any

from stitchloop.search.arrays import INF, Machine, Plan, Tables, inner, kernel, tiles_of
from stitchloop.search.prices import fill_rates, value_payments
from stitchloop.search.program import END, EXIT, FREE, PAY
from stitchloop.search.slides import EXACT, value_slides


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


@inner
def run_program(
    plan: Plan, primes: Any, tables: Tables, buffers: float, nodes: int, payments: Any, slides: Any, relaxed: bool, slots: Any
) -> None:
    """Fill ``slots[slot, node]`` with the least cost from there to the end of the nest.

    ``payments`` and ``slides`` are priced; with ``relaxed``, slides by lower bounds over all bounds. ``buffers`` is the cost of
    keeping a word.
    """
    ops, kept, op_pays, op_slides, starts = plan.ops, plan.kept, plan.op_pays, plan.op_slides, tables.slide_start
    cost = tables.scratch
    for o in range(ops.shape[0]):
        op = ops[o]
        kind, rank, level = op[0], op[3], op[4]
        target, origin = slots[op[1]], slots[op[2]]
        count, step, value = tables.count[rank], tables.stride[rank], tables.value[rank]
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
                fits, filled, price = tables.fits[level], tables.filled[level], buffers * tables.instances[level]
                for p in range(nodes):
                    target[p] = target[p] if fits[p] else INF
                if buffers != 0.0:
                    for p in range(nodes):
                        target[p] += price * filled[p]
        elif kind == FREE:
            for p in range(nodes):
                target[p] = origin[p]
            for q in range(primes.shape[1]):
                successor = tables.successor[rank, q]
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


@kernel
def least_costs(
    machine: Machine, plan: Plan, tables: Tables, mix: Any, nodes: int, pricing: int,
    rates: Any, payments: Any, slides: Any, slots: Any,
) -> float:  # fmt: skip
    """Costs-to-go ``slots[slot, node]`` in the mixture ``mix`` of metrics; that of the whole nest.

    ``pricing`` says how :func:`stitchloop.search.slides.value_slides` prices slides. ``rates``, ``payments`` and ``slides``
    get the prices.
    """
    fill_rates(machine, plan, tables.instances, tables.partition, mix, rates)
    value_payments(plan.pay_first, plan.pay_last, rates, tables.share, tables.reads, nodes, tables.value_of_transfer, payments)
    value_slides(plan, tables, tiles_of(machine, tables), rates, nodes, pricing, slides)
    buffers = mix[machine.buffer_metric]
    run_program(plan, machine.primes, tables, buffers, nodes, payments, slides, pricing != EXACT, slots)
    return slots[plan.root, 0]
