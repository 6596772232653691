"""Einsum, architecture and metrics as arrays for the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from stitchloop.architecture import Level
from stitchloop.mapspace.factors import divisors
from stitchloop.mapspace.space import Mapspace
from stitchloop.search.arrays import ENERGY, FILL, READ, UPDATE, Machine, Plan, Tables
from stitchloop.search.program import Program
from stitchloop.workload import Einsum, Tensor, Term


@dataclass(frozen=True)
class Resource:
    """A bandwidth that may stretch the cycles: words per cycle of one instance, over some actions of one level."""

    level: int
    bandwidth: float
    actions: tuple[int, ...]


READS, WRITES = (READ,), (FILL, UPDATE)


def resources_of(space: Mapspace) -> tuple[Resource, ...]:
    """Every finite bandwidth of the architecture, inner to outer."""
    found = []
    for i, level in enumerate(space.architecture.levels):
        if level.is_fanout:
            continue
        for bandwidth, actions in (
            (level.read_bandwidth, READS),
            (level.write_bandwidth, WRITES),
            (level.shared_bandwidth, READS + WRITES),
        ):
            if bandwidth is not None:
                found.append(Resource(i, bandwidth, actions))
    return tuple(found)


def build_machine(space: Mapspace, counted_levels: Sequence[int]) -> tuple[Machine, tuple[Resource, ...]]:
    """The arrays of a mapspace.

    Metrics, in this order: energy (pJ), the cycles that each resource needs, the words moved at each of
    ``counted_levels``, and the words kept (the buffer tie-break).
    """
    einsum, levels = space.einsum, space.architecture.levels
    resources = resources_of(space)
    metrics = 2 + len(resources) + len(counted_levels)
    weights = np.zeros((metrics, len(levels), 3))
    per_instance = np.zeros(metrics, dtype=np.bool_)
    for i, level in enumerate(levels):
        weights[ENERGY, i] = level.energy.read, level.energy.write, level.energy.update
    for m, resource in enumerate(resources, 1):
        for action in resource.actions:
            weights[m, resource.level, action] = 1.0 / resource.bandwidth if resource.bandwidth > 0 else np.inf
        per_instance[m] = True
    for m, i in enumerate(counted_levels, 1 + len(resources)):
        weights[m, i] = 1.0
    expressions, terms, ranks, coefficients = [0], [0], [], []
    plain, diagonal = [], []
    sums: list[list[list[tuple[int, int]]]] = []
    for tensor in einsum.tensors:
        seen: list[str] = []
        sums.append([[] for _ in tensor.projection])
        for expression, own_sum in zip(tensor.projection, sums[-1]):
            merged: dict[str, int] = {}
            for term in expression:
                merged[term.rank] = merged.get(term.rank, 0) + abs(term.coefficient)
            for rank, coefficient in merged.items():
                if coefficient and einsum.sizes[rank] > 1:
                    ranks.append(einsum.ranks.index(rank))
                    coefficients.append(coefficient)
                    own_sum.append((ranks[-1], coefficient))
                    seen.append(rank)
            terms.append(len(ranks))
        expressions.append(len(terms) - 1)
        own = range(terms[expressions[-2]], terms[expressions[-1]])
        single = all(terms[e + 1] - terms[e] <= 1 for e in range(expressions[-2], expressions[-1]))
        diagonal.append(len(set(seen)) < len(seen))
        plain.append(single and not diagonal[-1] and all(coefficients[k] == 1 for k in own))
    sizes = einsum.rank_sizes
    widest = max(len(divisors(size)) for size in sizes)
    table = np.zeros((len(sizes), widest), dtype=np.int64)
    primes = np.zeros((len(sizes), max(1, max(len(prime_factors(size)) for size in sizes))), dtype=np.int64)
    for r, size in enumerate(sizes):
        table[r, : len(divisors(size))] = divisors(size)
        primes[r, : len(prime_factors(size))] = prime_factors(size)
    shares = [max(level.min_utilization, entry.min_utilization) for level, entry in zip(levels, space.levels)]
    machine = Machine(
        size=np.array(sizes, dtype=np.int64),
        divisors=table,
        divisor_count=np.array([len(divisors(size)) for size in sizes], dtype=np.int64),
        axes=np.array(_axes(space), dtype=np.int64),
        primes=primes,
        tensor_expression=np.array(expressions, dtype=np.int64),
        expression_term=np.array(terms, dtype=np.int64),
        term_rank=np.array(ranks, dtype=np.int64),
        term_coefficient=np.array(coefficients, dtype=np.int64),
        sums=sums,
        is_output=np.array([tensor.is_output for tensor in einsum.tensors], dtype=np.bool_),
        is_plain=np.array(plain, dtype=np.bool_),
        is_diagonal=np.array(diagonal, dtype=np.bool_),
        words=np.array([float(einsum.size_of(tensor)) for tensor in einsum.tensors]),
        touched=np.array([float(touched_words(tensor, einsum.sizes)) for tensor in einsum.tensors]),
        indexes=np.array([[rank in tensor.ranks for rank in einsum.ranks] for tensor in einsum.tensors], dtype=np.bool_),
        block=np.array([float(level.block_size) for level in levels]),
        capacity=np.array([np.inf if level.capacity is None else float(level.capacity) for level in levels]),
        least=np.array([0.0 if level.capacity is None else level.capacity * share for level, share in zip(levels, shares)]),
        weights=weights,
        per_instance=per_instance,
        bandwidth=np.array([_limits(level) for level in levels]),
        buffer_metric=metrics - 1,
    )
    return machine, resources


def _limits(level: Level) -> list[float]:
    given = level.read_bandwidth, level.write_bandwidth, level.shared_bandwidth
    return [np.inf if bandwidth is None else bandwidth for bandwidth in given]


def build_plan(program: Program, levels: int) -> Plan:
    """The arrays of a program."""
    transfers = program.transfers
    kept = np.zeros((levels, len(transfers.kept)), dtype=np.bool_)
    for t, own in enumerate(transfers.kept):
        kept[list(own), t] = True
    as_int: Any = lambda numbers: np.array(numbers, dtype=np.int64)  # noqa: E731
    runs = [(program.pay_first[payment], program.pay_last[payment]) for payment in program.slides[:, 0]]
    spans = [(first, last, sum(b - a for a, b in runs[:s])) for s, (first, last) in enumerate(runs)]
    return Plan(
        kept, as_int(transfers.tensor), as_int(transfers.child), as_int(transfers.parent),
        as_int([own[0] for own in transfers.kept]), as_int(transfers.late), program.ops, program.op_pays, program.op_slides,
        program.pay_first, program.pay_last, program.slides, as_int(spans).reshape(-1, 3), program.slot_ops, program.root,
    )  # fmt: skip


def build_tables(space: Mapspace, machine: Machine, plan: Plan, nodes: int, full: bool = False) -> Tables:
    """Work space for lattices of up to ``nodes`` nodes; ``full``: for bounds of the tool's full count, too."""
    still = [True]
    for level in space.levels:
        still.append(still[-1] and all(limits.high == 1 for limits in level.temporal.factors.values()))
    still.pop()
    ranks, levels = len(machine.size), len(machine.block)
    transfers, sliding = len(plan.transfer_tensor), int((plan.spans[:, 1] - plan.spans[:, 0]).sum())
    return Tables(
        count=np.zeros(ranks, dtype=np.int64),
        value=np.ones((ranks, machine.divisors.shape[1]), dtype=np.int64),
        stride=np.zeros(ranks, dtype=np.int64),
        pairs=np.zeros((ranks, machine.divisors.shape[1] + 1), dtype=np.int64),
        successor=np.zeros((ranks, machine.primes.shape[1], machine.divisors.shape[1]), dtype=np.int64),
        inner=np.zeros((levels + 1, ranks)),
        instances=np.zeros(levels),
        partition=np.zeros((levels, len(machine.is_output))),
        extent=np.zeros((ranks, nodes)),
        trips=np.zeros(nodes),
        tile=np.zeros((levels, len(machine.is_output), nodes)),
        share=np.zeros((transfers, nodes)),
        reads=np.zeros((transfers, nodes)),
        filled=np.zeros((levels, nodes)),
        leave=np.zeros((levels, nodes)),
        cycles=np.zeros(1),
        still=np.array(still, dtype=np.bool_),
        different=np.ones(transfers),
        staying=np.zeros((sliding, nodes)),
        loose=np.zeros((4, sliding if full else 0, nodes)),
        slide_start=np.zeros(len(plan.slides), dtype=np.int64),
        slide_values=np.zeros(slide_values(machine, plan, nodes)),
        value_of_transfer=np.zeros((transfers, nodes)),
        constant=np.zeros(len(machine.weights)),
        base=np.zeros((len(machine.is_output), 2)),
        scratch=np.zeros((2, nodes)),
    )


def mixes_signs(einsum: Einsum) -> bool:
    """Whether an index expression adds and subtracts ranks: steps of different loops may then cancel, and no bound is known."""
    sums = [terms for tensor in einsum.tensors for terms in tensor.projection if terms]
    return any(min(term.coefficient for term in terms) < 0 < max(term.coefficient for term in terms) for terms in sums)


def touched_words(tensor: Tensor, sizes: dict[str, int]) -> int:
    """Words of a tensor that the Einsum touches, at least; those on a diagonal where a rank is in several index expressions."""
    each = [touched(terms, sizes) for terms in tensor.projection]
    apart = sum(len({term.rank for term in terms if term.coefficient}) for terms in tensor.projection) == len(tensor.ranks)
    return prod(each) if apart else max(each)


def touched(terms: Sequence[Term], sizes: dict[str, int]) -> int:
    """Positions of one tensor rank that the Einsum touches, at least; strides larger than the kernel leave gaps.

    Terms are taken by coefficient. One whose coefficient is at most the length of the dense run made so far extends the run;
    a larger one makes copies of the run that do not meet.
    """
    merged: dict[str, int] = {}
    for term in terms:
        merged[term.rank] = merged.get(term.rank, 0) + abs(term.coefficient)
    run, copies = 1, 1
    for coefficient, size in sorted((c, sizes[rank]) for rank, c in merged.items() if c):
        if copies == 1 and coefficient <= run:
            run += coefficient * (size - 1)
        elif copies == 1:
            copies = size
        else:
            copies = max(copies, size)
    return run * copies


def _axes(space: Mapspace) -> list[int]:
    """Ranks that slide tiles outside, ranks with many divisors inside: the kernels' inner loops are then long."""
    einsum = space.einsum
    summed = {
        term.rank
        for tensor in einsum.tensors
        for terms in tensor.projection
        if len({t.rank for t in terms}) > 1
        for term in terms
    }
    order = sorted(
        enumerate(einsum.ranks), key=lambda item: (item[1] not in summed, len(divisors(einsum.sizes[item[1]])), item[0])
    )
    return [rank for rank, _ in order]


def slide_values(machine: Machine, plan: Plan, nodes: int) -> int:
    """Most values of slides, exact or relaxed, over lattices of up to ``nodes`` nodes."""
    total = 0
    for rank in plan.slides[:, 2]:
        own = divisors(int(machine.size[rank]))
        pairs = sum(later % earlier == 0 for i, earlier in enumerate(own) for later in own[i + 1 :])
        total += nodes * max(pairs, len(own)) // len(own) + 1
    return total


def prime_factors(number: int) -> list[int]:
    """Distinct primes that divide ``number``, ascending; they are found among its divisors."""
    found: list[int] = []
    for divisor in divisors(number)[1:]:
        if all(divisor % prime for prime in found):
            found.append(divisor)
    return found
