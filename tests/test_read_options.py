"""Mapper options, and which sections an input may hold."""

from __future__ import annotations

import pytest

from read_cases import ARCHITECTURE, PROBLEM, complaint, spec_of
from stitchloop.errors import InputError
from stitchloop.options import MapperOptions
from stitchloop.read import load_spec
from stitchloop.read.options import parse_metrics


def options(body: str, *others: str) -> MapperOptions:
    return spec_of(f"mapper: {{version: 0.4, {body}}}", *others).options


@pytest.mark.parametrize(
    ("written", "metrics"),
    [
        ("optimization_metrics: [energy, delay]", ("energy", "delay")),
        ("optimization_metric: [edp]", ("edp",)),
        ("optimization_metric: cycles", ("delay",)),
        ("optimization_metrics: 'delay, energy'", ("delay", "energy")),
        ("optimization_metrics: [last_level_accesses]", ("last-level-accesses",)),
        ("optimization_metrics: [last-level-accesses, EDP]", ("last-level-accesses", "edp")),
        ("optimization_metrics: [accesses-3, accesses-RF]", ("accesses-GLB", "accesses-RF")),
        ("optimization_metrics: [edp, edp]", ("edp",)),
        ("optimization_metric: [], optimization_metrics: [delay]", ("delay",)),
        ("timeout: 100", ("edp",)),
    ],
)
def test_metrics_get_one_name_each(written: str, metrics: tuple[str, ...]) -> None:
    assert options(written, ARCHITECTURE).metrics == metrics


def test_metrics_of_the_command_line_are_read_alike() -> None:
    assert parse_metrics("cycles, energy", None, "--objective") == ("delay", "energy")
    for text in ("speed", "", ","):
        with pytest.raises(InputError, match="--objective"):
            parse_metrics(text, None, "--objective")


def test_ordered_accesses_are_those_of_all_levels_from_the_outermost() -> None:
    metrics = options("optimization_metrics: [ordered_accesses]", ARCHITECTURE).metrics
    assert metrics[0] == "accesses-DRAM"
    assert metrics[-1] == "accesses-inter_MAC_spatial"
    assert options("optimization_metrics: [ordered_accesses]").metrics == ("ordered_accesses",)


def test_keys_of_timeloops_search_are_read_and_listed_as_ignored() -> None:
    search = "algorithm: linear_pruned, victory_condition: 500, timeout: 0, search_size: null"
    found = options(f"{search}, num_threads: 4, out_prefix: run1")
    assert found.ignored == ("algorithm", "victory_condition", "timeout")
    assert (found.num_threads, found.out_prefix) == (4, "run1")


def test_our_own_limits_are_read() -> None:
    found = options("time_limit: 2.5, memory_limit_mb: 512, imperfect: true, live_status: true, diagnostics: true")
    assert (found.time_limit, found.memory_limit_mb, found.imperfect, found.live_status) == (2.5, 512, True, True)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("optimization_metrics: [edq]", "did you mean 'edp'?"),
        ("optimization_metrics: [accesses-9]", "levels are 0 to 4"),
        ("optimization_metrics: [accesses-GLC]", "did you mean 'GLB'?"),
        ("optimization_metrics: {edp: 1}", "a list is needed"),
        ("optimization_metrics: [[edp]]", "a word is needed"),
        ("algorithm: simulated_annealing", "algorithms are"),
        ("num_threads: 0", "at least 1"),
        ("num_threads: many", "no value here"),
        ("live_status: perhaps", "no value here"),
        ("live_status: 3", "true or false"),
        ("time_limit: -1", "more than 0"),
        ("out_prefix: ../../etc/x", "plain name"),
        ("out_prefix: ''", "plain name"),
        ('out_prefix: "a\\nb"', "plain name"),
        (f"out_prefix: {'x' * 101}", "plain name"),
        ("victory_conditions: 3", "did you mean 'victory_condition'?"),
    ],
)
def test_faults_are_named_with_key_path_and_mend(body: str, part: str) -> None:
    error = complaint(f"mapper: {{{body}}}", ARCHITECTURE)
    assert part in str(error)
    assert error.place.path[0] == "mapper"


def test_sections_may_stand_in_any_file_and_order() -> None:
    spec = spec_of(PROBLEM, "mapper: {optimization_metrics: [delay]}", ARCHITECTURE)
    assert spec.architecture is not None
    assert spec.workload is not None
    assert spec.options.metrics == ("delay",)
    assert spec.constraints is not None


def test_what_no_input_holds_is_none() -> None:
    spec = spec_of(ARCHITECTURE)
    assert (spec.workload, spec.mapping, spec.constraints, spec.fused_mapping, spec.cascade) == (None,) * 5
    assert spec_of(PROBLEM).architecture is None


def test_a_section_given_twice_names_both_files() -> None:
    error = complaint(ARCHITECTURE, ARCHITECTURE)
    assert "second section 'architecture'" in str(error)
    assert "input0.yaml" in str(error)
    assert error.place.file == "input1.yaml"
    assert complaint(ARCHITECTURE, ARCHITECTURE.replace("architecture:", "arch:"))


@pytest.mark.parametrize("version", ["0.4", "'0.4'", "0.3"])
def test_known_versions_are_read(version: str) -> None:
    assert spec_of(PROBLEM.replace("version: 0.4", f"version: {version}")).workload is not None


@pytest.mark.parametrize("version", ["0.5", "4", "[0.4]", "next"])
def test_other_versions_are_named(version: str) -> None:
    error = complaint(PROBLEM.replace("version: 0.4", f"version: {version}"))
    assert error.place.path == ("problem", "version")


def test_empty_sections_do_not_count() -> None:
    directive = "mapping: [{target: GLB, type: temporal, factors: [M=2]}]"
    assert spec_of(ARCHITECTURE, PROBLEM, "mapping: []", directive).mapping is not None


def test_more_constraints_may_stand_under_longer_names() -> None:
    spec = spec_of(ARCHITECTURE, PROBLEM, "constraints_II: {targets: [{target: GLB, type: temporal, factors: [M=2]}]}")
    assert spec.constraints is not None
    assert spec.constraints.levels[3].temporal.factors[0].value == 2


def test_sections_to_ignore_are_ignored_and_unknown_ones_refused() -> None:
    assert spec_of("base_ignore: {x: 1}\n" + PROBLEM).workload is not None
    assert "did you mean 'architecture'?" in str(complaint("architectur: {}\n" + PROBLEM))


def test_sparse_optimizations_are_told_to_be_ignored() -> None:
    assert "tensors count as dense" in spec_of(PROBLEM, "sparse_optimizations: {targets: [{name: GLB}]}").warnings[0]


def test_variables_of_several_inputs_are_joined_the_first_wins() -> None:
    text = ARCHITECTURE.replace("depth: 1024", "depth: rows * 2")
    spec = spec_of("variables: {rows: 4}", text, "variables: {rows: 5, other: 6}")
    assert spec.architecture is not None
    assert spec.architecture.levels[3].depth == 8
    assert spec.architecture.variables["other"] == 6


@pytest.mark.parametrize("text", ["", "# nothing", "[]", "[1]", "word", "3", "null"])
def test_documents_without_sections_are_refused(text: str) -> None:
    complaint(text)


@pytest.mark.parametrize(("template", "imperfect"), [("ruby", True), ("uber", False)])
def test_the_mapspace_template_ruby_asks_for_imperfect_factors(template: str, imperfect: bool) -> None:
    spec = load_spec([{"mapper": {"optimization_metrics": ["edp"]}}, {"mapspace": {"version": 0.4, "template": template}}])
    assert spec.options.imperfect is imperfect


def test_an_unknown_mapspace_template_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'ruby'"):
        load_spec([{"mapspace": {"template": "rubi"}}])
