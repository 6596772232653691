"""What the cascade model reads off an architecture."""

from __future__ import annotations

import pytest

from cascade_machines import machine
from stitchloop.cascade.machine import machine_of
from stitchloop.content import content_root
from stitchloop.errors import InputError
from stitchloop.read import Source, load_spec


def changed(old: str, new: str):
    text = (content_root() / "arch" / "mambalaya.yaml").read_text()
    assert old in text
    return load_spec([Source("changed.yaml", text.replace(old, new))]).architecture


def test_mambalaya_is_what_was_published():
    m = machine("mambalaya")
    assert (m.array_pes, m.lanes, m.shared_array) == (65536, 8192, True)
    assert m.clock_hz == pytest.approx(1.75e9)
    assert m.buffer_words * m.word_bytes == 32 * 2**20
    assert m.dram_bytes_per_second == pytest.approx(2039e9, rel=1e-4)
    assert m.pipeline_depth == 6
    assert m.functions == {"mac", "log", "max", "silu", "exp"}
    assert m.dram_pj == pytest.approx(499.2 / 8)
    assert m.operation_pj == pytest.approx(15.5746)
    assert "mambalaya.ERT" in m.energy_source


def test_the_h100_like_machine_feeds_its_cores_from_shared_memory():
    m = machine("h100_like")
    assert (m.arrays, m.rows, m.columns, m.special_lanes) == (114, 16, 32, 1824)
    assert (m.buffer_name, m.near_name) == ("L2", "SharedMemory")
    assert m.near_reads == 114 * 64
    assert not m.shared_array


@pytest.mark.parametrize(("name", "rows", "lanes"), [("nvdla_like", 32, 128), ("tpu_like", 128, 512)])
def test_an_architecture_without_modes_gets_a_lane_per_column_of_its_arrays(name, rows, lanes):
    m = machine(name)
    assert (m.arrays, m.rows, m.columns, m.lanes) == (4, rows, rows, lanes)
    assert (m.dataflows, m.shared_array, m.functions) == (("WS",), False, {"mac", "max"})
    assert m.load_bandwidth == rows


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("vector_lanes: 8192", "vector_lanes: 0", "vector_lanes"),
        ("vector_lanes: 8192", "vector_lanes: 1.5", "vector_lanes"),
        ("vector_lanes: 8192", 'vector_lanes: "many"', "vector_lanes"),
        ('array_dataflows: "OS WS IS"', 'array_dataflows: "OS XS"', "array_dataflows"),
        ("pipeline_depth: 6", "pipeline_depth: -1", "pipeline_depth"),
        ("array_load_bandwidth: 4096", "array_load_bandwidth: 0", "array_load_bandwidth"),
    ],
)
def test_a_bad_mode_attribute_is_named_with_its_mend(old, new, key):
    architecture = changed(old, new)
    with pytest.raises(InputError, match=key) as caught:
        machine_of(architecture)
    assert caught.value.place.path == ("architecture", "MAC", "attributes", key)
    assert caught.value.mend


def test_another_buffer_changes_nothing_else():
    m = machine("mambalaya")
    assert m.with_buffer(1000).buffer_words == 1000
    assert m.with_buffer(m.buffer_words) == m


def test_unlimited_bandwidth_is_allowed():
    m = machine_of(changed(", shared_bandwidth: 582.57", ""))
    assert m.dram_words > 1e15
