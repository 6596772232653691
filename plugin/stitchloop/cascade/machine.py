"""What the cascade's performance model needs to know of an architecture: arrays, lanes, clock, capacity, bandwidth, energies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stitchloop.architecture import Architecture, Level
from stitchloop.errors import InputError, Place

DATAFLOWS = ("OS", "WS", "IS")
UNLIMITED = 1e18
"""Words a cycle where the architecture sets no limit."""


@dataclass(frozen=True)
class Machine:
    """An accelerator with a 2D mode for GEMM-like Einsums and a 1D mode for all others.

    Attributes
    ----------
    arrays, rows, columns : int
        2D mode: so many arrays of ``rows x columns`` PEs.
    lanes, special_lanes : int
        1D mode: operations a cycle, and special functions a cycle.
    shared_array : bool
        Both modes are the same PEs and take turns; else they are two units that work side by side.
    dataflows : tuple of str
        What a GEMM may keep still in the array: outputs (``OS``), weights (``WS``), inputs (``IS``).
    load_bandwidth : float
        Words a cycle that bring a new stationary tile into each array.
    pipeline_depth, switch_cycles : int
        Stages of one operation; cycles lost when the array changes its mode.
    functions : frozenset of str
        Unary functions that take one operation; others are composed (see :mod:`stitchloop.cascade.compute`).
    buffer_words : int
        Capacity of the outermost on-chip level.
    near_name : str
        The level next to the registers: the buffer, or a level below it (an SM's shared memory) in which each tile's operands are
        used again.
    near_reads, near_writes, dram_words : float
        Words a cycle from and to that level, and between DRAM and the buffer (both directions together).
    dram_pj, buffer_read_pj, buffer_write_pj, near_read_pj, near_write_pj, register_pj, operation_pj : float
        Energy per word moved (per operation for the last).
    leak_pj : float
        Leakage of the whole machine per cycle.
    energy_source : str
        Where the energies come from; empty when there are none.
    """

    name: str
    clock_hz: float
    word_bits: int
    arrays: int
    rows: int
    columns: int
    lanes: int
    special_lanes: int
    shared_array: bool
    dataflows: tuple[str, ...]
    load_bandwidth: float
    pipeline_depth: int
    switch_cycles: int
    functions: frozenset[str]
    buffer_name: str
    buffer_words: int
    near_name: str
    near_reads: float
    near_writes: float
    dram_words: float
    dram_pj: float = 0.0
    buffer_read_pj: float = 0.0
    buffer_write_pj: float = 0.0
    near_read_pj: float = 0.0
    near_write_pj: float = 0.0
    register_pj: float = 0.0
    operation_pj: float = 0.0
    leak_pj: float = 0.0
    energy_source: str = ""

    @property
    def array_pes(self) -> int:
        """Operations a cycle of the 2D mode."""
        return self.arrays * self.rows * self.columns

    @property
    def word_bytes(self) -> float:
        return self.word_bits / 8

    @property
    def dram_bytes_per_second(self) -> float:
        return self.dram_words * self.word_bytes * self.clock_hz

    def with_buffer(self, words: int) -> Machine:
        """The same machine with another on-chip capacity (energies as they are)."""
        return replace(self, buffer_words=words)


def machine_of(architecture: Architecture, name: str | None = None) -> Machine:
    """Read the machine off an architecture; ``name`` is for people, the architecture's own where it is not given.

    The two modes are attributes of the compute unit: ``array_count``, ``array_rows``, ``array_columns``, ``array_dataflows``,
    ``array_load_bandwidth``, ``vector_lanes``, ``special_lanes``, ``vector_shares_array``, ``pipeline_depth``, ``functions``,
    ``mode_switch_cycles``; ``arch/mambalaya.yaml`` explains each.

    An architecture that gives none of them gets this: its arrays are the innermost fan-out (``meshY`` rows, ``meshX`` columns),
    weights stay in them and come in through the columns' edge; results leave an array through its columns, so that the 1D
    mode is a vector unit of one lane per column, apart from the array, that multiplies and adds and takes the maximum, one
    stage deep.

    Raises
    ------
    InputError
        No DRAM or no on-chip buffer of limited size, or an attribute that is not what its name says.
    """
    storage = architecture.storage
    bounded = [level for level in storage if level.capacity is not None]
    if not storage or not bounded or storage[-1] is bounded[-1]:
        place = Place(path=("architecture",))
        raise InputError(
            place, "no on-chip buffer under an unlimited memory", "give the outermost level no depth and the next one a depth"
        )
    dram, buffer = storage[-1], bounded[-1]
    attributes = _Attributes(architecture.compute.name, architecture.compute.attributes)
    rows, columns = _array_shape(architecture)
    rows, columns = attributes.whole("array_rows", rows), attributes.whole("array_columns", columns)
    arrays = attributes.whole("array_count", max(1, architecture.compute.instances // (rows * columns)))
    lanes = attributes.whole("vector_lanes", arrays * columns)
    near = next((level for level in storage[1:] if level.capacity is not None), buffer)
    registers = storage[0] if storage[0] is not buffer else None
    engines = {level.energy.source for level in storage if level.energy.source != "none"}
    return Machine(
        name=name or architecture.name,
        clock_hz=1 / architecture.cycle_seconds,
        word_bits=buffer.datawidth,
        arrays=arrays,
        rows=rows,
        columns=columns,
        lanes=lanes,
        special_lanes=attributes.whole("special_lanes", lanes),
        shared_array=bool(attributes.number("vector_shares_array", 0)),
        dataflows=attributes.words("array_dataflows", ("WS",), DATAFLOWS),
        load_bandwidth=attributes.number("array_load_bandwidth", columns, least=1e-9),
        pipeline_depth=attributes.whole("pipeline_depth", 1),
        switch_cycles=attributes.whole("mode_switch_cycles", 0, least=0),
        functions=frozenset(attributes.words("functions", ("mac", "max"))),
        buffer_name=buffer.name,
        buffer_words=(buffer.capacity or 0) * buffer.instances,
        near_name=near.name,
        near_reads=_bandwidth(near, near.read_bandwidth),
        near_writes=_bandwidth(near, near.write_bandwidth),
        dram_words=_bandwidth(dram, dram.read_bandwidth),
        dram_pj=max(dram.energy.read, dram.energy.write) / dram.block_size,
        buffer_read_pj=buffer.energy.read / buffer.block_size,
        buffer_write_pj=buffer.energy.write / buffer.block_size,
        near_read_pj=near.energy.read / near.block_size,
        near_write_pj=near.energy.write / near.block_size,
        register_pj=registers.energy.read / registers.block_size if registers else 0.0,
        operation_pj=architecture.compute.energy.compute,
        leak_pj=sum(level.energy.leak * level.instances for level in storage),
        energy_source=", ".join(sorted(engines)),
    )


def _array_shape(architecture: Architecture) -> tuple[int, int]:
    """Rows and columns of the innermost fan-out."""
    for level in architecture.levels:
        if level.fanout_x * level.fanout_y > 1:
            return level.fanout_y, level.fanout_x
    return 1, 1


def _bandwidth(level: Level, separate: float | None) -> float:
    """Words a cycle of all instances."""
    limit = level.shared_bandwidth if level.shared_bandwidth is not None else separate
    return UNLIMITED if limit is None else float(limit) * level.instances


@dataclass(frozen=True)
class _Attributes:
    owner: str
    values: Mapping[str, Any]

    def fail(self, key: str, mend: str) -> InputError:
        return InputError(Place(path=("architecture", self.owner, "attributes", key)), f"{key} is {self.values[key]!r}", mend)

    def number(self, key: str, default: float, least: float = 0.0) -> float:
        if key not in self.values:
            return default
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < float("inf"):
            raise self.fail(key, f"give a number of at least {least:g}")
        return float(value)

    def whole(self, key: str, default: int, least: int = 1) -> int:
        value = self.number(key, default, least)
        if value != int(value):
            raise self.fail(key, "give a whole number")
        return int(value)

    def words(self, key: str, default: tuple[str, ...], allowed: tuple[str, ...] = ()) -> tuple[str, ...]:
        if key not in self.values:
            return default
        found = tuple(str(self.values[key]).strip("\"'").replace(",", " ").split())
        if not found or (allowed and not set(found) <= set(allowed)):
            raise self.fail(key, f"name some of {', '.join(allowed)}" if allowed else "name at least one, with blanks between")
        return found
