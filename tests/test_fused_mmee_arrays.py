"""Several arrays: cut along one common rank, or along any one or two ranks of each Einsum."""

from __future__ import annotations

from math import ceil, prod

import pytest

from stitchloop.content import resolve
from stitchloop.fused.array import array_cuts
from stitchloop.fused.machine import machine_of
from stitchloop.fused.map import map_fused
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.pair import shape_of
from stitchloop.read import load_spec
from stitchloop.spec import Spec


def pair(tokens: int, heads: int = 1) -> Spec:
    variables = {"tokens": str(tokens), "heads": str(heads)}
    return load_spec([resolve("arch/nvdla_like"), resolve("problems/attention/gpt3_6_7b")], variables)


@pytest.mark.parametrize("objective", ["energy", "latency", "edp", "dram"])
@pytest.mark.parametrize("tokens", [197, 512])
def test_free_cuts_are_never_worse_than_the_common_one(objective: str, tokens: int) -> None:
    values = [
        map_fused(pair(tokens), FusedOptions(objectives=(objective,), arrays=arrays, unfused=False)).best.figures
        for arrays in ("free", "split")
    ]
    assert values[0].objective(objective) <= values[1].objective(objective)


def test_free_cuts_are_all_ways_to_share_four_arrays() -> None:
    spec = pair(512)
    shape, machine = shape_of(spec.workload), machine_of(spec.architecture)
    for at in range(2):
        cuts = array_cuts(shape, at, machine, FusedOptions(arrays="free"))
        assert len(set(cuts)) == len(cuts)
        assert all(prod(count for _, count in cut) == machine.arrays for cut in cuts)
        assert len(cuts) == 3 + 3
        assert array_cuts(shape, at, machine, FusedOptions(arrays="split"))[0] in cuts
        assert array_cuts(shape, at, machine, FusedOptions(arrays="heads")) == ((),)


def test_cycles_of_a_free_cut_are_those_of_its_loops() -> None:
    result = map_fused(pair(512), FusedOptions(objectives=("energy",), arrays="free", perfect=True, unfused=False))
    shape = result.shape
    cycles = 0
    for at, placement in enumerate(result.best.placements):
        lanes = {side.rank: side.lanes for side in placement.sides}
        cycles += prod(
            ceil(shape.points(at, rank) / (lanes.get(rank, 1) * placement.arrays_along(rank)))
            for rank in shape.structure.ops[at].ranks
        )
    assert cycles == result.best.figures.cycles
    assert cycles >= 2 * 512 * 512 * 128 / 4096
