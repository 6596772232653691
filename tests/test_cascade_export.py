"""Fusion groups as LoopTree problems: the same traffic as the cascade counts, by both conventions, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade_strategies import cascades
from stitchloop.cascade.agreement import agreement, dram_words
from stitchloop.cascade.crossing import crossing
from stitchloop.cascade.export import export_group
from stitchloop.cascade.export_mapping import BUFFER, map_group
from stitchloop.cascade.group_export import SINK
from stitchloop.cascade.read import load_cascade, read_cascade
from stitchloop.cascade.stitch import STRATEGIES, stitch
from stitchloop.fused.check import check_workload
from stitchloop.fused.reference import evaluate_fused
from stitchloop.fused.tree import Branch, Storage, Temporal
from stitchloop.workload import Term

PROBLEMS = Path(__file__).parents[1] / "problems"
SMALL = {
    "mamba/mamba-370m": {"B": 2, "I": 8, "E": 6, "D": 12, "N": 3, "R": 2, "F": 4},
    "mamba/mamba-2-370m": {"B": 2, "I": 8, "E": 6, "P": 3, "H": 4, "N": 5, "F": 4},
    "mamba/ssd": {"B": 3, "K": 4, "T": 5, "U": 5, "H": 7, "P": 8, "N": 9},
    "cascades/attention": {"B": 2, "I": 8, "J": 8, "H": 3, "D": 4, "E": 12},
    "cascades/transformer": {"B": 2, "I": 8, "J": 8, "H": 3, "D": 4, "E": 12, "M": 10},
}


def small(file):
    return load_cascade(PROBLEMS / f"{file}.yaml").with_sizes(SMALL[file])


def mapped_groups(cascade, strategy, limit=None, merge=True):
    stitching = stitch(cascade, strategy, merge=merge)
    groups = [group.nodes for group in stitching.groups]
    moved = crossing(cascade, [group.einsums for group in stitching.groups])
    return [(map_group(export_group(cascade, groups, n), limit), moved[n]) for n in range(len(groups))]


def group_of(cascade, strategy, einsum):
    found = mapped_groups(cascade, strategy)
    return next((m, c) for m, c in found if any(einsum in node for node in m.export.nodes))


def counts(mapped, convention):
    """Capacity of the buffer, and words over DRAM in and out."""
    stats = evaluate_fused(mapped.export.workload, mapped.mapping, convention, compare=False)
    return stats.capacity[BUFFER], dram_words(stats.reads), dram_words(stats.writes)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("file", SMALL)
def test_every_tensor_crosses_as_the_cascade_says(file, strategy):
    """Tensor by tensor, by both conventions, but for final states, which LoopTree does not see."""
    for mapped, moved in mapped_groups(small(file), strategy):
        check_workload(mapped.export.workload)
        sound, looptree = counts(mapped, "sound"), counts(mapped, "looptree")
        assert sound == looptree
        rows = agreement(mapped, moved, mapped.stats)
        unseen = {row.exported: row.cascade_words for row in rows if not row.agrees}
        assert unseen == mapped.export.missing_writes
        assert mapped.dram_words == moved.words() - sum(unseen.values())
        for name in unseen:
            assert any(f"the final state {name} leaves the chip" in note for note in mapped.export.not_expressed)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("file", SMALL)
def test_a_small_buffer_is_kept_to(file, strategy):
    """What fits does fit by both conventions; traffic never falls below what must cross once."""
    fitting = 0
    for mapped, moved in mapped_groups(small(file), strategy, limit=300):
        sound = counts(mapped, "sound")
        assert sound[0] == mapped.capacity
        assert mapped.fits == (mapped.capacity <= 300)
        assert counts(mapped, "looptree")[0] <= mapped.capacity
        assert mapped.dram_words >= moved.words() - sum(mapped.export.missing_writes.values())
        fitting += mapped.fits
        for row in agreement(mapped, moved, mapped.stats):
            weight = any(name in mapped.export.cascade.weights for name in row.tensors)
            assert row.agrees or weight or row.exported in mapped.export.missing_writes
    assert fitting or strategy in ("full", "ri+rsb+rsp")


def test_ssm_part_of_mamba_370m_at_full_size():
    """{16-21} in blocks of positions: one state a batch element stays on chip, and nothing crosses twice."""
    cascade = load_cascade(PROBLEMS / "mamba/mamba-370m.yaml")
    mapped, moved = next(pair for pair in mapped_groups(cascade, "ri", limit=2**24) if ("E20",) in pair[0].export.nodes)
    assert mapped.fits
    assert mapped.tile["B"] == 1
    loops = [node.rank for node in mapped.mapping.nodes if isinstance(node, Temporal)]
    assert [rank.rsplit("_", 1)[0] for rank in loops] == ["B", "I"]
    words = {row.exported: row.words for row in agreement(mapped, moved, mapped.stats)}
    sizes = cascade.sizes
    assert words["H0"] == sizes["B"] * sizes["D"] * sizes["N"]
    assert words["DELTA"] == words["X"] == words["S"] == sizes["B"] * sizes["I"] * sizes["D"]
    assert words["B"] == words["C"] == sizes["B"] * sizes["I"] * sizes["N"]


def test_state_space_part_runs_in_slices_inside_a_large_group():
    """Below a branch of its own the SSM part holds slices, so that the weights come in for larger blocks of positions."""
    cascade = load_cascade(PROBLEMS / "mamba/mamba-2.8b.yaml", {"sequence": 2**16})
    mapped, moved = mapped_groups(cascade, "full", limit=2**24)[0]
    assert mapped.fits
    assert not mapped.weights_stay
    branch = mapped.mapping.nodes[-1]
    inner = next(nodes for nodes in branch.branches if isinstance(nodes[-1], Branch))
    assert isinstance(inner[0], Temporal)
    assert inner[0].tile_shape < mapped.tile["I"]
    assert {"AD", "HH", "BD", "HX", "H"} <= set(inner[1].tensors)
    names = [nodes[0].einsum for nodes in inner[-1].branches]
    assert names == ["E15", "E16", "E17", "E18", "E19", "E20", "E21", "E22", "E23"]
    assert dict(mapped.stats.operations)["E20"] == cascade.operations("E20")
    for row in agreement(mapped, moved, mapped.stats):
        assert row.agrees or row.exported == "Hlast" or row.tensors[0] in cascade.weights
    assert evaluate_fused(mapped.export.workload, mapped.mapping, "looptree", compare=False).capacity[BUFFER] <= mapped.capacity


def test_merged_gemms_become_one_einsum():
    mapped, _ = group_of(small("mamba/mamba-370m"), "ri", "E12")
    (step,) = mapped.export.steps
    assert (step.name, step.output) == ("E11_E12_E13", "B_C_TTD")
    assert mapped.export.parts == {"B_C_TTD": ("B", "C", "TTD"), "WB_WC_WTTD": ("WB", "WC", "WTTD")}
    einsum = mapped.export.workload.einsum
    assert einsum.rank_sizes == (2, 8, 3 + 3 + 2, 12)
    assert einsum.outputs[0].name == "B_C_TTD"


def test_merged_gemms_stay_apart_where_the_group_reads_them():
    mapped, _ = group_of(small("mamba/mamba-370m"), "full", "E7")
    assert {"E6", "E8"} <= {step.name for step in mapped.export.steps}


def test_carried_state_is_its_initial_value():
    mapped, moved = group_of(small("mamba/mamba-370m"), "ri", "E17")
    step = next(step for step in mapped.export.steps if step.name == "E17")
    assert dict(step.reads)["H0"] == ((Term("B"),), (Term("D"),), (Term("N"),))
    assert mapped.export.state == {"H0": 2 * 12 * 3}
    assert mapped.export.missing_writes == {"Hlast": 72}
    notes = mapped.export.not_expressed
    assert "E17 reads H[b, i-1, d, n] of the step before: the initial state H0 stands for it" in notes
    assert "E16: the function exp is not expressed; the Einsum counts as one operation a point" in notes
    assert "load_DELTA brings DELTA in once for the 2 Einsums that read it" in notes
    assert {t.tensor for t in moved.writes} == {"S", "Hlast"}


def test_convolution_state_in_and_out_of_its_group():
    inside, _ = group_of(small("mamba/mamba-370m"), "full", "E7")
    assert any(
        "TX[b, i-f, d] is read as the current step of I; the 3 steps before, 72 words" in n for n in inside.export.not_expressed
    )
    alone, _ = group_of(small("mamba/mamba-370m"), "ri", "E7")
    assert "TX[b, i-f, d] is read as the current step of I, which moves as many words" in alone.export.not_expressed


def test_tensor_that_leaves_and_stays_is_stored_apart():
    mapped, _ = group_of(small("mamba/mamba-370m"), "ri", "E1")
    assert [step.name for step in mapped.export.steps] == ["E1", "E2", "E3", "store_LEX", SINK]
    assert mapped.export.results == ("LEX_out", "SX")
    assert mapped.export.intermediates == ("LEX", "PX")


def test_state_that_nobody_reads_stays_on_chip():
    problem = {
        "ranks": {"B": 2, "I": {"size": 4, "iterative": True}, "D": 3},
        "tensors": {"H": {"initial": "H0", "final": "Hlast"}},
        "outputs": ["Y"],
        "einsums": ["H[b,i,d] = H[b,i-1,d] + X[b,i,d]", "Y[b,i] = H[b,i-1,d]"],
    }
    cascade = read_cascade(problem)
    ((mapped, moved),) = mapped_groups(cascade, "full")
    assert {t.tensor for t in moved.writes} == {"Hlast", "Y"}
    assert dram_words(mapped.stats.writes) == {"Y": 8}
    assert dram_words(mapped.stats.reads) == {"X": 24, "H0": 6}


def test_padding_is_computed_and_said():
    cascade = load_cascade(PROBLEMS / "cascades/convolution-block.yaml").with_sizes(
        {"B": 1, "P": 6, "Q": 5, "C": 4, "M": 3, "N": 3, "K": 4}
    )
    mapped, moved = next(pair for pair in mapped_groups(cascade, "ri+rsb+rsp") if ("convolve",) in pair[0].export.nodes)
    assert "scale_1 computes 8 positions of P, padding included" in mapped.export.not_expressed
    rows = {row.exported: row for row in agreement(mapped, moved, mapped.stats)}
    assert not rows["X"].agrees
    assert rows["X"].words == 4 * 8 * 7
    assert all(row.agrees for name, row in rows.items() if name != "X")
    whole, moved = mapped_groups(cascade, "full")[0]
    assert all(row.agrees for row in agreement(whole, moved, whole.stats))
    assert any("without its halo" in note for note in whole.export.not_expressed)


def test_halo_of_a_fused_convolution_is_retained():
    """Without padding the halo is LoopTree's own: rows of the intermediate are kept from tile to tile."""
    einsums = ["F2[m,p] = F1[c,p+r] * W1[m,c,r]", "F3[n,q] = F2[m,q+s] * W2[n,m,s]"]
    problem = {"ranks": {"P": 14, "Q": 12, "R": 3, "S": 3, "C": 2, "M": 4, "N": 2}, "einsums": einsums, "weights": ["W1", "W2"]}
    ((mapped, moved),) = mapped_groups(read_cascade(problem), "full", limit=140)
    assert mapped.fits
    assert 1 < mapped.tile["Q"] < 12
    assert all(row.agrees for row in agreement(mapped, moved, mapped.stats))
    assert dict(mapped.stats.operations) == {"F2": 14 * 3 * 2 * 4, "F3": 12 * 3 * 4 * 2}


def test_large_weights_are_taken_in_parts_by_a_lone_einsum():
    problem = {"ranks": {"B": {"size": 64, "batch": True}, "E": 32, "D": 64}, "einsums": ["Z[b,d] = X[b,e] * W[e,d]"]}
    ((mapped, _),) = mapped_groups(read_cascade(problem), "ri", limit=1200)
    assert mapped.fits
    assert mapped.tile == {"D": 32, "B": 2}
    assert dram_words(mapped.stats.reads) == {"W": 32 * 64, "X": 2 * 64 * 32}


def test_weights_stream_through_a_group_that_cannot_keep_them():
    problem = {
        "ranks": {"B": {"size": 16, "batch": True}, "E": 16, "D": 16, "F": 16},
        "einsums": ["Z[b,d] = X[b,e] * W[e,d]", "Y[b,f] = Z[b,d] * V[d,f]"],
        "weights": ["W", "V"],
    }
    ((mapped, _),) = mapped_groups(read_cascade(problem), "full", limit=500)
    assert mapped.fits
    assert not mapped.weights_stay
    tiles = 16 // mapped.tile["B"]
    assert dram_words(mapped.stats.reads) == {"X": 256, "W": tiles * 256, "V": tiles * 256}
    inner = [node for branch in mapped.mapping.nodes[-1].branches for node in branch if isinstance(node, Storage)]
    assert [node.tensors for node in inner] == [("W",), ("V",)]


@settings(max_examples=60, deadline=None)
@given(cascades(9), st.sampled_from(["ri", "ri+rsb", "ri+rsb+rsp", "full"]), st.sampled_from([None, 60, 20]))
def test_random_groups_count_alike(cascade, strategy, limit):
    """Traffic of what is expressed equals the crossing, or exceeds it by operands read again in a small buffer."""
    for mapped, moved in mapped_groups(cascade, strategy, limit):
        check_workload(mapped.export.workload)
        sound, looptree = counts(mapped, "sound"), counts(mapped, "looptree")
        assert sound[0] >= looptree[0]
        for row in agreement(mapped, moved, mapped.stats):
            if row.exported in mapped.export.missing_writes:
                continue
            assert row.words >= row.cascade_words or any("at two places" in note for note in mapped.export.not_expressed)
            if limit is None:
                assert row.agrees


def test_multi_output_einsum_becomes_one_einsum_or_several():
    """Side by side where both are GEMMs of one input; else one Einsum for each equation, the input loaded once."""
    ranks = {"B": {"size": 4, "batch": True}, "E": 6, "D": 5, "F": 3}
    gemms = {"equations": ["U[b,d] = X[b,e] * W[e,d]", "V[b,f] = X[b,e] * Z[e,f]"]}
    ((mapped, moved),) = mapped_groups(read_cascade({"ranks": ranks, "einsums": {"both": gemms}}), "full")
    assert [(step.name, step.output) for step in mapped.export.steps] == [("both", "U_V")]
    assert all(row.agrees for row in agreement(mapped, moved, mapped.stats))
    mixed = {"equations": ["U[b,d] = X[b,e] * W[e,d]", "V[b,e] = exp(X[b,e])"]}
    ((mapped, moved),) = mapped_groups(read_cascade({"ranks": ranks, "einsums": {"both": mixed}}), "full")
    assert [step.name for step in mapped.export.steps] == ["load_X", "both_U", "both_V", SINK]
    assert all(row.agrees for row in agreement(mapped, moved, mapped.stats))
