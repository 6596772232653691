"""Whatever the input is: a specification or a clear error, in bounded time, and nothing is executed."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from read_cases import architecture_of, complaint
from stitchloop.errors import InputError
from stitchloop.read import Source, load_spec
from stitchloop.read.document import YamlList, YamlMap, parse
from stitchloop.spec import Spec

EVERYTHING = """
variables: {version: 0.4, w: 16, technology: "45nm"}
globals: {version: 0.4, environment_variables: {A: 1}}
architecture:
  version: 0.4
  nodes:
  - !Container {name: system, attributes: {global_cycle_seconds: 1e-9}}
  - !Component {name: DRAM, class: DRAM, attributes: {width: 64, datawidth: w, shared_bandwidth: 16}}
  - !Component
    name: GLB
    class: SRAM
    attributes: {depth: 2**10, width: 64, datawidth: 16, read_bandwidth: 16, multiple_buffering: 2}
    constraints: {dataspace: {keep: [A], bypass: [Z]}, temporal: {factors: [M=1, K<=4], permutation: [K, N]}}
  - !Container
    name: PE
    spatial: {meshX: 16, meshY: 16}
    constraints: {spatial: {permutation: [K, M], split: 1, factors: "N=1", maximize_dims: [[K]]}}
  - !Parallel
    nodes:
    - !Component {name: RA, class: regfile, attributes: {depth: 64}, constraints: {dataspace: {keep: [A]}}}
    - !Component {name: RB, class: regfile, attributes: {depth: 64}, constraints: {dataspace: {keep: [B, Z]}}}
  - !Component {name: MAC, class: intmac, attributes: {width: 16}, spatial: {meshX: 2}}
problem:
  version: 0.4
  shape:
    name: conv
    dimensions: [M, N, K]
    coefficients: [{name: s, default: 2}]
    data_spaces:
    - {name: A, projection: [[[M, s], [K]], [[K]]]}
    - {name: B, projection: [[[K]], [[N]]]}
    - {name: Z, projection: [[[M]], [[N]]], read_write: true}
  instance: {M: 64, N: 16, K: 32, densities: {A: 1.0}}
mapping:
- {target: DRAM, type: temporal, factors: "M4 N2", permutation: MNK}
- {target: PE, type: spatial, factors: [M=4, K=4], permutation: [K, M], split: 1}
- {target: GLB, type: dataspace, keep: [A], bypass: [B]}
mapper: {version: 0.4, optimization_metrics: [edp, accesses-1], num_threads: 2, timeout: 100, algorithm: random}
architecture_constraints: {targets: [{target: GLB, type: temporal, factors: [N=2]}]}
mapspace_constraints: [{target: PE, type: spatial, factors: K<=4}, {target: RB, type: utilization, min: 0.5}]
components: {version: 0.4, classes: [{name: intmac, attributes: {width: 3}}]}
ERT: {version: 0.4, tables: [{name: "s.DRAM[1..1]", actions: [{name: read, energy: 5}, {name: leak, energy: 0.1}]}]}
ART: {version: 0.4, tables: [{name: "s.DRAM[1..1]", area: 5}]}
"""
JUNK: list[Any] = [
    *(None, True, False, 0, -1, 3, 2.5, float("nan"), float("inf"), 10**30, 10**5000, -(10**30)),
    *("", "x", "M", "A", "*", "[", "1/0", "9**9**9", "__import__('os').system('false')", "9" * 400, "(" * 60),
    *("\x00", "\ud800", "é"),
    *("M=", "M=0", "M=4,3", "=3", "M=99999999999999999999", "K>=0", "inter_PE_spatial", "[1..", "a" * 5000, "A[9..1]"),
    *([], {}, [[]], [None], [1, 2], ["M", "M"], [[["M"]]], {"a": 1}, {"M": 3}, {"name": "GLB"}, {"type": "fused"}),
    *({"einsums": {}, "ranks": {}}, [{"shape": 1}], {"nodes": []}, {"subtree": []}, {"tables": 3}, {"type": "temporal"}),
]
CHANGES = ["replace", "delete", "add", "copy"]
CHARACTERS = list("{}[]:,-!&*<>|%@`'\"\t\n #?0aZ\x00\x85é")
KEYS = ["type", "name", "target", "split", "depths", "meshX", "constraints", "nodes", "targets", "x"]


def outcome(*inputs: Any) -> Spec | InputError:
    """What reading gives; anything but a specification or an :class:`InputError` fails the test."""
    started = time.process_time()
    try:
        result: Spec | InputError = load_spec(inputs)
    except InputError as error:
        result = error
    assert str(result)
    assert time.process_time() - started < 5
    return result


def test_the_specimen_itself_is_well_formed() -> None:
    spec = outcome(Source("everything.yaml", EVERYTHING))
    assert isinstance(spec, Spec)
    assert None not in (spec.architecture, spec.workload, spec.mapping, spec.constraints)


def test_truncated_anywhere_it_is_read_or_refused() -> None:
    results = [outcome(Source("cut.yaml", EVERYTHING[:end])) for end in range(0, len(EVERYTHING), 7)]
    assert sum(isinstance(result, InputError) for result in results) > len(results) // 2


def paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [before] if before else []
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        found += paths(value[key], (*before, key))
    return found


def copied(value: Any) -> Any:
    if isinstance(value, YamlMap):
        mapping = YamlMap(value.origin, value.tag)
        mapping.update({key: copied(item) for key, item in value.items()})
        mapping.lines = dict(value.lines)
        return mapping
    if isinstance(value, YamlList):
        items = YamlList(value.origin)
        items.extend(copied(item) for item in value)
        items.lines = list(value.lines)
        return items
    return value


SPECIMEN = parse(EVERYTHING, "everything.yaml")
PATHS = paths(SPECIMEN)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.sampled_from(PATHS), st.sampled_from(CHANGES), st.sampled_from(JUNK), st.sampled_from(PATHS)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(KEYS),
)
def test_wrong_types_unknown_keys_and_missing_parts_are_read_or_refused(
    changes: list[tuple[tuple[Any, ...], str, Any, tuple[Any, ...]]], key: str
) -> None:
    document = copied(SPECIMEN)
    for path, change, junk, other in changes:
        holder: Any = document
        source: Any = SPECIMEN
        try:
            for step in path[:-1]:
                holder = holder[step]
            for step in other:
                source = source[step]
            if change == "replace":
                holder[path[-1]] = junk
            elif change == "copy":
                holder[path[-1]] = copied(source)
            elif change == "delete":
                del holder[path[-1]]
            elif isinstance(holder, dict):
                holder[key] = junk
            elif isinstance(holder, list):
                holder.append(junk)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has taken that place away
    outcome(document)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(EVERYTHING) - 1), st.sampled_from(CHARACTERS)), min_size=1, max_size=5))
def test_changed_characters_are_read_or_refused(changes: list[tuple[int, str]]) -> None:
    text = list(EVERYTHING)
    for position, character in changes:
        text[position] = character
    outcome(Source("changed.yaml", "".join(text)))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    outcome(Source("any.yaml", text))


@pytest.mark.parametrize(
    "text",
    [
        "problem: {shape: {dimensions: [" + ", ".join(f"A{n}" for n in range(20_000)) + "], data_spaces: []}}",
        "problem: {" + ", ".join(f"k{n}: 1" for n in range(50_000)) + "}",
        "architecture: {subtree: [{name: 'a" + " " * 100_000 + "['}]}",
        "architecture: {nodes: [!Component {name: A, class: SRAM, attributes: {"
        + ", ".join(f"a{n}: a{n + 1}" for n in range(5000))
        + ", a5000: 1}}]}",
        "variables: {a: '" + "(" * 5000 + "1" + ")" * 5000 + "'}\n" + architecture_of(),
        "\n".join(f"k{n}: &a{n} 1" for n in range(50_000)),
        "problem: '" + "a" * 5_000_000 + "'",
        "mapping: [{target: A, type: temporal, factors: '" + "M " * 100_000 + "'}]\n" + architecture_of(),
    ],
)
def test_large_inputs_end_soon(text: str) -> None:
    outcome(Source("large.yaml", text))


@pytest.mark.parametrize("repeated", ["M", "M ", "M=1,", "M=1 ", "M" + " " * 50])
def test_long_factors_and_permutations_end_soon(repeated: str) -> None:
    text = repeated * 20_000
    directive = f"mapping: [{{target: DRAM, type: temporal, factors: '{text}x', permutation: '{text}'}}]"
    shape = {"dimensions": ["M"], "data_spaces": [{"name": "A", "projection": [["M"]], "read_write": True}]}
    outcome(Source("long.yaml", directive + "\n" + architecture_of()), {"problem": {"shape": shape, "instance": {"M": 4}}})


def test_an_unknown_key_is_answered_with_the_nearest_known_one() -> None:
    error = complaint(EVERYTHING.replace("optimization_metrics", "optimisation_metrics"))
    assert str(error) == (
        "input0.yaml:38: mapper.optimisation_metrics: unknown key 'optimisation_metrics'; did you mean 'optimization_metrics'?"
    )
