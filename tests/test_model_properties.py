"""Properties of the reference model that hold whatever the mapping."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from model_random import SHAPES, random_architecture, random_einsum, random_mapping
from stitchloop.architecture import Architecture, Compute, Energy, Level
from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.model import CLEAN, TIMELOOP, Counting, Evaluator, InvalidMapping, check, evaluate
from stitchloop.model.radix import effective
from stitchloop.stats import PARTIAL_TILES, Stats
from stitchloop.workload import Einsum, Tensor, Term

Triple = tuple[Einsum, Architecture, Mapping]


def random_triples(count: int, seed: int) -> Iterator[Triple]:
    rng = random.Random(seed)
    for index in range(count):
        einsum = random_einsum(rng, rng.choice(list(SHAPES)), 24)
        architecture = random_architecture(rng, 4)
        yield einsum, architecture, random_mapping(rng, einsum, architecture, imperfect=index % 2 == 0)


def outcome(
    einsum: Einsum, architecture: Architecture, mapping: Mapping, counting: Counting = TIMELOOP
) -> Stats | tuple[str | None, ...]:
    """The figures, or why there are none."""
    try:
        return evaluate(einsum, architecture, mapping, counting)
    except InvalidMapping as invalid:
        return ("invalid", invalid.kind, invalid.level)


def relabelled(einsum: Einsum, mapping: Mapping, rng: random.Random) -> tuple[Einsum, Mapping]:
    """Other rank names, listed in another order."""
    names = {rank: f"rank{index}" for index, rank in enumerate(einsum.ranks)}
    order = list(einsum.ranks)
    rng.shuffle(order)
    tensors = tuple(
        Tensor(t.name, tuple(tuple(Term(names[x.rank], x.coefficient) for x in terms) for terms in t.projection), t.is_output)
        for t in einsum.tensors
    )

    def loops(given: tuple[Loop, ...]) -> tuple[Loop, ...]:
        return tuple(replace(loop, rank=names[loop.rank]) for loop in given)

    levels = tuple(
        LevelMapping(loops(at.temporal), loops(at.spatial_x), loops(at.spatial_y), at.keep) for at in mapping.levels
    )
    sizes = tuple(einsum.sizes[rank] for rank in order)
    return Einsum(einsum.name, tuple(names[rank] for rank in order), sizes, tensors), Mapping(levels)


def test_names_and_order_of_ranks_change_nothing() -> None:
    rng = random.Random(1)
    for einsum, architecture, mapping in random_triples(80, 2):
        other_einsum, other_mapping = relabelled(einsum, mapping, rng)
        assert outcome(einsum, architecture, mapping) == outcome(other_einsum, architecture, other_mapping)


def test_order_of_tensors_changes_no_count() -> None:
    """With exact cycles: the tool's sum of double precision shares depends on the order, by a cycle."""
    exactly = replace(TIMELOOP, double_cycles=False)
    for einsum, architecture, mapping in random_triples(60, 3):
        turned = replace(einsum, tensors=einsum.tensors[::-1])
        here, there = outcome(einsum, architecture, mapping, exactly), outcome(turned, architecture, mapping, exactly)
        if isinstance(here, tuple):
            assert isinstance(there, tuple)
            continue
        assert isinstance(there, Stats)
        assert here.cycles == there.cycles
        assert here.energy_pJ == pytest.approx(there.energy_pJ)
        for level, at in here.levels.items():
            assert dict(at.tensors) == dict(there.levels[level].tensors)


def test_loops_of_one_iteration_change_nothing() -> None:
    rng = random.Random(4)
    for einsum, architecture, mapping in random_triples(60, 5):

        def padded(loops: tuple[Loop, ...], einsum: Einsum = einsum) -> tuple[Loop, ...]:
            listed = list(loops)
            listed.insert(rng.randint(0, len(listed)), Loop(rng.choice(einsum.ranks), 1))
            return tuple(listed)

        levels = tuple(replace(at, temporal=padded(at.temporal), spatial_x=padded(at.spatial_x)) for at in mapping.levels)
        assert outcome(einsum, architecture, mapping) == outcome(einsum, architecture, Mapping(levels))


def test_a_larger_buffer_never_makes_a_mapping_invalid() -> None:
    rng = random.Random(6)
    refused = 0
    for einsum, architecture, mapping in random_triples(120, 7):
        small = _with_depths(architecture, {level.name: rng.randint(1, 60) for level in architecture.storage})
        large = _with_depths(small, {level.name: (level.depth or 0) + rng.randint(0, 60) for level in small.storage})
        before, after = outcome(einsum, small, mapping), outcome(einsum, large, mapping)
        if isinstance(before, Stats):
            assert before == after
        else:
            refused += 1
            unlimited = outcome(einsum, architecture, mapping)
            assert before[1] in ("capacity", "writeback")
            assert isinstance(unlimited, Stats) or unlimited[1] == "writeback"
    assert refused > 20


def test_totals_add_up() -> None:
    for einsum, architecture, mapping in random_triples(80, 8):
        stats = outcome(einsum, architecture, mapping)
        if isinstance(stats, tuple):
            continue
        assert stats.computes == einsum.computes
        parts = stats.compute.energy_pJ + sum(level.energy_pJ for level in stats.levels.values())
        assert stats.energy_pJ == pytest.approx(parts)
        assert stats.cycles == max(stats.compute.cycles, *(level.cycles for level in stats.levels.values()))
        assert 0 < stats.utilization <= 1
        assert stats.counting == ("timeloop" if effective(mapping).is_perfect else PARTIAL_TILES)


def test_a_last_pass_that_is_whole_is_no_imperfection() -> None:
    for einsum, architecture, mapping in random_triples(40, 9):
        if not mapping.is_perfect:
            continue

        def spelt(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
            return tuple(replace(loop, last=loop.bound) for loop in loops)

        levels = tuple(
            LevelMapping(spelt(at.temporal), spelt(at.spatial_x), spelt(at.spatial_y), at.keep) for at in mapping.levels
        )
        assert outcome(einsum, architecture, mapping) == outcome(einsum, architecture, Mapping(levels))


def test_partial_tiles_never_count_more_than_padding_the_ranks() -> None:
    """A rank of 7 as 2 passes of 4 costs at most what a rank of 8 costs."""
    tried = 0
    for einsum, architecture, mapping in random_triples(200, 10):
        if mapping.is_perfect or any(len(terms) > 1 for tensor in einsum.tensors for terms in tensor.projection):
            continue
        bounds = dict.fromkeys(einsum.ranks, 1)
        for at in mapping.levels:
            for loop in at.temporal + at.spatial:
                bounds[loop.rank] *= loop.bound
        whole = replace(einsum, rank_sizes=tuple(bounds[rank] for rank in einsum.ranks))
        stats = evaluate(einsum, architecture, mapping, CLEAN)
        padded = evaluate(whole, architecture, _perfect(mapping), CLEAN)
        assert stats.compute.cycles <= padded.compute.cycles
        assert stats.computes <= padded.computes
        for level, at_level in stats.levels.items():
            for tensor, s in at_level.tensors.items():
                p = padded.levels[level].tensors[tensor]
                assert s.updates <= p.updates
                if not einsum.tensor(tensor).is_output:
                    assert s.reads <= p.reads
                    assert s.fills <= p.fills
                assert s.capacity <= p.capacity
        tried += 1
    assert tried > 20


def _perfect(mapping: Mapping) -> Mapping:
    def whole(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
        return tuple(replace(loop, last=0) for loop in loops)

    return Mapping(
        tuple(LevelMapping(whole(at.temporal), whole(at.spatial_x), whole(at.spatial_y), at.keep) for at in mapping.levels)
    )


def _with_depths(architecture: Architecture, depths: dict[str, int]) -> Architecture:
    levels = (replace(level, depth=depths[level.name]) if level.name in depths else level for level in architecture.levels)
    return replace(architecture, levels=tuple(levels))


GEMM = Einsum(
    "gemm",
    ("M", "N", "K"),
    (7, 4, 4),
    (
        Tensor("A", ((Term("M"),), (Term("K"),))),
        Tensor("B", ((Term("K"),), (Term("N"),))),
        Tensor("Z", ((Term("M"),), (Term("N"),)), True),
    ),
)
ALL = frozenset("ABZ")
FLAT = Architecture(
    "flat",
    (
        Level("RF", instances=4, mesh_x=4, depth=8, energy=Energy(1, 1, 1, source="test")),
        Level("inter_PE_spatial", True, fanout_x=4),
        Level("DRAM", energy=Energy(100, 100, 100, source="test")),
    ),
    Compute("MAC", 4, 4, 1, energy=Energy(compute=1, source="test")),
)


def flat_mapping(m_inner: Loop, m_spatial: Loop | None, m_outer: Loop | None, keep: frozenset[str] = ALL) -> Mapping:
    outer = tuple(loop for loop in (Loop("N", 4), Loop("K", 4), m_outer) if loop is not None)
    x = (m_spatial,) if m_spatial is not None else ()
    return Mapping((LevelMapping((m_inner,), keep=keep), LevelMapping((), x), LevelMapping(outer, keep=ALL)))


def test_seven_rows_over_four_units() -> None:
    """M = 7 as two rows a unit on four units: units 0 to 2 work on two rows, unit 3 on one."""
    stats = evaluate(GEMM, FLAT, flat_mapping(Loop("M", 2, 1), Loop("M", 4), None))
    assert stats.computes == 7 * 4 * 4
    assert stats.compute.cycles == 2 * 4 * 4
    assert stats.compute.instances == 4
    assert stats.utilization == pytest.approx(7 / 8)
    rf, dram = stats.levels["RF"], stats.levels["DRAM"]
    assert (rf.tensors["A"].fills, rf.tensors["A"].capacity) == (2 * 4, 2)
    assert dram.tensors["A"].reads == 7 * 4
    assert rf.tensors["A"].energy_pJ == 7 * 4 * 4 + 7 * 4
    assert dram.tensors["Z"].updates == 7 * 4 * 4
    assert stats.counting == PARTIAL_TILES


def test_a_spatial_loop_that_never_reaches_its_bound_uses_fewer_units() -> None:
    stats = evaluate(replace(GEMM, rank_sizes=(3, 4, 4)), FLAT, flat_mapping(Loop("M", 1), Loop("M", 4, 3), None))
    assert stats.compute.instances == 3
    assert stats.levels["RF"].tensors["A"].instances == 3
    assert stats.levels["DRAM"].tensors["A"].reads == 3 * 4


@pytest.mark.parametrize(
    ("mapping", "kind", "level", "size", "limit", "words"),
    [
        (flat_mapping(Loop("M", 2), Loop("M", 4), None), "factors", None, 8, 7, "product of all factors of dimension M is 8"),
        (flat_mapping(Loop("M", 2, 3), Loop("M", 4), None), "factors", None, 3, 2, "the last pass has 1 to 2 iterations"),
        (flat_mapping(Loop("H", 7), None, None), "factors", None, None, None, "has no rank H"),
        (flat_mapping(Loop("M", 7), None, None), "capacity", "RF", 15, 8, "mapped tile size 15 exceeds buffer capacity 8"),
        (flat_mapping(Loop("M", 1), Loop("M", 7), None), "instances", "MAC", 7, 4, "max Arithmetic instances 7 exceeds"),
        (flat_mapping(Loop("M", 1), Loop("M", 5, 3), Loop("M", 2)), "factors", None, 8, 7, "dimension M is 8"),
        (Mapping(()), "factors", None, 0, 3, "0 levels"),
    ],
)
def test_invalid_mappings_say_what_and_by_how_much(
    mapping: Mapping, kind: str, level: str | None, size: int | None, limit: int | None, words: str
) -> None:
    with pytest.raises(InvalidMapping, match=words) as caught:
        check(GEMM, FLAT, mapping)
    assert (caught.value.kind, caught.value.level, caught.value.size, caught.value.limit) == (kind, level, size, limit)
    assert caught.value.exit_status == 1


def test_a_tensor_kept_nowhere_is_refused() -> None:
    mapping = Mapping((LevelMapping((Loop("M", 7),)), LevelMapping(), LevelMapping((Loop("N", 4), Loop("K", 4)))))
    with pytest.raises(InvalidMapping, match="bypassed in all storage levels"):
        evaluate(GEMM, FLAT, mapping)


def test_a_level_that_must_be_used_well_refuses_small_tiles() -> None:
    picky = replace(FLAT, levels=(replace(FLAT.levels[0], min_utilization=0.9), *FLAT.levels[1:]))
    with pytest.raises(InvalidMapping, match="less than constrained minimum utilization") as caught:
        check(GEMM, picky, flat_mapping(Loop("M", 1), None, Loop("M", 7)))
    assert (caught.value.kind, caught.value.level, caught.value.size) == ("min_utilization", "RF", 3)


def test_words_over_a_bandwidth_of_zero_are_refused() -> None:
    stuck = replace(FLAT, levels=(replace(FLAT.levels[0], read_bandwidth=0.0), *FLAT.levels[1:]))
    for counting in (TIMELOOP, CLEAN):
        with pytest.raises(InvalidMapping, match="bandwidth of 0"):
            evaluate(GEMM, stuck, flat_mapping(Loop("M", 1), None, Loop("M", 7)), counting)


def test_large_imperfect_problems_take_no_enumeration() -> None:
    """A GEMM of 1021 x 61 x 1021: exact, and no slower than a perfect one."""
    einsum = replace(GEMM, rank_sizes=(1021, 1021, 61))
    mapping = Mapping(
        (
            LevelMapping((Loop("K", 4, 1),), keep=ALL),
            LevelMapping((), (Loop("M", 32, 29),), (Loop("N", 32, 29),)),
            LevelMapping((Loop("N", 32), Loop("K", 16), Loop("M", 32)), keep=ALL),
        )
    )
    levels = (
        Level("RF", instances=1024, mesh_x=32, mesh_y=32),
        Level("inter_PE_spatial", True, fanout_x=32, fanout_y=32),
        Level("DRAM"),
    )
    stats = Evaluator(einsum, Architecture("wide", levels, Compute("MAC", 1024, 32, 32))).evaluate(mapping)
    assert stats.computes == 1021 * 1021 * 61
    assert stats.compute.cycles == 61 * 32 * 32
    assert stats.levels["DRAM"].tensors["A"].reads == 1021 * 61
    assert stats.levels["DRAM"].tensors["B"].reads == 1021 * 61 * 32
    assert stats.levels["DRAM"].tensors["Z"].updates == 1021 * 1021 * 16


def test_a_mapping_far_beyond_the_hardware_is_refused_at_once() -> None:
    """Two billion elements are not looked at one by one."""
    einsum = replace(GEMM, rank_sizes=(2**31, 4, 4))
    with pytest.raises(InvalidMapping, match="max Arithmetic instances 2147483648 exceeds hardware instances 4"):
        evaluate(einsum, FLAT, flat_mapping(Loop("M", 1), Loop("M", 2**31), None))


def test_long_sliding_windows_are_counted_without_enumeration() -> None:
    """A convolution over ten million positions, in imperfect tiles: each input word is loaded once."""
    tensors = (
        Tensor("W", ((Term("R"),),)),
        Tensor("I", ((Term("P"), Term("R")),)),
        Tensor("O", ((Term("P"),),), True),
    )
    einsum = Einsum("conv", ("P", "R"), (10_000_019, 11), tensors)
    last = (10_000_019 - 1) % 64 + 1
    keep = frozenset("WIO")
    inner, outer = LevelMapping((Loop("R", 11), Loop("P", 64, last)), keep=keep), LevelMapping((Loop("P", 156251),), keep=keep)
    mapping = Mapping((inner, LevelMapping(), outer))
    roomy = replace(FLAT, levels=(replace(FLAT.levels[0], depth=None), *FLAT.levels[1:]))
    stats = evaluate(einsum, roomy, mapping)
    assert stats.levels["DRAM"].tensors["I"].reads == 10_000_019 + 10
    assert stats.levels["RF"].tensors["I"].partition == 10_000_019 + 10
    assert stats.computes == stats.compute.cycles == 10_000_019 * 11
