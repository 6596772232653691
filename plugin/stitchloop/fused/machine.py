"""The machine as fused work sees it: DRAM, one on-chip buffer, and compute arrays below it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from stitchloop.architecture import Architecture, Level
from stitchloop.errors import InputError, Place
from stitchloop.text import counted


@dataclass(frozen=True)
class Port:
    """Words per cycle of the DRAM interface; None is unlimited."""

    read: float | None = None
    write: float | None = None
    shared: float | None = None


@dataclass(frozen=True)
class Machine:
    """Sizes in words, energies in pJ per word or operation.

    ``rows * columns`` compute units make an array, ``arrays`` of them stand below the buffer.
    """

    capacity: int
    rows: int
    columns: int
    arrays: int = 1
    port: Port = Port()
    dram_read: float = 0.0
    dram_write: float = 0.0
    buffer_read: float = 0.0
    buffer_write: float = 0.0
    mac: float = 0.0
    elementary: float = 0.0
    cycle_seconds: float = 1e-9
    word_bits: int = 16
    dram_name: str = "DRAM"
    buffer_name: str = "Buffer"
    compute_name: str = "MAC"
    inner_storage: tuple[str, ...] = ()
    """Storage levels below the buffer."""

    @property
    def units(self) -> int:
        return self.rows * self.columns * self.arrays


def machine_of(architecture: Architecture, capacity: int | None = None) -> Machine:
    """Find DRAM, the buffer and the arrays in an architecture.

    DRAM is the outermost storage level and the buffer the next one inside it. The innermost fan-out below the buffer is the array
    (mesh Y: rows, mesh X: columns); fan-outs between it and the buffer multiply it. Storage inside the arrays holds what the
    stationarity option keeps there; its energy is part of no figure here.

    Raises
    ------
    InputError
        With fewer than two storage levels, or a buffer of unlimited size and no ``capacity``.
    """
    storage = architecture.storage
    if len(storage) < 2:
        raise InputError(
            Place(None, ("architecture",)), counted(len(storage), "storage level"), "fused work needs DRAM and a buffer inside it"
        )
    dram, buffer = storage[-1], storage[-2]
    words = capacity if capacity is not None else buffer.capacity
    if words is None:
        raise InputError(
            Place(None, ("architecture", buffer.name)), "a buffer of unlimited size", "give the buffer below DRAM a depth"
        )
    fanouts = _fanouts(architecture, buffer)
    columns, rows = fanouts[-1] if fanouts else (1, 1)
    return Machine(
        capacity=words,
        rows=rows,
        columns=columns,
        arrays=prod(x * y for x, y in fanouts[:-1]),
        port=Port(dram.read_bandwidth, dram.write_bandwidth, dram.shared_bandwidth),
        dram_read=dram.energy.read / dram.block_size,
        dram_write=dram.energy.write / dram.block_size,
        buffer_read=buffer.energy.read / buffer.block_size,
        buffer_write=buffer.energy.write / buffer.block_size,
        mac=architecture.compute.energy.compute,
        elementary=architecture.compute.energy.compute,
        cycle_seconds=architecture.cycle_seconds,
        word_bits=buffer.datawidth,
        dram_name=dram.name,
        buffer_name=buffer.name,
        compute_name=architecture.compute.name,
        inner_storage=tuple(level.name for level in storage[:-2]),
    )


def _fanouts(architecture: Architecture, buffer: Level) -> list[tuple[int, int]]:
    """Fan-outs (x, y) below the buffer, outer to inner, without those of 1."""
    below = architecture.levels[: architecture.index(buffer.name) + 1]
    return [(level.fanout_x, level.fanout_y) for level in reversed(below) if level.fanout_x * level.fanout_y > 1]
