"""Switches of the fused search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OBJECTIVES = ("energy", "latency", "edp", "dram", "buffer")
"""Objectives by name: pJ, cycles, J * cycle, words over the DRAM interface, words of buffer demand."""

ABLATIONS = ("ordering", "buffer", "full", "flash-attention-2", "flat", "tileflow")
"""Mapspaces to compare: loop orders only; with retention levels; with recomputation too; single fixed templates with free
tiles."""

ALIASES = {"delay": "latency", "cycles": "latency", "last-level-accesses": "dram", "capacity": "buffer"}
"""Timeloop's names of the same things."""

Softmax = Literal["none", "added", "overlapped"]
Arrays = Literal["split", "heads", "free"]


@dataclass(frozen=True)
class FusedOptions:
    """What the fused search optimises, and over which mapspace.

    Attributes
    ----------
    objectives : tuple of str
        The first is optimised; the others, then the remaining ones of :data:`OBJECTIVES`, break ties.
    pareto : tuple of str
        Two or three objectives of which the whole front is wanted too; empty for none.
    perfect : bool
        Tile sizes that divide the rank sizes only. Else trip counts are ``ceil(X / G)`` and partial tiles are counted exactly.
    softmax : str
        ``none``; ``added``: its cycles stand before the consumer's; ``overlapped``: they run beside the array.
    softmax_ops : float
        Elementary operations per element of the intermediate tensor.
    softmax_lanes : int or None
        Operations per cycle; None: one for each column of each array.
    arrays : str
        ``split``: the arrays share one head, cut along its common outer rank; ``free``: they share one head, each Einsum cut
        along any one or two of its ranks (partial sums of several arrays are added on their way up, at no cost, as within an
        array); ``heads``: each takes a head of its own, with a buffer share of its own.
    reconfigurable : bool
        Logical array shapes ``R'*C' = R*C``, chosen for each Einsum.
    stationarity : tuple of str
        Options admitted inside the array: ``WS``, ``IS``, ``OS``.
    ablation : str
        One of :data:`ABLATIONS`.
    capacity : int or None
        Words of buffer instead of the architecture's.
    """

    objectives: tuple[str, ...] = ("edp",)
    pareto: tuple[str, ...] = ()
    perfect: bool = False
    softmax: Softmax = "none"
    softmax_ops: float = 10.0
    softmax_lanes: int | None = None
    arrays: Arrays = "split"
    reconfigurable: bool = False
    stationarity: tuple[str, ...] = ("WS", "IS", "OS")
    ablation: str = "full"
    capacity: int | None = None
    unfused: bool = True
    """Also find the best mapping of each Einsum alone, and compare."""
    time_limit: float | None = None

    @property
    def order(self) -> tuple[str, ...]:
        """All objectives: the wanted ones, then the rest as tie-breaks."""
        return tuple(dict.fromkeys((*self.objectives, *OBJECTIVES)))
