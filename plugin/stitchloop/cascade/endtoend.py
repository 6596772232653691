"""A whole run: all layers, a context read in prefill, tokens generated one by one; and the strategy that suits it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.evaluate import Model
from stitchloop.cascade.machine import Machine
from stitchloop.cascade.performance import DETAILED, GroupCost, Performance, Settings
from stitchloop.cascade.strategies import ALL_STRATEGIES, BASELINES, OPTIMAL, Evaluated, baseline, evaluate
from stitchloop.errors import InputError, NoMapping, Obstacle

UNFUSED = BASELINES[0].name
"""What speed-ups are against."""


@dataclass(frozen=True)
class EndToEnd:
    """Time and energy of a run: ``layers * (prefill + generated * step)``.

    Attributes
    ----------
    strategy : str
    context, generated, layers : int
        Positions in prefill; tokens generated after them; repetitions of the cascade.
    prefill, step : Performance
        One layer over the whole context; one layer for one token. ``prefill`` is None where the context is 0.
    """

    strategy: str
    context: int
    generated: int
    layers: int
    prefill: Performance | None
    step: Performance

    @property
    def prefill_seconds(self) -> float:
        return self.layers * self.prefill.seconds if self.prefill else 0.0

    @property
    def generation_seconds(self) -> float:
        return self.layers * self.generated * self.step.seconds

    @property
    def seconds(self) -> float:
        return self.prefill_seconds + self.generation_seconds

    @property
    def energy_pj(self) -> float:
        once = sum(self.prefill.energy_pj.values()) if self.prefill else 0.0
        return self.layers * (once + self.generated * sum(self.step.energy_pj.values()))

    @property
    def shortfalls(self) -> tuple[GroupCost, ...]:
        """Groups that the buffer is too small for, in prefill or in one step."""
        return (*(self.prefill.shortfalls if self.prefill else ()), *self.step.shortfalls)

    @property
    def fits(self) -> bool:
        """Whether the buffer is large enough for every group."""
        return not self.shortfalls


class Runs:
    """Runs of one cascade on one machine under any strategy or baseline; each layer is worked out once.

    Raises
    ------
    InputError
        The cascade has no iterative rank, so that it knows no context and no generated token.
    """

    def __init__(
        self, cascade: Cascade, machine: Machine, settings: Settings = DETAILED, *, merge: bool = True, reorder: bool = True
    ) -> None:
        if not cascade.iterative_ranks:
            found = f"the cascade {cascade.name} has no iterative rank"
            raise InputError(
                cascade.source, found, "mark the sequence rank `iterative: true`, or leave out --context and --generate"
            )
        self.cascade, self.machine, self.merge, self.reorder = cascade, machine, merge, reorder
        self._base = Model(cascade, machine, settings)
        self._models: dict[int, Model] = {}
        self._layers: dict[tuple[str, int], Performance] = {}
        self._stitched: dict[tuple[str, int], Evaluated] = {}

    def model(self, steps: int) -> Model:
        if steps not in self._models:
            self._models[steps] = self._base.at_context(steps)
        return self._models[steps]

    def layer(self, strategy: str, steps: int) -> Performance:
        """One layer over so many positions."""
        key = (strategy, steps)
        if key not in self._layers:
            if any(b.name == strategy for b in BASELINES):
                self._layers[key] = baseline(self.model(steps), strategy)
            else:
                self._layers[key] = self.stitched(strategy, steps).performance
        return self._layers[key]

    def stitched(self, strategy: str, steps: int) -> Evaluated:
        """One layer of a strategy with its groups and boundaries."""
        key = (strategy, steps)
        if key not in self._stitched:
            self._stitched[key] = evaluate(self.model(steps), strategy, merge=self.merge, reorder=self.reorder)
        return self._stitched[key]

    def run(self, strategy: str, context: int, generated: int) -> EndToEnd:
        """A whole run under one strategy."""
        prefill = self.layer(strategy, context) if context else None
        return EndToEnd(strategy, context, generated, self.cascade.layers, prefill, self.layer(strategy, 1))

    def speedup(self, strategy: str, context: int, generated: int) -> float:
        """Over :data:`UNFUSED`."""
        return self.run(UNFUSED, context, generated).seconds / self.run(strategy, context, generated).seconds

    def choose(self, context: int, generated: int, among: Sequence[str] = ALL_STRATEGIES) -> Choice:
        """The fastest strategy for a run; the least permissive one among equals, and ``optimal`` only where it is faster."""
        runs = [self.run(strategy, context, generated) for strategy in among]
        fitting = [run for run in runs if run.fits]
        unfused = self.run(UNFUSED, context, generated)
        if not fitting:
            raise no_room(next(run.shortfalls for run in (unfused, *runs) if not run.fits), self.machine)
        best = min(run.seconds for run in fitting)
        chosen = next(run for run in fitting if run.seconds <= best * (1 + 1e-6))
        return Choice(chosen, tuple(runs), unfused)


@dataclass(frozen=True)
class Choice:
    """A chosen strategy with the evidence: the same run under every strategy, and unfused."""

    chosen: EndToEnd
    runs: tuple[EndToEnd, ...]
    unfused: EndToEnd

    @property
    def strategy(self) -> str:
        return self.chosen.strategy

    @property
    def greedy(self) -> EndToEnd:
        """The best of the greedy strategies alone."""
        return min((run for run in self.runs if run.strategy != OPTIMAL and run.fits), key=lambda run: run.seconds)

    def speedup(self, run: EndToEnd) -> float:
        return self.unfused.seconds / run.seconds


def no_room(shortfalls: Sequence[GroupCost], machine: Machine) -> NoMapping:
    """The error for a buffer that is too small."""
    worst = max(shortfalls, key=lambda group: group.shortfall_words)
    needed = (machine.buffer_words + worst.shortfall_words) * machine.word_bytes
    limit = machine.buffer_words * machine.word_bytes
    names = (
        " ".join(worst.names) if len(worst.names) <= 6 else f"{worst.names[0]} to {worst.names[-1]} ({len(worst.names)} Einsums)"
    )
    enough = needed * 8 / 7
    sentence = (
        f"the group of {names} does not fit in {machine.buffer_name}: even its smallest tiles, with every "
        f"tensor spilled that can be, take {needed:,.0f} bytes of {limit:,.0f}"
    )
    relaxation = f"a buffer of {enough:,.0f} bytes{', or a strategy that fuses less' if len(worst.nodes) > 1 else ''}"
    obstacle = Obstacle("capacity", machine.buffer_name, needed, limit, sentence, relaxation)
    return NoMapping(f"{sentence}; {relaxation} would do", (obstacle,))


@dataclass(frozen=True)
class Regime:
    """One line of the published strategy guide."""

    name: str
    context: int
    generated: int
    buffer_bytes: int | None
    published: str
    published_speedup: str


GUIDE: tuple[Regime, ...] = (
    Regime("long generation", 2048, 2**16, None, "ri", "2-2.5x"),
    Regime("short generation", 2**14, 64, None, "ri+rsb", "3x"),
    Regime("long context", 2**20, 64, None, "full", "4-5x"),
    Regime("4 MB of buffer", 2**14, 64, 2**22, "ri+rsb+rsp", "3-3.5x"),
)


@dataclass(frozen=True)
class GuideLine:
    """What the model finds where the guide gives its advice: as modelled, and if each pipeline must run in small tiles."""

    regime: Regime
    choice: Choice
    triggered: Choice


TRIGGER_TILES = 8
"""Tiles of a pipeline whose consumers are triggered tile by tile, in the guide's second column."""


def guide(
    cascade: Cascade, machine: Machine, settings: Settings = DETAILED, among: Sequence[str] = ALL_STRATEGIES[:-1]
) -> list[GuideLine]:
    """The guide's regimes under the model, without those in which no strategy fits."""
    found = []
    runs: dict[tuple[int, int], Runs] = {}
    for regime in GUIDE:
        here = machine if regime.buffer_bytes is None else machine.with_buffer(int(regime.buffer_bytes / machine.word_bytes))
        choices = []
        for tiles in (settings.least_tiles, TRIGGER_TILES):
            key = (here.buffer_words, tiles)
            if key not in runs:
                runs[key] = Runs(cascade, here, replace(settings, least_tiles=tiles))
            with suppress(NoMapping):
                choices.append(runs[key].choose(regime.context, regime.generated, among))
        if len(choices) == 2:
            found.append(GuideLine(regime, *choices))
    return found
