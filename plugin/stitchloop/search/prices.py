"""Prices of transfers: what a word costs in a mixture of metrics, and every payment at every node."""

from __future__ import annotations

from typing import Any

import numpy as np

from stitchloop.search.arrays import ENERGY, FILL, READ, UPDATE, Machine, Plan, inner, kernel


@inner
def fill_rates(machine: Machine, plan: Plan, instances: Any, partition: Any, mix: Any, rates: Any) -> None:
    """``rates[transfer]``: what one word costs in the mixture ``mix`` (a weight per metric) of metrics; see :func:`rate_of`."""
    weights, block, per_instance, is_output = machine.weights, machine.block, machine.per_instance, machine.is_output
    tensors, children, parents = plan.transfer_tensor, plan.transfer_child, plan.transfer_parent
    for q in range(tensors.shape[0]):
        t, child, parent = tensors[q], children[q], parents[q]
        fed, output = 1.0 if child >= 0 else 0.0, 1.0 if is_output[t] else 0.0
        own, outer = instances[child] * fed, instances[parent]
        row = rates[q]
        row[0] = mix[ENERGY] * weights[ENERGY, child, FILL] * own
        row[1] = mix[ENERGY] * weights[ENERGY, parent, READ] * outer
        row[2] = mix[ENERGY] * weights[ENERGY, parent, UPDATE] * outer * output
        row[3], row[4] = block[child], block[parent]
        row[5], row[6] = partition[child, t] * output * fed, partition[parent, t] * output
        row[7], row[8], row[9] = 0.0, 0.0, 0.0
        for m in range(1, mix.shape[0]):
            if mix[m] != 0.0:
                if per_instance[m]:
                    own, outer = fed, 1.0
                else:
                    own, outer = instances[child] * fed, instances[parent]
                row[7] += mix[m] * weights[m, child, FILL] * own
                row[8] += mix[m] * weights[m, parent, READ] * outer
                if output != 0.0:
                    row[9] += mix[m] * weights[m, parent, UPDATE] * outer


@kernel
def rate_metrics(machine: Machine, plan: Plan, instances: Any, partition: Any, mixes: Any, singles: Any) -> None:
    """``singles[mixture]``: :func:`fill_rates` of every one of ``mixes``."""
    for m in range(mixes.shape[0]):
        fill_rates(machine, plan, instances, partition, mixes[m], singles[m])


@inner
def rate_of(row: Any) -> Any:
    """A row of :func:`fill_rates` as scalars.

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
def value_payments(
    pay_first: Any, pay_last: Any, rates: Any, shares: Any, all_reads: Any, nodes: int, values: Any, out: Any
) -> None:
    """``out[payment, node]``: what the payments cost at ``rates``; ``values[transfer, node]`` is work space."""
    for q in range(rates.shape[0]):
        rate, share, reads, into = rate_of(rates[q]), shares[q], all_reads[q], values[q]
        for p in range(nodes):
            into[p] = priced(rate, share[p], reads[p])
    for k in range(pay_first.shape[0]):
        first, total = pay_first[k], out[k]
        for p in range(nodes):
            total[p] = values[first, p]
        for q in range(first + 1, pay_last[k]):
            for p in range(nodes):
                total[p] += values[q, p]
