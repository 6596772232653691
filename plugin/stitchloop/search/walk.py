"""Walking a cheapest nest through filled slots: its loops, what it costs in every metric, the words it moves, its cycles."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from stitchloop.search.arrays import INF, Machine, Plan, Tables
from stitchloop.search.compiled import Floats1, Floats2, Ints1, Ints2, kernel
from stitchloop.search.prices import costs_of
from stitchloop.search.program import END, EXIT, FREE, STEP
from stitchloop.search.slides import slid


@kernel
def follow(
    ops: Ints2, slot_ops: Ints2, op_pays: Ints1, op_slides: Ints1, counts: Ints1, strides: Ints1, values: Ints2, all_pairs: Ints2,
    starts: Ints1, payments: Floats2, slides: Floats1, slots: Floats2, root: int, path: Ints2,
) -> int:  # fmt: skip
    """``path[k] = (operation, node)`` of a cheapest nest through exact ``slots``, of equal ways the first, to the END.

    Returns the number of operations, END among them.
    """
    slot: Any = np.int64(root)
    node: Any = np.int64(0)
    length = 0
    while True:
        best, chosen = INF, slot_ops[slot, 0]
        target: Any = node
        for o in range(slot_ops[slot, 0], slot_ops[slot, 1]):
            op = ops[o]
            kind, source, rank = op[0], op[2], op[3]
            if kind == END:
                path[length, 0], path[length, 1] = o, node
                return length + 1
            cost = 0.0
            for k in range(op[8], op[9]):
                cost += payments[op_pays[k], node]
            count, step, value = counts[rank], strides[rank], values[rank]
            own, outer, loops = (node // step) % count, node // (count * step), kind == FREE or kind >= STEP
            pairs, before = all_pairs[rank, count], all_pairs[rank, own]
            for j in range(own + 1 if kind >= STEP else own, count if loops else own + 1):
                if value[j] % value[own]:
                    continue
                bound = value[j] // value[own]
                if loops and (bound < op[5] or bound > op[6]):
                    before += 1
                    continue
                there = node + (j - own) * step
                total = cost + slots[source, there]
                for s in range(op[10], op[11]):
                    total += slides[starts[op_slides[s]] + (outer * pairs + before) * step + node % step]
                before += 1
                if total < best:
                    best, chosen, target = total, o, there
        path[length, 0], path[length, 1] = chosen, node
        slot, node = ops[chosen, 2], target
        length += 1


class Moves:
    """What the operations of a nest move: a transfer each, and the words to one child and from the parent."""

    def __init__(self, machine: Machine, plan: Plan, tables: Tables, path: Any) -> None:
        """``path`` is the nest's (operation, node), innermost first, up to and with the END."""
        self.machine, self.plan, self.tables = machine, plan, tables
        ops, pays, trips = plan.ops, plan.op_pays, tables.trips
        self.loops: list[tuple[int, int, int]] = []
        """(level, rank, bound), innermost first."""
        self.left: list[tuple[int, int]] = []
        """(level, node) at which the nest leaves each level."""
        moved: list[tuple[int, float, float]] = []
        for (o, node), (_, target) in pairwise(path.tolist()):
            kind, _, _, rank, level, _, _, _, pay, paid, slide, last, _ = ops[o].tolist()
            bound = int(trips[node] / trips[target])
            if bound > 1:
                self.loops.append((level, rank, bound))
            if kind == EXIT:
                self.left.append((level, node))
            for payment in pays[pay:paid].tolist():
                for q in range(plan.pay_first[payment], plan.pay_last[payment]):
                    moved.append((q, tables.share[q, node], tables.reads[q, node]))
            for own in plan.op_slides[slide:last].tolist():
                first, end, row = plan.spans[own].tolist()
                for q in range(first, end):
                    stays = tables.staying[row + q - first, node]
                    share, reads = slid(tables.share[q, node], tables.reads[q, node], stays, 1.0 - 1.0 / bound)
                    moved.append((q, np.rint(share), np.rint(reads)))
        self.transfers = np.array([q for q, _, _ in moved], dtype=np.int64)
        self.shares, self.reads = np.array([words for _, words, _ in moved]), np.array([words for _, _, words in moved])

    @property
    def nest(self) -> Any:
        """int64[loops, 3]: (level, rank, bound), innermost first."""
        return np.array(self.loops, dtype=np.int64).reshape(-1, 3)

    def costs(self, singles: Any) -> Any:
        """What the nest costs in every metric at its rates ``singles[metric, transfer]``, constants left out."""
        each = costs_of(singles[:, self.transfers].swapaxes(0, 1), self.shares[:, None], self.reads[:, None])
        sums = np.add.reduce(each, axis=0)
        for level, node in self.left:
            if self.plan.kept[level].any():
                sums[self.machine.buffer_metric] += self.tables.filled[level, node] * self.tables.instances[level]
        return sums

    def cycles(self) -> float:
        """Cycles of the nest, in the order of operations in which the tool rounds."""
        machine, plan, tables = self.machine, self.plan, self.tables
        tensor, child, parent = (own[self.transfers] for own in (plan.transfer_tensor, plan.transfer_child, plan.transfer_parent))
        words = np.zeros((*plan.kept.shape, 2))
        words[plan.innermost, np.arange(len(plan.innermost))] = tables.base
        output, fed = machine.is_output[tensor], child >= 0
        elided = np.where(output, np.maximum(0.0, self.reads - tables.partition[parent, tensor]), self.reads)
        first = np.where(output, np.maximum(0.0, self.shares - tables.partition[child, tensor]), self.shares)
        np.add.at(words, (parent, tensor, 0), elided)
        np.add.at(words, (parent, tensor, 1), np.where(output, self.reads, 0.0))
        np.add.at(words, (child[fed], tensor[fed], 1), first[fed])
        cycles = float(tables.cycles[0])
        flows = np.add.reduce(words / cycles, axis=1)
        needs = np.concatenate([flows, flows[:, :1] + flows[:, 1:]], axis=1)
        slowdown = np.divide(machine.bandwidth, needs, out=np.ones_like(needs), where=needs > 0.0).min(axis=1)
        with np.errstate(divide="ignore"):
            return max(cycles, float(np.ceil(cycles / np.minimum(1.0, slowdown)).max()))


class Nest(NamedTuple):
    """A nest found by :func:`walk`."""

    sums: Any
    """What it costs in every metric, constants left out."""
    loops: Any
    """int64[loops, 3]: (level, rank, bound), innermost first."""
    cycles: float


def walk(machine: Machine, plan: Plan, tables: Tables, singles: Any, payments: Any, slots: Any) -> Nest:
    """A cheapest nest through exact ``slots`` whose root is finite, of equal ways the first; ``singles[metric]``: rates."""
    path = np.empty((len(plan.slot_ops), 2), dtype=np.int64)
    length = follow(
        plan.ops, plan.slot_ops, plan.op_pays, plan.op_slides, tables.count, tables.stride, tables.value, tables.pairs,
        tables.slide_start, payments, tables.slide_values, slots, plan.root, path,
    )  # fmt: skip
    moves = Moves(machine, plan, tables, path[:length])
    return Nest(moves.costs(singles), moves.nest, moves.cycles())
