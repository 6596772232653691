"""Factors that do not divide: bounds, optima and fronts against brute force over all imperfect mappings; larger problems."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from math import ceil

import numpy as np
import pytest

from mapspace_cases import tiny
from search_spaces import gemm, random_architecture, random_constraints, random_einsum, random_sliding_einsum, valid_stats
from stitchloop.errors import InputError, NoMapping
from stitchloop.mapspace import Mapspace, build_mapspace
from stitchloop.model import TIMELOOP
from stitchloop.options import MapperOptions
from stitchloop.search import search
from stitchloop.search.exhaustive import exhaustive_front
from stitchloop.search.imperfect_bound import ImperfectBound, chains
from stitchloop.search.objectives import value_of
from stitchloop.search.padding import cut, guided_sizes, padded
from stitchloop.search.spatial_boxes import Boxes
from stitchloop.search.tile_grid import Shape, hull, largest_tiles
from stitchloop.stats import PARTIAL_TILES, Stats
from test_search_optimum import nvdla

IMPERFECT = MapperOptions(imperfect=True)
OBJECTIVES = ("energy", "delay", "edp", "last-level-accesses")


def random_imperfect(seed: int, sliding: bool, most: int) -> Mapspace | None:
    """An imperfect mapspace of odd sizes; None when constraints contradict each other or it is larger than ``most``."""
    rng = random.Random(seed)
    einsum = random_sliding_einsum(rng) if sliding else random_einsum(rng)
    options = [1, 2, 3, 4, 5, 7] if len(einsum.ranks) <= 3 else [1, 2, 3, 4, 5]
    einsum = replace(einsum, rank_sizes=tuple(rng.choice(options) for _ in einsum.ranks))
    architecture = random_architecture(rng, rng.choice([2, 3, 3, 4]))
    constraints = random_constraints(rng, einsum, architecture) if rng.random() < 0.85 else None
    try:
        space = build_mapspace(einsum, architecture, constraints, IMPERFECT)
    except InputError:
        return None
    return space if 1 <= space.size <= most else None


def spaces(first: int, last: int, sliding: bool, most: int = 700) -> list[Mapspace]:
    found = [random_imperfect(seed, sliding, most) for seed in range(first, last)]
    return [space for space in found if space is not None]


def least(stats: list[Stats], objective: str) -> float:
    return min((value_of(objective, one) for one in stats), default=float("inf"))


@pytest.mark.parametrize("sliding", [False, True], ids=["plain", "sliding"])
def test_no_imperfect_mapping_lies_below_the_bound(sliding: bool) -> None:
    compared = 0
    for space in spaces(0, 110, sliding):
        stats = [one for one in valid_stats(space, TIMELOOP) if one.counting == PARTIAL_TILES]
        for objective in OBJECTIVES:
            measure = ImperfectBound(space, (objective,))
            bound = Boxes(space, measure.goals, lambda: measure.rated).refine(float("inf"), None)  # noqa: B023
            assert bound <= least(stats, objective) * (1 + 1e-9), (space.einsum, objective)
            compared += bool(stats)
    assert compared > 40


@pytest.mark.parametrize("sliding", [False, True], ids=["plain", "sliding"])
def test_small_mapspaces_are_proved_and_equal_brute_force(sliding: bool) -> None:
    proved = 0
    for number, space in enumerate(spaces(100, 150, sliding)):
        stats = valid_stats(space, TIMELOOP)
        objective = OBJECTIVES[number % len(OBJECTIVES)]
        if not stats:
            with pytest.raises(NoMapping):
                search(space, (objective,))
            continue
        result = search(space, (objective,))
        assert space.contains(result.mapping) is None
        assert result.certificate.optimal, (space.einsum, result.certificate)
        assert result.values[0] == pytest.approx(least(stats, objective), rel=1e-9)
        proved += 1
    assert proved > 8


@pytest.mark.parametrize("sliding", [False, True], ids=["plain", "sliding"])
@pytest.mark.parametrize("objectives", [("energy", "delay"), ("energy", "delay", "last-level-accesses")], ids=len)
def test_fronts_equal_brute_force(sliding: bool, objectives: tuple[str, ...]) -> None:
    compared = 0
    for space in spaces(200, 224, sliding, most=400):
        expected = exhaustive_front(space, objectives)
        if not expected:
            continue
        result = search(space, ("edp",), pareto=objectives)
        assert result.certificate.optimal
        points = [point.values for point in result.pareto]
        assert np.array(points) == pytest.approx(np.array(expected), rel=1e-9)
        assert all(space.contains(point.mapping) is None for point in result.pareto)
        compared += 1
    assert compared >= 2


def test_runs_over_ranks_spread_and_looped_outside_are_not_bounded_too_high() -> None:
    """A rank of 5 over 4 instances with a loop outside: instance 0 gets two points, more than (5 - 1) / (4 - 1)."""
    space = random_imperfect(5074, True, 4000)
    assert space is not None
    result = search(space, ("energy",))
    assert result.certificate.optimal
    assert result.values[0] == pytest.approx(least(valid_stats(space, TIMELOOP), "energy"), rel=1e-9)


@pytest.mark.parametrize("sizes", [(7, 13, 197), (197, 13, 1000), (1000, 7, 13), (13, 197, 7)])
def test_odd_ranks_over_16_elements(sizes: tuple[int, int, int]) -> None:
    architecture = tiny(4, 4, rf=16, glb=4096)
    space = build_mapspace(gemm(*sizes), architecture, None, IMPERFECT)
    delay = search(space, ("delay",))
    assert delay.certificate.optimal
    splits = [split for split in product(range(1, 17), repeat=3) if space.levels[1].spatial.fits(dict(zip("MNK", split)))]
    compute = min(ceil(sizes[0] / m) * ceil(sizes[1] / n) * ceil(sizes[2] / k) for m, n, k in splits)
    assert delay.values[0] >= compute
    assert delay.stats.compute.cycles >= compute
    energy = search(space, ("energy",))
    assert energy.certificate.gap(energy.values[0]) < 0.02
    assert energy.values[0] <= delay.stats.energy_pJ


def test_primes_reach_the_bandwidth_of_dram_and_are_proved() -> None:
    einsum = gemm(1021, 1021, 61)
    space = build_mapspace(einsum, nvdla(), None, IMPERFECT)
    result = search(space, ("delay",))
    words = 1021 * 61 + 61 * 1021 + 1021 * 1021
    dram = space.architecture.levels[-1]
    assert dram.shared_bandwidth is not None
    assert result.certificate.optimal
    assert result.values[0] == max(ceil(words / dram.shared_bandwidth), ceil(einsum.computes / 4096))


def test_the_answer_does_not_depend_on_threads() -> None:
    space = build_mapspace(gemm(13, 29, 7), nvdla(), None, IMPERFECT)
    one, two = (search(space, ("edp",), threads=threads) for threads in (1, 2))
    assert one.mapping == two.mapping
    assert one.certificate.lower_bound == two.certificate.lower_bound


def test_time_limit_and_interruption_give_the_best_so_far() -> None:
    space = build_mapspace(gemm(197, 197, 37), nvdla(), None, IMPERFECT)
    limited = search(space, ("edp",), time_limit=0.0)
    assert limited.certificate.reason == "time limit"

    def interrupt(share: float, best: float, bound: float) -> None:
        raise KeyboardInterrupt

    stopped = search(space, ("edp",), progress=interrupt)
    assert stopped.certificate.reason == "interrupted"
    for result in (limited, stopped):
        assert space.contains(result.mapping) is None
        assert 0 < result.certificate.lower_bound <= result.values[0]


def test_progress_closes_the_gap() -> None:
    seen: list[tuple[float, float, float]] = []
    space = build_mapspace(gemm(29, 13, 7), tiny(), None, IMPERFECT)
    search(space, ("energy",), progress=lambda *state: seen.append(state))
    shares, bests, bounds = zip(*seen)
    assert list(shares) == sorted(shares)
    assert list(bests) == sorted(bests, reverse=True)
    assert list(bounds) == sorted(bounds)
    assert all(bound <= best for best, bound in zip(bests, bounds))


@pytest.mark.parametrize("seed", range(8))
def test_every_tile_that_fits_is_covered(seed: int) -> None:
    rng = random.Random(seed)
    einsum = gemm(*(rng.randint(1, 9) for _ in range(3)))
    shapes = [Shape.of(einsum, tensor) for tensor in einsum.tensors]
    capacity = rng.randint(3, 40)
    sizes = np.array(einsum.rank_sizes)
    found = largest_tiles(sizes, shapes, capacity, np.ones(3, dtype=np.int64), sizes)
    for extents in product(*(range(1, size + 1) for size in einsum.rank_sizes)):
        tile = np.array([extents])
        if sum(shape.volume(tile)[0] for shape in shapes) <= capacity:
            passes = -(-sizes // tile[0])
            assert (-(-sizes // found) <= passes).all(axis=1).any(), (einsum.rank_sizes, capacity, extents)


def test_hulls_hold_the_least_for_all_weights() -> None:
    rng = np.random.default_rng(1)
    for columns in (1, 2, 3):
        rows = rng.random((200, columns)).round(2)
        kept = hull(rows)
        for weights in rng.random((50, columns)):
            assert (rows[kept] @ weights).min() == pytest.approx((rows @ weights).min(), abs=1e-12)


def test_chains_are_the_stationary_tensors_of_a_gemm() -> None:
    relevant = [frozenset({0, 2}), frozenset({1, 2}), frozenset({0, 1})]
    nothing = frozenset[int]()
    assert chains(relevant, range(3)) == {
        (frozenset({1}), nothing, nothing),
        (nothing, frozenset({0}), nothing),
        (nothing, nothing, frozenset({2})),
    }


def test_cut_mappings_are_in_the_mapspace_and_cover_it() -> None:
    space = build_mapspace(gemm(13, 7, 5), tiny(), None, IMPERFECT)
    spatial = np.ones((len(space.levels), 3), dtype=np.int64)
    spatial[1] = 2, 2, 1
    sizes = guided_sizes(space.einsum.rank_sizes, spatial, [np.array([3, 1, 1]), None, np.array([6, 4, 5]), None])
    assert sizes == (18, 8, 5)
    for mapping, _ in zip(padded(space, sizes, spatial, None).enumerate_mappings(fitting=True), range(200)):
        assert space.contains(cut(space, mapping)) is None
