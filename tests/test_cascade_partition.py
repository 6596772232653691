"""How a group runs tile by tile: segments, intervals, footprints, the choice of tiles and spills."""

from __future__ import annotations

from math import ceil, prod

import numpy as np
import pytest

from cascade_machines import machine, mamba, shipped
from stitchloop.cascade.candidates import Candidates
from stitchloop.cascade.evaluate import Model
from stitchloop.cascade.merge import merge_shared_inputs
from stitchloop.cascade.partition import partition_kind, pipeline_of, segments_of, tiles_of
from stitchloop.cascade.performance import DETAILED, Settings
from stitchloop.cascade.read import read_cascade
from stitchloop.cascade.stitch import stitch


def whole(cascade):
    return merge_shared_inputs(cascade)


def numbers(names) -> str:
    return " ".join(name[1:] for name in names)


# -- structure ------------------------------------------------------------------------------------------------------------


def test_segments_of_the_mamba_layer():
    cascade = mamba("370m", 64)
    found = [numbers(segment.names) for segment in segments_of(cascade, whole(cascade))]
    assert found == ["1 2 3 4", "5", "6 8", "7 9 10", "11 12 13", "14", "15", "16 17 18 19 20 21 22 23", "24"]


def test_a_change_of_mode_ends_a_segment():
    cascade = mamba("370m", 64)
    assert [segment.is_array for segment in segments_of(cascade, whole(cascade))] == [
        False, False, True, False, True, True, False, False, True,
    ]  # fmt: skip


def test_the_longest_lived_tensors_are_spilled_first():
    cascade = mamba("370m", 64)
    first = [interval.tensor for interval in pipeline_of(cascade, whole(cascade)).intervals[:3]]
    assert first[0] == "RX"
    assert set(first) == {"RX", "DX", "X"}


def test_mamba_tiles_run_over_batch_and_sequence():
    cascade = mamba("370m", 64)
    pipeline = pipeline_of(cascade, whole(cascade))
    assert pipeline.tile_ranks == ("B", "I")
    assert set(pipeline.refetched) == set(cascade.weights)


def test_keys_that_all_queries_read_forbid_tiles_of_the_sequence():
    cascade = shipped("attention")
    nodes = whole(cascade)
    assert "I" not in pipeline_of(cascade, nodes).tile_ranks
    scores = next(at for at, node in enumerate(nodes) if node == ("scores",))
    assert "I" in pipeline_of(cascade, nodes[scores:-1]).tile_ranks


def test_a_recurrence_over_several_groups_runs_in_lockstep():
    cascade = mamba("370m", 64)
    assert pipeline_of(cascade, (("E17",),)).lockstep
    assert pipeline_of(cascade, (("E20",), ("E21",))).lockstep
    assert not pipeline_of(cascade, (("E18",),)).lockstep
    fused = pipeline_of(cascade, tuple((f"E{n}",) for n in range(16, 22)))
    assert (fused.lockstep, fused.chain) == (False, 2)


def test_a_recurrence_through_a_gemm_runs_step_by_step():
    cascade = read_cascade(
        {
            "ranks": {"B": {"size": 64, "batch": True}, "I": {"size": 50, "iterative": True}, "D": 256, "K": 256},
            "inputs": ["X"],
            "weights": ["W"],
            "tensors": {"H": {"initial": "H0"}},
            "einsums": ["Z[b,i,k] = H[b,i-1,d] * W[d,k]", "H[b,i,d] = tanh(Z[b,i,d] + X[b,i,d])"],
        }
    )
    group = Model(cascade, machine()).group(tuple((einsum.name,) for einsum in cascade.einsums))
    assert group.plan.tile["I"] == 1
    assert group.plan.tiles % 50 == 0


# -- tilings --------------------------------------------------------------------------------------------------------------


def test_tilings_are_balanced_and_cover_the_ranks():
    cascade = mamba("370m", 1000)
    tiles = tiles_of(cascade, ("B", "I"), one_step=False)
    b, i = tiles.sizes["B"], tiles.sizes["I"]
    assert {1, 64} <= set(b)
    assert {1, 1000} <= set(i)
    assert np.array_equal(tiles.count, np.ceil(64 / b) * np.ceil(1000 / i))
    for size in set(i):
        assert ceil(1000 / ceil(1000 / size)) == size


def test_least_tiles_leaves_out_coarser_tilings():
    cascade = mamba("370m", 1)
    assert tiles_of(cascade, ("B", "I"), False, 8).count.min() == 8
    assert list(tiles_of(cascade, ("B", "I"), False, 1000).count) == [64]


def test_a_convolutions_tile_includes_its_halo():
    cascade = mamba("370m", 64)
    model = Model(cascade, machine())
    tiles = model.tiles(pipeline_of(cascade, whole(cascade)))
    assert np.array_equal(model.tile_words("TX", tiles), tiles.sizes["B"] * (tiles.sizes["I"] + 3) * 2048)


@pytest.mark.parametrize(
    ("tile", "split", "kind"),
    [
        ({"B": 64, "I": 64}, set(), "whole"),
        ({"B": 64, "I": 8}, {"I"}, "I-blocking"),
        ({"B": 64, "I": 1}, {"I"}, "B-D-N stationary"),
        ({"B": 8, "I": 8}, {"B", "I"}, "hybrid"),
        ({"B": 8, "I": 64}, {"B"}, "batch split"),
    ],
)
def test_names_of_partitionings(tile, split, kind):
    assert partition_kind(tile, split, {"I"}) == kind


# -- footprint ------------------------------------------------------------------------------------------------------------


def live_words(cascade, pipeline, tile, spilled: int, keep_state: bool) -> float:
    """Most words in the buffer, counted segment by segment and tensor by tensor, without streams and partial sums."""
    sizes = {**cascade.sizes, **tile}

    def words(tensor: str) -> int:
        ranks = cascade.tensor(tensor).ranks
        return prod(sizes[rank] + (3 if tensor == "TX" and rank == "I" else 0) for rank in ranks)

    most = 0
    for s in range(len(pipeline.segments)):
        held = {tensor for tensor, at in pipeline.whole if at == s}
        held |= {interval.tensor for interval in pipeline.intervals[spilled:] if interval.start <= s <= interval.stop}
        most = max(most, sum(words(tensor) for tensor in held))
    d, n = cascade.sizes["D"], cascade.sizes["N"]
    state = tile["B"] * (d * n + 3 * d) if keep_state and tile["I"] < cascade.sizes["I"] else 0
    return most + state


@pytest.mark.parametrize("spilled", [0, 1, 3, 6])
def test_the_footprint_is_what_lies_in_the_buffer(spilled):
    cascade, m = mamba("370m", 64), machine()
    pipeline = pipeline_of(cascade, whole(cascade))
    candidates = Candidates(Model(cascade, m), pipeline)
    for at in range(0, len(candidates.count), 5):
        tile = {rank: int(candidates.tiles.sizes[rank][at]) for rank in ("B", "I")}
        expected = live_words(cascade, pipeline, tile, spilled, True)
        found = candidates.footprint[spilled, at] + candidates.kept_state[at]
        streams = max(2 * m.array_pes, 2 * m.lanes * max(pipeline.streams)) + candidates.live_sums[:, at].max()
        assert expected <= found <= expected + streams


def test_the_published_footprint_formula_holds_for_the_whole_layer():
    cascade = mamba("2.8b", 4096)
    candidates = Candidates(Model(cascade, machine()), pipeline_of(cascade, whole(cascade)))
    e, d, n, r = (cascade.sizes[rank] for rank in "EDNR")
    tiles = candidates.tiles
    b, i = tiles.sizes["B"], tiles.sizes["I"]
    blocks = i < 4096
    words = candidates.footprint[0] + candidates.kept_state - np.where(blocks, b * d * n, 0)
    per_position = (words - 2 * machine().array_pes) / (b * i)
    large = (b * i > 1000) & blocks
    assert np.all(per_position[large] > 2 * d)
    assert np.all(per_position[large] < 3 * e + 7 * d + 2 * n + r)


def test_the_chosen_tiling_fits():
    for model, steps in (("370m", 2048), ("2.8b", 2048), ("2.8b", 1)):
        for words in (2**18, 2**20, 2**24):
            m = machine().with_buffer(words)
            cascade = mamba(model, steps)
            for group in stitch(cascade, "ri+rsb+rsp").groups:
                plan = Model(cascade, m).group(group.nodes).plan
                assert plan.footprint_words + plan.pinned_words + plan.window_words <= words * (1 + 1e-9)


# -- choices --------------------------------------------------------------------------------------------------------------


def test_a_small_buffer_spills_named_tensors_and_reports_them():
    cascade = mamba("2.8b", 2048)
    nodes = whole(cascade)
    large = Model(cascade, machine()).group(nodes)
    small = Model(cascade, machine().with_buffer(2**19)).group(nodes)
    assert "RX" in small.plan.spilled
    assert len(small.plan.spilled) > len(large.plan.spilled)
    assert small.spill_words > large.spill_words
    assert prod(small.plan.tile.values()) < prod(large.plan.tile.values())


def test_weights_are_read_once_per_tile_unless_they_stay():
    cascade = mamba("2.8b", 2048)
    group = Model(cascade, machine()).group(whole(cascade))
    weights = sum(cascade.words(tensor) for tensor in cascade.weights)
    pinned = group.plan.pinned_words
    expected = weights * group.plan.tiles - pinned * (group.plan.tiles - 1)
    assert group.volume.weight == pytest.approx(expected)


def test_the_state_crosses_dram_once_when_it_is_kept_and_per_block_when_not():
    cascade = mamba("2.8b", 2048)
    for words in (2**20, 2**24):
        group = Model(cascade, machine().with_buffer(words)).group(whole(cascade))
        once, halo = 2 * 64 * 5120 * 16, 2 * 64 * 5120 * 3
        blocks = 1 if group.plan.state_kept else ceil(2048 / group.plan.tile["I"])
        assert group.volume.state == pytest.approx(once * blocks + halo * (blocks - 1))


def test_one_step_of_generation_needs_no_partitioning():
    group = Model(mamba("2.8b", 1), machine()).group(whole(mamba("2.8b", 1)))
    assert (group.plan.kind, group.plan.tiles, group.plan.spilled, group.reread_words) == ("whole", 1, (), 0)


def test_forced_tiles_split_the_batch_at_one_step():
    cascade = mamba("2.8b", 1)
    model = Model(cascade, machine(), Settings(least_tiles=4))
    group = model.group(whole(cascade))
    assert group.plan.tile["B"] == 16
    assert group.reread_words > 0
    alone = model.group((("E24",),))
    assert alone.plan.tiles == 1


def test_a_chosen_tiling_is_the_best_of_all_evaluated_one_by_one():
    cascade = mamba("2.8b", 300)
    for words in (2**19, 2**22):
        model = Model(cascade, machine().with_buffer(words), DETAILED)
        for nodes in (whole(cascade), whole(cascade)[10:15]):
            candidates = Candidates(model, pipeline_of(cascade, nodes))
            times = candidates.total_cycles(np.arange(len(candidates.n)))
            assert candidates.best[1] == pytest.approx(times.min(), rel=1e-6)


def test_each_kind_of_partitioning_is_offered_and_the_chosen_one_is_the_fastest():
    cascade = mamba("2.8b", 2048)
    model = Model(cascade, machine())
    found = model.partitionings(whole(cascade))
    kinds = {cost.plan.kind for cost in found}
    assert kinds == {"I-blocking", "B-D-N stationary", "hybrid"}
    assert found[0].seconds == pytest.approx(model.group(whole(cascade)).seconds)
    stationary = next(cost for cost in found if cost.plan.kind == "B-D-N stationary")
    assert stationary.plan.tile == {"B": 64, "I": 1}
    blocked = next(cost for cost in found if cost.plan.kind == "I-blocking")
    assert blocked.plan.tile["B"] == 64
    assert stationary.plan.footprint_words < blocked.plan.footprint_words
    assert stationary.volume.weight > blocked.volume.weight


def test_the_state_space_part_alone_streams_past_its_state():
    cascade = mamba("370m", 2048)
    group = Model(cascade, machine()).group(tuple((f"E{n}",) for n in range(16, 22)))
    assert group.plan.kind == "B-D-N stationary"


def test_as_a_last_resort_streamed_operands_are_read_again_for_each_pass():
    cascade = shipped("transformer")
    nodes, small = whole(cascade), machine("nvdla_like")
    model = Model(cascade, small)
    group = model.group(nodes)
    candidates = Candidates(model, pipeline_of(cascade, nodes))
    assert group.shortfall_words == 0
    assert {tensor for tensor, _, _ in candidates.restreamed} >= {"XN1", "UA"}
    again = sum(words for _, _, words in candidates.restreamed)
    assert candidates.spilled_words[-1] == candidates.spilled_words[-2] + again
    assert (candidates.footprint[-1] <= candidates.footprint[-2]).all()
    assert sum(e.dram_words for e in group.einsums) == pytest.approx(group.volume.total)
