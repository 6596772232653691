"""Constraints inside nodes and in sections of their own, in all the ways of writing them."""

from __future__ import annotations

import pytest

from read_cases import ARCHITECTURE, PROBLEM, architecture_of, complaint, spec_of
from stitchloop.constraints import LevelConstraints, LoopConstraint

PE = "inter_PE_spatial"


def constraints(*texts: str, **options: bool) -> dict[str, LevelConstraints]:
    spec = spec_of(*texts, **options)
    assert spec.architecture is not None
    assert spec.constraints is not None
    return dict(zip(spec.architecture.names, spec.constraints.levels, strict=True))


def targets(*items: str, section: str = "mapspace_constraints") -> str:
    return f"{section}: [{', '.join(items)}]"


def factors(loops: LoopConstraint) -> list[str]:
    return [f"{f.rank}{f.relation}{f.value}" for f in loops.factors]


@pytest.mark.parametrize("written", ["[M=2, K<=4, N>=2]", "'M=2,K<=4,N>=2'", "M2 K<=4 N>=2", "['M = 2', 'K <= 4', 'N >= 2']"])
def test_factors_may_be_lists_or_strings(written: str) -> None:
    found = constraints(ARCHITECTURE, PROBLEM, targets(f"{{target: GLB, type: temporal, factors: {written}}}"))
    assert factors(found["GLB"].temporal) == ["M=2", "K<=4", "N>=2"]


@pytest.mark.parametrize("written", ["[K, M]", "KM", "'K,M'", "K M", "'K M # innermost first'"])
def test_permutations_may_be_lists_or_strings(written: str) -> None:
    found = constraints(ARCHITECTURE, PROBLEM, targets(f"{{target: GLB, type: temporal, permutation: {written}}}"))
    assert found["GLB"].temporal.permutation == ("K", "M")


@pytest.mark.parametrize("written", ["'K*M'", "K_M", "[K, '*', M]"])
def test_a_star_fixes_the_outermost_ranks(written: str) -> None:
    loops = constraints(ARCHITECTURE, PROBLEM, targets(f"{{target: GLB, type: temporal, permutation: {written}}}"))[
        "GLB"
    ].temporal
    assert (loops.permutation, loops.outer) == (("K",), ("M",))


@pytest.mark.parametrize(
    "section",
    [
        "architecture_constraints",
        "arch_constraints",
        "mapspace_constraints",
        "mapspace",
        "constraints",
        "extra_mapping_constraints",
    ],
)
@pytest.mark.parametrize("form", ["[{}]", "{{targets: [{}]}}"])
def test_every_section_and_form_of_targets_is_read(section: str, form: str) -> None:
    text = f"{section}: " + form.format("{target: PE, type: spatial, factors: [M=2], split: 1, permutation: [M, K]}")
    loops = constraints(ARCHITECTURE, PROBLEM, text)[PE].spatial
    assert (factors(loops), loops.split, loops.permutation) == (["M=2"], 1, ("M", "K"))
    assert loops.place.file == "input2.yaml"


def test_constraints_nested_under_a_target_and_under_attributes_are_read() -> None:
    text = "mapspace: [{target: GLB, constraints: [{type: temporal, factors: M=2}, {type: bypass, attributes: {bypass: [A]}}]}]"
    found = constraints(ARCHITECTURE, PROBLEM, text)["GLB"]
    assert (factors(found.temporal), found.bypass) == (["M=2"], {"A"})


@pytest.mark.parametrize("kind", ["dataspace", "datatype", "bypass", "bypassing"])
def test_all_names_of_the_dataspace_type_are_read(kind: str) -> None:
    found = constraints(ARCHITECTURE, PROBLEM, targets(f"{{target: GLB, type: {kind}, keep: [A], bypass: [Z]}}"))["GLB"]
    assert (found.keep, found.bypass) == ({"A"}, {"Z"})


@pytest.mark.parametrize(
    ("written", "keep", "bypass"),
    [
        ("keep: ['*']", {"A", "B", "Z"}, set()),
        ("keep_only: [A]", {"A"}, {"B", "Z"}),
        ("bypass_only: [A]", {"B", "Z"}, {"A"}),
        ("must_keep: [A]", {"A"}, set()),
    ],
)
def test_shorthands_for_tensors(written: str, keep: set[str], bypass: set[str]) -> None:
    found = constraints(ARCHITECTURE, PROBLEM, targets(f"{{target: GLB, type: dataspace, {written}}}"))["GLB"]
    assert (found.keep, found.bypass) == (keep, bypass)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("factors: [M=0]", ["M=8"]),
        ("factors_only: [M=2]", ["M=2", "N=1", "K=1"]),
        ("no_iteration_over_dataspaces: [A]", ["M=1", "K=1"]),
        ("no_iteration_over_dims: [N]", ["N=1"]),
        ("must_iterate_over_dataspaces: [A]", ["N=1"]),
        ("factors: [M=2], default_max_factor: 4", ["M=2", "N<=4", "K<=4"]),
    ],
)
def test_shorthands_for_factors(written: str, expected: list[str]) -> None:
    found = constraints(ARCHITECTURE, PROBLEM, targets(f"{{target: GLB, type: temporal, {written}}}"))["GLB"]
    assert factors(found.temporal) == expected


def test_maximize_groups_and_their_capacity() -> None:
    spatial = constraints(ARCHITECTURE, PROBLEM, targets("{target: PE, type: spatial, maximize_dims: [[K], [M, N]]}"))[PE].spatial
    assert spatial.maximize == (("K",), ("M", "N"))
    text = targets(
        "{target: GLB, type: temporal, maximize_dims: [K, M], maximize_dims_capacity: 16, remove_sequential_factors: true}"
    )
    temporal = constraints(ARCHITECTURE, PROBLEM, text)["GLB"].temporal
    assert (temporal.maximize, temporal.maximize_capacity, temporal.remove_sequential_factors) == ((("K", "M"),), 16, True)


def test_utilization_and_overbooking() -> None:
    text = targets("{target: RF, type: parallelism, min: 0.5}", "{target: GLB, type: max_overbooked_proportion, proportion: 0.1}")
    spec = spec_of(ARCHITECTURE, PROBLEM, text)
    found = constraints(ARCHITECTURE, PROBLEM, text)
    assert (found["RF"].min_parallelism, found["GLB"].max_overbooked) == (0.5, 0.1)
    assert any("overbooking is not modelled" in sentence for sentence in spec.warnings)


def test_max_parallelism_is_read_and_what_has_no_meaning_is_told() -> None:
    """The mapspace knew a max parallelism that no file could ask for; a temporal split and remainders passed in silence."""
    found = constraints(ARCHITECTURE, PROBLEM, targets("{target: RF, type: parallelism, min: 0.25, max: 0.5}"))["RF"]
    assert (found.min_parallelism, found.max_parallelism) == (0.25, 0.5)
    assert "no 'min'" in str(complaint(ARCHITECTURE, PROBLEM, targets("{target: RF, type: parallelism}")))
    spec = spec_of(ARCHITECTURE, PROBLEM, targets("{target: GLB, type: temporal, split: 1, remainders: 2}"))
    assert ["split" in spec.warnings[0], "remainders" in spec.warnings[1]] == [True, True]


def test_least_utilization_of_a_level_is_a_constraint() -> None:
    text = ARCHITECTURE.replace("depth: 1024", "min_utilization: 0.25, depth: 1024")
    assert constraints(text, PROBLEM)["GLB"].min_utilization == 0.25


def test_constraints_in_nodes_go_to_the_level_and_its_fanout() -> None:
    text = ARCHITECTURE.replace(
        "spatial: {meshX: 2}",
        "spatial: {meshX: 2}\n    constraints: {spatial: {factors: [K=2]}}",
    ).replace(
        "spatial: {meshX: 4, meshY: 2}",
        "spatial: {meshX: 4, meshY: 2}\n    constraints: {spatial: {factors: [M=4], split: 0}}",
    )
    found = constraints(text, PROBLEM)
    assert factors(found["inter_MAC_spatial"].spatial) == ["K=2"]
    assert (factors(found[PE].spatial), found[PE].spatial.split) == (["M=4"], 0)


def test_constraints_of_several_places_are_merged() -> None:
    text = ARCHITECTURE.replace("datawidth: 16, read_bandwidth", "datawidth: 16, read_bandwidth").replace(
        "write_bandwidth: 8}",
        "write_bandwidth: 8}\n    constraints: {temporal: {factors: [M=2], permutation: [K]}, dataspace: {keep: [A]}}",
    )
    more = targets("{target: GLB, type: temporal, factors: [K<=3, M=2]}", "{target: GLB, type: dataspace, bypass: [B]}")
    found = constraints(text, PROBLEM, more)["GLB"]
    assert sorted(factors(found.temporal)) == ["K<=3", "M=2"]
    assert (found.temporal.permutation, found.keep, found.bypass) == (("K",), {"A"}, {"B"})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{target: GLB, type: temporal, factors: [M=2]}", "{target: GLB, type: temporal, factors: [M=4]}"),
        ("{target: GLB, type: temporal, factors: [M=4]}", "{target: GLB, type: temporal, factors: [M<=2]}"),
        ("{target: GLB, type: temporal, factors: [M>=4]}", "{target: GLB, type: temporal, factors: [M<=2]}"),
        ("{target: GLB, type: temporal, permutation: [M]}", "{target: GLB, type: temporal, permutation: [K]}"),
        ("{target: PE, type: spatial, split: 1}", "{target: PE, type: spatial, split: 2}"),
        ("{target: GLB, type: dataspace, keep: [A]}", "{target: GLB, type: dataspace, bypass: [A]}"),
    ],
)
def test_contradictions_name_both_places(first: str, second: str) -> None:
    error = complaint(ARCHITECTURE, PROBLEM, targets(first, section="arch_constraints"), targets(second))
    assert error.exit_status == 2
    assert "input2.yaml" in str(error)
    assert "input3.yaml" in str(error)


PARALLEL = architecture_of(
    "!Parallel {nodes: [!Component {name: X, class: regfile, attributes: {depth: 4}, constraints: {dataspace: {keep: [A]}}}, "
    "!Hierarchical {nodes: [!Component {name: Y2, class: regfile, constraints: {dataspace: {keep: [B]}}}, "
    "!Component {name: Y1, class: regfile, constraints: {dataspace: {keep: [B, Z]}}}]}]}"
)


def test_a_tensor_kept_in_one_branch_of_parallel_bypasses_the_others() -> None:
    found = constraints(PARALLEL, PROBLEM)
    assert (found["X"].keep, found["X"].bypass) == ({"A"}, {"B", "Z"})
    assert (found["Y2"].keep, found["Y2"].bypass) == ({"B"}, {"A"})
    assert (found["Y1"].keep, found["Y1"].bypass) == ({"B", "Z"}, {"A"})


def test_parallel_branches_share_no_tensor_and_leave_none_out() -> None:
    assert "kept in two branches" in str(complaint(PARALLEL.replace("keep: [A]", "keep: [A, Z]"), PROBLEM))
    assert "kept in no branch" in str(complaint(PARALLEL.replace("keep: [A]", "keep: []"), PROBLEM))


WEIGHT_STATIONARY = ARCHITECTURE.replace(
    "spatial: {meshX: 4, meshY: 2}",
    "spatial: {meshX: 4, meshY: 2}\n    constraints: {spatial: {permutation: [K, M], split: 1, factors: [N=1]}}",
)


def test_spatial_permutations_are_read_as_written_and_the_front_ends_reading_is_told() -> None:
    spec = spec_of(WEIGHT_STATIONARY, PROBLEM)
    assert constraints(WEIGHT_STATIONARY, PROBLEM)[PE].spatial.permutation == ("K", "M")
    (sentence,) = spec.warnings
    assert "puts K on X" in sentence
    assert "insert N first and put nothing there" in sentence


def test_the_front_ends_reading_puts_unlisted_ranks_of_factor_1_first() -> None:
    spec = spec_of(WEIGHT_STATIONARY, PROBLEM, frontend_compatible=True)
    assert constraints(WEIGHT_STATIONARY, PROBLEM, frontend_compatible=True)[PE].spatial.permutation == ("N", "K", "M")
    assert spec.warnings == ()


def test_nothing_is_told_where_both_readings_agree() -> None:
    assert spec_of(WEIGHT_STATIONARY.replace("split: 1", "split: 9"), PROBLEM).warnings == ()
    assert spec_of(WEIGHT_STATIONARY.replace("[K, M]", "[N, K, M]"), PROBLEM).warnings == ()


def test_a_factor_beyond_the_rank_is_ignored_and_told() -> None:
    spec = spec_of(ARCHITECTURE, PROBLEM, targets("{target: GLB, type: temporal, factors: [N=9]}"))
    assert "exceeds the rank's size 4" in spec.warnings[0]
    assert all(not level.temporal.factors for level in spec.constraints.levels)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("item", "part"),
    [
        ("{target: GLB, type: temporl}", "did you mean 'temporal'?"),
        ("{target: GLB}", "no 'type'"),
        ("{type: temporal}", "without a target"),
        ("{target: GBL, type: temporal}", "did you mean 'GLB'?"),
        ("{target: system, type: temporal}", "no fan-out"),
        ("{target: MAC, type: temporal}", "compute unit"),
        ("{target: 9, type: temporal}", "at most 4"),
        ("{target: GLB, type: temporal, factor: [M=2]}", "did you mean 'factors'?"),
        ("{target: GLB, type: temporal, factors: [X=2]}", "no rank of the problem"),
        ("{target: GLB, type: temporal, factors: [M=two]}", "where a factor is needed"),
        ("{target: GLB, type: temporal, factors: [M<=0]}", "at least 1"),
        ("{target: GLB, type: temporal, factors: 'M=2 M=3'}", "two factors"),
        ("{target: GLB, type: temporal, factors: 'M=99999999999999999999999999'}", "at most"),
        ("{target: GLB, type: temporal, permutation: [M, M]}", "twice"),
        ("{target: GLB, type: temporal, permutation: MX}", "no rank of the problem"),
        ("{target: GLB, type: temporal, permutation: {M: 1}}", "a list is needed"),
        ("{target: PE, type: spatial, split: -1}", "at least 0"),
        ("{target: GLB, type: dataspace, keep: [W]}", "tensors are: A, B, Z"),
        ("{target: GLB, type: temporal, maximize_dims: [[M], K], maximize_dims_capacity: 3}", "a mix"),
        ("{target: GLB, type: temporal, maximize_dims: [M]}", "without a capacity"),
        ("{target: RF, type: utilization, min: 1.5}", "at most 1"),
        ("3", "a mapping is needed"),
    ],
)
def test_faults_are_named_with_key_path_and_mend(item: str, part: str) -> None:
    error = complaint(ARCHITECTURE, PROBLEM, targets(item))
    assert part in str(error)
    assert error.place.path[:2] == ("mapspace_constraints", 0)
