"""The section ``problem`` of one Einsum."""

from __future__ import annotations

import pytest

from read_cases import PROBLEM, complaint, spec_of
from stitchloop.workload import Einsum, Term

CONV = """
problem:
  version: 0.4
  shape:
    name: conv
    dimensions: [C, M, R, P]
    coefficients:
    - {name: stride, default: 1}
    - {name: dilation, default: 2}
    data_spaces:
    - {name: Weights, projection: [[[C]], [[M]], [[R]]]}
    - {name: Inputs, projection: [[[C]], [[R, dilation], [P, stride]]], ranks: [C, W]}
    - {name: Outputs, projection: [[[M]], [[P]]], read_write: true}
  instance: {C: 3, M: 8, R: 3, P: 7, stride: 2, H: 15, Hpad: 1}
"""


def einsum(text: str) -> Einsum:
    workload = spec_of(text).workload
    assert workload is not None
    return workload.einsum


def test_projections_are_sums_of_products_with_coefficients() -> None:
    found = einsum(CONV)
    assert found.sizes == {"C": 3, "M": 8, "R": 3, "P": 7}
    assert found.tensor("Inputs").projection == ((Term("C"),), (Term("R", 2), Term("P", 2)))
    assert found.tensor("Inputs").rank_names == ("C", "W")
    assert [tensor.name for tensor in found.outputs] == ["Outputs"]
    assert found.size_of(found.tensor("Inputs")) == 3 * (1 + 2 * 2 + 2 * 6)


def test_extra_keys_of_the_instance_are_legal_but_a_misspelt_one_is_told() -> None:
    assert spec_of(CONV).warnings == ()
    (sentence,) = spec_of(CONV.replace("stride: 2", "Stride: 2")).warnings
    assert "'Stride' is neither a rank nor a coefficient" in sentence
    assert "did you mean 'stride'?" in sentence


@pytest.mark.parametrize("projection", ["[M, K]", "[[M], [K]]", "[[[M]], [[K]]]", "[[[M, 1]], [[1, K]]]"])
def test_plain_projections_may_be_written_shorter(projection: str) -> None:
    text = PROBLEM.replace("A, projection: [[[M]], [[K]]]", f"A, projection: {projection}")
    assert einsum(text) == einsum(PROBLEM)


def test_integer_literals_multiply() -> None:
    text = PROBLEM.replace("A, projection: [[[M]], [[K]]]", "A, projection: [[[M, 2], [K, 3, 2]]]")
    assert einsum(text).tensor("A").projection == ((Term("M", 2), Term("K", 6)),)


def test_sizes_may_stand_beside_the_shape_or_the_shape_beside_the_sizes() -> None:
    shape = PROBLEM.split("  instance:")[0]
    assert einsum(shape + "  M: 8\n  N: 4\n  K: 6\n") == einsum(PROBLEM)
    flat = """
problem:
  shape: gemm
  name: gemm
  dimensions: [M, N, K]
  data_spaces:
  - {name: A, projection: [[[M]], [[K]]]}
  - {name: B, projection: [[[K]], [[N]]]}
  - {name: Z, projection: [[[M]], [[N]]], read_write: true}
  M: 8
  N: 4
  K: 6
"""
    assert einsum(flat) == einsum(PROBLEM)


def test_dense_densities_are_read_and_sparse_ones_refused() -> None:
    dense = PROBLEM.replace("K: 6}", "K: 6, densities: {A: 1.0, B: {distribution: fixed_structured, density: 1}}}")
    assert einsum(dense) == einsum(PROBLEM)
    for sparse in ("densities: {A: 0.5}", "densities: {A: {density: 0.5, distribution: banded}}", "commonDensity: 0.1"):
        error = complaint(PROBLEM.replace("K: 6}", f"K: 6, {sparse}}}"))
        assert "only dense tensors" in str(error)


def test_sizes_may_be_expressions_and_large() -> None:
    assert einsum(PROBLEM.replace("M: 8", "M: 2**40")).sizes["M"] == 2**40


def test_sizes_may_use_the_variables() -> None:
    text = "variables: {version: 0.4, batch: 2, wide: batch * 8}\n" + PROBLEM.replace("M: 8", "M: wide // 2")
    assert einsum(text) == einsum(PROBLEM)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("M: 8, ", "", "no size for rank 'M'"),
        ("M: 8", "M: 0", "at least 1"),
        ("M: 8", "M: 1.5", "an integer is needed"),
        ("M: 8", "M: [8]", "an integer is needed"),
        ("M: 8", "M: true", "an integer is needed"),
        ("M: 8", "M: 9**9**9", "beyond all bounds"),
        ("M: 8", "M: " + "9" * 100, "at most"),
        ("[M, N, K]", "[M, N, K, M]", "'M' twice"),
        ("[M, N, K]", "[]", "no ranks"),
        ("[M, N, K]", "[M, N, 'K-1']", "rank name 'K-1'"),
        ("[M, N, K]", str([f"R{n}" for n in range(300)]).replace("'", ""), "300 ranks"),
        ("[[[M]], [[K]]]", "[[[M]], [[X]]]", "'X' in a projection"),
        ("[[[M]], [[K]]]", "[[[M, K]]]", "product of ranks"),
        ("[[[M]], [[K]]]", "[[[2]]]", "without a rank"),
        ("[[[M]], [[K]]]", "[[[M, stride]]]", "'stride' in a projection"),
        ("[[[M]], [[K]]]", "'[ M, K ]'", "nested lists"),
        ("[[[M]], [[K]]]", "3", "a list is needed"),
        ("name: B", "name: A", "'A' twice"),
        ("read_write: true", "read_write: false", "no data space that is written"),
        ("read_write: true", "read_write: maybe", "maybe"),
        ("read_write: true", "readwrite: true", "did you mean 'read_write'?"),
        ("data_spaces", "dataspaces", "did you mean 'data_spaces'?"),
        ("instance: {M: 8, N: 4, K: 6}", "instance: '0 <= M < 8'", "an instance in words"),
        ("name: gemm", "flatten: [{name: X, dimensions: [M, N]}]", "flattened ranks"),
        ("name: gemm", "coefficients: [{name: s}]", "without a value"),
    ],
)
def test_faults_are_named_with_key_path_and_mend(old: str, new: str, part: str) -> None:
    assert old in PROBLEM
    error = complaint(PROBLEM.replace(old, new, 1))
    assert part in str(error)
    assert error.place.path[0] == "problem"


@pytest.mark.parametrize("value", ["3", "{shape: 3}", "{shape: {}}", "{einsums: 3}", "[3]", "{shape: cnn-layer, C: 3}"])
def test_problems_of_no_known_form_are_refused(value: str) -> None:
    complaint(f"problem: {value}")
