"""Prices of transfers: what a word costs in a mixture of metrics, and every payment at every node."""

from __future__ import annotations

from typing import Any

import numpy as np

from stitchloop.search.arrays import ENERGY, FILL, READ, UPDATE, Machine, Plan
from stitchloop.search.compiled import Flags1, Floats1, Floats2, Floats3, Ints1, inner, kernel


def rate_metrics(machine: Machine, plan: Plan, instances: Any, partition: Any, mixes: Any, rates: Any) -> None:
    """``rates[mixture, transfer]``: what one word costs in each of ``mixes[*, metrics]`` of metrics; see :func:`rate_of`."""
    fill_rates(
        machine.weights, machine.block, machine.per_instance, machine.is_output, plan.transfer_tensor, plan.transfer_child,
        plan.transfer_parent, instances, partition, mixes, rates,
    )  # fmt: skip


@kernel
def fill_rates(
    weights: Floats3, block: Floats1, per_instance: Flags1, is_output: Flags1, tensors: Ints1, children: Ints1, parents: Ints1,
    instances: Floats1, partition: Floats2, mixes: Floats2, rates: Floats3,
) -> None:  # fmt: skip
    """``rates[mixture, transfer]``; see :func:`rate_metrics`."""
    for x in range(mixes.shape[0]):
        for q in range(tensors.shape[0]):
            t, child, parent, row = tensors[q], children[q], parents[q], rates[x, q]
            fed, output = 1.0 if child >= 0 else 0.0, 1.0 if is_output[t] else 0.0
            for k in range(10):
                row[k] = 0.0
            row[3], row[4] = block[child], block[parent]
            row[5], row[6] = partition[child, t] * output * fed, partition[parent, t] * output
            for m in range(mixes.shape[1]):
                price, at = mixes[x, m], 0 if m == ENERGY else 7
                own, outer = (fed, 1.0) if per_instance[m] else (instances[child] * fed, instances[parent])
                if price != 0.0:
                    row[at] += price * weights[m, child, FILL] * own
                    row[at + 1] += price * weights[m, parent, READ] * outer
                    row[at + 2] += price * weights[m, parent, UPDATE] * outer * output


@inner
def rate_of(row: Any) -> Any:
    """A row of :func:`rate_metrics` as scalars.

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


def costs_of(rates: Any, shares: Any, reads: Any) -> Any:
    """:func:`priced` of many transfers at rows of rates."""
    fill, read, update, inside, outside, own, whole, linear_fill, linear_read, linear_update = np.moveaxis(rates, -1, 0)
    fills, again = np.maximum(0.0, shares - own), np.maximum(0.0, reads - whole)
    energy = fill * np.ceil(fills / inside) + read * np.ceil(again / outside) + update * np.ceil(reads / outside)
    return energy + linear_fill * fills + linear_read * again + linear_update * reads


@kernel
def value_payments(
    pay_first: Ints1, pay_last: Ints1, rates: Floats2, shares: Floats2, all_reads: Floats2, nodes: int, values: Floats2,
    out: Floats2,
) -> None:  # fmt: skip
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
