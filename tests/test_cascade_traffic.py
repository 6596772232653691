"""What crosses DRAM, by cause and by Einsum."""

from __future__ import annotations

import pytest

from cascade_machines import mamba
from stitchloop.cascade.stitch import stitch
from stitchloop.cascade.strategies import around_state
from stitchloop.cascade.traffic import Volume, grouping_volume, moves_of, volume

LONG = 2**20


def cut(model: str, groups: list[tuple[str, ...]], spilled: tuple[str, ...] = ()) -> float:
    cascade = mamba(model, LONG)
    unfused = grouping_volume(cascade, [group.einsums for group in stitch(cascade, "none").groups])
    return unfused.between_einsums / grouping_volume(cascade, groups, spilled).between_einsums


@pytest.mark.parametrize("model", ["370m", "2.8b"])
@pytest.mark.parametrize(("strategy", "published"), [("ri", 9.0), ("ri+rsb", 12.3), ("ri+rsb+rsp", 20.2)])
def test_traffic_cuts_of_the_reference_table(model, strategy, published):
    groups = [group.einsums for group in stitch(mamba(model, LONG), strategy).groups]
    assert cut(model, groups) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("model", ["370m", "2.8b"])
@pytest.mark.parametrize(("spilled", "published"), [(("RX", "X"), 34.0), (("RX",), 51.0), ((), 102.0)])
def test_full_fusion_cuts_traffic_34_times_when_rx_and_x_are_spilled(model, spilled, published):
    groups = [group.einsums for group in stitch(mamba(model, LONG), "full").groups]
    assert cut(model, groups, spilled) == pytest.approx(published, rel=0.01)


def test_geens_like_traffic_cut():
    groups = [tuple(name for node in group for name in node) for group in around_state(mamba("370m", LONG), "ri")]
    assert cut("370m", groups) == pytest.approx(7.5, rel=0.01)


def test_unfused_words_are_the_sum_derived_by_hand():
    cascade = mamba("370m", 32)
    e, d, n, r = (cascade.sizes[rank] for rank in "EDNR")
    per_position = 10 * e + 23 * d + 11 * d * n + 4 * n + 2 * r + 4
    groups = [group.einsums for group in stitch(cascade, "none").groups]
    assert grouping_volume(cascade, groups).between_einsums == 64 * 32 * per_position


def test_each_move_names_the_einsums_that_it_is_for():
    cascade = mamba("370m", 4)
    moves = {(move.tensor, move.is_write): move for move in moves_of(cascade, [f"E{n}" for n in range(16, 22)])}
    assert moves["DELTA", False].einsums == ("E16", "E18")
    assert moves["H0", False].einsums[0] == "E17"
    assert moves["H0", False].kind == "state"
    assert moves["Hlast", True].einsums == ("E20",)
    assert moves["A", False].kind == "weight"
    assert ("H", True) not in moves


def test_volumes_add_up():
    moves = moves_of(mamba("370m", 4), [f"E{n}" for n in range(1, 25)])
    total = volume(moves)
    assert total.total == sum(move.words for move in moves)
    assert total + Volume(1, 2, 3) == Volume(total.inter + 1, total.weight + 2, total.state + 3)
