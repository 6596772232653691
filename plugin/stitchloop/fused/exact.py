"""The figures of one mapping in exact integers: what is reported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from stitchloop.fused.array import ArrayCost, Mode, Placement, cost
from stitchloop.fused.machine import Machine
from stitchloop.fused.monomials import Extent
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.shape import Shape
from stitchloop.fused.sharing import rounds_of, shares_of, softmax_of
from stitchloop.fused.template import Row, Template, Walk, block_words, compile_row
from stitchloop.fused.tilings import Axis, Passes, Variable, passes


@dataclass(frozen=True)
class OpFigures:
    """One Einsum, all heads: words between buffer and array, operations, cycles on the arrays."""

    name: str
    operations: int
    cycles: int
    array_reads: Mapping[str, int]
    array_writes: int
    array_rereads: int
    buffer_demand: int
    """Words in the buffer while the Einsum runs (all heads that lie there together)."""
    placement: Placement
    utilization: float
    """Useful share of the compute units while it runs."""


@dataclass(frozen=True)
class Figures:
    """One mapping, all heads. ``dram_reads`` and ``dram_writes`` by tensor, in words; energies in pJ."""

    ops: tuple[OpFigures, ...]
    dram_reads: Mapping[str, int]
    dram_writes: Mapping[str, int]
    blocks: Mapping[str, int]
    buffer_demand: int
    compute_cycles: int
    softmax_cycles: int
    dram_cycles: int
    cycles: int
    energies: Mapping[str, float]
    softmax_operations: float
    recompute_factor: Mapping[str, float]

    @property
    def dram(self) -> int:
        return sum(self.dram_reads.values()) + sum(self.dram_writes.values())

    @property
    def energy(self) -> float:
        return sum(self.energies.values())

    @property
    def edp(self) -> float:
        """J * cycle."""
        return self.energy * self.cycles * 1e-12

    @property
    def operations(self) -> int:
        return sum(op.operations for op in self.ops)

    def objective(self, name: str) -> float:
        """Value of one of the objectives by name."""
        return {
            "energy": self.energy,
            "latency": float(self.cycles),
            "edp": self.edp,
            "dram": float(self.dram),
            "buffer": float(self.buffer_demand),
        }[name]

    def utilization(self, machine: Machine) -> float:
        return self.operations / (self.cycles * machine.units)


class Point:
    """Values of variables and monomials at one tiling, in Python integers."""

    def __init__(self, shape: Shape, tiles: Mapping[int, int]) -> None:
        self.axes = {
            rank: Axis(rank, size, np.array([tiles.get(rank, size)], dtype=np.int64)) for rank, size in enumerate(shape.sizes)
        }

    def value(self, variable: Variable) -> int:
        if isinstance(variable, Passes) and variable.rank < 0:
            return int(passes(np.array([1]), variable)[0])
        return int(self.axes[variable.rank].values(variable)[0])

    def product(self, factors: tuple[tuple[Variable, int], ...] | tuple[tuple[Extent, int], ...]) -> int:
        value = 1
        for variable, exponent in factors:
            value *= self.value(variable) ** exponent
        return value


def figures(
    shape: Shape,
    machine: Machine,
    options: FusedOptions,
    template: Template,
    tiles: Mapping[int, int],
    chosen: tuple[Placement, ...],
) -> Figures:
    """Count one mapping exactly."""
    row, point = compile_row(shape.structure, template), Point(shape, tiles)
    copies, shares = shape.copies, shares_of(shape, machine, options)
    reads, writes = _dram(shape, row, point)
    ops = tuple(_op(shape, machine, options, row, point, e, chosen[e]) for e in range(len(chosen)))
    elements, soft = softmax_of(shape, machine, options)
    rounds = rounds_of(shape, machine, options)
    compute = sum(op.cycles for op in ops)
    soft_all = soft * rounds
    busy = max(compute, soft_all) if options.softmax == "overlapped" else compute + soft_all
    transfer = transfer_cycles(machine, sum(reads.values()), sum(writes.values()))
    softmax_operations = options.softmax_ops * elements * copies
    return Figures(
        ops, reads, writes, _blocks(shape, row, point),
        shares * max(sum(map(point.product, phase)) for phase in row.phases),
        busy, soft_all, transfer, max(busy, transfer),
        _energies(machine, ops, reads, writes, softmax_operations), softmax_operations,
        {op.name: op.operations / (copies * shape.operations(e)) for e, op in enumerate(ops)},
    )  # fmt: skip


def transfer_cycles(machine: Machine, reads: int, writes: int) -> int:
    """Cycles that the DRAM interface needs at least."""
    cycles = 0
    for words, width in ((reads, machine.port.read), (writes, machine.port.write), (reads + writes, machine.port.shared)):
        if width is not None:
            cycles = max(cycles, math.ceil(words / Fraction(str(width))))
    return cycles


def _dram(shape: Shape, row: Row, point: Point) -> tuple[dict[str, int], dict[str, int]]:
    reads: dict[str, int] = {}
    writes: dict[str, int] = {}
    for op, names, monomials in zip(shape.structure.ops, shape.tensor_names, row.dram, strict=True):
        for operand, name, monomial in zip(op.operands, names, monomials, strict=True):
            words = point.product(monomial) * shape.copies
            if operand.kind == "input":
                reads[name] = reads.get(name, 0) + words
            elif operand.kind == "output":
                writes[name] = words
                reads[name] = words - shape.output_words * shape.copies
    return reads, writes


def _blocks(shape: Shape, row: Row, point: Point) -> dict[str, int]:
    """Words of each tensor's block, for one head."""
    blocks: dict[str, int] = {}
    for e, (op, names) in enumerate(zip(shape.structure.ops, shape.tensor_names, strict=True)):
        walk = Walk(shape.structure, op, row.template.loops(e), len(row.template.shared))
        for operand, name, level in zip(op.operands, names, row.template.levels[e], strict=True):
            words = point.product(block_words(walk, operand, level))
            blocks[name] = max(blocks.get(name, 0), words)
    return blocks


def _op(shape: Shape, machine: Machine, options: FusedOptions, row: Row, point: Point, e: int, placement: Placement) -> OpFigures:
    mode = Mode(row.sweeps[e], row.trips[e], tuple(sorted(row.repeats[e])))
    c: ArrayCost = cost(shape, e, placement, mode, options.perfect)
    copies = shape.copies
    work = copies * math.prod([point.value(s) for s in mode.sweeps] + [point.value(Extent(r, trips=1)) for r in mode.repeats])
    cycles = point.product(c.cycles) * rounds_of(shape, machine, options)
    reads: dict[str, int] = {}
    for name, factors in zip(shape.tensor_names[e], c.reads, strict=False):
        reads[name] = reads.get(name, 0) + point.product(factors) * copies
    writes = point.product(c.writes) * copies
    return OpFigures(
        shape.einsum_names[e], work, cycles, reads, writes, writes - point.product(c.fresh) * copies,
        shares_of(shape, machine, options) * sum(map(point.product, row.phases[e])), placement, work / (cycles * machine.units),
    )  # fmt: skip


def _energies(
    machine: Machine, ops: tuple[OpFigures, ...], reads: Mapping[str, int], writes: Mapping[str, int], softmax: float
) -> dict[str, float]:
    into, out = sum(reads.values()), sum(writes.values())
    array_reads = sum(sum(op.array_reads.values()) + op.array_rereads for op in ops)
    array_writes = sum(op.array_writes for op in ops)
    return {
        machine.dram_name: into * machine.dram_read + out * machine.dram_write,
        machine.buffer_name: (array_reads + out) * machine.buffer_read + (array_writes + into) * machine.buffer_write,
        machine.compute_name: sum(op.operations for op in ops) * machine.mac,
        "softmax": softmax * machine.elementary,
    }
