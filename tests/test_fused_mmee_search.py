"""The search against brute force: every template, every tiling, every placement, counted by other means."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from fused_chains import MACHINE, conv2d_pair, conv_pair, gemm_chain, gemm_pair, gemm_then_activation
from stitchloop.errors import NoMapping
from stitchloop.fused.block import Block
from stitchloop.fused.evaluate import QUERY_MATRICES, Evaluator
from stitchloop.fused.exact import Point, figures
from stitchloop.fused.machine import Machine, Port
from stitchloop.fused.map import checked, map_shape
from stitchloop.fused.nest import normalised, tree_of
from stitchloop.fused.options import OBJECTIVES, FusedOptions
from stitchloop.fused.pair import shape_of
from stitchloop.fused.prune import prune
from stitchloop.fused.reference import evaluate_fused
from stitchloop.fused.select import best
from stitchloop.fused.template import Template, choices, skeletons
from stitchloop.fused.tilings import Passes, imperfect_axis, lanes_used, perfect_axis

SMALL = Machine(20, 2, 3, 1, Port(shared=2), 7.0, 9.0, 1.0, 1.5, 0.5, 0.5)


def tile_lists(size: int, perfect: bool) -> list[list[int]]:
    """For each tile size, the tiles that cut the rank."""
    sizes = [t for t in range(1, size + 1) if not perfect or size % t == 0]
    return [[min(t, size - start) for start in range(0, size, t)] for t in sizes]


def lanes(tile: int, count: int, perfect: bool) -> int:
    """Passes over a tile on ``count`` lanes."""
    if not perfect:
        return math.ceil(tile / count)
    return tile // max(d for d in range(1, count + 1) if tile % d == 0)


def array_run(
    m: list[int], n: list[int], r: list[int], repeat: int, option: str, machine: Machine, perfect: bool
) -> tuple[int, ...]:
    """Cycles, reads of both inputs, writes and re-reads of partial sums of one GEMM, tile after tile.

    The section on the array in the design: WS lays r over rows and n over columns and streams m; IS r and m; OS m and n.
    """
    rows, columns = {"WS": "rn", "IS": "rm", "OS": "mn"}[option]
    cycles = first = second = writes = 0
    for tm, tn, tr in product(m, n, r):
        tile = {"m": tm, "n": tn, "r": tr}
        passes = {rows: lanes(tile[rows], machine.rows, perfect), columns: lanes(tile[columns], machine.columns, perfect)}
        (streamed,) = set("mnr") - set(passes)
        cycles += math.prod(passes.values()) * tile[streamed]
        first += tm * tr * passes.get("n", 1)
        second += tr * tn * passes.get("m", 1)
        writes += tm * tn * passes.get("r", 1)
    fresh = sum(m) * sum(n)
    return repeat * cycles, repeat * (first + second), repeat * writes, repeat * (writes - fresh)


@cache
def buffer_and_dram(sizes: tuple[int, int, int, int], template: Template, tiles: tuple[tuple[int, int], ...]):
    """Capacity, DRAM reads and writes, runs of the producer for each of its output: from the reference model."""
    shape = shape_of(gemm_pair(*sizes))
    stats = evaluate_fused(shape.workload, tree_of(shape, template, dict(tiles)), "sound", compare=False)
    reads = sum(words for (target, _, _), words in stats.reads.items() if target == 0)
    writes = sum(words for (target, _, _), words in stats.writes.items() if target == 0)
    repeat = stats.operations["Producer"] // shape.operations(0)
    return stats.capacity[1], reads, writes, repeat


def brute_force(sizes: tuple[int, int, int, int], machine: Machine, perfect: bool) -> dict[str, float]:
    """The best of each objective over the whole mapspace of a GEMM pair."""
    shape = shape_of(gemm_pair(*sizes))
    templates: set[Template] = set()
    for skeleton in skeletons(shape.structure):
        walks = skeleton.first
        per_tensor = [[choices(walk, o) for o in walk.op.operands] for walk in walks]
        for picks in product(*(product(*tensors) for tensors in per_tensor)):
            levels, held = (tuple(tuple(getattr(p, f) for p in own) for own in picks) for f in ("level", "held"))
            inner = tuple(walk.loops[walk.shared :] for walk in walks)
            templates.add(Template(walks[0].loops[: walks[0].shared], inner, levels, held))
    distinct: dict[frozenset[int], set[Template]] = {}
    least = dict.fromkeys(("energy", "latency", "edp", "dram"), math.inf)
    i, k, l, j = sizes  # noqa: E741
    for ti, tl, tj, tk in product(*(tile_lists(size, perfect) for size in (i, l, j, k))):
        by_name = {"I2": ti[0], "L2": tl[0], "J2": tj[0], "K1": tk[0]}
        tiles = tuple((rank, by_name[shape.rank_names[rank]]) for rank in sorted(shape.structure.looped))
        runs = {}
        for repeat in {1, len(tj)}:
            producer = [array_run(ti, tl, tk, repeat, o, machine, perfect) for o in ("WS", "IS", "OS")]
            consumer = [array_run(ti, tj, tl, 1, o, machine, perfect) for o in ("WS", "IS", "OS")]
            runs[repeat] = [tuple(map(sum, zip(a, b))) for a, b in product(producer, consumer)]
        running = frozenset(rank for rank, tile in tiles if tile < shape.sizes[rank])
        if running not in distinct:
            distinct[running] = {normalised(shape, template, dict(tiles)) for template in templates}
        for template in distinct[running]:
            capacity, reads, writes, repeat = buffer_and_dram(sizes, template, tiles)
            if capacity > machine.capacity:
                continue
            macs = i * l * (k * repeat + j)
            for cycles, array_reads, array_writes, rereads in runs[repeat]:
                energy = reads * machine.dram_read + writes * machine.dram_write + macs * machine.mac
                energy += (array_reads + rereads + writes) * machine.buffer_read + (array_writes + reads) * machine.buffer_write
                latency = max(cycles, math.ceil((reads + writes) / machine.port.shared))
                found = {"energy": energy, "latency": latency, "edp": energy * latency * 1e-12, "dram": reads + writes}
                least = {name: min(least[name], value) for name, value in found.items()}
    return least


@pytest.mark.parametrize(
    ("sizes", "perfect", "capacity"),
    [((2, 1, 3, 2), False, 7), ((2, 2, 4, 1), True, 8)],
)
def test_optimum_equals_brute_force(sizes, perfect, capacity):
    """Over the reference model's buffer demand and traffic and a tile-by-tile run of the array.

    One rank of size 1 keeps the space small; the same comparison holds for (4, 2, 4, 2), (3, 2, 3, 2), (2, 3, 4, 3) in minutes.
    """
    machine = replace(SMALL, capacity=capacity)
    best = brute_force(sizes, machine, perfect)
    shape = shape_of(gemm_pair(*sizes))
    for name, value in best.items():
        result = map_shape(shape, machine, FusedOptions((name,), perfect=perfect, unfused=False))
        assert result.value == pytest.approx(value, rel=1e-12), name
        assert result.best.figures.buffer_demand <= capacity


WORKLOADS = {
    "gemm": gemm_pair(6, 4, 9, 3),
    "heads": gemm_pair(6, 4, 8, 2, heads=6),
    "activation": gemm_then_activation(6, 5, 7),
    "conv": conv_pair(6, 2, 3, 2),
    "chain": gemm_chain(5, [3, 4, 2, 3]),
}


@pytest.mark.parametrize("name", list(WORKLOADS))
@pytest.mark.parametrize(
    "options",
    [
        FusedOptions(),
        FusedOptions(perfect=True),
        FusedOptions(arrays="heads"),
        FusedOptions(reconfigurable=True, softmax="added"),
        FusedOptions(softmax="overlapped", softmax_ops=7, softmax_lanes=3),
    ],
    ids=["imperfect", "perfect", "heads", "reconfigurable", "overlapped"],
)
def test_screened_figures_are_the_exact_ones(name, options):
    """What the float form gives for the winner equals the exact count, and no mapping of the unfolded space is better."""
    shape = shape_of(WORKLOADS[name])
    machine = Machine(90, 4, 2, 2, Port(read=3, write=2.5), 7.0, 9.0, 1.0, 1.5, 0.5, 0.25)
    rows = prune(shape.structure).rows
    for objective in ("energy", "latency", "edp", "dram", "buffer"):
        wanted = replace(options, objectives=(objective,), unfused=False)
        result = map_shape(shape, machine, wanted)
        unfolded, _ = best(Evaluator(shape, machine, wanted, rows, fold=False), wanted.order)
        f = result.best.figures
        exact = (f.energy, f.cycles, f.energy * f.cycles, f.dram, f.buffer_demand)
        place = ("energy", "latency", "edp", "dram", "buffer").index(objective)
        assert exact[place] == pytest.approx(unfolded.screened[place], rel=1e-12)
        assert f.buffer_demand <= machine.capacity


def test_a_block_that_fills_the_buffer_to_the_last_word_is_feasible():
    shape = shape_of(gemm_pair(49, 7, 21, 7))
    needed = map_shape(shape, replace(MACHINE, capacity=10**6), FusedOptions(("dram", "buffer"), unfused=False))
    words = needed.best.figures.buffer_demand
    assert needed.best.figures.dram == shape.compulsory
    exactly = map_shape(shape, replace(MACHINE, capacity=words), FusedOptions(("dram",), unfused=False))
    assert exactly.best.figures.dram == shape.compulsory
    assert exactly.best.figures.buffer_demand == words
    one_less = map_shape(shape, replace(MACHINE, capacity=words - 1), FusedOptions(("dram",), unfused=False))
    assert one_less.best.figures.dram > shape.compulsory


@pytest.mark.parametrize("names", [("buffer", "dram"), ("energy", "latency"), ("energy", "latency", "buffer")])
@pytest.mark.parametrize("perfect", [True, False])
def test_front_equals_that_of_all_points(names, perfect):
    shape = shape_of(gemm_pair(4, 3, 6, 2))
    machine = replace(SMALL, capacity=40)
    options = FusedOptions(perfect=perfect, pareto=names, unfused=False)
    front = [p.values(names) for p in map_shape(shape, machine, options).pareto]
    ev = Evaluator(shape, machine, options, prune(shape.structure).rows, fold=False)
    grid = [g.ravel() for g in np.meshgrid(*(np.arange(len(axis)) for axis in ev.outer), indexing="ij")]
    block = Block(ev, np.arange(len(ev.rows)), grid)
    rows, at = np.nonzero(block.feasible)
    values, _ = block.expand(rows, at)
    points = {tuple(float(v) for v in p) for p in values[[OBJECTIVES.index(n) for n in names]].reshape(len(names), -1).T}
    expected = sorted(p for p in points if not any(q != p and all(a <= b for a, b in zip(q, p)) for q in points))
    assert np.allclose(sorted(front), expected, rtol=1e-12)


@pytest.mark.parametrize("workload", [gemm_pair(61, 6, 53, 7), conv_pair(40, 3, 5, 4)], ids=["gemm", "conv"])
def test_segments_of_tile_sizes_lose_nothing(workload):
    """Axes long enough to be cut into segments: the same optimum as over every cell of the grid."""
    shape, machine = shape_of(workload), replace(SMALL, capacity=150)
    options = FusedOptions(unfused=False)
    ev = Evaluator(shape, machine, options, prune(shape.structure).rows)
    assert any(len(starts) > 1 for starts in ev.segments)
    grid = [g.ravel() for g in np.meshgrid(*(np.arange(len(axis)) for axis in ev.outer), indexing="ij")]
    block = Block(ev, np.arange(len(ev.rows)), grid)
    values, _ = block.expand(*np.nonzero(block.feasible))
    least = values.reshape(len(OBJECTIVES), -1).min(axis=1)
    for name in ("energy", "latency", "edp", "dram"):
        result = map_shape(shape, machine, replace(options, objectives=(name,)))
        scale = 1e-12 if name == "edp" else 1
        assert result.value == pytest.approx(least[OBJECTIVES.index(name)] * scale, rel=1e-12), name


def test_query_matrices_by_name():
    """``exp(Q . ln B)`` times each named matrix equals the exact integers."""
    shape = shape_of(gemm_pair(12, 4, 6, 4))
    rows = prune(shape.structure).rows
    ev = Evaluator(shape, MACHINE, FusedOptions(perfect=True), rows, fold=False)
    matrices = ev.query_matrices()
    assert tuple(matrices) == QUERY_MATRICES
    index = [np.array([1]), np.array([2]), np.array([1]), np.array([0])]
    values = np.exp(ev.exponents @ ev.boundary(index))[:, 0]
    tiles = {axis.rank: int(axis.tiles[i[0]]) for axis, i in zip(ev.outer, index)}
    point = Point(shape, tiles)
    for at, row in enumerate(rows):
        phases = [sum(point.product(m) for m in phase) for phase in row.phases]
        assert matrices["buffer_producer"][at] @ values == pytest.approx(phases[0])
        assert matrices["buffer_consumer"][at] @ values == pytest.approx(phases[1])
        moved = [point.product(m) for terms in row.dram for m in terms if m]
        assert matrices["dram"][at] @ values == pytest.approx(sum(moved) + point.product(row.dram[1][-1]))
    chosen = (ev.placements[0][0], ev.placements[1][2])
    plain = next(row for row in rows if not row.recomputes)
    f = figures(shape, MACHINE, FusedOptions(perfect=True), plain.template, tiles, chosen)
    mode = int(ev.mode_of[rows.index(plain), 0])
    assert matrices["compute_producer"][3 * mode] @ values == pytest.approx(f.ops[0].cycles)
    assert matrices["compute_consumer"][2] @ values == pytest.approx(f.ops[1].cycles)
    traffic = sum(f.ops[1].array_reads.values()) + f.ops[1].array_writes + f.ops[1].array_rereads
    assert matrices["buffer_register"][3 * len(ev.modes[0]) + 2] @ values == pytest.approx(traffic)


@pytest.mark.parametrize(("size", "count"), [(13, 4), (21, 10), (25, 10), (30, 7), (64, 8), (61, 32)])
def test_useful_tile_sizes_lose_nothing(size, count):
    """For every size left out, a smaller one has no more trips and no more passes."""
    variable = Passes(0, (count,))
    every = imperfect_axis(0, size, [])
    axis = imperfect_axis(0, size, [variable])
    kept = list(zip(axis.tiles, axis.trips, axis.values(variable)))
    for tile in range(1, size + 1):
        tiles = [min(tile, size - start) for start in range(0, size, tile)]
        mine = sum(math.ceil(t / count) for t in tiles)
        assert any(t <= tile and d <= len(tiles) and p <= mine for t, d, p in kept), tile
    assert len(every) <= 2 * math.isqrt(size) + 1
    assert set(every.tiles) <= set(axis.tiles)


def test_perfect_tile_sizes_are_the_divisors():
    assert perfect_axis(0, 12).tiles.tolist() == [1, 2, 3, 4, 6, 12]
    assert [lanes_used(t, (4,)) for t in (1, 6, 7, 12)] == [1, 3, 1, 4]
    assert lanes_used(24, (4, 5)) == 12


def test_ties_are_broken_by_the_other_objectives():
    """The least energy among all mappings of the least latency, not any mapping of that latency."""
    shape = shape_of(gemm_pair(64, 16, 64, 16))
    latency = map_shape(shape, MACHINE, FusedOptions(("latency",), perfect=True, unfused=False))
    slow = replace(MACHINE, capacity=MACHINE.capacity)
    front = map_shape(shape, slow, FusedOptions(("energy",), perfect=True, pareto=("latency", "energy"), unfused=False)).pareto
    least = min(front, key=lambda p: (p.figures.cycles, p.figures.energy))
    assert latency.best.figures.cycles == least.figures.cycles
    assert latency.best.figures.energy == pytest.approx(least.figures.energy, rel=1e-12)


def test_every_run_gives_the_same_answer():
    shape = shape_of(gemm_pair(60, 12, 40, 18))
    found = [map_shape(shape, MACHINE, FusedOptions(("latency",), unfused=False)).best for _ in range(3)]
    assert found[0] == found[1] == found[2]


def test_unfused_moves_the_intermediate_tensor():
    result = map_shape(shape_of(gemm_pair(64, 16, 64, 16)), MACHINE, FusedOptions(("dram",)))
    assert result.best.figures.dram == result.shape.compulsory
    assert result.unfused.dram == result.shape.compulsory + 2 * 64 * 64
    assert result.gain == pytest.approx(result.unfused.dram / result.best.figures.dram)


def test_best_grouping_of_a_chain():
    """The middle layer's wide tensors do not fit: two groups beat one, and beat every Einsum alone."""
    shape = shape_of(gemm_chain(64, [16, 512, 16, 512, 16]))
    result = map_shape(shape, replace(MACHINE, capacity=2000), FusedOptions(("dram",), perfect=True))
    values = {names: g for names in ("alone", "best") if (g := getattr(result, {"alone": "unfused", "best": "grouping"}[names]))}
    assert values["best"].dram <= min(values["alone"].dram, result.best.figures.dram)
    assert sum(map(len, values["best"].names)) == 4
    assert values["best"].dram < values["alone"].dram


def test_reconfigurable_array_fits_narrow_ranks():
    """Eight columns of use on 32 x 32 arrays; 128 x 8 are fully used."""
    shape, machine = shape_of(gemm_pair(1024, 8, 8, 8)), replace(MACHINE, port=Port())
    fixed, free = (
        map_shape(shape, machine, FusedOptions(("latency",), reconfigurable=flag, unfused=False)).best for flag in (False, True)
    )
    assert fixed.figures.cycles == 4 * free.figures.cycles
    assert free.figures.utilization(machine) == 1.0


def test_four_heads_share_the_buffer():
    """Each array with a head of its own: buffer demand of four heads, a quarter of the rounds."""
    shape = shape_of(gemm_pair(64, 16, 64, 16, heads=8))
    result = map_shape(shape, MACHINE, FusedOptions(("latency",), arrays="heads", unfused=False))
    alone = result.best.figures.ops[0].cycles
    assert result.best.figures.buffer_demand % 4 == 0
    assert result.best.figures.operations == 8 * (64 * 64 * 16 * 2)
    assert alone >= 2 * 64 * 64 * 16 / (32 * 32)


def test_ablations_are_nested():
    shape = shape_of(gemm_pair(512, 64, 512, 64))
    machine = replace(MACHINE, capacity=1 << 14)

    def traffic(name: str) -> int:
        options = checked(FusedOptions(("dram",), perfect=True, ablation=name, unfused=False))
        return map_shape(shape, machine, options).best.figures.dram

    assert traffic("ordering") > traffic("buffer") > traffic("full")
    for fixed in ("flash-attention-2", "flat", "tileflow"):
        assert traffic(fixed) >= traffic("buffer")


def test_a_buffer_too_small_names_the_smallest_that_would_do():
    shape = shape_of(gemm_pair(8, 8, 8, 8))
    with pytest.raises(NoMapping) as caught:
        map_shape(shape, replace(MACHINE, capacity=3), FusedOptions(unfused=False))
    (obstacle,) = caught.value.obstacles
    assert obstacle.needed == 4
    map_shape(shape, replace(MACHINE, capacity=4), FusedOptions(unfused=False))


def test_a_time_limit_returns_the_best_so_far_with_a_bound():
    """The answer is not called optimal, and the bound is below the true optimum."""
    shape = shape_of(conv2d_pair(56, 32, 48, 40))
    machine = replace(MACHINE, capacity=1 << 14)
    stopped = map_shape(shape, machine, FusedOptions(("energy",), unfused=False, time_limit=0.0))
    assert not stopped.certificate.optimal
    assert "time limit" in stopped.certificate.reason
    proved = map_shape(shape, machine, FusedOptions(("energy",), perfect=True, unfused=False))
    assert stopped.certificate.lower_bound <= proved.value
    assert stopped.certificate.gap(stopped.value) > 0
