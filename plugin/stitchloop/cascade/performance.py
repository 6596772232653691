"""Traffic, time and energy of fusion groups on a machine.

A group takes the longer of computing and moving data, as far as they can overlap; groups run one after the other:

    group = fill + first tile + (tiles - 1) * steady tile + drain        layer = sum over groups

A tile is a walk over its segments. Segment s computes for c[s] cycles and moves m[s] words over DRAM. Transfers run ahead of the
computation as far as the buffer has room for them (the window W), so that with a lead L of words already there

    t[s] = max(c[s], (m[s] - L) / bandwidth)        L <- min(W, L + t[s] * bandwidth - m[s])

``IDEAL`` settings drop all of this: peak throughput of each mode, one operation a point, every tensor moved once, perfect
overlap: ``max(sum of computing, sum of moving)``. Each refinement of ``DETAILED`` has a switch of its own in
:class:`Settings`, so that what it costs can be told apart.

Taken for granted: a group's Einsums share one tile size; groups do not overlap; weights, activations and state have one word
size; partial sums never leave the chip; arrays are fed at the buffer's bandwidth whatever the network between them; DRAM has no
latency, banks or refresh; energy is that of the reference tables, special functions counted as MACs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.machine import Machine
from stitchloop.cascade.merge import Node
from stitchloop.cascade.traffic import Volume


@dataclass(frozen=True)
class Settings:
    """What the model accounts for.

    Attributes
    ----------
    array : bool
        GEMMs are laid out on rows and columns by a dataflow; else the 2D mode always runs at its peak.
    functions : bool
        Operators and composed functions are counted; else one operation a point.
    capacity : bool
        Tiles fit in the buffer, operands are read again where they do not stay, tensors are spilled; else everything moves once.
    bandwidth : bool
        The buffer's bandwidth bounds a segment.
    overlap : bool
        Transfers run ahead only as far as there is room, pipelines and wavefronts fill and drain; else both overlap perfectly.
    switches : bool
        The array loses cycles at a change of mode.
    stalls : bool
        A carried dependence waits for the PE pipeline where too few independent points hide it.
    least_tiles : int
        A pipeline of several segments runs in at least so many tiles ("an upstream tile triggers its consumer at once").
    spilled : tuple of str
        Tensors that are written out and read back whatever the model thinks (only without ``capacity``).
    """

    array: bool = True
    functions: bool = True
    capacity: bool = True
    bandwidth: bool = True
    overlap: bool = True
    switches: bool = True
    stalls: bool = True
    least_tiles: int = 1
    spilled: tuple[str, ...] = ()


DETAILED = Settings()
IDEAL = Settings(array=False, functions=False, capacity=False, bandwidth=False, overlap=False, switches=False, stalls=False)


@dataclass(frozen=True)
class Plan:
    """The partitioning that the model chose for a group.

    Attributes
    ----------
    kind : str
        ``whole``, ``I-blocking``, ``B-D-N stationary``, ``hybrid``, ``batch split`` or ``tiled``.
    tile : mapping of str to int
        Tile size of each tile rank.
    tiles : int
    spilled : tuple of str
        Tensors that are written out and read back (or read again) inside the group.
    state_kept : bool
        The carried state stays in the buffer from block to block.
    pinned_words, footprint_words, window_words : float
        Words of operands that stay for all tiles; most words that tiles, state and streams take at a time; room for transfers
        ahead.
    """

    kind: str
    tile: Mapping[str, int]
    tiles: int
    spilled: tuple[str, ...] = ()
    state_kept: bool = True
    pinned_words: float = 0.0
    footprint_words: float = 0.0
    window_words: float = 0.0


@dataclass(frozen=True)
class EinsumCost:
    """One node's share of its group.

    ``cycles`` of computing, ``dram_words`` moved on its account, ``seconds`` of the group's time that its segment takes by
    its share, ``utilization`` of its mode's PEs while it computes.
    """

    node: Node
    mode: str
    dataflow: str
    points: float
    operations: float
    cycles: float
    dram_words: float
    seconds: float
    utilization: float

    @property
    def name(self) -> str:
        return "+".join(self.node)


@dataclass(frozen=True)
class GroupCost:
    """One group's traffic, time and energy.

    Attributes
    ----------
    nodes : tuple of Node
    seconds, compute_seconds, dram_seconds : float
        The group's time; what computing alone and moving data alone would take.
    volume : Volume
        Words over DRAM by cause, re-reads and spills included.
    spill_words, reread_words : float
        How many of them are spills of tensors, and operands read again (weights, the carried state from block to block).
    partial_sum_words : float
        Partial sums among the buffer's words. None cross DRAM: outputs are complete when they leave.
    buffer_words : float
        All words between the PEs' registers and the level next to them.
    energy_pj : mapping of str to float
    plan : Plan
    einsums : tuple of EinsumCost
    """

    nodes: tuple[Node, ...]
    seconds: float
    compute_seconds: float
    dram_seconds: float
    volume: Volume
    spill_words: float
    reread_words: float
    partial_sum_words: float
    buffer_words: float
    energy_pj: Mapping[str, float]
    plan: Plan
    einsums: tuple[EinsumCost, ...]
    shortfall_words: float = 0.0
    """Words that the buffer lacks for the smallest tiling; the group does not run where this is not 0."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for node in self.nodes for name in node)

    @property
    def bound(self) -> str:
        """``compute``, ``DRAM``, or ``latency`` where neither accounts for nine tenths of the time."""
        if max(self.compute_seconds, self.dram_seconds) < 0.9 * self.seconds:
            return "latency"
        return "compute" if self.compute_seconds >= self.dram_seconds else "DRAM"


@dataclass(frozen=True)
class Performance:
    """A whole layer under one grouping."""

    strategy: str
    cascade: Cascade = field(repr=False)
    machine: Machine = field(repr=False)
    groups: tuple[GroupCost, ...]

    @property
    def seconds(self) -> float:
        return sum(group.seconds for group in self.groups)

    @property
    def compute_seconds(self) -> float:
        return sum(group.compute_seconds for group in self.groups)

    @property
    def dram_seconds(self) -> float:
        return sum(group.dram_seconds for group in self.groups)

    @property
    def volume(self) -> Volume:
        return sum((group.volume for group in self.groups), Volume())

    @property
    def energy_pj(self) -> dict[str, float]:
        total: dict[str, float] = {}
        for group in self.groups:
            for component, energy in group.energy_pj.items():
                total[component] = total.get(component, 0.0) + energy
        return total

    @property
    def shortfalls(self) -> tuple[GroupCost, ...]:
        """Groups that the buffer is too small for, at any tiling."""
        return tuple(group for group in self.groups if group.shortfall_words)

    @property
    def grouping(self) -> tuple[tuple[str, ...], ...]:
        return tuple(group.names for group in self.groups)
