"""The matrix evaluator equals the reference model on random mappings, and its search equals brute force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from mapspace_cases import conv, fanout, gemm, matvec, storage, tensor, tiny, two_levels
from stitchloop.architecture import Architecture, Compute, Energy
from stitchloop.constraints import Constraints, LevelConstraints, LoopConstraint
from stitchloop.errors import InvalidMapping
from stitchloop.mapping import Mapping
from stitchloop.mapspace import Mapspace, build_mapspace
from stitchloop.model import TIMELOOP, TIMELOOP_WITHOUT_LINKS, Evaluator
from stitchloop.search.columns import mapping_of, split_mapping, templates, tilings
from stitchloop.search.exhaustive import exhaustive
from stitchloop.search.matrix import TOLERANCE, MatrixEvaluator, matrix_search
from stitchloop.search.rows import is_product
from stitchloop.stats import Stats
from stitchloop.workload import Einsum


def deep() -> Architecture:
    """Four storage levels, two fan-outs, wide rows, bandwidths everywhere, one level that leaks alone."""
    levels = (
        storage("Reg", 4, x=8, y=2, cost=0.3),
        fanout("Lane", 2, x=4, y=2),
        storage("RF", 24, x=4, y=2, read_bandwidth=1.5),
        fanout("PE", 4, 2),
        replace(storage("GLB", 40, cost=3.0, shared_bandwidth=3.0), block_size=4, width=64),
        replace(storage("DRAM", cost=90.0, read_bandwidth=2.0, write_bandwidth=0.7), block_size=3, width=48),
    )
    return Architecture("deep", levels, Compute("MAC", 16, 8, 2, energy=Energy(compute=0.7)))


def spatial_compute() -> Architecture:
    """Level 0 is a fan-out: link transfers act there."""
    levels = (fanout("MAC", 4, 2), storage("Buffer", 64, shared_bandwidth=8.0), storage("DRAM", cost=50.0, shared_bandwidth=2.0))
    return Architecture("spatial_compute", levels, Compute("MAC", 8, 4, 2, energy=Energy(compute=1.0)))


def batched(h: int, m: int, n: int) -> Einsum:
    tensors = (
        tensor("A", "H", "M"),
        tensor("B", "H", "N"),
        tensor("Z", "H", "M", "N", output=True),
        tensor("Y", "H", output=True),
    )
    return Einsum("batched", ("H", "M", "N"), (h, m, n), tensors)


SPACES = {
    "gemm": (gemm(12, 8, 18), tiny(4, 2, rf=40, glb=200)),
    "gemm on a deep hierarchy": (gemm(16, 24, 8), deep()),
    "two outputs": (batched(4, 6, 8), deep()),
    "matvec": (matvec(36, 24), two_levels(64)),
}


def valid_samples(mapspace: Mapspace, count: int, links: bool = True) -> Iterator[tuple[Mapping, Stats]]:
    model = Evaluator(mapspace.einsum, mapspace.architecture, TIMELOOP if links else TIMELOOP_WITHOUT_LINKS)
    for mapping in mapspace.sample_mappings(seed=7):
        if count == 0:
            return
        try:
            stats = model.evaluate(mapping)
        except InvalidMapping:
            continue
        count -= 1
        yield mapping, stats


@pytest.mark.parametrize("name", SPACES)
def test_equals_the_reference_model(name: str) -> None:
    mapspace = build_mapspace(*SPACES[name])
    storage_levels = [i for i, level in enumerate(mapspace.architecture.levels) if not level.is_fanout]
    for mapping, stats in valid_samples(mapspace, 60):
        template, bounds = split_mapping(mapspace, mapping)
        evaluator = MatrixEvaluator(mapspace, [template], storage_levels)
        assert evaluator.is_timeloops
        counts = evaluator.counts(bounds)
        for i in storage_levels:
            level = stats.levels[mapspace.architecture.levels[i].name]
            for t, of in enumerate(mapspace.einsum.tensors):
                expected = level.tensors.get(of.name)
                for action in ("reads", "fills", "updates"):
                    assert counts[action][i, t, 0] == (getattr(expected, action) if expected else 0)
        table = bounds[:, None]
        exact, screened = evaluator.exact(table, np.array([0]), np.array([0])), evaluator.screen(table)
        assert exact.cycles[0] == stats.cycles
        assert stats.cycles - 1 <= screened.cycles[0, 0] <= stats.cycles
        assert exact.energy_pJ[0] == pytest.approx(stats.energy_pJ, rel=1e-14)
        one_cycle = sum(level.leakage_pJ for level in stats.levels.values()) / stats.cycles
        assert stats.energy_pJ - one_cycle <= screened.energy_pJ[0, 0] * (1 + TOLERANCE) <= stats.energy_pJ * (1 + 2 * TOLERANCE)
        fits = mapspace.contains(mapping) is None
        assert exact.valid[0] == screened.valid[0, 0] == fits


def test_recognises_invalid_mappings() -> None:
    mapspace = build_mapspace(*SPACES["gemm on a deep hierarchy"])
    model, verdicts = Evaluator(mapspace.einsum, mapspace.architecture), set()
    for mapping in islice(mapspace.sample_mappings(seed=3), 400):
        template, bounds = split_mapping(mapspace, mapping)
        said = bool(MatrixEvaluator(mapspace, [template]).screen(bounds[:, None]).valid[0, 0])
        try:
            model.evaluate(mapping)
            expected = mapspace.contains(mapping) is None
        except InvalidMapping:
            expected = False
        assert said == expected
        verdicts.add(said)
    assert verdicts == {True, False}


def test_links_act_below_level_0_only() -> None:
    """Without links: the model's count without links. With the bound: never above Timeloop's count."""
    mapspace = build_mapspace(gemm(8, 6, 4), spatial_compute())
    differ = 0
    for (mapping, plain), (again, linked) in zip(valid_samples(mapspace, 60, links=False), valid_samples(mapspace, 60)):
        assert mapping == again
        template, bounds = split_mapping(mapspace, mapping)
        evaluator, bounded = MatrixEvaluator(mapspace, [template]), MatrixEvaluator(mapspace, [template], bounded_links=True)
        assert not evaluator.is_timeloops
        pair = bounds[:, None], np.array([0]), np.array([0])
        assert evaluator.exact(*pair).energy_pJ[0] == pytest.approx(plain.energy_pJ, rel=1e-14)
        assert evaluator.exact(*pair).cycles[0] == plain.cycles
        assert bounded.exact(*pair).energy_pJ[0] <= linked.energy_pJ * (1 + 1e-12)
        assert bounded.exact(*pair).cycles[0] <= linked.cycles
        differ += plain.energy_pJ != linked.energy_pJ
    assert differ


@pytest.mark.parametrize("metrics", [("delay", "energy"), ("edp",), ("accesses-GLB", "energy")])
def test_search_equals_brute_force(metrics: tuple[str, ...]) -> None:
    keep = LevelConstraints(keep=frozenset("ABZ"))
    constraints = Constraints((keep, LevelConstraints(), LevelConstraints(keep=frozenset("A")), LevelConstraints()))
    mapspace = build_mapspace(gemm(4, 2, 2), tiny(2, 2), constraints)
    brute, found = exhaustive(mapspace, metrics), matrix_search(mapspace, metrics, columns=50)
    assert brute is not None
    assert found is not None
    assert found.values == brute.values
    assert mapspace.contains(found.mapping) is None


def test_search_obeys_limits_on_products() -> None:
    rf = LevelConstraints(keep=frozenset("AXZ"), min_utilization=0.7, min_parallelism=0.5)
    glb = LevelConstraints(temporal=LoopConstraint(remove_sequential_factors=True), keep=frozenset("AXZ"))
    given = Constraints((rf, LevelConstraints(), glb, LevelConstraints(temporal=LoopConstraint(remove_sequential_factors=True))))
    mapspace = build_mapspace(matvec(12, 6), tiny(3, 2, rf=8), given)
    brute, found = exhaustive(mapspace, ("edp",)), matrix_search(mapspace, ("edp",))
    assert brute is not None
    assert found is not None
    assert found.values == brute.values


def test_relabelled_ranks_change_nothing() -> None:
    """Other names, another order of ranks and tensors: the same optimum, and as many mappings."""
    einsum, architecture = matvec(6, 4), two_levels(8)
    relabelled = Einsum(
        "other", ("Q", "B"), (4, 6), (tensor("out", "B", output=True), tensor("vector", "Q"), tensor("matrix", "B", "Q"))
    )
    ours, theirs = build_mapspace(einsum, architecture), build_mapspace(relabelled, architecture)
    assert ours.size == theirs.size
    for metrics in (("energy", "delay"), ("delay", "energy")):
        one, other = matrix_search(ours, metrics), matrix_search(theirs, metrics)
        assert one is not None
        assert other is not None
        assert one.values == pytest.approx(other.values, rel=1e-14)


def test_a_larger_buffer_is_never_worse() -> None:
    for metrics in (("energy",), ("delay",), ("edp",)):
        values = []
        for words in (3, 4, 6, 9, 14, 30, 100):
            found = matrix_search(build_mapspace(matvec(12, 8), two_levels(words)), metrics)
            assert found is not None
            values.append(found.values[0])
        assert values == sorted(values, reverse=True)
        assert values[-1] < values[0] or metrics == ("delay",)


def test_nothing_valid() -> None:
    keep = LevelConstraints(keep=frozenset("AXZ"), min_utilization=1.0)
    assert matrix_search(build_mapspace(matvec(3, 5), two_levels(2), Constraints((keep, LevelConstraints()))), ("edp",)) is None


def test_pairs_cover_the_mapspace_once() -> None:
    """Templates x tilings, as mappings, are the listing without repeated orders of spatial loops."""
    mapspace = build_mapspace(matvec(4, 3), tiny(2, 2))
    pairs = [
        mapping_of(mapspace, template, table[:, column])
        for pattern, table in tilings(mapspace, 7)
        for template in templates(mapspace, pattern)
        for column in range(table.shape[1])
    ]
    pairs = [mapping for mapping in pairs if mapspace.contains(mapping) is None]
    listed = {tuple((x.temporal, frozenset(x.spatial_x), frozenset(x.spatial_y), x.keep) for x in m.levels)
              for m in mapspace.enumerate_mappings(fitting=True)}  # fmt: skip
    assert len(pairs) == len(set(pairs)) == len(listed)


def test_sliding_windows_are_refused() -> None:
    assert is_product(gemm(2, 2, 2))
    assert not is_product(conv(2, 2, 4, 3))
    with pytest.raises(ValueError, match="no products of bounds"):
        MatrixEvaluator(build_mapspace(conv(2, 2, 4, 3), two_levels()), [])
