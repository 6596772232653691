"""The accelerator as the model sees it: levels in series, inner to outer, above the compute units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

EMPTY: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Energy:
    """Energy per action of one component in pJ per vector access (ERT), and its leakage in pJ per cycle and instance."""

    read: float = 0.0
    write: float = 0.0
    update: float = 0.0
    compute: float = 0.0
    leak: float = 0.0
    vector_access: float = 0.0
    """The largest energy of all the component's actions, which Timeloop prints as ``Vector access energy``."""
    source: str = "none"
    """Which engine or file gave the figures."""


@dataclass(frozen=True)
class Level:
    """One level of the hierarchy: a storage component, or a fan-out that keeps nothing.

    Attributes
    ----------
    name : str
        As Timeloop prints it: ``GLB``, or ``inter_PE_spatial`` for the fan-out of the container ``PE``.
    is_fanout : bool
        A dummy level that stores nothing and only holds spatial loops.
    instances, mesh_x, mesh_y : int
        How many physical instances stand in the whole machine, and how they are laid out (``instances = mesh_x * mesh_y``).
    fanout_x, fanout_y : int
        Instances of the next inner level (or of the compute unit, for level 0) under one instance of this one.
    depth : int or None
        Rows of ``width`` bits; None is unlimited.
    width, datawidth : int
        Bits of one row (vector access) and of one word.
    block_size : int
        Words of one vector access: ``width // datawidth``; may be given apart.
    multiple_buffering : float
    min_utilization : float
        Least share of the capacity that a mapping has to fill.
    read_bandwidth, write_bandwidth, shared_bandwidth : float or None
        Words per cycle and instance; None is unlimited.
    attributes : mapping
        All attributes after inheritance and evaluation, for writers and estimators.
    """

    name: str
    is_fanout: bool = False
    instances: int = 1
    mesh_x: int = 1
    mesh_y: int = 1
    fanout_x: int = 1
    fanout_y: int = 1
    depth: int | None = None
    width: int = 1
    datawidth: int = 1
    block_size: int = 1
    multiple_buffering: float = 1.0
    min_utilization: float = 0.0
    read_bandwidth: float | None = None
    write_bandwidth: float | None = None
    shared_bandwidth: float | None = None
    entries: int | None = None
    """Words of one instance where the input gives them apart from ``depth`` (``entries``, ``sizeKB``)."""
    component_class: str = ""
    technology: str = "SRAM"
    """``DRAM`` for DRAM classes, else ``SRAM``, as Timeloop prints it."""
    energy: Energy = Energy()
    area_um2: float | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)

    @cached_property
    def capacity(self) -> int | None:
        """Words that the kept tiles may occupy together; None is unlimited."""
        words = self.entries if self.entries is not None or self.depth is None else self.depth * self.block_size
        return None if words is None else int(words / self.multiple_buffering)


@dataclass(frozen=True)
class Compute:
    """The compute units below level 0."""

    name: str
    instances: int = 1
    mesh_x: int = 1
    mesh_y: int = 1
    word_bits: int = 16
    component_class: str = ""
    energy: Energy = Energy()
    area_um2: float | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)


@dataclass(frozen=True)
class Architecture:
    """``levels[0]`` is the innermost; ``levels[-1]`` the outermost, in which every tensor starts.

    A container or component with ``spatial`` adds, just above itself, a fan-out level ``inter_<name>_spatial``.
    ``cycle_seconds`` is the clock period (``global_cycle_seconds``).
    """

    name: str
    levels: tuple[Level, ...]
    compute: Compute
    cycle_seconds: float = 1e-9
    variables: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(level.name for level in self.levels)

    def index(self, name: str) -> int:
        """Index of the level called ``name``; ``KeyError`` when there is none."""
        try:
            return self.names.index(name)
        except ValueError:
            raise KeyError(name) from None

    @cached_property
    def storage(self) -> tuple[Level, ...]:
        """The levels that can keep tensors, inner to outer."""
        return tuple(level for level in self.levels if not level.is_fanout)
