"""Swaps of ranks that a mapspace cannot tell apart, and choices of spatial factors that they make superfluous."""

from __future__ import annotations

import numpy as np
import pytest

from search_spaces import convolution, random_mapspace
from stitchloop.constraints import Constraints, FactorConstraint, LevelConstraints, LoopConstraint
from stitchloop.mapspace import build_mapspace
from stitchloop.search import search, spatial, surveys
from stitchloop.search.exact import Search
from stitchloop.search.symmetry import first_of_equal, same_rows, symmetries
from stitchloop.workload import Einsum, Tensor, Term
from test_search_optimum import nvdla


def space_of(einsum, constraints=None):
    return build_mapspace(einsum, nvdla(), constraints)


def test_rows_and_columns_of_a_square_convolution_trade_places():
    einsum = convolution(2, 4, 3, 3, 6, 6)
    swap = symmetries(space_of(einsum))
    assert swap == [tuple(einsum.ranks.index(rank) for rank in ("C", "M", "S", "R", "N", "Q", "P"))]
    assert symmetries(space_of(convolution(2, 4, 3, 3, 6, 4))) == []
    assert symmetries(space_of(convolution(2, 4, 3, 1, 6, 6))) == []


def test_constraints_break_a_symmetry():
    einsum = convolution(2, 4, 3, 3, 6, 6)
    factors = LevelConstraints(temporal=LoopConstraint(factors=(FactorConstraint("P", "=", 1),)))
    order = LevelConstraints(temporal=LoopConstraint(permutation=("P", "Q")))
    for entry in (factors, order):
        others = [LevelConstraints()] * 3
        assert symmetries(space_of(einsum, Constraints((*others, entry, LevelConstraints())))) == []


def test_many_ranks_of_one_size_are_not_swapped_in_every_way():
    """Sixteen ranks of size 2 have 46 million swaps, and the search never began."""
    ranks = tuple(f"R{number}" for number in range(16))
    tensors = tuple(Tensor(name, tuple((Term(rank),) for rank in ranks[:n]), n == 1) for name, n in (("A", 16), ("Z", 1)))
    assert all(sorted(swap) == list(range(16)) for swap in symmetries(space_of(Einsum("many", ranks, (2,) * 16, tensors))))


@pytest.mark.parametrize("objective", ["energy", "edp", "delay"])
def test_nothing_is_lost_without_twins(objective, monkeypatch):
    space = space_of(convolution(2, 2, 3, 3, 4, 4))
    one = search(space, (objective,))
    few = len(Search(space, (objective,)).every)
    monkeypatch.setattr(spatial, "symmetries", lambda space: [])
    every = Search(space, (objective,)).every
    assert few < len(every) <= 2 * few
    assert search(space, (objective,)).values == pytest.approx(one.values, rel=1e-12)


def test_equal_rows_get_equal_numbers():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (500, 6)) * np.array([1, 2**20, 2**31, 2**40, 1, 7])
    _, want = np.unique(rows, axis=0, return_inverse=True)
    pairs = set(zip(want.ravel().tolist(), same_rows(rows).tolist()))
    assert len(pairs) == len(set(want.ravel().tolist())) == len({number for _, number in pairs})
    first = first_of_equal(rows)
    assert len(first) == len(np.unique(rows, axis=0))
    assert all((rows[:i] != rows[i]).any(axis=1).all() for i in first)


@pytest.mark.parametrize("seed", [seed for seed in range(40) if random_mapspace(seed, sliding=seed % 2 == 0, most=3000)][:16])
def test_raised_bounds_stay_below_the_least_nest(seed):
    from stitchloop.search import labels
    from stitchloop.search.exact import Workplace
    from stitchloop.search.nest import Incumbent

    found = Search(random_mapspace(seed, sliding=seed % 2 == 0, most=3000), ("energy",), threads=1)
    nothing = Incumbent(np.full(labels.GOALS, np.inf))
    for k, survey in enumerate(found.surveyor.survey(found.sets, found.choices)):
        found.surveyor.raise_bounds(survey, nothing.goals)
        raised = survey.bounds[:, 0].copy()
        for c in range(len(found.choices)):
            own = Workplace(found, int(found.sizes[c]))
            _, goals, _ = found.least(survey, own, c, nothing, found.index(k, c))
            if goals is not None:
                assert raised[c] <= goals[0]
    assert surveys.no_later(np.array([[1.0, 5.0], [2.0, 0.0], [1.0, 3.0]]), np.array([1.0, 4.0])).tolist() == [False, False, True]


def test_a_term_that_stands_twice_is_no_single_one():
    """``A + A + B`` passed for symmetric in A and B."""
    window = Tensor("I", ((Term("A"), Term("A"), Term("B")),))
    einsum = Einsum("twice", ("A", "B"), (4, 4), (window, Tensor("O", ((Term("A"),), (Term("B"),)), True)))
    assert symmetries(space_of(einsum)) == []


def test_bounds_are_raised_once():
    """A second raise was added to the first: a search that had tasted some choices dropped its optimum."""
    found, more = Search(space_of(convolution(4, 4, 3, 3, 6, 6)), ("energy",), threads=1), 0
    for survey in found.surveyor.survey(found.sets, found.choices):
        before, floors = survey.floors.copy(), []
        for _ in range(2):
            found.surveyor.raise_bounds(survey, np.full(survey.bounds.shape[1], np.inf))
            floors.append((survey.floors.copy(), survey.bounds.copy()))
        assert (floors[0][0] == floors[1][0]).all()
        assert (floors[0][1] == floors[1][1]).all()
        more += int((floors[0][0] > before).sum())
    assert more
