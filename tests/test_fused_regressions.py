"""Faults that were found in fused mapping, each as a test named after what went wrong."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import stitchloop
from fused_chains import MACHINE, conv_pair, einsum, gemm_chain, gemm_pair, tensor
from stitchloop.architecture import Architecture
from stitchloop.cli.map import map_command
from stitchloop.errors import InputError
from stitchloop.fused.check import checked as checked_tree
from stitchloop.fused.front import Front, _undominated
from stitchloop.fused.grouping import Groupings
from stitchloop.fused.map import LARGEST_IMPERFECT, LARGEST_PERFECT, check_sizes, checked, map_fused, map_shape, options_of
from stitchloop.fused.model_command import run as run_model
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.pair import shape_of
from stitchloop.fused.tree import Branch, Compute, FusedMapping, Storage, Temporal
from stitchloop.read import load_spec
from stitchloop.read.fields import Field
from stitchloop.read.looptree import MOST_ABOVE, read_fused_mapping, read_workload
from stitchloop.spec import Spec
from stitchloop.workload import Workload

ROOT = Path(__file__).parent.parent


def nvdla() -> Architecture:
    architecture = load_spec([ROOT / "arch" / "nvdla_like.yaml"]).architecture
    assert architecture is not None
    return architecture


def test_a_point_that_rounding_puts_first_is_dropped_from_the_front():
    """Equal energies but for the last bit, and the later point is faster: only that one belongs to the front."""
    points = np.array([[11.0, 11.0], [47419.439999999995, 47419.44000000001], [188.0, 168.0]])
    assert _undominated(points, points).tolist() == [1]


def test_fronts_of_values_with_rounding_errors():
    rng = np.random.default_rng(7)
    for _ in range(40):
        count = int(rng.integers(1, 1200))
        whole = rng.integers(1, 12, (3, count)).astype(float)
        found = _undominated(whole * (1 + rng.integers(-2, 3, whole.shape) * 1e-15), whole)
        distinct = np.unique(whole, axis=1)
        alone = [(distinct <= distinct[:, [i]]).all(axis=0).sum() == 1 for i in range(distinct.shape[1])]
        assert len(found) == sum(alone)
        assert {tuple(whole[:, i]) for i in found} == {tuple(p) for p in distinct[:, alone].T}


@pytest.mark.parametrize("ops", [-3.0, float("nan"), float("inf"), 1e300])
def test_softmax_operations_out_of_range_are_refused(ops):
    """Not a number once read 'no fused mapping fits the buffer'."""
    with pytest.raises(InputError, match="--softmax-ops"):
        checked(FusedOptions(softmax="added", softmax_ops=ops))


def test_softmax_without_lanes_is_refused():
    with pytest.raises(InputError, match="--softmax-lanes"):
        checked(FusedOptions(softmax="added", softmax_lanes=0))


def test_sizes_beyond_every_tile_size_are_refused_by_name():
    """10**12 points once ended in 'not enough memory', with the name of another command's option."""
    shape = shape_of(gemm_pair(10**12, 4, 6, 5))
    with pytest.raises(InputError, match=r"problem.I2: size 1000000000000, above \d+; add --perfect"):
        check_sizes(shape, FusedOptions())
    check_sizes(shape, FusedOptions(perfect=True))
    assert map_shape(shape, MACHINE, FusedOptions(perfect=True, unfused=False)).certificate.optimal
    check_sizes(shape_of(gemm_pair(LARGEST_IMPERFECT, 4, 6, 5)), FusedOptions())
    with pytest.raises(InputError, match="sizes up to"):
        check_sizes(shape_of(gemm_pair(LARGEST_PERFECT + 1, 4, 6, 5)), FusedOptions(perfect=True))


def test_faults_of_the_workload_name_the_files():
    """A chain that does not fit together was once said to be in '<input>'."""
    workload = Workload((gemm_pair(8, 4, 6, 5).einsums[0], gemm_pair(7, 4, 6, 5).einsums[1]))
    with pytest.raises(InputError, match=r"^a.yaml, p.yaml: problem.Consumer: it reads 7 words"):
        map_fused(Spec(nvdla(), workload, files=("a.yaml", "p.yaml")))


def test_imperfect_and_perfect_exclude_each_other(tmp_path):
    with pytest.raises(InputError, match="--perfect: together with --imperfect"):
        map_command([Path("nvdla_like"), Path("problems/mlp/768_64_384_64")], tmp_path, imperfect=True, perfect=True)


def test_stationarity_and_softmax_lanes_are_switches(tmp_path):
    files = [ROOT / "arch" / "nvdla_like.yaml", ROOT / "problems" / "attention" / "bert_base.yaml"]
    map_command(files, tmp_path, objective="latency", stationarity="ws, is", softmax="added", softmax_lanes=1024)
    found, stats = (json.loads((tmp_path / name).read_text()) for name in ("result.json", "stats.json"))
    assert {text.split(",")[0] for text in found["mapping"]["array"].values()} <= {"WS", "IS"}
    assert stats["softmax_cycles"] == 10 * 512 * 512 * 12 // 1024


def test_unread_words_between_strides_are_mentioned():
    """A stride of two with a window of one: figures are upper bounds there, and the output says so."""
    result = map_shape(shape_of(conv_pair(5, 3, 4, 2, first=1, second=1, stride=2)), MACHINE, FusedOptions(unfused=False))
    assert any("stride is longer than its window" in note for note in result.notes)


def test_a_coefficient_of_zero_is_refused():
    spaces = [
        {"name": "A", "projection": "[ 0*I1, K1 ]"},
        {"name": "S", "projection": "[ I1 ]", "read_write": True},
    ]
    shape = {"name": "P", "dimensions": ["I1", "K1"], "data_spaces": spaces}
    with pytest.raises(InputError, match="coefficient 0 of 'I1'"):
        read_workload(Field([{"shape": shape, "instance": "0 <= I1 < 8 and 0 <= K1 < 4"}]))


def test_thousands_of_loops_are_refused():
    """Three thousand loops above one branch once ended in a traceback; as many as are admitted are evaluated."""
    loops = [{"type": "temporal", "rank": "I2", "tile_shape": 4}] * 3000
    with pytest.raises(InputError, match=f"use at most {MOST_ABOVE} from the root to a leaf"):
        read_fused_mapping(Field({"type": "fused", "nodes": loops}))


def tree(*inside: Storage, loops: int = 1) -> FusedMapping:
    first = (*inside, Compute("Producer", 2))
    return FusedMapping(
        (
            Storage(0, ("A", "B", "D", "E")),
            *(Temporal("I2", 4) for _ in range(loops)),
            Storage(1, ("S", "A", "B", "D", "E")),
            Branch("sequential", (first, (Compute("Consumer", 2),))),
        )
    )


def test_as_many_loops_as_are_admitted_are_evaluated(tmp_path):
    mapping = tree(loops=MOST_ABOVE - 4)
    run_model(Spec(nvdla(), gemm_pair(8, 4, 6, 5), fused_mapping=mapping), tmp_path)
    assert (tmp_path / "stats.json").exists()


def test_a_tensor_twice_in_one_memory_is_refused():
    """Both blocks were charged, and words were moved from the memory to itself."""
    checked_tree(gemm_pair(8, 4, 6, 5), tree())
    with pytest.raises(InputError, match="'B' twice in target 1; store it there once"):
        checked_tree(gemm_pair(8, 4, 6, 5), tree(Storage(1, ("B",))))


def test_more_targets_than_levels_name_the_files(tmp_path):
    spec = Spec(nvdla(), gemm_pair(8, 4, 6, 5), fused_mapping=tree(Storage(9, ("B",))), files=("p.yaml", "m.yaml"))
    with pytest.raises(InputError, match=r"^p.yaml, m.yaml: mapping: target 9 and 3 storage levels"):
        run_model(spec, tmp_path)


def test_a_time_limit_holds_for_fronts_too():
    """The front of a chain ran on for minutes after the limit."""
    shape = shape_of(gemm_chain(64, [784, 512, 256, 10]))
    options = FusedOptions(("buffer",), ("energy", "latency", "buffer"), unfused=False, time_limit=0.3)
    start = time.monotonic()
    result = map_shape(shape, MACHINE, options)
    assert time.monotonic() - start < 30
    assert result.pareto
    assert result.as_json()["pareto_complete"] is False
    assert any("Pareto front: the time limit" in note for note in result.notes)


@pytest.mark.parametrize(
    ("section", "perfect"),
    [
        ("mapper: {imperfect: false}", True),
        ("mapper: {imperfect: true}", False),
        ("mapper: {optimization_metrics: [edp]}", False),
        ("mapspace: {version: 0.4, template: uber}", True),
        ("mapspace: {version: 0.4, template: ruby}", False),
        ("mapper: {imperfect: true}\nmapspace: {version: 0.4, template: uber}", False),
    ],
)
def test_the_files_may_ask_for_perfect_factors(section, perfect, tmp_path):
    """Fused work took imperfect tile sizes whatever the mapper section said."""
    (tmp_path / "mapper.yaml").write_text(section)
    spec = load_spec([ROOT / "arch" / "nvdla_like.yaml", tmp_path / "mapper.yaml"])
    assert options_of(spec).perfect is perfect


def test_the_python_calls_take_fused_work(tmp_path):
    """``call_mapper`` ended in a ValueError on a list of Einsums, ``call_model`` missed the mapping."""
    files = [ROOT / "arch" / "nvdla_like.yaml", ROOT / "problems" / "mlp" / "768_64_384_64.yaml"]
    mapped = stitchloop.call_mapper(files, str(tmp_path / "map"))
    stats = json.loads((tmp_path / "map" / "stats.json").read_text())
    assert mapped.energy == pytest.approx(stats["energy_pJ"] * 1e-12)
    assert mapped.cycles == stats["cycles"]
    assert "type: fused" in mapped.mapping
    written = [files[0], tmp_path / "map" / "fused-problem.yaml", tmp_path / "map" / "fused-mapping.yaml"]
    counted = stitchloop.call_model(written, str(tmp_path / "model"))
    assert counted.computes == mapped.computes
    assert counted.accesses["DRAM"]["reads"] == mapped.accesses["DRAM"]["reads"]


def test_switches_without_a_meaning_are_mentioned(tmp_path, capsys):
    """A memory limit of one MiB was taken in silence."""
    files = [ROOT / "arch" / "nvdla_like.yaml", ROOT / "problems" / "mlp" / "768_64_384_64.yaml"]
    map_command(files, tmp_path, memory_limit=1, compare=True)
    told = capsys.readouterr().err
    assert "--memory-limit has no meaning for fused work" in told
    assert "--compare has no meaning for fused work" in told


def test_a_mistyped_kind_of_mapping_is_named(tmp_path):
    """The message was that the mapping is missing."""
    (tmp_path / "m.yaml").write_text("mapping:\n  type: fusde\n  nodes: []\n")
    with pytest.raises(InputError, match=r"m.yaml:2: mapping.type: a mapping of type 'fusde'; write 'type: fused'"):
        load_spec([ROOT / "problems" / "mlp" / "768_64_384_64.yaml", tmp_path / "m.yaml"])


def test_an_input_of_several_einsums_is_mentioned():
    """Its block is held once for each Einsum, which a person has to know to judge the optimum."""
    producer = einsum("P", {"I1": 6, "K1": 4, "L1": 5}, tensor("A", "I1 K1"), tensor("B", "K1 L1"), tensor("S", "I1 L1", True))
    consumer = einsum("C", {"I2": 6, "L2": 5, "J2": 4}, tensor("S", "I2 L2"), tensor("B", "J2 L2"), tensor("E", "I2 J2", True))
    result = map_shape(shape_of(Workload((producer, consumer))), MACHINE, FusedOptions(unfused=False))
    assert any(note.startswith("B is an input of several Einsums") for note in result.notes)


def test_an_interruption_of_the_comparison_keeps_the_result(monkeypatch):
    """Ctrl-C after the search, while the Einsums were mapped one by one, lost the mapping that had been found."""

    def interrupt(self: Groupings) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Groupings, "alone", property(interrupt))
    result = map_shape(shape_of(gemm_pair(8, 4, 6, 5)), MACHINE, FusedOptions())
    assert result.certificate.optimal
    assert result.unfused is None
    assert any("no comparison" in note for note in result.notes)


def test_sigterm_interrupts_fused_work_as_ctrl_c_does(monkeypatch, tmp_path):
    """It ended the process without a word."""

    def terminated(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("stitchloop.fused.run.run", terminated)
    files = [ROOT / "arch" / "nvdla_like.yaml", ROOT / "problems" / "mlp" / "768_64_384_64.yaml"]
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt):
            map_command(files, tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_interrupted_front_keeps_its_points(monkeypatch):
    """The first check after a point was found stands for the user's Ctrl-C."""

    def check(self: Front) -> None:
        if self.members:
            raise KeyboardInterrupt

    monkeypatch.setattr(Front, "check_time", check)
    options = FusedOptions(("energy",), ("energy", "latency", "buffer"), unfused=False)
    result = map_shape(shape_of(gemm_chain(64, [784, 512, 256, 10])), MACHINE, options)
    assert result.certificate.optimal
    assert result.pareto
    assert result.pareto_stopped == "interrupted"
