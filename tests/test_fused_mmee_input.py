"""What is wrong with a list of Einsums is said in words, with the place and the mend."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fused_chains import MACHINE, conv_pair, einsum, gemm_chain, gemm_pair, tensor
from stitchloop.errors import InputError
from stitchloop.fused.map import checked, map_shape
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.pair import shape_of
from stitchloop.workload import Workload


def with_consumer(*tensors, **sizes) -> Workload:
    producer, consumer = gemm_pair(8, 4, 6, 5).einsums
    return Workload((producer, einsum("Consumer", sizes or consumer.sizes, *(tensors or consumer.tensors))))


S, D, E = tensor("S", "I2 L2"), tensor("D", "L2 J2"), tensor("E", "I2 J2", True)


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (with_consumer(tensor("T", "I2 L2"), D, E), "produced by no Einsum"),
        (with_consumer(tensor("S", "I2 L2 J2"), D, E), "has 3 ranks here and 2"),
        (with_consumer(S, D, E, I2=9, L2=6, J2=5), "reads 9 words of S along place 0, and Producer writes 8"),
        (with_consumer(S, D, E, I2=8, L2=5, J2=5), "reads 5 words of S along place 1"),
        (with_consumer(S, D, E, I2=0, L2=6, J2=5), "rank I2 has size 0"),
        (with_consumer(S, D, E, I2=8, L2=-3, J2=5), "rank L2 has size -3"),
        (with_consumer(S, D, tensor("S", "I2 J2", True)), "also produced by Producer"),
        (with_consumer(S, D), "0 output tensors"),
        (with_consumer(tensor("S", "I2 I2"), D, E, I2=6, L2=6, J2=5), "reads 6 words of S along place 0"),
    ],
    ids=["unproduced", "ranks", "size", "other-size", "zero", "negative", "two-producers", "no-output", "diagonal-size"],
)
def test_bad_pairs(workload, words):
    with pytest.raises(InputError, match=words):
        shape_of(workload)


def test_cycle():
    one = einsum("One", {"I1": 4, "J1": 4}, tensor("Y", "I1 J1"), tensor("X", "I1 J1", True))
    two = einsum("Two", {"I2": 4, "J2": 4}, tensor("X", "I2 J2"), tensor("Y", "I2 J2", True))
    with pytest.raises(InputError, match="cycle: One -> Two -> One"):
        shape_of(Workload((one, two)))


def test_two_readers():
    first, second, third = gemm_chain(4, [3, 4, 2, 3]).einsums
    third = replace(third, tensors=(tensor("X1", "M3 A3"), *third.tensors[1:]))
    with pytest.raises(InputError, match="read by Fc2 and by Fc3"):
        shape_of(Workload((first, second, third)))


def test_order_of_the_list_does_not_matter():
    forward = gemm_chain(4, [3, 4, 2, 3])
    assert shape_of(Workload(forward.einsums[::-1])) == shape_of(forward)


def test_swapped_inputs_and_transposed_tensors_share_the_pruned_rows():
    """Rows are found by roles, not by the order in which ranks and inputs are written."""
    producer, consumer = gemm_pair(8, 4, 6, 5).einsums
    a, b, s = producer.tensors
    swapped = einsum("Producer", {"L1": 6, "I1": 8, "K1": 4}, b, a, replace(s, projection=s.projection[::-1]))
    turned = einsum("Consumer", {"J2": 5, "L2": 6, "I2": 8}, D, tensor("S", "L2 I2"), E)
    assert shape_of(Workload((swapped, turned))).structure == shape_of(Workload((producer, consumer))).structure


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (FusedOptions(("speed",)), "'speed'"),
        (FusedOptions(pareto=("energy",)), "a Pareto front of 1 objective"),
        (FusedOptions(ablation="none-such"), "'none-such'"),
        (FusedOptions(stationarity=("XS",)), "'XS'"),
        (FusedOptions(()), "no objective"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(InputError, match=words):
        checked(options)


def test_heads_multiply_the_counts_and_not_the_buffer():
    one = map_shape(shape_of(gemm_pair(64, 16, 64, 16)), MACHINE, FusedOptions(("energy",), unfused=False)).best
    eight = map_shape(shape_of(gemm_pair(64, 16, 64, 16, heads=8)), MACHINE, FusedOptions(("energy",), unfused=False)).best
    assert eight.figures.dram == 8 * one.figures.dram
    assert eight.figures.energy == pytest.approx(8 * one.figures.energy)
    assert eight.figures.buffer_demand == one.figures.buffer_demand


def test_result_documents_are_plain_json():
    result = map_shape(shape_of(conv_pair(12, 3, 4, 5)), MACHINE, FusedOptions(pareto=("energy", "latency")))
    document, stats = json.loads(json.dumps(result.as_json())), json.loads(json.dumps(result.stats_json()))
    assert document["optimal"] is True
    assert document["mapspace_size"] > 10**6
    assert document["value"] == pytest.approx(stats["edp_J_cycle"])
    assert document["pareto"]
    assert document["unfused"]["over_fused"] == pytest.approx(result.gain)
    by_level = sum(t["energy_pJ"] for level in stats["levels"].values() for t in level.values())
    parts = stats["energy_by_part_pJ"]
    assert by_level == pytest.approx(parts["DRAM"] + parts["Buffer"])
    assert stats["energy_pJ"] == pytest.approx(sum(parts.values()))
    for tensor_name in ("F1", "W1", "W2", "F3"):
        assert stats["levels"]["Buffer"][tensor_name]["fills"] == stats["levels"]["DRAM"][tensor_name]["reads"]
    assert "tiles of" in result.nest or "keeps a block" in result.nest
