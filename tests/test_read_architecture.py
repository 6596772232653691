"""Architectures of both formats to levels: fan-outs, inheritance, attributes and their defaults."""

from __future__ import annotations

import pytest

from read_cases import ARCHITECTURE, architecture_of, complaint, spec_of
from stitchloop.architecture import Architecture, Level


def architecture(text: str) -> Architecture:
    found = spec_of(text).architecture
    assert found is not None
    return found


def glb(attributes: str, component_class: str = "SRAM") -> Level:
    return architecture(architecture_of(f"!Component {{name: GLB, class: {component_class}, attributes: {attributes}}}")).levels[
        0
    ]


def test_levels_stand_inner_to_outer_with_a_fanout_above_every_spatial_node() -> None:
    found = architecture(ARCHITECTURE)
    assert found.names == ("inter_MAC_spatial", "RF", "inter_PE_spatial", "GLB", "DRAM")
    assert [level.is_fanout for level in found.levels] == [True, False, True, False, False]
    assert [level.instances for level in found.levels] == [8, 8, 1, 1, 1]
    assert [(level.fanout_x, level.fanout_y) for level in found.levels] == [(2, 1), (1, 1), (4, 2), (1, 1), (1, 1)]
    assert (found.compute.mesh_x, found.compute.mesh_y, found.compute.instances) == (8, 2, 16)
    assert found.cycle_seconds == 2e-9
    assert found.name == "system"


def test_bandwidths_and_sizes_are_taken_as_given() -> None:
    dram, buffer = (architecture(ARCHITECTURE).levels[index] for index in (4, 3))
    assert (dram.shared_bandwidth, dram.read_bandwidth, dram.depth, dram.capacity) == (2.5, None, None, None)
    assert (dram.technology, buffer.technology) == ("DRAM", "SRAM")
    assert (buffer.read_bandwidth, buffer.write_bandwidth, buffer.block_size, buffer.capacity) == (16, 8, 4, 4096)


@pytest.mark.parametrize(
    ("attributes", "block_size", "width", "capacity"),
    [
        ("{depth: 10, width: 24, datawidth: 8}", 3, 24, 30),
        ("{depth: 10, width: 16}", 1, 16, 10),
        ("{depth: 10}", 1, 16, 10),
        ("{depth: 10, width: 64, datawidth: 16, multiple_buffering: 3}", 4, 64, 13),
        ("{depth: 10, width: 64, datawidth: 16, multiple_buffering: 1.5}", 4, 64, 26),
        ("{entries: 30, width: 64, datawidth: 16}", 4, 64, 30),
        ("{entries: 30, depth: 100, width: 64, datawidth: 16}", 4, 64, 30),
        ("{depth: 0}", 1, 16, 0),
        ("{depth: 8, width: 64, block_size: 2, datawidth: 16}", 2, 64, 16),
        ("{sizeKB: 2, width: 64, datawidth: 16}", 4, 64, 1024),
        ("{depth: 8, block_size: 2, datawidth: 16}", 2, 32, 16),
        ("{depth: 8, n_words: 4, word_bits: 8}", 4, 32, 32),
        ("{depth: 8, width: 64, datawidth: 8, cluster_size: 2}", 4, 64, 32),
        ("{memory_depth: 8, memory_width: 32, word_width: 8}", 4, 32, 32),
    ],
)
def test_sizes_have_timeloops_names_and_defaults(attributes: str, block_size: int, width: int, capacity: int) -> None:
    level = glb(attributes)
    assert (level.block_size, level.width, level.capacity) == (block_size, width, capacity)


def test_a_width_that_the_block_does_not_fill_is_told() -> None:
    text = architecture_of("!Component {name: GLB, class: SRAM, attributes: {depth: 8, width: 64, datawidth: 16, block_size: 3}}")
    (sentence,) = spec_of(text).warnings
    assert "width 64 of 'GLB' does not agree with 3 words of 16 bits" in sentence


def test_a_misspelt_attribute_is_told() -> None:
    """A buffer with a ``dpeth`` was without limit, and nobody said so."""
    text = architecture_of("!Component {name: GLB, class: SRAM, attributes: {dpeth: 8, width: 16, n_banks: 2, data_width: 8}}")
    found = [sentence.partition(": ")[2] for sentence in spec_of(text).warnings]
    assert [sentence.rpartition("; ")[2] for sentence in found] == ["did you mean 'depth'?", "did you mean 'datawidth'?"]
    assert found[0].startswith("architecture.nodes[1].attributes.dpeth: 'dpeth' of 'GLB' means nothing to the model")


def test_a_bad_inherited_attribute_is_shown_where_it_is_written() -> None:
    error = complaint(ARCHITECTURE.replace("global_cycle_seconds: 2e-9", "global_cycle_seconds: -1"))
    assert error.place.path == ("architecture", "nodes", 0, "attributes", "global_cycle_seconds")


def test_the_deprecated_bandwidth_is_shared_out_in_halves() -> None:
    level = glb("{depth: 8, bandwidth: 6}")
    assert (level.read_bandwidth, level.write_bandwidth) == (3, 3)


@pytest.mark.parametrize(
    ("attributes", "part"),
    [
        ("{depth: 8, width: 20, datawidth: 16}", "a multiple of the word of 16 bits"),
        ("{depth: 8, sizeKB: 8}", "give the size once"),
        ("{depth: -1}", "at least 0"),
        ("{depth: 8, datawidth: 0}", "at least 1"),
        ("{depth: 8, read_bandwidth: -1}", "more than 0"),
        ("{depth: 8, read_bandwidth: 1e-300}", "magnitudes from 1e-50 to 1e+50"),
        ("{depth: 8, multiple_buffering: 1e300}", "magnitudes from 1e-50 to 1e+50"),
        ("{depth: 8, multiple_buffering: 0}", "more than 0"),
        ("{depth: 8, min_utilization: 1.5}", "at most 1"),
        ("{depth: 99999999999999999999999}", "at most"),
        ("{depth: [8]}", "an integer is needed"),
        ("[depth]", "a mapping is needed"),
    ],
)
def test_impossible_sizes_are_refused(attributes: str, part: str) -> None:
    error = complaint(architecture_of(f"!Component {{name: GLB, class: SRAM, attributes: {attributes}}}"))
    assert part in str(error)
    assert error.place.path[:4] == ("architecture", "nodes", 1, "attributes")


def test_containers_pass_attributes_on_and_multiply_meshes() -> None:
    found = architecture(
        architecture_of(
            "!Container {name: chip, attributes: {datawidth: 8, technology: 65nm}}",
            "!Container {name: row, spatial: {meshX: 2, meshY: 3}}",
            "!Component {name: L1, class: SRAM, attributes: {depth: 4, width: 8}}",
            "!Container {name: PE, spatial: {meshX: 5}, attributes: {datawidth: 4}}",
            "!Component {name: RF, class: regfile, attributes: {depth: 4, width: 8}}",
        )
    )
    rf, _, l1, row, _ = found.levels
    assert (l1.datawidth, rf.datawidth, rf.block_size) == (8, 4, 2)
    assert (l1.mesh_x, l1.mesh_y, rf.mesh_x, rf.mesh_y) == (2, 3, 10, 3)
    assert (row.fanout_x, row.fanout_y) == (2, 3)
    assert rf.attributes["technology"] == "65nm"


def test_parallel_branches_become_levels_in_series_the_first_outermost() -> None:
    text = architecture_of(
        "!Parallel {nodes: [!Component {name: W, class: regfile, attributes: {depth: 1}}, "
        "!Hierarchical {nodes: [!Component {name: I2, class: regfile, attributes: {depth: 2}}, "
        "!Component {name: I1, class: regfile, attributes: {depth: 1}}]}]}"
    )
    assert architecture(text).names == ("I1", "I2", "W", "DRAM")


def test_disabled_nodes_and_nothing_are_left_out() -> None:
    text = "variables: {has_l2: false}\n" + architecture_of(
        "!Component {name: L3, class: SRAM, enabled: false}",
        "!Component {name: L2, class: SRAM, enabled: has_l2}",
        "!Component {name: L1, class: SRAM, enabled: not has_l2}",
        "!Nothing {name: gap}",
        "!Component {name: void, class: nothing}",
    )
    assert architecture(text).names == ("L1", "DRAM")


def test_networks_are_named_as_not_modelled() -> None:
    spec = spec_of(architecture_of("!Component {name: noc, class: XY_NoC}", "!Component {name: GLB, class: SRAM}"))
    assert spec.architecture is not None
    assert spec.architecture.names == ("GLB", "DRAM")
    assert any("noc" in sentence and "not modelled" in sentence for sentence in spec.warnings)


def test_a_mesh_may_be_an_expression() -> None:
    text = "variables: {rows: 4}\n" + architecture_of(
        "!Container {name: PE, spatial: {meshX: rows * 2, meshY: 'max(1, rows - 1)'}}",
        "!Component {name: RF, class: regfile, attributes: {depth: 4}}",
    )
    assert architecture(text).levels[0].instances == 24


TRANSPILED = """
architecture:
  version: '0.4'
  subtree:
  - name: system_top_level
    attributes: {technology: "45nm", global_cycle_seconds: 1e-9}
    local:
    - {name: "DRAM[1..1]", class: DRAM, attributes: {width: 64, datawidth: 16, meshX: 1, meshY: 1, power_gated_at: null}}
    - {name: "inter_PE_spatial[1..1]", class: dummy_storage, attributes: {width: 1, depth: 1, datawidth: 1, meshX: 1, meshY: 1}}
    - {name: "RF[1..8]", class: regfile, attributes: {depth: 16, meshX: 4, meshY: 2}}
    - {name: "mac[1..8]", class: intmac, attributes: {meshX: 4, meshY: 2}}
"""
OLDER = """
architecture:
  version: 0.3
  subtree:
  - name: system
    local:
    - {name: DRAM, class: DRAM, attributes: {width: 64}}
    subtree:
    - name: chip
      attributes: {datawidth: 8}
      local:
      - {name: GLB, class: SRAM, attributes: {depth: 64, width: 32}}
      subtree:
      - name: PE[0..7]
        local:
        - {name: RF, class: regfile, attributes: {depth: 16, meshX: 4}}
        - {name: "MAC[0..1]", class: intmac, attributes: {meshX: 4}}
"""


def test_the_transpiled_form_gives_the_same_levels() -> None:
    found = architecture(TRANSPILED)
    assert found.names == ("RF", "inter_PE_spatial", "DRAM")
    assert [level.is_fanout for level in found.levels] == [False, True, False]
    assert (found.levels[1].fanout_x, found.levels[1].fanout_y, found.compute.instances) == (4, 2, 8)
    assert found.name == "system"


def test_the_compute_unit_of_a_subtree_is_known_by_its_class() -> None:
    lines = TRANSPILED.rstrip().split("\n")
    assert architecture("\n".join([*lines[:-2], lines[-1], lines[-2]])) == architecture(TRANSPILED)


def test_nested_subtrees_multiply_and_fan_out_without_dummy_levels() -> None:
    found = architecture(OLDER)
    assert found.names == ("RF", "GLB", "DRAM")
    rf, buffer, _ = found.levels
    assert (rf.mesh_x, rf.mesh_y, buffer.fanout_x, buffer.fanout_y) == (4, 2, 4, 2)
    assert (rf.fanout_x, rf.fanout_y, found.compute.instances) == (1, 2, 16)
    assert buffer.block_size == 4


FLAT = """
arch:
  arithmetic: {instances: 16, meshX: 4, word-bits: 8}
  storage:
  - {name: Registers, entries: 1, instances: 16, meshX: 4, word_bits: 8}
  - {name: Buffer, sizeKB: 256, instances: 1, word-bits: 8, block-size: 64}
  - {name: DRAM, technology: DRAM, instances: 1, word-bits: 8, block-size: 64, bandwidth: 10.0}
"""


def test_the_flat_lists_of_timeloops_first_files_are_read_with_their_hyphens() -> None:
    found = architecture(FLAT)
    registers, buffer, dram = found.levels
    assert found.names == ("Registers", "Buffer", "DRAM")
    assert (registers.capacity, buffer.capacity, dram.capacity) == (1, 256 * 1024, None)
    assert (buffer.fanout_x, buffer.fanout_y, buffer.block_size, dram.technology) == (4, 4, 64, "DRAM")
    assert (dram.read_bandwidth, found.compute.instances, found.compute.word_bits) == (5, 16, 8)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (FLAT.replace("instances: 16, meshX: 4, word_bits", "instances: 15, meshX: 4, word_bits"), "instances = meshX * meshY"),
        (FLAT.replace("name: Buffer, ", ""), "no 'name'"),
        ("architecture: {version: 0.4}", "neither 'nodes' nor 'subtree'"),
        ("architecture: {nodes: []}", "without components"),
        ("architecture: {nodes: 3}", "a list is needed"),
        ("architecture: [1]", "a mapping is needed"),
        ("architecture: {nodes: [!Component {name: A, class: intmac}]}", "without storage"),
        ("architecture: {nodes: [!Component {name: A, class: SRAM}]}", "as the last component"),
        ("architecture: {nodes: [!Component {name: A, class: mac}, !Component {name: B, class: mac}]}", "keep one"),
        ("architecture: {nodes: [!Component {name: A, class: SRAM}, !Component {name: A, class: mac}]}", "second component 'A'"),
        ("architecture: {nodes: [!Component {class: SRAM}]}", "no 'name'"),
        ("architecture: {nodes: [!Component {name: '', class: SRAM}]}", "nodes[0].name: an empty name"),
        ("architecture: {nodes: [!Component {name: A}]}", "no 'class'"),
        ("architecture: {nodes: [!Container {name: A, spacial: {meshX: 2}}]}", "did you mean 'spatial'?"),
        ("architecture: {nodes: [!Container {name: A, spatial: {meshx: 2}}]}", "did you mean 'meshX'?"),
        ("architecture: {nodes: [!Container {name: A, spatial: {meshX: 1.5}}]}", "an integer is needed"),
        ("architecture: {nodes: [!Parallel {nodes: [!Container {name: A, spatial: {meshX: 2}}]}]}", "inside !Parallel"),
        ("architecture: {nodes: [!Container {name: A}], notes: []}", "did you mean 'nodes'?"),
        (architecture_of("!Container {name: A, spatial: {meshX: 4e9, meshY: 4e9}}"), "instances"),
        (TRANSPILED.replace("RF[1..8]", "RF[1..9]"), "instances = meshX * meshY"),
        (TRANSPILED.replace("RF[1..8]", "RF[8..1]"), "ends before it begins"),
        (TRANSPILED.replace("RF[1..8]", "RF[1..]"), "NAME[1..COUNT]"),
        (
            TRANSPILED.replace("mac[1..8]", "mac[1..6]").replace(
                "intmac, attributes: {meshX: 4, meshY: 2", "intmac, attributes: {meshX: 3, meshY: 2"
            ),
            "multiples",
        ),
    ],
)
def test_faults_name_what_would_do(text: str, part: str) -> None:
    assert part in str(complaint(text))
