"""The fastest contiguous grouping under the performance model, by dynamic programming over the nodes in order.

The best grouping of the first j nodes is the best of all last groups i..j behind the best grouping of the first i. Every
greedy grouping is contiguous in the order that it runs in, so that none can be faster than the optimum of that order. A last
group is evaluated only where a floor under its time (its operations at the peak of their modes, its compulsory words) leaves
it a chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from stitchloop.cascade.evaluate import Model
from stitchloop.cascade.merge import Node
from stitchloop.cascade.partition import equations_of, is_array_node
from stitchloop.cascade.performance import Performance
from stitchloop.cascade.stitch import STRATEGIES, Stitching, grouping, stitch

NAME = "optimal"
EXACT_UP_TO = 40
"""Cascades of at most so many nodes are solved exactly, in every order."""
LONGEST_GROUP = 24
"""Nodes of the longest group that is tried in longer cascades, in the given order alone."""

_SLACK = 1 - 1e-6


def optimal(model: Model, *, merge: bool = True, reorder: bool = True) -> tuple[Stitching, Performance]:
    """The fastest grouping over the orders that the greedy strategies run in, with what joining groups would cost at each cut.

    Cascades of more than :data:`EXACT_UP_TO` nodes: the fastest of all groupings of the given order into groups of at most
    :data:`LONGEST_GROUP` nodes, and of the greedy ones.
    """
    greedy = [stitch(model.cascade, name, merge=merge, reorder=reorder) for name in STRATEGIES]
    if len(greedy[0].nodes) <= EXACT_UP_TO:
        found = [best_grouping(model, order) for order in dict.fromkeys(stitching.nodes for stitching in greedy)]
    else:
        found = [model.evaluate((group.nodes for group in stitching.groups), NAME) for stitching in greedy]
        found.append(best_grouping(model, greedy[0].nodes, LONGEST_GROUP))
    best = min(found, key=lambda performance: (bool(performance.shortfalls), performance.seconds))
    stitching = grouping(model.cascade, [group.nodes for group in best.groups], NAME)
    reasons = iter(_reasons(model, best))
    boundaries = tuple(replace(b, reason=next(reasons)) if b.is_cut else b for b in stitching.boundaries)
    return replace(stitching, boundaries=boundaries, reordered=stitching.nodes != greedy[0].nodes), best


def best_grouping(model: Model, nodes: Sequence[Node], longest: int = EXACT_UP_TO) -> Performance:
    """The fastest way to cut the nodes, in this order, into groups of at most ``longest``; fewer groups among equals."""
    best: list[tuple[float, int, int]] = [(0.0, 0, 0)]
    for stop in range(1, len(nodes) + 1):
        found = (float("inf"), stop, stop - 1)
        for start, floor in zip(range(stop - 1, max(-1, stop - 1 - longest), -1), floors(model, nodes, stop)):
            before, groups, _ = best[start]
            if before + floor * _SLACK < found[0]:
                seconds = model.group_seconds(tuple(nodes[start:stop]), nodes[start - 1] if start else None)
                found = min(found, (before + seconds, groups + 1, start))
        best.append(found)
    cuts = [len(nodes)]
    while cuts[-1]:
        cuts.append(best[cuts[-1]][2])
    cuts.reverse()
    return model.evaluate((nodes[start:stop] for start, stop in pairwise(cuts)), NAME)


def floors(model: Model, nodes: Sequence[Node], stop: int) -> Iterator[float]:
    """Seconds that the group ``nodes[start:stop]`` takes at least, for start = stop-1, stop-2, ...

    Tensors that carry state are left out: how much of them crosses DRAM depends on who reads which steps.
    """
    cascade, machine = model.cascade, model.machine
    carried = {state.tensor for state in cascade.states}
    names = {name for node in nodes[:stop] for name in node}
    cycles = {True: 0.0, False: 0.0}
    read: set[str] = set()
    made: set[str] = set()
    words = 0.0
    for node in reversed(nodes[:stop]):
        is_array = is_array_node(cascade, node)
        points = sum(cascade.volume(equation.ranks) for equation in equations_of(cascade, node))
        cycles[is_array] += points / (machine.array_pes if is_array else machine.lanes)
        for einsum in (cascade.einsum(name) for name in node):
            for tensor in (t for t in einsum.output_tensors if t not in carried):
                made.add(tensor)
                words -= model.words[tensor] if tensor in read else 0.0
                leaves = cascade.tensor(tensor).is_output or not names.issuperset(cascade.consumers[tensor])
                words += model.words[tensor] if leaves else 0.0
            for tensor in (t for t in einsum.input_tensors if t not in carried and t not in made and t not in read):
                read.add(tensor)
                words += model.words[tensor]
        compute = sum(cycles.values()) if machine.shared_array else max(cycles.values())
        yield max(compute, words / machine.dram_words) / machine.clock_hz


def _reasons(model: Model, performance: Performance) -> list[str]:
    """For each cut, what joining the two groups around it would cost."""
    found = []
    before: Node | None = None
    for first, second in pairwise(performance.groups):
        joined = model.group_seconds(first.nodes + second.nodes, before)
        apart = first.seconds + second.seconds
        found.append("joined they do not fit" if joined == float("inf") else f"joined {joined / apart - 1:+.2%}")
        before = first.nodes[-1]
    return found
