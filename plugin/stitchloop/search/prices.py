"""Prices of transfers: what a word costs in a mixture of metrics, and every payment at every node."""

from __future__ import annotations

from typing import Any

import numpy as np

from stitchloop.search.arrays import ENERGY, FILL, READ, UPDATE, Machine, Plan, Tables, inner, kernel


@kernel
def mix_metrics(machine: Machine, plan: Plan, tables: Tables, mix: Any, rates: Any) -> None:
    """``rates[transfer]``: what one word costs in the mixture ``mix`` (a weight per metric) of metrics; see :func:`rate_of`."""
    weights = machine.weights
    for q in range(plan.transfer_tensor.shape[0]):
        t, child, parent = plan.transfer_tensor[q], plan.transfer_child[q], plan.transfer_parent[q]
        fed = child >= 0
        own, outer = tables.instances[child] if fed else 0.0, tables.instances[parent]
        output = machine.is_output[t]
        rates[q, 0] = mix[ENERGY] * weights[ENERGY, child, FILL] * own
        rates[q, 1] = mix[ENERGY] * weights[ENERGY, parent, READ] * outer
        rates[q, 2] = mix[ENERGY] * weights[ENERGY, parent, UPDATE] * outer if output else 0.0
        rates[q, 3], rates[q, 4] = machine.block[child], machine.block[parent]
        rates[q, 5] = tables.partition[child, t] if output and fed else 0.0
        rates[q, 6] = tables.partition[parent, t] if output else 0.0
        rates[q, 7], rates[q, 8], rates[q, 9] = 0.0, 0.0, 0.0
        for m in range(1, mix.shape[0]):
            if mix[m] != 0.0:
                if machine.per_instance[m]:
                    own, outer = 1.0, 1.0
                else:
                    own, outer = tables.instances[child], tables.instances[parent]
                if not fed:
                    own = 0.0
                rates[q, 7] += mix[m] * weights[m, child, FILL] * own
                rates[q, 8] += mix[m] * weights[m, parent, READ] * outer
                if output:
                    rates[q, 9] += mix[m] * weights[m, parent, UPDATE] * outer


@inner
def rate_of(row: Any) -> Any:
    """A row of :func:`mix_metrics` as scalars.

    They are the energies of a fill, a read and an update over all instances, the words of a vector at child and parent, the
    words of an output whose first read is elided at child and parent, and the linear costs of a fill, a read, an update.
    """
    return row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9]


@inner
def priced(rate: Any, share: float, reads: float) -> float:
    """Cost of a transfer at a :func:`rate_of`: ``share`` words to one child, ``reads`` words from the parent, per instance."""
    fill, read, update, inside, outside, own, whole, linear_fill, linear_read, linear_update = rate
    fills, again = max(0.0, share - own), max(0.0, reads - whole)
    energy = fill * np.ceil(fills / inside) + read * np.ceil(again / outside) + update * np.ceil(reads / outside)
    return energy + linear_fill * fills + linear_read * again + linear_update * reads


@kernel
def value_payments(plan: Plan, tables: Tables, rates: Any, nodes: int, out: Any) -> None:
    """``out[payment, node]``: what the payments cost at ``rates``."""
    for q in range(plan.transfer_tensor.shape[0]):
        rate, share, reads, into = rate_of(rates[q]), tables.share[q], tables.reads[q], tables.value_of_transfer[q]
        for p in range(nodes):
            into[p] = priced(rate, share[p], reads[p])
    for k in range(plan.pay_first.shape[0]):
        for p in range(nodes):
            out[k, p] = tables.value_of_transfer[plan.pay_first[k], p]
        for q in range(plan.pay_first[k] + 1, plan.pay_last[k]):
            for p in range(nodes):
                out[k, p] += tables.value_of_transfer[q, p]
