"""The search equals brute force over the reference model on small mapspaces."""

from __future__ import annotations

import pytest

from search_spaces import convolution, gemm, least, random_mapspace, valid_stats
from stitchloop.architecture import Architecture, Compute, Energy, Level
from stitchloop.constraints import Constraints, LevelConstraints
from stitchloop.errors import NoMapping
from stitchloop.mapspace import build_mapspace
from stitchloop.model import TIMELOOP, Evaluator, evaluate
from stitchloop.model import evaluator as evaluator_module
from stitchloop.model.counting import Counting
from stitchloop.model.delivery import Delivery, deliver, outer_trips
from stitchloop.model.tiles import Form, Nest
from stitchloop.search import search
from stitchloop.search.certify import counts_as_model
from stitchloop.search.exact import Search
from stitchloop.search.front import search_front
from stitchloop.search.nest import build_mapping
from stitchloop.search.objectives import completed, value_of

OBJECTIVES = (
    ("energy",),
    ("delay",),
    ("edp",),
    ("last-level-accesses",),
    ("delay", "energy"),
    ("accesses-S1", "energy"),
    ("last-level-accesses", "delay", "energy"),
    ("accesses-S0", "accesses-S1"),
)
SEEDS = [seed for seed in range(120) if random_mapspace(seed, most=1200) is not None]
SLIDING = [seed for seed in range(60) if random_mapspace(seed, sliding=True, most=800) is not None]


def near(got, want):
    return (got is None) == (want is None) and (got is None or got == pytest.approx(want, rel=1e-9, abs=1e-12))


@pytest.mark.parametrize("seed", SEEDS)
def test_equals_brute_force(seed):
    space = random_mapspace(seed, most=1200)
    stats = valid_stats(space, TIMELOOP)
    assert counts_as_model(space)
    for objectives in OBJECTIVES:
        if any(name.startswith("accesses-") and name[9:] not in space.architecture.names for name in objectives):
            continue
        want = least(stats, objectives)
        if want is None:
            with pytest.raises(NoMapping):
                search(space, objectives, threads=1)
            continue
        result = search(space, objectives, threads=1)
        assert result.certificate.optimal
        assert result.certificate.counting == "timeloop"
        assert space.contains(result.mapping) is None
        assert near(tuple(value_of(name, result.stats) for name in completed(objectives)), want), objectives


def only_innermost_slides(form: Form, nest: Nest, level: int, counting: Counting) -> Delivery:
    """The model's delivery with halo reuse along the innermost moving loop and none where a wrap looks like a step."""
    given = deliver(form, nest, level, counting)
    if level == 0:
        return given
    visits, moving = [], False
    for trip, visit in zip(outer_trips(nest, level), given.visits):
        words = visit.words if not moving else given.tile
        moving = moving or form.packed[trip.rank] != 0
        visits.append(visit._replace(words=words if moving else 0))
    return given._replace(visits=tuple(visits))


@pytest.mark.parametrize("seed", SLIDING)
def test_halo_along_the_innermost_moving_loop_is_exact(seed, monkeypatch):
    space = random_mapspace(seed, sliding=True, most=800)
    monkeypatch.setattr(evaluator_module, "deliver", only_innermost_slides)
    stats = valid_stats(space)
    for objectives in (("energy",), ("edp",), ("delay",), ("last-level-accesses", "energy")):
        incumbent = Search(space, objectives, threads=1).run().incumbent
        got = None
        if incumbent.exists:
            mapping = build_mapping(space, incumbent)
            assert space.contains(mapping) is None
            figures = Evaluator(space.einsum, space.architecture, Counting(links=False)).evaluate(mapping)
            got = tuple(value_of(name, figures) for name in completed(objectives))
        assert near(got, least(stats, objectives)), objectives


@pytest.mark.parametrize("seed", SLIDING[:6])
def test_small_sliding_mapspaces_are_certified_under_the_tools_count(seed):
    space = random_mapspace(seed, sliding=True, most=800)
    want = least(valid_stats(space, TIMELOOP), ("energy",))
    if want is None:
        return
    result = search(space, ("energy",))
    assert result.certificate.optimal
    assert result.certificate.counting == "timeloop"
    assert result.stats.energy_pJ == pytest.approx(want[0], rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS[:12])
@pytest.mark.parametrize("objectives", [("energy", "delay"), ("energy", "delay", "last-level-accesses")])
def test_front_equals_brute_force(seed, objectives):
    space = random_mapspace(seed, most=1200)
    points = {tuple(float(f"{value_of(name, one):.10g}") for name in objectives) for one in valid_stats(space)}
    want = sorted(p for p in points if not any(q != p and all(a <= b for a, b in zip(q, p)) for q in points))
    got = []
    for nest in search_front(space, objectives).nests:
        stats = evaluate(space.einsum, space.architecture, build_mapping(space, nest))
        got.append(tuple(value_of(name, stats) for name in objectives))
    assert len(got) == len(want)
    for one, other in zip(sorted(got), want):
        assert one == pytest.approx(other, rel=1e-8)


def nvdla(capacity: int = 524288) -> Architecture:
    def storage(name: str, read: float, write: float, leak: float = 0.0, **given: object) -> Level:
        return Level(name, energy=Energy(read, write, write, leak=leak), datawidth=16, **given)

    levels = (
        storage("RF", 0.06794, 0.06794, 0.0001202, instances=4096, mesh_x=128, mesh_y=32, depth=16, width=16),
        Level("inter_PE_spatial", True, instances=4, mesh_x=4, fanout_x=32, fanout_y=32),
        Level("inter_Array_spatial", True, fanout_x=4),
        storage(
            "GLB", 132.49, 147.186, 0.0317918, depth=capacity // 8, width=128, block_size=8,
            read_bandwidth=512.0, write_bandwidth=512.0,
        ),
        storage("DRAM", 512.0, 512.0, width=64, block_size=4, shared_bandwidth=30.0),
    )  # fmt: skip
    return Architecture("nvdla", levels, Compute("MAC", 4096, 128, 32, energy=Energy(compute=3.275)))


def kept_everywhere(einsum, architecture):
    names = frozenset(tensor.name for tensor in einsum.tensors)
    return Constraints(tuple(LevelConstraints(keep=frozenset() if level.is_fanout else names) for level in architecture.levels))


@pytest.mark.parametrize("objective", ["energy", "edp", "delay"])
def test_threads_do_not_change_the_answer(objective):
    einsum, architecture = gemm(64, 48, 96), nvdla()
    space = build_mapspace(einsum, architecture, kept_everywhere(einsum, architecture))
    one, two = (search(space, (objective,), threads=threads) for threads in (1, 3))
    assert one.mapping == two.mapping
    assert one.values == two.values
    assert one.certificate.optimal


def test_a_larger_buffer_is_never_worse():
    einsum = convolution(16, 16, 3, 3, 14, 14)
    values = []
    for capacity in (1024, 4096, 65536):
        architecture = nvdla(capacity)
        result = search(build_mapspace(einsum, architecture, kept_everywhere(einsum, architecture)), ("energy",))
        assert result.certificate.optimal
        values.append(result.values[0])
    assert values == sorted(values, reverse=True)


def test_relabelling_ranks_changes_nothing():
    architecture = nvdla()
    figures = []
    for einsum in (gemm(96, 40, 64), gemm(40, 96, 64)):
        result = search(build_mapspace(einsum, architecture, kept_everywhere(einsum, architecture)), ("edp",))
        figures.append((result.stats.cycles, result.stats.energy_pJ))
    assert figures[0] == pytest.approx(figures[1], rel=1e-12)
