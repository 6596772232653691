"""Some rows at some tilings together: what fits, what it moves, lower bounds, and the exact figures of all placements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stitchloop.errors import NoMapping, Obstacle
from stitchloop.fused.evaluate import Evaluator
from stitchloop.fused.matrices import Monomials

CELLS = 1 << 20
"""Rows times tilings that are looked at together."""

SLACK = 1 + 1e-12


@dataclass(frozen=True)
class Candidate:
    """One mapping by its numbers: row, tile of each looped rank, placement of each Einsum."""

    row: int
    tiles: tuple[tuple[int, int], ...]
    placements: tuple[int, ...]
    screened: tuple[float, ...]
    """Objectives in the order of :data:`OBJECTIVES`, as the float form gives them."""


class Block:
    """Some rows at some columns: feasibility, DRAM access, and bounds.

    ``index`` holds the columns' indices as :meth:`Evaluator.boundary` takes them; where they stand for several tiles, everything
    is bounded from below.
    """

    def __init__(self, ev: Evaluator, rows: np.ndarray, index: Sequence[np.ndarray]) -> None:
        self.ev, self.rows, self.index = ev, rows, tuple(index)
        self.monomials = Monomials(ev, index)
        self.inputs = ev.incidences.inputs.at(self.monomials, rows)
        self.written = ev.incidences.written.at(self.monomials, rows)

    def keep(self, columns: np.ndarray) -> Block:
        """The same rows at some of the columns."""
        part = object.__new__(Block)
        part.ev, part.rows, part.index = self.ev, self.rows, tuple(i[columns] for i in self.index)
        part.monomials = self.monomials.keep(columns)
        part.inputs, part.written = self.inputs[:, columns], self.written[:, columns]
        return part

    @cached_property
    def whole(self) -> list[np.ndarray]:
        """For each phase the buffer demand, without the blocks that the folded rank cuts."""
        return [w.at(self.monomials, self.rows) for w in self.ev.incidences.whole]

    @cached_property
    def tiled(self) -> list[np.ndarray]:
        """For each phase those blocks, per word of the folded rank's tile."""
        return [w.at(self.monomials, self.rows) for w in self.ev.incidences.folded]

    @cached_property
    def sizes(self) -> np.ndarray | None:
        """How many of the folded rank's tile sizes fit; None when no rank is folded."""
        ev = self.ev
        if ev.folded is None:
            return None
        size = ev.axes[ev.folded].size
        largest = np.full(self.inputs.shape, float(size))
        for whole, tiled in zip(self.whole, self.tiled, strict=True):
            with np.errstate(divide="ignore", invalid="ignore"):
                room = np.floor_divide(ev.capacity - whole, tiled)
            np.minimum(largest, np.where(tiled > 0, room, np.where(whole <= ev.capacity, size, 0)), out=largest)
        return ev.fitting[np.clip(largest, 0, size).astype(np.int64)]

    @cached_property
    def feasible(self) -> np.ndarray:
        """Whether anything fits."""
        if self.sizes is not None:
            return self.sizes > 0
        return np.logical_and.reduce([whole <= self.ev.capacity for whole in self.whole])

    @cached_property
    def demand(self) -> np.ndarray:
        """Buffer demand with the folded rank's smallest tile."""
        return np.maximum.reduce(self.whole if self.sizes is None else [w + t for w, t in zip(self.whole, self.tiled)])

    @cached_property
    def quick_bounds(self) -> np.ndarray:
        """Lower bounds of the objectives from DRAM access alone and what the arrays cost at the very least."""
        energy, cycles = floors(self.ev)
        total = self.dram_energy(self.inputs, self.written) + energy[self.rows][:, None]
        return objectives(self.ev, total, cycles[self.rows][:, None], self.inputs, self.written, np.zeros((1, 1)))

    def dram_energy(self, inputs: np.ndarray, written: np.ndarray) -> np.ndarray:
        m = self.ev.machine
        again = written - self.ev.shape.output_words
        into, out = m.dram_read + m.buffer_write, m.dram_write + m.buffer_read
        return (inputs + again) * into + written * out

    def dram_cycles(self, inputs: np.ndarray, written: np.ndarray) -> np.ndarray:
        return dram_cycles(self.ev, inputs + written - self.ev.shape.output_words, written)

    def per_op(self, e: int, which: str) -> list[np.ndarray]:
        """For each mode of Einsum ``e``: fixed and sliding part of cycles or energy, placements by columns."""
        table = self.ev.incidences.cycles[e] if which == "cycles" else self.ev.incidences.energy[e]
        return [np.stack([fixed.at(self.monomials), slide.at(self.monomials)]) for fixed, slide in table]

    @cached_property
    def op_parts(self) -> list[dict[str, list[np.ndarray]]]:
        return [{which: self.per_op(e, which) for which in ("cycles", "energy")} for e in self.ev.ops]

    @cached_property
    def work(self) -> list[np.ndarray]:
        return [w.at(self.monomials) for w in self.ev.incidences.work]

    @cached_property
    def bounds(self) -> np.ndarray:
        """Lower bounds of the objectives: objectives by rows by columns."""
        ev = self.ev
        energy, cycles = self.least_inside
        energy = energy + self.dram_energy(self.inputs, self.written)
        return objectives(ev, energy, cycles, self.inputs, self.written, self.demand)

    @cached_property
    def least_inside(self) -> tuple[np.ndarray, np.ndarray]:
        """The least energy and cycles of arrays and softmax: rows by columns each."""
        ev = self.ev
        cycles = np.zeros(self.inputs.shape)
        energy = np.full(self.inputs.shape, ev.constant_energy)
        for e in ev.ops:
            least = {}
            for which in ("cycles", "energy"):
                parts = self.op_parts[e][which]
                least[which] = np.stack([(p[0] + p[1] * ev.least_scalar[e][m][:, None]).min(axis=0) for m, p in enumerate(parts)])
            modes = ev.mode_of[self.rows, e]
            cycles += least["cycles"][modes]
            energy += (least["energy"] + self.work[e])[modes]
        return energy, cycles

    def expand(self, rows: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Objectives of all placements of the cells (row, column): objectives by cells by placements, and folded tile indices."""
        ev = self.ev
        combos = ev.combos
        energy = np.zeros((len(rows), len(combos)))
        cycles = np.zeros_like(energy)
        fixed = self.dram_energy(self.inputs[rows, at], self.written[rows, at]) + ev.constant_energy
        tile = np.zeros((len(rows), len(combos)), dtype=np.int64)
        for e in ev.ops:
            modes = ev.mode_of[self.rows[rows], e]
            fixed = fixed + self.work[e][modes, at]
            own, e_cost, c_cost = self._op_cost(e, modes, rows, at)
            pick = combos[:, e]
            energy += e_cost[:, pick]
            cycles += c_cost[:, pick]
            if own is not None:
                tile = own[:, pick]
        energy += fixed[:, None]
        inputs, written = self.inputs[rows, at][:, None], self.written[rows, at][:, None]
        demand = [w[rows, at][:, None] for w in self.whole]
        if self.sizes is not None and ev.folded is not None:
            words = ev.axes[ev.folded].tiles[tile]
            demand = [w + t[rows, at][:, None] * words for w, t in zip(demand, self.tiled)]
        return objectives(ev, energy, cycles, inputs, written, np.maximum.reduce(demand)), tile

    def _op_cost(
        self, e: int, modes: np.ndarray, rows: np.ndarray, at: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
        ev = self.ev
        count = len(ev.placements[e])
        e_cost, c_cost = np.empty((len(rows), count)), np.empty((len(rows), count))
        own = None
        if self.sizes is not None and ev.folded in ev.shape.structure.ops[e].ranks:
            own = np.zeros((len(rows), count), dtype=np.int64)
        for mode in np.flatnonzero(np.bincount(modes)):
            mine = np.flatnonzero(modes == mode)
            columns = at[mine]
            scalar = np.ones((len(mine), count))
            if own is not None and self.sizes is not None:
                fit = self.sizes[rows[mine], columns] - 1
                own[mine] = ev.best_tile[e][mode][:, fit].T
                scalar = ev.best_scalar[e][mode][:, fit].T
            for out, which in ((e_cost, "energy"), (c_cost, "cycles")):
                part = self.op_parts[e][which][mode][:, :, columns]
                out[mine] = (part[0] + part[1] * scalar.T).T
        return own, e_cost, c_cost


def all_tilings(ev: Evaluator) -> Block:
    """All rows at one column that stands for every tiling."""
    return Block(ev, np.arange(len(ev.rows)), [np.array([ev.whole_axis(axis)]) for axis in range(len(ev.outer))])


def floors(ev: Evaluator) -> tuple[np.ndarray, np.ndarray]:
    """The least energy and cycles inside the arrays of each row, over all tilings."""
    if ev.floors is None:
        energy, cycles = all_tilings(ev).least_inside
        ev.floors = (energy[:, 0], cycles[:, 0])
    return ev.floors


def dram_cycles(ev: Evaluator, reads: np.ndarray, writes: np.ndarray) -> np.ndarray:
    """Cycles of the DRAM interface for one head's words times all heads."""
    port, copies = ev.machine.port, ev.shape.copies
    cycles = np.zeros(np.broadcast(reads, writes).shape)
    for words, width in ((reads, port.read), (writes, port.write), (reads + writes, port.shared)):
        if width is not None:
            cycles = np.maximum(cycles, np.ceil(words * copies / width * (1 - 1e-12)))
    return cycles


def objectives(
    ev: Evaluator, energy: np.ndarray, cycles: np.ndarray, inputs: np.ndarray, written: np.ndarray, demand: np.ndarray
) -> np.ndarray:
    """Objectives of the whole workload in the order of :data:`OBJECTIVES`, from the figures of one head."""
    copies = ev.shape.copies
    reads = inputs + written - ev.shape.output_words
    compute = ev.compute_cycles(cycles)
    energy = energy * copies
    latency = np.broadcast_to(np.maximum(compute, dram_cycles(ev, reads, written)), energy.shape)
    dram = np.broadcast_to((reads + written) * copies, latency.shape)
    return np.stack([energy, latency, energy * latency, dram, np.broadcast_to(demand * ev.shares, latency.shape)])


def candidate(block: Block, rows: np.ndarray, at: np.ndarray, tile: np.ndarray, values: np.ndarray, winner: int) -> Candidate:
    ev = block.ev
    cell, combo = divmod(winner, len(ev.combos))
    tiles = {axis.rank: int(axis.tiles[i[at[cell]]]) for axis, i in zip(ev.outer, block.index)}
    if ev.folded is not None:
        tiles[ev.folded] = int(ev.axes[ev.folded].tiles[tile[cell, combo]])
    return Candidate(
        int(block.rows[rows[cell]]),
        tuple(sorted(tiles.items())),
        tuple(int(p) for p in ev.combos[combo]),
        tuple(float(v) for v in values),
    )


def least_demand(ev: Evaluator) -> int:
    """Words of buffer, for one head, of the least demanding row: every tile one point."""
    block = Block(ev, np.arange(len(ev.rows)), [np.zeros(1, dtype=np.int64) for _ in ev.outer])
    whole = block.whole if block.sizes is None else [w + t for w, t in zip(block.whole, block.tiled)]
    return int(np.maximum.reduce(whole).min())


def infeasible(ev: Evaluator) -> NoMapping:
    """The error for a buffer that is too small for every template, naming the smallest that would do."""
    words, capacity, name = least_demand(ev) * ev.shares, ev.machine.capacity, ev.machine.buffer_name
    sentence = f"no fused mapping fits {name}: every template needs at least {words} words, it holds {capacity}"
    relaxation = f"a capacity of {words} words ({words - capacity} more)"
    return NoMapping(sentence, (Obstacle("capacity", name, float(words), float(capacity), sentence, relaxation),))
