"""Which cost makes less fusion win in generation: the same step under one changed assumption at a time.

With everything as modelled, more fusion never loses at one token a step on Mambalaya: a whole step of every tensor fits in
the buffer, so that each fused group runs as one tile, reads each weight once and changes mode as often as separate groups do.
What would make it lose is one of the following, all consequences of cutting the step's 64 rows (or the buffer) into pieces:

* a fused pipeline that must run in several tiles (so that an upstream tile triggers its consumer at once) splits B, as I is
  1: operands
  that do not stay in the buffer are read again for each tile, every segment of every tile fills and drains the array, and the
  modes switch per tile. Groups of one segment, as RI makes them, lose nothing;
* a small buffer forces the same split, or spills;
* outputs kept still in the array (64 of 256 rows at work) or weights that come in through the array's edge take four times as
  long. This
  slows all strategies alike until the pipeline is split; then each tile pays it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.endtoend import UNFUSED, Runs
from stitchloop.cascade.machine import Machine
from stitchloop.cascade.performance import DETAILED, IDEAL, Performance, Settings
from stitchloop.cascade.strategies import ALL_STRATEGIES

Change = Callable[[Machine, Settings], tuple[Machine, Settings]]


@dataclass(frozen=True)
class Mechanism:
    """One changed assumption."""

    name: str
    change: Change


def _tiles(count: int) -> Change:
    return lambda machine, settings: (machine, replace(settings, least_tiles=count))


def _buffer(mebibytes: float) -> Change:
    return lambda machine, settings: (machine.with_buffer(int(mebibytes * 2**20 / machine.word_bytes)), settings)


def _dataflow(flow: str, load: float | None = None) -> Change:
    def change(machine: Machine, settings: Settings) -> tuple[Machine, Settings]:
        return replace(machine, dataflows=(flow,), load_bandwidth=load or machine.load_bandwidth), settings

    return change


def _drain(machine: Machine, settings: Settings) -> tuple[Machine, Settings]:
    return replace(machine, switch_cycles=machine.rows + machine.columns + machine.pipeline_depth), settings


def _both(first: Change, second: Change) -> Change:
    return lambda machine, settings: second(*first(machine, settings))


UNDER_USE = "outputs stay in the array"
COSTLY_SWITCH = "a switch drains the array"
MECHANISMS: tuple[Mechanism, ...] = (
    Mechanism("ideal settings", lambda machine, _: (machine, IDEAL)),
    Mechanism("as modelled", lambda machine, settings: (machine, settings)),
    Mechanism(UNDER_USE, _dataflow("OS")),
    Mechanism("weights enter by the edge", _dataflow("WS", 256.0)),
    Mechanism(COSTLY_SWITCH, _drain),
    Mechanism("pipelines in 2+ tiles", _tiles(2)),
    Mechanism("pipelines in 4+ tiles", _tiles(4)),
    Mechanism("pipelines in 8+ tiles", _tiles(8)),
    Mechanism("4+ tiles, outputs stay", _both(_tiles(4), _dataflow("OS"))),
    Mechanism("a buffer of 2 MB", _buffer(2)),
    Mechanism("a buffer of 1 MB", _buffer(1)),
    Mechanism("a buffer of 512 KB", _buffer(0.5)),
)


@dataclass(frozen=True)
class Finding:
    """One step under one assumption, for each strategy, and unfused."""

    mechanism: Mechanism
    steps: tuple[Performance, ...]
    unfused: Performance

    @property
    def best(self) -> Performance | None:
        """The fastest of those that fit."""
        return min((step for step in self.steps if not step.shortfalls), key=lambda step: step.seconds, default=None)

    def speedup(self, step: Performance) -> float:
        return self.unfused.seconds / step.seconds


def generation_findings(
    cascade: Cascade, machine: Machine, settings: Settings = DETAILED, strategies: Sequence[str] = ALL_STRATEGIES[1:-1]
) -> list[Finding]:
    """One generated token in one layer under each of :data:`MECHANISMS`."""
    found = []
    for mechanism in MECHANISMS:
        runs = Runs(cascade, *mechanism.change(machine, settings))
        found.append(Finding(mechanism, tuple(runs.layer(strategy, 1) for strategy in strategies), runs.layer(UNFUSED, 1)))
    return found
