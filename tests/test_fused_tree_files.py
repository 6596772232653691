"""LoopTree's files: read, written and read again; what is wrong with them is named."""

from __future__ import annotations

import copy
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from fused_trees import conv_pair_2d, einsum, gemm_pair, random_tree, random_workload, tensor, two_readers
from stitchloop.errors import InputError
from stitchloop.fused.reference import evaluate_fused
from stitchloop.fused.tree import Branch, Compute, FusedMapping, Storage, Temporal
from stitchloop.read import load_spec
from stitchloop.read.fields import Field
from stitchloop.read.looptree import read_fused_mapping, read_workload
from stitchloop.validate.cases import read_cases
from stitchloop.workload import Term, Workload
from stitchloop.write.fused import (
    fused_files,
    fused_mapping_document,
    fused_problem_document,
    unfaithful,
    with_unique_ranks,
)
from stitchloop.write.fused_nest import format_loop_nest

PAIR: dict[str, Any] = {
    "problem": fused_problem_document(gemm_pair(8, 4, 6, 5)),
    "mapping": {
        "type": "fused",
        "nodes": [
            {"type": "storage", "target": 0, "dspace": ["A", "B", "D", "E"]},
            {"type": "temporal", "rank": "I2", "tile_shape": 2},
            {"type": "storage", "target": 1, "dspace": ["S"]},
            {
                "type": "sequential",
                "branches": [
                    [
                        {"type": "storage", "target": 1, "dspace": ["A", "B"]},
                        {"type": "compute", "einsum": "Producer", "target": 2},
                    ],
                    [
                        {"type": "storage", "target": 1, "dspace": ["D", "E"]},
                        {"type": "compute", "einsum": "Consumer", "target": 2},
                    ],
                ],
            },
        ],
    },
}


def read(document: dict[str, Any]) -> tuple[Workload, FusedMapping]:
    root = Field(document, file="pair.yaml")
    workload = read_workload(root.need("problem"))
    return workload, read_fused_mapping(root.need("mapping"), workload)


def test_recorded_problems_and_mappings_come_back_as_they_were() -> None:
    for case in read_cases(Path(__file__).parent / "data" / "fused" / "looptree.jsonl.gz"):
        workload, mapping = read(case)
        assert fused_problem_document(workload) == case["problem"]
        assert fused_mapping_document(mapping) == case["mapping"]


@pytest.mark.parametrize("seed", range(30))
def test_files_round_trip(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    workload = random_workload(random)
    mapping = random_tree(random, workload, spatial=0.2, levels=2)
    for name, text in fused_files(workload, mapping).items():
        (tmp_path / name).write_text(text)
    spec = load_spec([tmp_path / "fused-problem.yaml", tmp_path / "fused-mapping.yaml"])
    assert spec.workload is not None
    assert spec.fused_mapping == mapping
    for given, found in zip(workload.einsums, spec.workload.einsums, strict=True):
        assert (found.name, found.sizes) == (given.name, given.sizes)
        assert [(t.name, t.projection, t.is_output) for t in found.tensors] == [
            (t.name, t.projection, t.is_output) for t in given.tensors
        ]


def test_the_tools_own_form_is_read() -> None:
    text = """
    problem:
      - shape:
          name: Fc1
          dimensions: [ P1, R1, C1 ]
          data_spaces:
          - {name: Fmap1, dimensions: [ Fmap1_C, Fmap1_P ], projection: '[ C1, 2*P1 + R1 ]'}
          - {name: Fmap2, dimensions: [ Fmap2_C, Fmap2_P ], projection: '[ C1, P1 ]', read_write: True}
        instance: >-
          0 <= P1 < 9 and
          0 <= R1 <= 2 and 0 <= C1 < 2
    """
    workload = read_workload(Field(yaml.safe_load(text)).need("problem"))
    first = workload.einsum.tensors[0]
    assert first.projection == ((Term("C1"),), (Term("P1", 2), Term("R1")))
    assert first.rank_names == ("Fmap1_C", "Fmap1_P")
    assert workload.einsum.sizes == {"P1": 9, "R1": 3, "C1": 2}


@pytest.mark.parametrize(
    ("projection", "terms"),
    [
        ("[ P1 + R1 ]", ((Term("P1"), Term("R1")),)),
        ("[R1*2+P1*3]", ((Term("R1", 2), Term("P1", 3)),)),
        ("[ 2P1 - R1, C1 ]", ((Term("P1", 2), Term("R1", -1)), (Term("C1"),))),
        ("[ P1 + P1 ]", ((Term("P1", 2),),)),
        ("[ ]", ()),
    ],
)
def test_projections(projection: str, terms: object) -> None:
    shape = {
        "name": "X",
        "dimensions": ["P1", "R1", "C1"],
        "data_spaces": [{"name": "T", "projection": projection}, {"name": "O", "projection": "[ P1 ]", "read_write": True}],
    }
    problem = [{"shape": shape, "instance": {"P1": 3, "R1": 2, "C1": 4}}]
    assert read_workload(Field(problem)).einsum.tensors[0].projection == terms


def test_a_list_of_plain_shapes() -> None:
    def gemm(first: str, second: str, out: str) -> dict[str, Any]:
        spaces = [
            {"name": first, "projection": [[["M"]], [["K"]]]},
            {"name": second, "projection": [[["K"]], [["N"]]]},
            {"name": out, "projection": [[["M"]], [["N"]]], "read_write": True},
        ]
        return {"shape": {"dimensions": ["M", "N", "K"], "data_spaces": spaces}}

    problem = [
        {**gemm("X", "W1", "Y"), "instance": {"M": 4, "N": 6, "K": 2}},
        {**gemm("Y", "W2", "Z"), "instance": {"M": 4, "N": 3, "K": 6}},
    ]
    workload = read_workload(Field(problem))
    assert [e.name for e in workload.einsums] == ["Einsum1", "Einsum2"]
    mapping = FusedMapping(
        (
            Storage(0, ("X", "W1", "W2", "Z")),
            Temporal("M", 2),
            Storage(1, ("Y",)),
            Branch("sequential", ((Temporal("N", 3), Compute("Einsum1", 2)), (Compute("Einsum2", 2),))),
        )
    )
    renamed, tree = with_unique_ranks(workload, mapping)
    ranks = [rank for e in renamed.einsums for rank in e.ranks]
    assert len(set(ranks)) == len(ranks) == 6
    assert (tree.nodes[1], tree.nodes[3].branches[0][0]) == (Temporal("M2", 2), Temporal("N1", 3))  # type: ignore[union-attr]
    assert evaluate_fused(renamed, tree) == evaluate_fused(workload, mapping)


FAULTS: list[tuple[tuple[str | int, ...], Any, str, str]] = [
    (("mapping", "type"), "tiled", "mapping of type 'tiled'", "type: fused"),
    (("mapping", "nodes", 0, "type"), "memory", "node type 'memory'", "types are"),
    (("mapping", "nodes", 0, "dspace"), ["A", "B", "D", "Z"], "unknown tensor 'Z'", "tensors are A, B"),
    (("mapping", "nodes", 0, "dspace"), ["A", "B", "D"], "'E' is first stored below a loop", "target 0"),
    (("mapping", "nodes", 0, "dspace"), ["A", "A", "B", "D", "E"], "a tensor twice", ""),
    (("mapping", "nodes", 0, "target"), -1, "-1", "at least 0"),
    (("mapping", "nodes", 1, "rank"), "I1", "no rank of 'Consumer'", "use one of I2, L2, J2"),
    (("mapping", "nodes", 1, "tile_shape"), 9, "tile shape 9 of rank 'I2' of size 8", "at most 8"),
    (("mapping", "nodes", 1, "tile_shape"), 0, "0", "at least 1"),
    (("mapping", "nodes", 1, "tile_shape"), "two", "'two'", ""),
    (("mapping", "nodes", 1, "factor"), 2, "unknown key 'factor'", ""),
    (("mapping", "nodes", 3, "branches"), [], "no branches", ""),
    (("mapping", "nodes", 3, "branches", 0, 1, "einsum"), "Maker", "unknown Einsum 'Maker'", "Producer, Consumer"),
    (("mapping", "nodes", 3, "branches", 0, 1, "einsum"), "Consumer", "0 compute nodes for Einsum 'Producer'", ""),
    (("mapping", "nodes", 3, "branches", 0), [], "no nodes", "compute node"),
    (("mapping", "nodes", 2, "dspace"), ["A"], "no storage of 'S'", ""),
    (("problem", 0, "instance"), "0 <= I1 < 8 and 0 <= K1 < 4", "no size of rank 'L1'", ""),
    (("problem", 0, "instance"), "0 <= I1 < 8 and 0 <= K1 < 4 and 0 <= L1 < 0", "rank 'L1' of size 0", ""),
    (("problem", 0, "instance"), "0 <= I1 < 8 and 0 <= K1 < 4 and 1 <= L1 < 6", "rank 'L1' from 1", "0 <= L1 < 5"),
    (("problem", 0, "instance"), "I1 < 8", "condition 'I1 < 8'", ""),
    (("problem", 0, "instance"), "0 <= I1 < 8 and 0 <= K1 < 4 and 0 <= L1 < 6 and 0 <= M < 2", "unknown rank 'M'", ""),
    (("problem", 0, "instance"), "0 <= I1 < 8 and 0 <= K1 < 4 and 0 <= L1 < 5", "reads 6 along rank S_1 of 'S'", "sizes agree"),
    (("problem", 0, "shape", "data_spaces", 0, "projection"), "[ I1, K2 ]", "'K2'", ""),
    (("problem", 0, "shape", "data_spaces", 0, "projection"), "[ I1, K1*K1 ]", "K1*K1", "sums such as"),
    (("problem", 0, "shape", "data_spaces", 0, "projection"), "I1, K1", "projection 'I1, K1'", "brackets"),
    (("problem", 0, "shape", "data_spaces", 0, "projection"), "[ I1, ]", "an empty sum", ""),
    (("problem", 0, "shape", "data_spaces", 0, "projection"), "[ __import__('os'), K1 ]", "__import__", ""),
    (("problem", 0, "shape", "data_spaces", 0, "dimensions"), ["A_0"], "1 dimensions and 2 projections", ""),
    (("problem", 0, "shape", "data_spaces", 1, "name"), "A", "tensor 'A' twice", ""),
    (("problem", 0, "shape", "data_spaces", 2, "read_write"), False, "no output", "read_write: true"),
    (("problem", 0, "shape", "name"), "Consumer", "2 Einsums named 'Consumer'", ""),
    (("problem", 1, "shape", "data_spaces", 2, "name"), "S", "", ""),
    (("problem", 1, "shape", "data_spaces", 0), {"name": "S", "projection": "[ I2 ]"}, "1 rank here and 2", ""),
]


@pytest.mark.parametrize(("keys", "value", "found", "mend"), FAULTS)
def test_faults_are_named(keys: tuple[str | int, ...], value: Any, found: str, mend: str) -> None:
    document = copy.deepcopy(PAIR)
    place: Any = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    with pytest.raises(InputError) as caught:
        read(document)
    assert found in caught.value.found
    assert mend in caught.value.mend
    assert caught.value.place.file == "pair.yaml"
    assert caught.value.place.path[0] == keys[0]


def test_a_cycle_is_named() -> None:
    one = einsum("One", {"I1": 4}, tensor("X", "I1"), tensor("Y", "I1", output=True))
    two = einsum("Two", {"I2": 4}, tensor("Y", "I2"), tensor("X", "I2", output=True))
    with pytest.raises(InputError, match="need each other's outputs"):
        read_workload(Field(fused_problem_document(Workload((one, two)))))


def test_an_intermediate_has_to_be_stored_above_the_branch() -> None:
    document = copy.deepcopy(PAIR)
    nodes = document["mapping"]["nodes"]
    del nodes[2]
    for branch in nodes[2]["branches"]:
        branch.insert(0, {"type": "storage", "target": 1, "dspace": ["S"]})
    with pytest.raises(InputError, match="'S' is first stored inside one branch"):
        read(document)


def test_a_producer_has_to_come_first() -> None:
    document = copy.deepcopy(PAIR)
    document["mapping"]["nodes"][3]["branches"].reverse()
    with pytest.raises(InputError, match="comes after a reader"):
        read(document)


def test_deep_nesting_is_refused() -> None:
    nodes: list[Any] = [{"type": "compute", "einsum": "Producer", "target": 2}]
    for _ in range(200):
        nodes = [{"type": "sequential", "branches": [nodes]}]
    with pytest.raises(InputError, match="nested more than"):
        read_fused_mapping(Field({"type": "fused", "nodes": nodes}))


def test_trees_that_the_tool_gets_wrong_are_named() -> None:
    workload, mapping = read(PAIR)
    assert unfaithful(workload, mapping) == []
    residual = two_readers(4, 3, 4)
    tree = FusedMapping(
        (
            Storage(0, ("A", "B", "E")),
            Temporal("I3", 2),
            Storage(1, ("S", "T")),
            Branch("sequential", tuple((Compute(name, 2),) for name in ("Make", "Scale", "Add"))),
        )
    )
    (remark,) = unfaithful(residual, tree)
    assert "S of Make has 2 readers (Scale, Add)" in remark
    assert f"# LoopTree: {remark}" in fused_files(residual, tree)["fused-mapping.yaml"]
    left, right = (
        einsum(name, {f"I{n}": 4, f"L{n}": 3}, tensor("X", f"I{n}", f"L{n}"), tensor(name.upper(), f"I{n}", output=True))
        for n, name in enumerate(("left", "right"), 1)
    )
    apart = FusedMapping(
        (Storage(0, ("X", "LEFT", "RIGHT")), Branch("sequential", ((Compute("left", 1),), (Compute("right", 1),))))
    )
    (remark,) = unfaithful(Workload((left, right)), apart)
    assert "a set with two heads" in remark


def test_the_loop_nest_shows_blocks_and_trips() -> None:
    workload = conv_pair_2d(4, 3, (3, 1), (1, 2, 1))
    mapping = FusedMapping(
        (
            Storage(0, ("F0", "W1", "W2", "F2")),
            Temporal("P2", 3),
            Storage(1, ("F1",)),
            Branch("pipeline", ((Temporal("M1", 1), Compute("Conv1", 2)), (Compute("Conv2", 2),))),
        )
    )
    text = format_loop_nest(workload, mapping, {1: "GLB"})
    assert text.splitlines() == [
        "DRAM holds F0[1, 6, 3], W1[2, 1], W2[1, 2, 3, 1], F2[1, 4, 3]",
        "for P2 in tiles of 3 (2)",
        "| GLB holds F1[2, 5, 3]",
        "| side by side in a pipeline, each in its own space:",
        "| +- for M1 in tiles of 1 (2)",
        "| |  | compute Conv1: F1[M1, P1, Q1] += F0[C1, P1, Q1] * W1[M1, C1]",
        "| +- compute Conv2: F2[N2, P2, Q2] += F1[M2, P2 + R2, Q2 + S2] * W2[N2, M2, R2, S2]",
    ]


def strided_pair(size: int, stride: int) -> Workload:
    first = einsum("One", {"P1": stride * size, "C1": 2}, tensor("X", "P1", "C1"), tensor("Y", "P1", output=True))
    second = einsum("Two", {"P2": size - 1, "R2": 2}, tensor("Y", f"{stride}*P2+R2"), tensor("Z", "P2", output=True))
    return Workload((first, second))


def test_sizes_that_nobody_can_step_through_end_soon() -> None:
    size = 2**55
    tree = FusedMapping(
        (
            Storage(0, ("X", "Z")),
            Temporal("P2", 5),
            Storage(1, ("Y",)),
            Branch("sequential", ((Temporal("P1", 2), Compute("One", 2)), (Temporal("P2", 1), Compute("Two", 2)))),
        )
    )
    assert evaluate_fused(strided_pair(size, 2), tree).operations == {"One": 4 * (size - 1), "Two": 2 * (size - 1)}
    with pytest.raises(InputError, match="has to be stepped through"):
        evaluate_fused(strided_pair(size, 3), tree)
    few = evaluate_fused(strided_pair(1000, 3), tree)
    assert few.operations == {"One": 4 * 999, "Two": 2 * 999}
