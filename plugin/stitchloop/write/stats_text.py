"""``timeloop-mapper.stats.txt``: the figures in Timeloop's sections, under its names and in its order."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import numpy as np

from stitchloop.architecture import Architecture, Compute, Level
from stitchloop.model.performance import access_energy
from stitchloop.stats import PARTIAL_TILES, LevelStats, Stats, TensorStats
from stitchloop.workload import Einsum

WORD = 2**64


def format_stats(einsum: Einsum, architecture: Architecture, stats: Stats) -> str:
    """The whole file. As in Timeloop, levels without accesses and energy are left out, and so are networks (cost 0)."""
    sections = [
        "Buffer and Arithmetic Levels\n----------------------------\n",
        _compute_section(architecture, stats),
        *_level_sections(einsum, architecture, stats),
        "Networks\n--------\n\n",
        _intensity_section(einsum, architecture, stats),
        _summary_section(einsum, architecture, stats),
        _energy_section(architecture, stats),
    ]
    return "".join(sections)


def _fields(indent: str, width: int, pairs: list[tuple[str, str]]) -> str:
    return "".join(f"{indent}{name:<{width}}: {value}\n" for name, value in pairs)


def _single(value: float) -> float:
    """``value`` in single precision, as Timeloop holds some figures; infinite beyond its range."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _fixed(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _heading(index: int, name: str) -> str:
    return f"Level {index}\n-------\n=== {name} ===\n\n    SPECS\n    -----\n"


def _area(part: Level | Compute) -> float:
    """Area of one instance in um^2, which Timeloop reads in single precision."""
    return _single(part.area_um2 or 0.0)


def _compute_section(architecture: Architecture, stats: Stats) -> str:
    unit, counts = architecture.compute, stats.compute
    if counts.energy_pJ == 0:
        return ""
    specs = [
        ("Word bits", str(unit.word_bits)),
        ("Instances", f"{unit.instances} ({unit.mesh_x}*{unit.mesh_y})"),
        ("Compute energy", f"{_fixed(unit.energy.compute)} pJ"),
    ]
    figures = [
        ("Utilized instances", str(counts.instances)),
        ("Computes (total)", str(counts.computes)),
        ("Cycles", str(counts.cycles)),
        ("Energy (total)", f"{_fixed(counts.energy_pJ)} pJ"),
        ("Area (total)", f"{_fixed(_area(unit) * unit.instances)} um^2"),
    ]
    return _heading(0, unit.name) + _fields("    ", 22, specs) + "\n    STATS\n    -----\n" + _fields("    ", 24, figures) + "\n"


def _level_sections(einsum: Einsum, architecture: Architecture, stats: Stats) -> list[str]:
    sections = []
    for index, level in enumerate(architecture.levels, start=1):
        counts = stats.levels.get(level.name)
        if counts is None or (_accesses(counts) == 0 and counts.energy_pJ == 0):
            continue
        sections.append(
            _heading(index, level.name)
            + _level_specs(level, counts)
            + "\n    STATS\n    -----\n"
            + _fields("    ", 21, [("Cycles", str(counts.cycles)), ("Bandwidth throttling", _fixed(counts.throttle))])
            + "".join(
                f"    {tensor.name}:\n" + _tensor_fields(level, counts, counts.tensors[tensor.name], tensor.is_output, stats)
                for tensor in einsum.tensors
                if tensor.name in counts.tensors
            )
            + "\n"
        )
    return sections


def _level_specs(level: Level, counts: LevelStats) -> str:
    size = None if level.depth is None else level.depth * level.block_size
    pairs = [
        ("Technology", level.technology),
        ("Size", "-" if size is None else str(size)),
        ("Word bits", str(level.datawidth)),
        ("Block size", str(level.block_size)),
        ("Cluster size", "1"),
        ("Instances", f"{level.instances} ({level.mesh_x}*{level.mesh_y})"),
        ("Shared bandwidth", _fixed(level.shared_bandwidth)),
        ("Read bandwidth", _fixed(level.read_bandwidth)),
        ("Write bandwidth", _fixed(level.write_bandwidth)),
        ("Multiple buffering", _fixed(level.multiple_buffering)),
        ("Effective size", "-" if level.capacity is None else str(level.capacity)),
        ("Min utilization", _fixed(level.min_utilization)),
        ("Vector access energy", f"{_fixed(level.energy.vector_access)} pJ"),
        ("Vector access energy source", "ERT"),
        ("Per-instance-cycle leakage", f"{_fixed(level.energy.leak)} pJ"),
        ("Instances sharing power gating", "1.00"),
        ("Non-power-gated utilization", "100.00%"),
        ("Leakage energy (total)", f"{_fixed(counts.leakage_pJ)} pJ"),
        ("Area", f"{_fixed(_area(level))} um^2"),
    ]
    return _fields("        ", 32, pairs)


def _energy_of_one(level: Level, s: TensorStats, counting: str) -> float:
    """pJ of one instance; their mean where partial tiles make instances differ."""
    if counting == PARTIAL_TILES:
        return s.energy_pJ / s.instances
    return access_energy(s, level.energy, level.block_size, 1)


def _tensor_fields(level: Level, counts: LevelStats, s: TensorStats, is_output: bool, stats: Stats) -> str:
    compute_cycles, throttle = stats.compute.cycles, counts.throttle
    read_demand, write_demand = s.reads / compute_cycles, (s.fills + s.updates) / compute_cycles
    read_rate, write_rate = throttle * read_demand, throttle * write_demand
    shared_rate = throttle * (read_demand + write_demand)
    accesses = s.reads + s.fills + s.updates
    per_instance = _energy_of_one(level, s, stats.counting)
    addresses = s.fills + (s.updates if is_output else s.reads)
    rate = "{:.2f} words/cycle".format
    pairs = [
        ("Partition size", str(s.partition)),
        ("Utilized capacity", str(s.capacity)),
        ("Utilized instances (max)", str(s.instances)),
        ("Utilized clusters (max)", str(s.instances)),
        ("Scalar reads (per-instance)", str(s.reads)),
        ("Scalar fills (per-instance)", str(s.fills)),
        ("Scalar updates (per-instance)", str(s.updates)),
        ("Temporal reductions (per-instance)", str(s.reductions)),
        ("Address generations (per-cluster)", str(addresses)),
        ("Energy (per-scalar-access)", f"{_fixed(per_instance / accesses if accesses else 0.0)} pJ"),
        ("Energy (per-instance)", f"{_fixed(per_instance)} pJ"),
        ("Energy (total)", f"{_fixed(s.energy_pJ)} pJ"),
        ("Temporal Reduction Energy (per-instance)", "0.00 pJ"),
        ("Temporal Reduction Energy (total)", "0.00 pJ"),
        ("Address Generation Energy (per-cluster)", "0.00 pJ"),
        ("Address Generation Energy (total)", "0.00 pJ"),
        ("Bandwidth Consumption Scale", "1.00"),
        ("Shared Bandwidth (per-instance)", rate(shared_rate)),
        ("Shared Bandwidth (total)", rate(shared_rate * s.instances)),
        ("Read Bandwidth (per-instance)", rate(read_rate)),
        ("Read Bandwidth (total)", rate(read_rate * s.instances)),
        ("Write Bandwidth (per-instance)", rate(write_rate)),
        ("Write Bandwidth (total)", rate(write_rate * s.instances)),
    ]
    return _fields("        ", 41, pairs)


def _accesses(level: LevelStats) -> int:
    """Scalar accesses of one level over all its used instances."""
    return sum((s.reads + s.fills + s.updates) * s.instances for s in level.tensors.values())


def _outermost_capacity(tensor: str, stats: Stats) -> int:
    """Words of ``tensor`` at the outermost level that keeps it: what Timeloop takes for its size in this section."""
    return next(level.tensors[tensor].capacity for level in reversed(list(stats.levels.values())) if tensor in level.tensors)


def _total_ops(einsum: Einsum, stats: Stats) -> tuple[int, int]:
    """Elementwise operations and reductions; as in Timeloop, in 64 bits without a sign."""
    reductions = stats.computes - sum(_outermost_capacity(tensor.name, stats) for tensor in einsum.outputs)
    return stats.computes, reductions % WORD


def _intensity(operations: int, accesses: int, word_bits: int) -> str:
    """Operations per byte, with Timeloop's whole bytes and single precision."""
    whole_bytes = word_bits * accesses // 8
    return _fixed(_single(_single(operations) / _single(whole_bytes)) if whole_bytes else inf)


def _intensity_section(einsum: Einsum, architecture: Architecture, stats: Stats) -> str:
    computes, reductions = _total_ops(einsum, stats)
    operations = (computes + reductions) % WORD
    required = sum(_outermost_capacity(tensor.name, stats) for tensor in einsum.tensors)
    outer_bits = architecture.levels[-1].datawidth
    text = "Operational Intensity Stats\n---------------------------\n" + _fields(
        "    ",
        40,
        [
            ("Total elementwise ops", str(computes)),
            ("Total reduction ops", str(reductions)),
            ("Total ops", str(operations)),
            ("Total memory accesses required", str(required)),
            ("Optimal Op per Byte", _intensity(operations, required, outer_bits)),
        ],
    )
    text += "\n"
    for level in architecture.levels:
        text += f"=== {level.name} ===\n"
        counts = stats.levels.get(level.name)
        accesses = _accesses(counts) if counts is not None else 0
        if accesses:
            pairs = [
                ("Total scalar accesses", str(accesses)),
                ("Op per Byte", _intensity(operations, accesses, level.datawidth)),
            ]
            text += _fields("    ", 40, pairs)
    return text + "\n\n"


def _summary_section(einsum: Einsum, architecture: Architecture, stats: Stats) -> str:
    operations = sum(_total_ops(einsum, stats)) % WORD
    edp = _single(stats.cycles) * stats.energy_pJ / 1e12
    return (
        "Summary Stats\n-------------\n"
        f"GFLOPs (@1GHz): {_fixed(_single(_single(operations) / _single(stats.cycles)))}\n"
        f"Utilization: {_fixed(stats.utilization * 100)}%\n"
        f"Cycles: {stats.cycles}\n"
        f"Energy: {_fixed(stats.energy_pJ / 1e6)} uJ\n"
        f"EDP(J*cycle): {edp:.2e}\n"
        f"Area: {_fixed(0.0)} mm^2\n"
    )


def _energy_section(architecture: Architecture, stats: Stats) -> str:
    names = [architecture.compute.name, *architecture.names]
    networks = [f"{outer} <==> {inner}" for inner, outer in pairwise(names)]
    width = max(map(len, names + networks)) + 1
    energies = [(architecture.compute.name, stats.compute.energy_pJ)]
    energies += [(name, stats.levels[name].energy_pJ) for name in architecture.names if name in stats.levels]
    lines = [f"    {name:<{width}}= {_fixed(energy * 1000 / stats.computes)}\n" for name, energy in energies if energy != 0]
    total = f"    {'Total':<{width}}= {_fixed(stats.energy_pJ * 1000 / stats.computes)}\n"
    return f"\nComputes = {stats.computes}\nfJ/Compute\n" + "".join(lines) + total + "\n"
