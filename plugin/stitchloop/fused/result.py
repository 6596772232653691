"""What mapping a fused chain gives: figures, certificate, front, and the comparison with the Einsums mapped one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stitchloop.fused.array import Placement
from stitchloop.fused.exact import Figures
from stitchloop.fused.machine import Machine
from stitchloop.fused.nest import describe, tree_of
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.shape import Shape
from stitchloop.fused.template import Template
from stitchloop.fused.tree import FusedMapping
from stitchloop.result import Certificate


@dataclass(frozen=True)
class Mapped:
    """One mapping of a chain: template (normalised), tile of each looped rank, placement of each Einsum, figures."""

    template: Template
    tiles: Mapping[int, int]
    placements: tuple[Placement, ...]
    figures: Figures

    def values(self, names: tuple[str, ...]) -> tuple[float, ...]:
        return tuple(self.figures.objective(name) for name in names)


@dataclass(frozen=True)
class Grouped:
    """The chain in groups that run one after the other, the tensors between them through DRAM; each group at its own best.

    ``names`` holds the Einsums of each group, ``parts`` its mapping.
    """

    names: tuple[tuple[str, ...], ...]
    parts: tuple[Mapped, ...]
    energy: float
    cycles: int
    dram: int
    buffer: int

    @property
    def text(self) -> str:
        return " | ".join(" + ".join(names) for names in self.names)

    def objective(self, name: str) -> float:
        """Value of one of the objectives by name."""
        return {
            "energy": self.energy,
            "latency": float(self.cycles),
            "edp": self.energy * self.cycles * 1e-12,
            "dram": float(self.dram),
            "buffer": float(self.buffer),
        }[name]


@dataclass(frozen=True)
class FusedResult:
    """Outcome of mapping a fused chain.

    Attributes
    ----------
    shape, machine, options
    best : Mapped
    certificate : Certificate
    pareto : tuple of Mapped
        The front of ``options.pareto``, sorted by its first objective.
    pareto_stopped : str
        Why the front is not whole; empty when it is.
    unfused : Grouped or None
        Each Einsum alone. None when it was not asked for or when some Einsum alone fits no buffer.
    grouping : Grouped or None
        For chains of three and more, the best way to cut the chain into fused groups (all fused is one of them).
    """

    shape: Shape
    machine: Machine
    options: FusedOptions
    best: Mapped
    certificate: Certificate
    pareto: tuple[Mapped, ...] = ()
    pareto_stopped: str = ""
    unfused: Grouped | None = None
    grouping: Grouped | None = None
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """The first objective."""
        return self.best.figures.objective(self.options.objectives[0])

    @cached_property
    def tree(self) -> FusedMapping:
        """The mapping as a LoopTree tree."""
        return tree_of(self.shape, self.best.template, self.best.tiles)

    @cached_property
    def nest(self) -> str:
        """The loop nest as text."""
        return describe(
            self.shape, self.best.template, self.best.tiles, self.machine.buffer_name, self.placement_texts(self.best)
        )

    @property
    def gain(self) -> float | None:
        """Unfused over fused value of the first objective: above 1, fusing pays."""
        if self.unfused is None or not self.value:
            return None
        return self.unfused.objective(self.options.objectives[0]) / self.value

    def placement_texts(self, mapped: Mapped) -> tuple[str, ...]:
        """For each Einsum, what lies over the rows and the columns of the array."""
        texts = []
        for e, placement in enumerate(mapped.placements):
            names = self.shape.own_names[e]
            sides = []
            for side in placement.sides:
                ranks = [names[r] for r in (side.rank, *side.whole) if r >= 0]
                sides.append(f"{'*'.join(ranks) or '-'} over {side.lanes}")
            split = "".join(f", {names[rank]} split over {count} arrays" for rank, count in placement.splits)
            texts.append(f"{placement.name}, {' x '.join(sides)}{split}")
        return tuple(texts)

    def as_json(self) -> dict[str, Any]:
        """The document of ``result.json``."""
        c, objectives = self.certificate, self.options.objectives
        return {
            "objective": list(objectives),
            "value": self.value,
            "values": list(self.best.values(objectives)),
            "optimal": c.optimal,
            "lower_bound": c.lower_bound,
            "gap": c.gap(self.value),
            "mapspace_size": c.mapspace_size,
            "evaluated": c.evaluated,
            "seconds": c.seconds,
            "counting": c.counting,
            "reason": c.reason,
            "pareto": [{"values": list(p.values(self.options.pareto)), "mapping": self.mapping_json(p)} for p in self.pareto],
            "pareto_objectives": list(self.options.pareto),
            "pareto_complete": not self.pareto_stopped,
            "unfused": self._grouped_json(self.unfused),
            "best_grouping": self._grouped_json(self.grouping),
            "notes": list(self.notes),
            "mapping": self.mapping_json(self.best),
        }

    def _grouped_json(self, grouped: Grouped | None) -> dict[str, Any] | None:
        if grouped is None:
            return None
        value = grouped.objective(self.options.objectives[0])
        return {
            "groups": [list(names) for names in grouped.names],
            "energy_pJ": grouped.energy,
            "cycles": grouped.cycles,
            "edp_J_cycle": grouped.objective("edp"),
            "dram_words": grouped.dram,
            "buffer_words": grouped.buffer,
            "value": value,
            "over_fused": value / self.value if self.value else None,
        }

    def mapping_json(self, mapped: Mapped) -> dict[str, Any]:
        """One mapping as plain data."""
        shape, figures, template = self.shape, mapped.figures, mapped.template
        head = len(shape.structure.ops) - 1
        return {
            "shared_loops": [shape.own_names[head][rank] for rank in template.shared],
            "inner_loops": {
                name: [shape.own_names[e][rank] for rank in template.inner[e]] for e, name in enumerate(shape.einsum_names)
            },
            "tiles": {shape.rank_names[rank]: tile for rank, tile in sorted(mapped.tiles.items())},
            "retention_levels": {
                name: level
                for names, levels in zip(shape.tensor_names, template.levels, strict=True)
                for name, level in zip(names, levels, strict=True)
            },
            "recomputation": {name: factor for name, factor in figures.recompute_factor.items() if factor != 1},
            "array": dict(zip(shape.einsum_names, self.placement_texts(mapped), strict=True)),
            "energy_pJ": figures.energy,
            "cycles": figures.cycles,
            "dram_words": figures.dram,
            "buffer_words": figures.buffer_demand,
        }

    def stats_json(self) -> dict[str, Any]:
        """The document of ``stats.json``, without the reference model's part."""
        f, m = self.best.figures, self.machine
        return {
            "cycles": f.cycles,
            "energy_pJ": f.energy,
            "computes": f.operations,
            "utilization": f.utilization(m),
            "edp_J_cycle": f.edp,
            "seconds": f.cycles * m.cycle_seconds,
            "binding": m.dram_name if f.dram_cycles > f.compute_cycles else m.compute_name,
            "compute_cycles": f.compute_cycles,
            "softmax_cycles": f.softmax_cycles,
            "dram_cycles": f.dram_cycles,
            "dram_words": f.dram,
            "dram_bytes": f.dram * m.word_bits / 8,
            "compulsory_dram_words": self.shape.compulsory * self.shape.copies,
            "buffer_words": f.buffer_demand,
            "buffer_capacity": m.capacity,
            "energy_by_part_pJ": dict(f.energies),
            "levels": {m.dram_name: self._dram_level(), m.buffer_name: self._buffer_level()},
            "einsums": {
                op.name: {
                    "operations": op.operations,
                    "cycles": op.cycles,
                    "utilization": op.utilization,
                    "buffer_words": op.buffer_demand,
                    "recomputation": f.recompute_factor[op.name],
                }
                for op in f.ops
            },
        }

    def _dram_level(self) -> dict[str, Any]:
        f, m = self.best.figures, self.machine
        out: dict[str, Any] = {}
        for e, (op, names) in enumerate(zip(self.shape.structure.ops, self.shape.tensor_names, strict=True)):
            for at, (operand, name) in enumerate(zip(op.operands, names, strict=True)):
                if operand.kind == "intermediate":
                    continue
                reads, writes = f.dram_reads.get(name, 0), f.dram_writes.get(name, 0)
                words = self.shape.words(e, at) * self.shape.copies
                out[name] = _tensor(reads, 0, writes, words, reads * m.dram_read + writes * m.dram_write)
        return out

    def _buffer_level(self) -> dict[str, Any]:
        f, m = self.best.figures, self.machine
        reads: dict[str, int] = dict.fromkeys(f.blocks, 0)
        fills, updates = dict(reads), dict(reads)
        for op, names in zip(f.ops, self.shape.tensor_names, strict=True):
            for name, words in op.array_reads.items():
                reads[name] += words
            reads[names[-1]] += op.array_rereads
            updates[names[-1]] += op.array_writes
        for name, words in f.dram_reads.items():
            fills[name] += words
        for name, words in f.dram_writes.items():
            reads[name] += words
        return {
            name: _tensor(
                reads[name], fills[name], updates[name], f.blocks[name],
                reads[name] * m.buffer_read + (fills[name] + updates[name]) * m.buffer_write,
            )
            for name in f.blocks
        }  # fmt: skip


def _tensor(reads: int, fills: int, updates: int, capacity: int, energy: float) -> dict[str, Any]:
    return {"reads": reads, "fills": fills, "updates": updates, "capacity": capacity, "instances": 1, "energy_pJ": energy}
