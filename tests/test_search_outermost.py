"""Floors under what the outermost level moves: below every nest, under either count, and often met."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from search_spaces import convolution, random_mapspace
from stitchloop.errors import InvalidMapping
from stitchloop.model import TIMELOOP, Evaluator
from stitchloop.search import labels
from stitchloop.search.exact import Search, Workplace
from stitchloop.search.nest import Incumbent
from stitchloop.search.objectives import value_of
from stitchloop.search.outermost import Outermost
from test_search_symmetry import space_of

LAST = "last-level-accesses"
SEEDS = [seed for seed in range(60) if random_mapspace(seed, sliding=seed % 2 == 0, most=2000)][:24]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_mapping_moves_less_under_the_full_count(seed):
    space = random_mapspace(seed, sliding=seed % 2 == 0, most=2000)
    evaluator, least = Evaluator(space.einsum, space.architecture, TIMELOOP), {}
    for mapping in space.enumerate_mappings(fitting=True):
        if space.contains(mapping) is None:
            keeps = tuple(level.keep for level in mapping.levels)
            with contextlib.suppress(InvalidMapping):
                least[keeps] = min(least.get(keeps, np.inf), value_of(LAST, evaluator.evaluate(mapping)))
    found = Search(space, (LAST,), threads=1, full=True)
    for survey in found.surveyor.survey(found.sets, found.choices):
        assert survey.bounds[:, 0].min(initial=np.inf) <= least.get(survey.keeps, np.inf)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_nest_moves_less_under_the_count_of_the_search(seed, monkeypatch):
    found = Search(random_mapspace(seed, sliding=seed % 2 == 0, most=2000), (LAST,), threads=1)
    nothing = Incumbent(np.full(labels.GOALS, np.inf))
    raised = list(found.surveyor.survey(found.sets, found.choices))
    monkeypatch.setattr(Outermost, "floor", lambda self, keeps: (frozenset(), 0.0))
    for k, survey in enumerate(found.surveyor.survey(found.sets, found.choices)):
        for c, nodes in enumerate(found.sizes):
            found.least(survey, Workplace(found, int(nodes)), c, nothing, found.index(k, c))
            assert raised[k].bounds[c, 0] <= survey.bounds[c, 0]


def test_the_floor_meets_the_optimum_of_a_convolution():
    found = Search(space_of(convolution(4, 4, 3, 3, 6, 6)), (LAST,), threads=1)
    outcome = found.run()
    survey = next(one for one in found.surveyor.survey(found.sets, found.choices) if one.keeps == outcome.incumbent.keeps)
    assert survey.bounds[:, 0].min() == outcome.incumbent.goals[0]


def test_an_accesses_optimum_has_the_least_energy_of_its_equals():
    """Of many choices with equal accesses, the one of least energy is found by a price that holds both."""
    space = space_of(convolution(4, 4, 3, 3, 6, 6))
    search = Search(space, (LAST,), threads=1)
    assert search.ties
    goals = search.run().incumbent.goals
    monotone = Search(space, ("energy",), threads=1).run().incumbent.goals
    assert goals[1] >= monotone[0]
    search = Search(space, (LAST,), threads=1)
    search.ties = False
    assert tuple(search.run().incumbent.goals) == tuple(goals)
