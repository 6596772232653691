"""What can be said of many choices of spatial factors at once, before any lattice is laid: constants, floors, bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stitchloop.mapspace.space import Mapspace
from stitchloop.search import scan
from stitchloop.search.arrays import Machine, Plan
from stitchloop.search.constants import different_tiles, settle_tensor
from stitchloop.search.floors import fanouts_outside, possible_loops, raise_floors, surely_filled
from stitchloop.search.labels import GOALS
from stitchloop.search.machine import build_plan, build_tables
from stitchloop.search.nest import FIRST, Incumbent, KeepSets
from stitchloop.search.outermost import Outermost
from stitchloop.search.program import build_program


def may_precede(bounds: Any, found: Incumbent) -> Any:
    """Which rows of ``bounds`` may belong to nests that come before ``found``; equal ones do not if it is the first of all."""
    return no_later(bounds, found.goals, found.index != FIRST)


def no_later(bounds: Any, goals: Any, ties: bool = True) -> Any:
    """Which rows of ``bounds`` are lexicographically lower than ``goals`` or, with ``ties``, equal."""
    below: Any = np.zeros(len(bounds), dtype=np.bool_)
    equal: Any = np.ones(len(bounds), dtype=np.bool_)
    for column, goal in zip(bounds.T, goals):
        below |= equal & (column < goal)
        equal &= column == goal
        if not equal.any():
            break
    return below | equal if ties else below


@dataclass
class Surveyed:
    """One combination of keep sets: for every vector of spatial factors constants, floors and bounds."""

    keeps: KeepSets
    choices: Any
    """int64[choices, levels, ranks]."""
    constants: Any
    floors: Any
    exact: Any
    """bool[choices]: whether the constants are exact, not lower bounds."""
    bounds: Any
    """float64[choices, GOALS]; raised as the search goes on."""
    bases: tuple[Any, ...] = ()
    """By tensor, what the compute units move: see :func:`stitchloop.search.constants.settle_tensor`."""
    waiting: Any = field(init=False)
    """bool[choices]: neither treated yet nor dropped."""
    raised: Any = field(init=False)
    """bool[choices]: :meth:`Surveyor.raise_bounds` has done all that it can."""
    running: Any = field(init=False)
    """bool[choices]: handed to a thread."""
    tiles: Any = None
    """What :func:`stitchloop.search.constants.different_tiles` gives, once it is needed."""

    def __post_init__(self) -> None:
        self.waiting = np.ones(len(self.bounds), dtype=np.bool_)
        self.raised = np.zeros(len(self.bounds), dtype=np.bool_)
        self.running = np.zeros(len(self.bounds), dtype=np.bool_)

    def base(self, c: int) -> Any:
        """``float64[tensors, 2]``: words that the compute units read and update under one choice."""
        return np.array([base[c] for base in self.bases])

    @classmethod
    def dropped(cls, keeps: KeepSets, choices: Any, bounds: Any) -> Surveyed:
        """All choices dropped by one bound, ``bounds[1, GOALS]``."""
        nothing = np.zeros((len(choices), 0))
        survey = cls(keeps, choices, nothing, nothing, nothing, np.repeat(bounds, len(choices), axis=0))
        survey.waiting[:] = False
        return survey

    @property
    def least(self) -> float:
        """Lower bound of the first goal over what waits."""
        return float(self.bounds[self.waiting, 0].min(initial=np.inf))

    def alive(self, found: Incumbent) -> Any:
        """Choices not handed out yet that may precede ``found``, in order of their bounds; those that may not wait no more."""
        self.waiting &= may_precede(self.bounds, found)
        alive = np.nonzero(self.waiting & ~self.running)[0]
        return alive[np.lexsort((self.bounds[alive, 1], self.bounds[alive, 0]))]


class Surveyor:
    """Surveys choices of spatial factors of one mapspace; holds the plans of its keep sets, each built once.

    ``full``: under the tool's full count, link transfers and short wraps included.
    """

    def __init__(self, space: Mapspace, machine: Machine, task: scan.Task, full: bool = False) -> None:
        self.space, self.machine, self.task, self.full = space, machine, task, full
        self.fanouts = fanouts_outside(space)
        self.names = [tensor.name for tensor in space.einsum.tensors]
        self.outermost = Outermost(space, machine, task, full)
        self.counted = slice(1 + task.resources, machine.buffer_metric)
        self.plans: dict[KeepSets, Plan] = {}
        self.chains: dict[KeepSets, Plan] = {}
        self.fitting: dict[Any, Any] = {}

    def plan(self, keeps: KeepSets) -> Plan:
        """The plan for these keep sets."""
        if keeps not in self.plans:
            self.plans[keeps] = build_plan(build_program(self.space, keeps), len(self.space.levels))
        return self.plans[keeps]

    def chained(self, keeps: KeepSets) -> Plan:
        """The plan for these keep sets that tells apart what comes after a slide."""
        if keeps not in self.chains:
            plan, levels = self.plan(keeps), len(self.space.levels)
            slides = len(plan.slides) > 0
            self.chains[keeps] = build_plan(build_program(self.space, keeps, chained=True), levels) if slides else plan
        return self.chains[keeps]

    def survey(self, sets: list[KeepSets], choices: Any, goals: Any = None) -> Iterator[Surveyed]:
        """Bounds for every combination of keep sets; what a tensor adds depends on the levels that keep it only.

        Combinations that cannot precede ``goals``, whatever the choice, get no more than that bound.
        """
        parts: dict[tuple[int, tuple[int, ...]], tuple[Any, Any, Any, Any]] = {}
        least: dict[tuple[int, tuple[int, ...]], tuple[Any, Any]] = {}
        widest = choices[choices.prod(axis=(1, 2)).argmax()][None] if len(choices) else choices
        for keeps in sets:
            keys = [
                (t, tuple(i for i, keep in enumerate(keeps) if tensor.name in keep))
                for t, tensor in enumerate(self.space.einsum.tensors)
            ]
            for key in keys:
                if key not in parts:
                    plan = self.plan(keeps)
                    filled = surely_filled(self.machine, plan, choices, self.fanouts) if self.full else None
                    parts[key] = settle_tensor(self.machine, plan, self._still(plan), key[0], choices, filled)
                    least[key] = parts[key][0].min(axis=0, initial=np.inf), parts[key][1].min(axis=0, initial=np.inf)
            if goals is not None:
                constant, floor = (sum(least[key][i] for key in keys)[None] for i in (0, 1))
                bounds = self.rate(
                    widest, constant * (not self.full), floor, self.task._replace(leak=np.zeros_like(self.task.leak))
                )
                if not no_later(bounds, goals)[0]:
                    yield Surveyed.dropped(keeps, choices, bounds)
                    continue
            own = [parts[key] for key in keys]
            constants, floors = sum(part[0] for part in own), sum(part[1] for part in own)
            tensors, words = self.outermost.floor(keeps)
            if tensors:
                m, rest = self.outermost.metric, [part for (t, _), part in zip(keys, own) if self.names[t] not in tensors]
                floors[:, m] = np.maximum(floors[:, m], words + sum(part[1][:, m] for part in rest))
            floors[:, self.counted] = np.ceil(floors[:, self.counted])
            exact = np.logical_and.reduce([part[2] for part in own]) & (not self.full)
            if self.full:
                constants[(choices[:, 0] > 1).any(axis=1)] = 0.0
            bases = tuple(part[3] for part in own)
            yield Surveyed(keeps, choices, constants, floors, exact, self.rate(choices, constants, floors), bases)

    def rate(self, choices: Any, constants: Any, floors: Any, task: scan.Task | None = None) -> Any:
        """Bounds on the goals, ``float64[choices, GOALS]``."""
        bounds = np.zeros((len(choices), GOALS))
        scan.rate_floors(task or self.task, choices, constants, floors, bounds)
        return bounds

    def tiles(self, survey: Surveyed, c: int) -> tuple[Any, Any]:
        """Different tiles of one choice: see :func:`stitchloop.search.constants.different_tiles`."""
        if survey.tiles is None:
            plan = self.plan(survey.keeps)
            survey.tiles = different_tiles(self.machine, plan, self._still(plan), survey.choices)
        return survey.tiles[0][c], survey.tiles[1][c]

    def raise_bounds(self, survey: Surveyed, goals: Any) -> None:
        """Raise floors and bounds where they may still precede ``goals``, each once."""
        alive = np.nonzero(no_later(survey.bounds, goals) & ~survey.raised)[0]
        survey.raised[alive] = True
        if len(alive):
            plan, choices, floors = self.plan(survey.keeps), survey.choices[alive], survey.floors[alive]
            filled = surely_filled(self.machine, plan, choices, self.fanouts) if self.full else None
            raise_floors(
                self.machine, plan, possible_loops(self.space, self.machine, plan), choices, floors, self.fitting, filled
            )
            survey.bounds[alive] = np.maximum(self.rate(choices, survey.constants[alive], floors), survey.bounds[alive])
            survey.floors[alive] = floors

    def _still(self, plan: Plan) -> Any:
        return build_tables(self.space, self.machine, plan, 1).still
