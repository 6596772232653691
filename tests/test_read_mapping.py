"""The section ``mapping`` of one Einsum."""

from __future__ import annotations

import pytest

from read_cases import ARCHITECTURE, PROBLEM, architecture_of, complaint, spec_of
from stitchloop.mapping import LevelMapping, Loop

ALL = frozenset("ABZ")


def mapping(*directives: str, architecture: str = ARCHITECTURE) -> dict[str, LevelMapping]:
    spec = spec_of(architecture, PROBLEM, f"mapping: [{', '.join(directives)}]")
    assert spec.architecture is not None
    assert spec.mapping is not None
    return dict(zip(spec.architecture.names, spec.mapping.levels, strict=True))


@pytest.mark.parametrize("factors", ["[M=2, K=3]", "'M=2,K=3'", "M2 K3", "M=2 K=3 N=1", "[M=2, [K, '=', 3]]", "{M: 2, K: 3}"])
@pytest.mark.parametrize("permutation", ["[K, M, N]", "KMN", "'K,M'", "K"])
def test_factors_and_permutations_may_be_lists_or_strings(factors: str, permutation: str) -> None:
    found = mapping(f"{{target: GLB, type: temporal, factors: {factors}, permutation: {permutation}}}")
    assert found["GLB"].temporal == (Loop("K", 3), Loop("M", 2))


def test_what_is_missing_has_factor_1_and_the_problems_order() -> None:
    found = mapping("{target: GLB, type: temporal, factors: [K=3, M=2, N=2], permutation: [N]}")
    assert found["GLB"].temporal == (Loop("N", 2), Loop("M", 2), Loop("K", 3))
    assert found["DRAM"] == LevelMapping(keep=ALL)
    assert found["inter_PE_spatial"] == LevelMapping()


def test_split_counts_positions_with_ranks_of_factor_1() -> None:
    directive = "{target: PE, type: spatial, factors: [M=4, K=2], permutation: [N, M, K], split: %s}"
    for split, on_x in ((0, ""), (1, ""), (2, "M"), (3, "MK"), (999, "MK")):
        level = mapping(directive % split)["inter_PE_spatial"]
        assert "".join(loop.rank for loop in level.spatial_x) == on_x
        assert "".join(loop.rank for loop in level.spatial) == "MK"


def test_without_split_all_spatial_loops_are_on_x() -> None:
    level = mapping("{target: PE, type: spatial, factors: [M=4, K=2]}")["inter_PE_spatial"]
    assert (level.spatial_x, level.spatial_y) == ((Loop("M", 4), Loop("K", 2)), ())


def test_factor_0_is_the_whole_rank() -> None:
    assert mapping("{target: GLB, type: temporal, factors: M=0}")["GLB"].temporal == (Loop("M", 8),)


@pytest.mark.parametrize("factors", ["'M=3,2'", "['M=3,2']", "[M=3, 2]", "'M=3,2,K=2'"])
def test_a_residual_gives_the_last_pass(factors: str) -> None:
    found = mapping(f"{{target: GLB, type: temporal, factors: {factors}}}")["GLB"].temporal
    assert found[0] == Loop("M", 3, 2)
    assert not found[0].is_perfect


def test_a_residual_that_equals_the_bound_is_perfect() -> None:
    assert mapping("{target: GLB, type: temporal, factors: 'M=4,4'}")["GLB"].temporal == (Loop("M", 4),)


@pytest.mark.parametrize("kind", ["dataspace", "datatype", "bypass"])
def test_what_is_not_bypassed_is_kept(kind: str) -> None:
    assert mapping(f"{{target: GLB, type: {kind}, keep: [A], bypass: [Z]}}")["GLB"].keep == {"A", "B"}
    assert mapping(f"{{target: GLB, type: {kind}, keep: [A]}}")["GLB"].keep == ALL
    assert mapping(f"{{target: GLB, type: {kind}, bypass: ['*']}}")["GLB"].keep == frozenset()


def test_targets_are_levels_containers_components_with_a_fanout_or_numbers() -> None:
    for target in ("PE", "inter_PE_spatial", "2"):
        found = mapping(f"{{target: {target}, type: spatial, factors: [M=4]}}")
        assert found["inter_PE_spatial"].spatial_x == (Loop("M", 4),)
    for target in ("MAC", "inter_MAC_spatial", "0"):
        found = mapping(f"{{target: {target}, type: spatial, factors: [K=2]}}")
        assert found["inter_MAC_spatial"].spatial_x == (Loop("K", 2),)


def test_a_storage_level_with_spatial_has_its_spatial_loops_above_itself() -> None:
    text = architecture_of("!Component {name: L1, class: SRAM, attributes: {depth: 64}, spatial: {meshX: 8}}")
    found = mapping(
        "{target: L1, type: spatial, factors: [M=8]}", "{target: L1, type: temporal, factors: [K=6]}", architecture=text
    )
    assert found["inter_L1_spatial"].spatial_x == (Loop("M", 8),)
    assert found["L1"].temporal == (Loop("K", 6),)


def test_constraints_in_nodes_fill_in_what_the_mapping_leaves_open() -> None:
    text = ARCHITECTURE.replace(
        "write_bandwidth: 8}",
        "write_bandwidth: 8}\n    constraints: {dataspace: {bypass: [B]}, temporal: {factors: [M=2], permutation: [K]}}",
    )
    found = mapping("{target: GLB, type: temporal, factors: [K=3]}", architecture=text)["GLB"]
    assert found.keep == {"A", "Z"}
    assert found.temporal == (Loop("K", 3), Loop("M", 2))
    assert mapping("{target: GLB, type: dataspace, keep: [B]}", architecture=text)["GLB"].keep == ALL


def test_an_empty_mapping_is_none() -> None:
    assert spec_of(ARCHITECTURE, PROBLEM, "mapping: []").mapping is None
    assert spec_of(ARCHITECTURE, "mapping: [{target: GLB, type: temporal}]").mapping is None


@pytest.mark.parametrize(
    ("directive", "part"),
    [
        ("{target: GLB}", "no 'type'"),
        ("{type: temporal}", "no 'target'"),
        ("{target: GLB, type: temprl}", "did you mean 'temporal'?"),
        ("{target: GLBX, type: temporal}", "did you mean 'GLB'?"),
        ("{target: MAC, type: temporal}", "compute unit"),
        ("{target: GLB, type: spatial, factors: [M=2]}", "no fan-out below it"),
        ("{target: GLB, type: temporal, factors: [M<=2]}", "give the factor"),
        ("{target: GLB, type: temporal, factors: [X=2]}", "ranks are: M, N, K"),
        ("{target: GLB, type: temporal, factors: 'M=2,3'}", "a last pass of 3"),
        ("{target: GLB, type: temporal, factor: [M=2]}", "did you mean 'factors'?"),
        ("{target: GLB, type: dataspace, keep: [A], bypass: [A]}", "both kept and bypassed"),
        ("{target: GLB, type: dataspace, keep: [W]}", "no tensor of the problem"),
        ("{target: PE, type: dataspace, keep: [A]}", "stores nothing"),
        ("{target: GLB, type: temporal}, {target: GLB, type: temporal}", "a second temporal directive"),
        ("GLB", "a mapping is needed"),
    ],
)
def test_faults_are_named_with_key_path_and_mend(directive: str, part: str) -> None:
    error = complaint(ARCHITECTURE, PROBLEM, f"mapping: [{directive}]")
    assert part in str(error)
    assert error.place.path[0] == "mapping"


def test_loops_that_are_not_modelled_are_told() -> None:
    spec = spec_of(ARCHITECTURE, PROBLEM, "mapping: [{target: PE, type: spatial, no_link_transfer: [A]}]")
    assert "'no_link_transfer' is not modelled" in spec.warnings[0]
