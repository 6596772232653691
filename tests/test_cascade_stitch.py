"""Fusion classes, shared-input merging, greedy stitching and what crosses DRAM."""

from __future__ import annotations

import time
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade_strategies import cascades, random_cascade
from stitchloop.cascade.crossing import crossing
from stitchloop.cascade.execute import execute, random_inputs
from stitchloop.cascade.merge import merge_shared_inputs, merged_cascade, plain_nodes
from stitchloop.cascade.read import load_cascade, read_cascade
from stitchloop.cascade.relations import FusionClass
from stitchloop.cascade.stitch import STRATEGIES, grouping, stitch, stitch_order

PROBLEMS = Path(__file__).parents[1] / "problems"
MODELS = ("370m", "2.8b")


@pytest.fixture(scope="module", params=MODELS)
def mamba(request):
    return load_cascade(PROBLEMS / f"mamba/mamba-{request.param}.yaml", {"sequence": 2**20})


def numbers(text):
    """``1-3 6,8`` to Einsum names."""
    found = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(f"E{n}" for n in found)


GROUPS = {
    "ri": "1-3 4 5 6,8 7 9,10 11-13 14 15 16-21 22,23 24",
    "ri+rsb": "1-4 5 6,8 7,9,10 11-13 14,15 16-23 24",
    "ri+rsb+rsp": "1-6,8 7,9-13 14-24",
    "full": "1-6,8,7,9-24",
    "none": "1 2 3 4 5 6,8 7 9 10 11-13 14 15 16 17 18 19 20 21 22 23 24",
}


@pytest.mark.parametrize("strategy", GROUPS)
def test_groups_of_mamba(mamba, strategy):
    stitching = stitch(mamba, strategy)
    assert tuple(group.einsums for group in stitching.groups) == tuple(map(numbers, GROUPS[strategy].split()))
    assert not stitching.reordered
    assert stitching.fewest == len(stitching.groups)
    assert [b.before + b.after for b in stitching.cuts] == [a.nodes[-1] + b.nodes[0] for a, b in pairwise(stitching.groups)]


def test_classes_at_the_boundaries_of_mamba(mamba):
    expected = "RI RI RSb RSp RSp RD RSb RI RSp RD RSb RSp RI RI RI RI RI RSb RI RSp".split()  # noqa: SIM905
    assert [str(boundary.fusion_class) for boundary in stitch(mamba, "full").boundaries] == expected


def test_cuts_say_why(mamba):
    reasons = {b.before[0]: b.reason for b in stitch(mamba, "ri+rsb+rsp").cuts}
    assert reasons == {
        "E6": "RD is not allowed by ri+rsb+rsp: E only before and F only (or again) after TX",
        "E11": "RD is not allowed by ri+rsb+rsp: D only before and D only (or again) after TTD",
    }


FIVE = {
    "ranks": {"M": 2, "N": 3, "P": 4, "Q": 5},
    "einsums": [
        "T[m,n] = A[m] * B[n]",
        "U[m,n,p] = T[m,n] * C[n,p]",
        "X[n,q] = U[m,n,p] * D[m,p,q]",
        "V[n] = X[n,q] * F[q]",
        "Z[n] = V[n] * G[n]",
    ],
}


def test_five_einsum_example():
    stitching = stitch(read_cascade(FIVE), "ri+rsb+rsp")
    assert [group.einsums for group in stitching.groups] == [("T", "U", "X"), ("V", "Z")]
    assert [set(b.relation.shared) for b in stitching.boundaries] == [{"M", "N"}, {"M", "N", "P"}, {"N", "Q"}, {"N"}]
    assert stitching.cuts[0].reason == "the shared ranks {N, Q} and the ones before, {M, N, P}, are not nested"
    assert len(stitch(read_cascade(FIVE), "full").groups) == 1


def test_merging_can_be_switched_off(mamba):
    assert [node for node in merge_shared_inputs(mamba) if len(node) > 1] == [("E6", "E8"), ("E11", "E12", "E13")]
    apart = stitch(mamba, "none", merge=False)
    assert len(apart.groups) == 24
    assert stitch(mamba, "ri", merge=False, reorder=False).nodes == plain_nodes(mamba)
    assert len(stitch(mamba, "ri", merge=False).groups) < len(stitch(mamba, "ri", merge=False, reorder=False).groups)


def test_merging_is_an_algebraic_identity():
    cascade = load_cascade(PROBLEMS / "mamba/mamba-370m.yaml").with_sizes({"B": 2, "I": 3, "E": 4, "D": 8, "N": 3, "R": 2})
    merged = merged_cascade(cascade, merge_shared_inputs(cascade))
    assert [einsum.name for einsum in merged.einsums][5:7] == ["E6_E8", "E7"]
    values = random_inputs(cascade)
    whole, parts = execute(merged, values), execute(cascade, values)
    assert whole.keys() == parts.keys()
    for name in parts:
        np.testing.assert_array_equal(whole[name], parts[name])


def test_einsums_that_depend_on_one_another_do_not_merge():
    einsums = ["P[m,n] = X[m,k] * A[k,n]", "Q[m,n] = X[m,k] * B[k,n] + P[m,n] * 0", "Y[m,n] = X[m,k] * C[k,n]"]
    sizes = {"M": 2, "N": 2, "K": 2}
    assert merge_shared_inputs(read_cascade({"ranks": sizes, "einsums": einsums})) == (("P", "Y"), ("Q",))
    chain = ["P[m,n] = X[m,k] * A[k,n]", "R[k,n] = P[m,n] * X[m,k]", "Q[m,n] = X[m,k] * R[k,n]"]
    assert merge_shared_inputs(read_cascade({"ranks": sizes, "einsums": chain})) == (("P",), ("R",), ("Q",))


def test_two_merges_never_close_a_circle():
    """P and S share X, Q and R share Y; P feeds Q and R feeds S: only one of both pairs can merge."""
    einsums = [
        "P[m,n] = X[m,k] * A[k,n]",
        "R[m,n] = Y[m,k] * B[k,n]",
        "WS[k,n] = R[m,n] * J[m,k]",
        "WQ[k,n] = P[m,n] * J2[m,k]",
        "S[m,n] = X[m,k] * WS[k,n]",
        "Q[m,n] = Y[m,k] * WQ[k,n]",
    ]
    problem = {"ranks": {"M": 2, "N": 2, "K": 2}, "einsums": einsums, "weights": ["A", "B"]}
    nodes = merge_shared_inputs(read_cascade(problem))
    assert [node for node in nodes if len(node) > 1] == [("P", "S")]
    assert sorted(name for node in nodes for name in node) == ["P", "Q", "R", "S", "WQ", "WS"]


def test_key_projection_is_rank_disjoint_to_the_scores():
    """The scores run over the keys under another name: all of K is needed before the first row is done."""
    cascade = load_cascade(PROBLEMS / "cascades/attention.yaml")
    stitching = stitch_order(cascade, (("key",), ("scores",)), "full")
    relation = stitching.boundaries[0].relation
    assert relation.fusion_class is FusionClass.RD
    assert relation.shared == {"B", "H", "D"}
    assert relation.extra_producer == ("E", "I")
    assert relation.extra_consumer == ("I", "J")


def test_softmax_needs_a_second_pass():
    stitching = stitch(load_cascade(PROBLEMS / "cascades/attention.yaml"), "ri+rsb+rsp")
    classes = {(b.before[-1], b.after[0]): str(b.fusion_class) for b in stitching.boundaries}
    assert classes["scale", "peak"] == "RI"
    assert classes["peak", "exponent"] == "RD"


def test_a_better_order_is_found():
    """Two chains listed in turns: side by side every pair is a cut, one after the other they are two groups."""
    einsums = []
    for n in range(4):
        einsums += [f"A{n}[m] = {f'A{n - 1}' if n else 'X'}[m] + 1", f"B{n}[k] = {f'B{n - 1}' if n else 'Y'}[k] + 1"]
    cascade = read_cascade({"ranks": {"M": 3, "K": 5}, "einsums": einsums})
    given = stitch(cascade, "ri", reorder=False)
    found = stitch(cascade, "ri")
    assert (len(given.groups), len(found.groups)) == (8, 2)
    assert found.reordered
    assert not given.reordered
    assert [group.einsums for group in found.groups] == [("A0", "A1", "A2", "A3"), ("B0", "B1", "B2", "B3")]


def test_edge_from_an_earlier_member_cuts():
    """B and C are alike, but A reaches C by a class that the strategy forbids."""
    einsums = ["A[m] = X[m,k]", "B[m] = A[m] + 1", "C[m] = B[m] + sum[n](A[m] * W[n])"]
    cascade = read_cascade({"ranks": {"M": 3, "K": 5, "N": 2}, "einsums": einsums})
    assert [g.einsums for g in stitch(cascade, "ri+rsb").groups] == [("A", "B"), ("C",)]
    side = ["A[m] = X[m] + 1", "U[n] = A[m] * W[m,n]", "B[m,n] = A[m] + Y[n]", "C[m,n] = B[m,n] + U[n]"]
    cascade = read_cascade({"ranks": {"M": 3, "N": 2}, "einsums": side})
    stitching = stitch_order(cascade, (("A",), ("U",), ("B",), ("C",)), "ri+rsb+rsp")
    cut = next(b for b in stitching.boundaries if b.after == ("C",))
    assert cut.reason == "U comes from U in the same group by RD: M only before and M only (or again) after U"


def test_state_read_outside_its_recurrence_comes_after_it():
    cascade = load_cascade(PROBLEMS / "mamba/ssd.yaml")
    assert "state" in cascade.predecessors["past"]


TABLE = {
    "ri": [
        ("OUTprev LEXprev", "LEX SX"),
        ("SX", "RSX"),
        ("LEX RSX", "NEX"),
        ("NEX", "TX RX"),
        ("TX", "TTX"),
        ("TTX", "X DX"),
        ("X", "B C TTD"),
        ("TTD", "TD"),
        ("TD", "DELTA"),
        ("DELTA B C X H0", "S Hlast"),
        ("S DX RX", "Y"),
        ("Y", "OUT"),
    ],
    "ri+rsb": [
        ("OUTprev LEXprev", "LEX RSX"),
        ("LEX RSX", "NEX"),
        ("NEX", "TX RX"),
        ("TX", "X DX"),
        ("X", "B C TTD"),
        ("TTD", "DELTA"),
        ("DELTA B C X DX RX H0", "Y Hlast"),
        ("Y", "OUT"),
    ],
    "ri+rsb+rsp": [
        ("OUTprev LEXprev", "LEX TX RX"),
        ("TX", "X DX B C TTD"),
        ("TTD B C X DX RX H0", "OUT Hlast"),
    ],
    "full": [("OUTprev LEXprev H0 RX X", "LEX OUT Hlast RX X")],
}


def layer_crossing(cascade, strategy, spilled=()):
    stitching = stitch(cascade, strategy)
    return crossing(cascade, [group.einsums for group in stitching.groups], spilled)


@pytest.mark.parametrize("strategy", TABLE)
def test_what_crosses_dram_tensor_by_tensor(mamba, strategy):
    found = layer_crossing(mamba, strategy, ("RX", "X") if strategy == "full" else ())
    assert [(set(c.read_tensors), set(c.written_tensors)) for c in found] == [
        (set(reads.split()), set(writes.split())) for reads, writes in TABLE[strategy]
    ]
    size = mamba.sizes
    for group in found:
        for transfer in (*group.reads, *group.writes):
            state = transfer.tensor in ("H0", "Hlast")
            assert transfer.kind == ("state" if state else "weight" if transfer.tensor in mamba.weights else "activation")
            assert transfer.words == (size["B"] * size["D"] * size["N"] if state else mamba.words(transfer.tensor))
    assert {t.tensor for group in found for t in group.reads if t.kind == "weight"} == set(mamba.weights)


def test_unfused_traffic_and_the_ratio(mamba):
    s = mamba.sizes
    e, d, n, r, steps = s["E"], s["D"], s["N"], s["R"], s["B"] * s["I"]
    unfused = sum(group.words("activation", "state") for group in layer_crossing(mamba, "none"))
    assert unfused == steps * (10 * e + 23 * d + 11 * d * n + 4 * n + 2 * r + 4)
    full = {
        spilled: sum(group.words("activation", "state") for group in layer_crossing(mamba, "full", spilled))
        for spilled in ((), ("RX",), ("RX", "X"))
    }
    state = 2 * s["B"] * d * n
    assert full["RX", "X"] == steps * (4 * e + 4 * d) + state
    assert unfused / (full["RX", "X"] - state) == pytest.approx(34.0, abs=0.06)
    assert unfused / (full[("RX",)] - state) == pytest.approx(51.0, abs=0.1)
    assert unfused / (full[()] - state) == pytest.approx(102.0, abs=0.2)


def test_state_of_another_group_is_read_step_by_step():
    """Unfused, the recurrence reads H0 once and then each H but the last; in generation only H0."""
    cascade = load_cascade(PROBLEMS / "mamba/mamba-370m.yaml", {"sequence": 8})
    step = cascade.words("H") // 8
    for size in (8, 1):
        found = crossing(cascade.with_sizes({"I": size}), [(f"E{n}",) for n in range(1, 25)])
        moved = {transfer.tensor: transfer.words for transfer in found[16].reads}
        assert moved.get("H", 0) == (size - 1) * step
        assert moved["H0"] == step
        assert {transfer.tensor: transfer.words for transfer in found[19].writes} == {"H": size * step}


@settings(max_examples=60, deadline=None)
@given(cascades(), st.booleans(), st.booleans())
def test_stitching_invariants(cascade, merge, reorder):
    counts = []
    for strategy in STRATEGIES:
        stitching = stitch(cascade, strategy, merge=merge, reorder=reorder)
        assert sorted(stitching.order) == sorted(einsum.name for einsum in cascade.einsums)
        place = {name: position for position, name in enumerate(stitching.order)}
        for name, before in cascade.predecessors.items():
            assert all(place[other] < place[name] for other in before)
        assert len(stitching.boundaries) == len(stitching.nodes) - 1
        assert len(stitching.cuts) == len(stitching.groups) - 1
        assert stitching.fewest <= len(stitching.groups)
        for boundary in stitching.boundaries:
            assert boundary.is_cut == bool(boundary.reason)
            assert boundary.is_cut or boundary.fusion_class in STRATEGIES[strategy]
        counts.append(len(stitching.groups))
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 1


@settings(max_examples=40, deadline=None)
@given(cascades(9), st.sampled_from(["ri", "ri+rsb", "ri+rsb+rsp"]))
def test_greedy_gives_the_fewest_groups_of_its_order(cascade, strategy):
    """By dynamic programming over all contiguous groupings whose groups hold together under the rule."""
    nodes = plain_nodes(cascade)

    def holds(stretch):
        return len(stitch_order(cascade, stretch, strategy).groups) == 1

    fewest = [0] * (len(nodes) + 1)
    for end in range(1, len(nodes) + 1):
        fewest[end] = 1 + min(fewest[first] for first in range(end) if holds(nodes[first:end]))
    assert len(stitch(cascade, strategy, merge=False, reorder=False).groups) == fewest[-1]


def all_orders(cascade, done=()):
    """Every order that the dependences permit."""
    names = [einsum.name for einsum in cascade.einsums]
    if len(done) == len(names):
        yield tuple((name,) for name in done)
    for name in names:
        if name not in done and cascade.predecessors[name] <= set(done):
            yield from all_orders(cascade, (*done, name))


@settings(max_examples=30, deadline=None)
@given(cascades(6), st.sampled_from(["ri", "ri+rsb", "ri+rsb+rsp"]))
def test_no_order_of_a_short_cascade_needs_fewer_groups(cascade, strategy):
    fewest = min(len(stitch_order(cascade, order, strategy).groups) for order in islice(all_orders(cascade), 720))
    found = stitch(cascade, strategy, merge=False)
    assert len(found.groups) == fewest
    assert found.fewest <= fewest


@settings(max_examples=25, deadline=None)
@given(cascades(8), st.integers(0, 10))
def test_stitched_order_and_merging_compute_the_same(cascade, seed):
    values = {name: 0.5 * value for name, value in random_inputs(cascade, seed).items()}
    plain = execute(cascade, values)
    merged = merged_cascade(cascade, merge_shared_inputs(cascade))
    for found in (execute(cascade, values, stitch(cascade, "ri+rsb").order), execute(merged, values)):
        for name, value in plain.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(cascades(), st.sampled_from(list(STRATEGIES)))
def test_nothing_is_read_that_nobody_gave_or_wrote(cascade, strategy):
    groups = [group.einsums for group in stitch(cascade, strategy).groups]
    known = {*cascade.inputs, *cascade.weights}
    written: set[str] = set()
    for group, moved in zip(groups, crossing(cascade, groups), strict=True):
        own = {tensor for name in group for tensor in cascade.einsum(name).output_tensors}
        for transfer in moved.reads:
            assert transfer.tensor in known | written
            assert transfer.tensor not in own
        written |= set(moved.written_tensors)
    assert set(cascade.outputs) <= written


def test_grouping_from_elsewhere_keeps_the_classes(mamba):
    nodes = merge_shared_inputs(mamba)
    stitching = grouping(mamba, [nodes[:5], nodes[5:]], "optimal")
    assert [group.einsums[0] for group in stitching.groups] == ["E1", "E6"]
    assert [b.before for b in stitching.cuts] == [("E5",)]


def test_unknown_strategy():
    with pytest.raises(ValueError, match="none, ri, ri"):
        stitch(read_cascade(FIVE), "best")


@pytest.mark.parametrize(("reach", "seed"), [(6, 1), (400, 2)])
def test_500_einsums_within_a_second(reach, seed):
    cascade = random_cascade(seed, 500, reach)
    stitch(random_cascade(0, 20), "ri")
    start = time.process_time()
    stitching = stitch(cascade, "ri+rsb")
    assert time.process_time() - start < 1.0
    assert len(stitching.order) == 500
