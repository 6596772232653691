"""Slides: transfers of a tile that moves by less than its extent, so that some of its words stay."""

from __future__ import annotations

from typing import Any

import numpy as np

from stitchloop.search.arrays import Machine, Plan, Tables, inner, kernel
from stitchloop.search.prices import priced, rate_of

EXACT, NEAREST, ENDLESS = range(3)
"""How slides are priced: each bound apart, or as if the bound were all that is left of the rank, or without end."""


@inner
def fill_staying(machine: Machine, plan: Plan, tables: Tables, q: int, level: int, rank: int, nodes: int, out: Any) -> None:
    """``out[node]``: words of transfer ``q`` that stay in the child over all steps of a loop over ``rank`` at ``level``."""
    t, child = plan.transfer_tensor[q], plan.transfer_child[q]
    for p in range(nodes):
        out[p] = tables.share[q, p]
    for e in range(machine.tensor_expression[t], machine.tensor_expression[t + 1]):
        first, last = machine.expression_term[e], machine.expression_term[e + 1]
        coefficient = 0.0
        for k in range(first, last):
            if machine.term_rank[k] == rank:
                coefficient = machine.term_coefficient[k] * tables.inner[level + 1, rank]
        if coefficient == 0.0:
            continue
        if last == first + 2:
            a, b = machine.term_rank[first], machine.term_rank[first + 1]
            by_a = machine.term_coefficient[first] * tables.inner[child + 1, a]
            by_b = machine.term_coefficient[first + 1] * tables.inner[child + 1, b]
            base = 1.0 - machine.term_coefficient[first] - machine.term_coefficient[first + 1]
            extent_a, extent_b, moved = tables.extent[a], tables.extent[b], tables.extent[rank]
            for p in range(nodes):
                length = base + by_a * extent_a[p] + by_b * extent_b[p]
                out[p] *= max(0.0, length - coefficient * moved[p]) / length
            continue
        for p in range(nodes):
            length = 1.0
            for k in range(first, last):
                r = machine.term_rank[k]
                length += machine.term_coefficient[k] * (tables.extent[r, p] * tables.inner[child + 1, r] - 1.0)
            out[p] *= max(0.0, length - coefficient * tables.extent[rank, p]) / length


@inner
def slid_words(
    machine: Machine, plan: Plan, tables: Tables, q: int, level: int, rank: int, node: int, bound: int
) -> tuple[float, float]:
    """Words that transfer ``q`` delivers to one child, and that the parent delivers, if its run ends at ``node`` in a loop
    over ``rank`` at ``level`` that slides its tile ``bound - 1`` times per pass."""
    t, child = plan.transfer_tensor[q], plan.transfer_child[q]
    stays = tables.trips[node]
    moved = tables.extent[rank, node] * tables.inner[level + 1, rank]
    for e in range(machine.tensor_expression[t], machine.tensor_expression[t + 1]):
        length = 1.0
        distance = 0.0
        for k in range(machine.expression_term[e], machine.expression_term[e + 1]):
            r = machine.term_rank[k]
            length += machine.term_coefficient[k] * (tables.extent[r, node] * tables.inner[child + 1, r] - 1.0)
            if r == rank:
                distance += machine.term_coefficient[k] * moved
        stays *= max(0.0, length - distance)
    share, reads = tables.share[q, node], tables.reads[q, node]
    saved = stays * (1.0 - 1.0 / bound)
    return np.rint(share - saved), np.rint(reads - saved * (reads / share))


@inner
def slide_value(machine: Machine, plan: Plan, tables: Tables, rates: Any, slide: int, node: int, bound: int) -> float:
    """Payment of a tensor whose run ends at ``node`` in a loop that slides its tile ``bound - 1`` times per pass."""
    payment, level, rank = plan.slides[slide, 0], plan.slides[slide, 1], plan.slides[slide, 2]
    total = 0.0
    for q in range(plan.pay_first[payment], plan.pay_last[payment]):
        share, reads = slid_words(machine, plan, tables, q, level, rank, node, bound)
        total += priced(rate_of(rates[q]), share, reads)
    return total


@kernel
def value_slides(machine: Machine, plan: Plan, tables: Tables, rates: Any, nodes: int, pricing: int, out: Any) -> None:
    """``out``: :func:`slide_value` of every slide, node and bound (EXACT), or a lower bound of it over all bounds.

    A slide's exact values stand together, ordered by the axes outside its rank, then by pairs (from, to) along the rank's
    axis, ``to`` a proper multiple of ``from``, then by the axes inside. Lower bounds are those of the greatest ``to`` or of a
    loop without end; a slide has one per node, in the order of nodes.
    """
    at = 0
    for slide in range(plan.slides.shape[0]):
        tables.slide_start[slide] = at
        payment, level, rank = plan.slides[slide, 0], plan.slides[slide, 1], plan.slides[slide, 2]
        count, step = tables.count[rank], tables.stride[rank]
        value = tables.value[rank]
        end = at
        for q in range(plan.pay_first[payment], plan.pay_last[payment]):
            share, reads, staying = tables.share[q], tables.reads[q], tables.scratch
            fill_staying(machine, plan, tables, q, level, rank, nodes, staying)
            rate = rate_of(rates[q])
            begun = q > plan.pay_first[payment]
            end = at
            for start in range(0, nodes, count * step):
                for i in range(count):
                    for j in range(i + 1 if pricing == EXACT else count - 1, count):
                        if value[j] % value[i]:
                            continue
                        part = 1.0 if pricing == ENDLESS else 1.0 - float(value[i]) / float(value[j])
                        for k in range(step):
                            p = start + i * step + k
                            saved = staying[p] * part
                            price = priced(rate, np.rint(share[p] - saved), np.rint(reads[p] - saved * (reads[p] / share[p])))
                            out[end + k] = out[end + k] + price if begun else price
                        end += step
        at = end
