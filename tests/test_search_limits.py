"""Time limits, interruptions, progress, and factors that do not divide."""

from __future__ import annotations

import pytest

from search_spaces import convolution, gemm
from stitchloop.mapspace import build_mapspace
from stitchloop.options import MapperOptions
from stitchloop.search import search
from test_search_optimum import kept_everywhere, nvdla


def free(einsum, options=None):
    architecture = nvdla()
    return build_mapspace(einsum, architecture, kept_everywhere(einsum, architecture), options)


def test_a_time_limit_gives_the_best_so_far_with_its_gap():
    space = free(convolution(64, 64, 3, 3, 56, 56))
    result = search(space, ("energy",), time_limit=0.0)
    certificate = result.certificate
    assert space.contains(result.mapping) is None
    assert not certificate.optimal
    assert certificate.reason == "time limit"
    assert 0 < certificate.lower_bound <= result.values[0]
    best = search(space, ("energy",))
    assert certificate.lower_bound <= best.values[0] <= result.values[0]


def test_an_interruption_gives_the_best_so_far():
    space = free(gemm(96, 64, 128))

    def interrupt(share, best, bound):
        raise KeyboardInterrupt

    result = search(space, ("energy",), progress=interrupt)
    assert result.certificate.reason == "interrupted"
    assert space.contains(result.mapping) is None
    assert result.certificate.lower_bound <= result.values[0]


def test_progress_reports_a_shrinking_gap():
    seen = []
    result = search(free(gemm(96, 64, 128)), ("edp",), progress=lambda *state: seen.append(state), threads=1)
    assert seen
    shares, bests, bounds = zip(*seen)
    assert list(shares) == sorted(shares)
    assert list(bests) == sorted(bests, reverse=True)
    assert all(bound <= best for best, bound in zip(bests, bounds))
    assert bests[-1] == pytest.approx(result.values[0])


def test_sizes_that_do_not_divide_reach_the_bound():
    result = search(free(gemm(1021, 61, 1021), MapperOptions(imperfect=True)), ("delay",))
    assert result.stats.computes == 1021 * 61 * 1021
    assert result.values[0] <= 1.05 * result.certificate.lower_bound
    assert "partial tiles" in result.certificate.counting


def test_imperfect_is_never_worse_than_perfect():
    einsum = gemm(13, 7, 29)
    perfect = search(free(einsum), ("edp",))
    imperfect = search(free(einsum, MapperOptions(imperfect=True)), ("edp",))
    assert imperfect.values[0] <= perfect.values[0] * (1 + 1e-12)
