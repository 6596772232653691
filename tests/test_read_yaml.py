"""YAML text to values: scalars, merges, places, and the bounds on hostile documents."""

from __future__ import annotations

import math
import time

import pytest

from stitchloop.errors import InputError
from stitchloop.read.document import MAX_DEPTH, YamlMap, expanded_size, parse


def refused(text: str, *parts: str) -> InputError:
    started = time.process_time()
    with pytest.raises(InputError) as caught:
        parse(text, "file.yaml")
    assert time.process_time() - started < 2
    for part in parts:
        assert part in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-9", 1e-9),
        ("12", 12),
        ("-3", -3),
        ("0x1f", 31),
        ("0o17", 15),
        ("010", 10),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("true", True),
        ("no", "no"),
        ("N", "N"),
        ("off", "off"),
        ("~", None),
        ("", None),
        ("45nm", "45nm"),
        ("1_000", "1_000"),
        ("2**10", "2**10"),
        ("12:30", "12:30"),
        ("'12'", "12"),
        ('"true"', "true"),
        (".inf", math.inf),
        ("!!str 12", "12"),
        ("!!int 12", 12),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert parse(f"key: {text}", None)["key"] == value


def test_tags_and_lines_are_kept() -> None:
    document = parse("nodes:\n- !Container\n  name: PE\n- !Component {name: RF}\n", "a.yaml")
    container, component = document["nodes"]
    assert (container.tag, component.tag) == ("Container", "Component")
    assert document["nodes"].lines == [("a.yaml", 2), ("a.yaml", 4)]
    assert container.lines["name"] == ("a.yaml", 3)


def test_shallow_merge_fills_in_missing_keys_only() -> None:
    document = parse("a: &a {x: 1, d: {p: 1}}\nb: {<<: *a, d: {q: 2}}\nc: {<<: [*a, {y: 3, x: 9}], y: 4}", None)
    assert document["b"] == {"x": 1, "d": {"q": 2}}
    assert document["c"] == {"x": 1, "d": {"p": 1}, "y": 4}


def test_deep_merge_descends_into_mappings_and_joins_lists() -> None:
    text = "a: &a {x: 1, d: {p: 1, l: [1]}}\nb:\n  <<<: *a\n  d: {q: 2, l: [2]}\n"
    document = parse(text, None)
    assert document["b"] == {"x": 1, "d": {"p": 1, "q": 2, "l": [2, 1]}}
    assert document["a"] == {"x": 1, "d": {"p": 1, "l": [1]}}, "the merged mapping itself stays as it was"


def test_an_anchor_given_twice_means_the_value_that_begins_last() -> None:
    assert parse("a: &x {b: &x {c: 1}}\nd: *x\ne: &x 2\nf: *x", None) == {"a": {"b": {"c": 1}}, "d": {"c": 1}, "e": 2, "f": 2}


def test_nomerge_protects_a_value_from_a_deep_merge() -> None:
    assert parse("a: &a {d: {p: 1}}\nb: {<<<: *a, d: !nomerge {q: 2}}", None)["b"] == {"d": {"q": 2}}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a: 1\nb:\n  a: 1\n  a: 2\n", ("file.yaml:4", "b", "'a' twice", "first on line 3")),
        ("a: [1, 2", ("file.yaml:", "no YAML")),
        ("a: {b: 1\nc: 2", ("no YAML",)),
        ("a: 'b", ("no YAML",)),
        ("\tb: 1", ("no YAML",)),
        ("a: *b", ("alias '*b'",)),
        ("a: &a [*a]", ("alias '*a'",)),
        ("a: 1\n---\nb: 2", ("second YAML document",)),
        ("a: !Contaner {}", ("tag '!Contaner'", "!Container")),
        ("a: !!python/object/apply:os.system [ls]", ("tag",)),
        ("a: !!python/name:os.system x", ("tag",)),
        ("a: !include_loaded 0", ("tag",)),
        ("a: {<<: 1}", ("no mapping",)),
        ("a: {? [1] : 2}", ("as a key",)),
        ("a: " + "9" * 5000, ("number of 5000 digits",)),
        ("a: \x00", ("no YAML",)),
    ],
)
def test_faults_are_named_with_their_place(text: str, parts: tuple[str, ...]) -> None:
    refused(text, *parts)


def test_a_billion_laughs_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    refused("\n".join(lines), "aliases")


def test_merges_cannot_grow_a_document_without_bound() -> None:
    lines = ["a0: &a0 {l: [1, 2, 3]}"]
    lines += [f"a{n}: &a{n}\n  <<<: [*a{n - 1}, *a{n - 1}]\n  l: [1]" for n in range(1, 40)]
    refused("\n".join(lines), "more than")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused(opening: str) -> None:
    refused(opening * 100_000)
    assert expanded_size(parse("[" * MAX_DEPTH + "]" * MAX_DEPTH, None)) == MAX_DEPTH


def test_included_documents_count_with_everything_in_them() -> None:
    included = parse("[" + "1, " * 1000 + "1]", None)
    with pytest.raises(InputError, match="aliases"):
        parse("a: &a !include_loaded 0\nb: [" + "*a, " * 1000 + "*a]", "f", includes=[included])
    assert isinstance(parse("a: !include_loaded 0", "f", includes=[YamlMap((None, None))])["a"], YamlMap)
