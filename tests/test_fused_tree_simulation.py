"""The sound convention is what a machine with buffers of that size does, loop by loop."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from fused_trees import conv_chain, gemm_chain, gemm_pair, random_tree, random_workload
from stitchloop.fused.check import checked
from stitchloop.fused.reference import evaluate_fused
from stitchloop.fused.reference.counts import counts
from stitchloop.fused.reference.sets import NotSeparable
from stitchloop.fused.rules import LOOPTREE, SOUND, Rules, with_one
from stitchloop.fused.simulate import simulate
from stitchloop.fused.tree import Branch, Compute, FusedMapping, Storage, Temporal
from stitchloop.workload import Workload


def assert_equal_to_simulation(workload: Workload, mapping: FusedMapping, rules: Rules) -> bool:
    """Whether the closed forms apply; where they do they have to be right."""
    structure = checked(workload, mapping)
    stepped = simulate(structure, rules)
    if rules == SOUND:
        assert all(held <= stepped.capacity[target] for target, held in stepped.peak.items())
    try:
        closed = counts(structure, rules)
    except NotSeparable:
        return False
    for quantity in ("capacity", "varies", "reads", "writes", "operations"):
        assert getattr(closed, quantity) == getattr(stepped, quantity), quantity
    return True


@pytest.mark.parametrize(("spatial", "levels", "most_stepped"), [(0.0, 1, 0.06), (0.0, 2, 0.06), (0.25, 1, 0.1), (0.2, 2, 0.1)])
def test_random_trees(spatial: float, levels: int, most_stepped: float) -> None:
    trees = 120
    closed = 0
    for seed in range(trees):
        random = Random(f"{seed} {spatial} {levels}")
        workload = random_workload(random)
        mapping = random_tree(random, workload, spatial=spatial, levels=levels)
        closed += assert_equal_to_simulation(workload, mapping, SOUND)
        assert_equal_to_simulation(workload, mapping, LOOPTREE)
    assert closed >= (1 - most_stepped) * trees


@pytest.mark.parametrize(
    "rule", ["refetch", "follow_needs", "keep_unchanged", "fresh_sums", "heed_no_reuse", "same_units", "unite_readers"]
)
def test_each_rule_alone(rule: str) -> None:
    rules, spatial = with_one(rule), 0.1
    if rule == "unite_readers":  # what is made in a block that others read has to be what they need, in the same units
        rules, spatial = replace(rules, follow_needs=True), 0.0
    for seed in range(25):
        random = Random(f"{rule} {seed}")
        workload = random_workload(random)
        assert_equal_to_simulation(workload, random_tree(random, workload, spatial=spatial, levels=2), rules)


def pair_tree(order: tuple[str, ...], tiles: dict[str, int], shared: int, kind: str = "sequential") -> FusedMapping:
    """All inputs inside the branches, S above them."""
    return FusedMapping(
        (
            Storage(0, ("A", "B", "D", "E")),
            *(Temporal(rank, tiles[rank]) for rank in order[:shared]),
            Storage(1, ("S",)),
            Branch(
                kind,  # type: ignore[arg-type]
                (
                    (Storage(1, ("A", "B")), Compute("Producer", 2)),
                    (Storage(1, ("D", "E")), *(Temporal(rank, tiles[rank]) for rank in order[shared:]), Compute("Consumer", 2)),
                ),
            ),
        )
    )


def test_a_block_inside_a_sequential_branch_is_fetched_again() -> None:
    """I,K,L,J = 8,4,8,4 with I shared: the weights inside the branches are not kept into the next iteration."""
    workload, mapping = gemm_pair(8, 4, 8, 4), pair_tree(("I2",), {"I2": 2}, 1)
    sound, tool = evaluate_fused(workload, mapping), evaluate_fused(workload, mapping, "looptree")
    assert sound.capacity[1] == tool.capacity[1] == 56
    assert (tool.reads[0, "B", "Producer"], sound.reads[0, "B", "Producer"]) == (32, 4 * 32)
    assert (tool.reads[0, "D", "Consumer"], sound.reads[0, "D", "Consumer"]) == (32, 4 * 32)
    reasons = {d.figure: d.reason for d in sound.differences}
    assert "sequential branch is fetched again" in reasons["reads 0/B/Producer"]
    assert sound.differences == tool.differences


def test_in_a_pipeline_the_block_stays() -> None:
    workload, mapping = gemm_pair(8, 4, 8, 4), pair_tree(("I2",), {"I2": 2}, 1, "pipeline")
    stats = evaluate_fused(workload, mapping)
    assert stats.reads[0, "B", "Producer"] == 32
    assert stats.capacity[1] == 2 * 8 + (2 * 4 + 4 * 8) + (8 * 4 + 2 * 4)
    assert stats.differences == ()


def test_an_intermediate_is_kept_while_its_block_stays_the_same() -> None:
    """With J split in two loops right above S nothing of S changes; LoopTree computes it anew for each outer one."""
    workload = gemm_pair(4, 3, 4, 4)
    mapping = pair_tree(("I2", "J2", "J2"), {"I2": 2, "J2": 2}, 3)
    sound, tool = evaluate_fused(workload, mapping), evaluate_fused(workload, mapping, "looptree")
    assert sound.operations["Producer"] == 4 * 3 * 4
    assert tool.operations["Producer"] == 2 * 4 * 3 * 4


def test_the_halo_is_kept_where_the_tool_computes_it_again() -> None:
    """P slides over F1; N2 lies between P and F1 and changes nothing of it."""
    workload = conv_chain(6, (1, 3), (1, 2, 2))
    mapping = FusedMapping(
        (
            Storage(0, ("F0", "W1", "W2", "F2")),
            Storage(1, ("F0", "W1", "W2", "F2")),
            Temporal("P2", 2),
            Temporal("M2", 1),
            Storage(1, ("F1",)),
            Branch("sequential", ((Compute("Conv1", 2),), (Compute("Conv2", 2),))),
        )
    )
    sound, tool = evaluate_fused(workload, mapping), evaluate_fused(workload, mapping, "looptree")
    assert sound.operations["Conv1"] == 8 * 2
    assert tool.operations["Conv1"] == 3 * 4 * 2
    assert sound.capacity[1] == tool.capacity[1]


def test_every_recomputed_sum_begins_at_zero() -> None:
    """J above I: S is computed once for each of two J tiles, one K step at a time."""
    workload = gemm_pair(4, 3, 4, 4)
    mapping = FusedMapping(
        (
            Storage(0, ("A", "B", "D", "E")),
            Temporal("J2", 2),
            Temporal("I2", 1),
            Storage(1, ("A", "B", "S", "D", "E")),
            Branch("sequential", ((Temporal("K1", 1), Compute("Producer", 2)), (Compute("Consumer", 2),))),
        )
    )
    sound, tool = evaluate_fused(workload, mapping), evaluate_fused(workload, mapping, "looptree")
    words = 4 * 4
    assert sound.writes[1, "S", "Producer"] == 2 * 3 * words
    assert sound.reads[1, "S", "Producer"] == 2 * 3 * words - 2 * words
    assert tool.reads[1, "S", "Producer"] == 2 * 3 * words - words


def test_three_layers_recompute_their_halo_in_turn() -> None:
    workload = conv_chain(4, (1, 2, 2), (1, 1, 1, 1))
    mapping = FusedMapping(
        (
            Storage(0, ("F0", "W1", "W2", "W3", "F3")),
            Temporal("P3", 1),
            Storage(1, ("F1", "F2"), exploits_reuse=False),
            Branch("sequential", tuple((Compute(name, 2),) for name in ("Conv1", "Conv2", "Conv3"))),
        )
    )
    stats = evaluate_fused(
        workload, FusedMapping((*mapping.nodes[:1], Storage(1, ("F0", "W1", "W2", "W3", "F3")), *mapping.nodes[1:]))
    )
    assert stats.operations == {"Conv1": 4 * 3, "Conv2": 4 * 2 * 2, "Conv3": 4 * 2}


def test_long_chains_of_layers() -> None:
    workload = gemm_chain(4, 2, 3, 2, 3, 2)
    layers = [einsum.name for einsum in workload.einsums]
    mapping = FusedMapping(
        (
            Storage(0, ("X0", "W1", "W2", "W3", "W4", "X4")),
            Storage(1, ("W1", "W2", "W3", "W4")),
            Temporal("M4", 1),
            Storage(1, ("X0", "X1", "X2", "X3", "X4")),
            Branch("sequential", tuple((Compute(name, 2),) for name in layers)),
        )
    )
    assert assert_equal_to_simulation(workload, mapping, SOUND)
    stats = evaluate_fused(workload, mapping)
    assert stats.differences == ()
    assert stats.capacity[1] == sum(e.size_of(e.tensors[1]) for e in workload.einsums) + 2 + 3 + 2 + 3 + 2
