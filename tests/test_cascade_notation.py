"""The extended Einsum notation: reading, printing back, what is inferred, and the errors with their lines."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchloop.cascade.cascade import State
from stitchloop.cascade.expression import Binary, Number, Unary, to_text
from stitchloop.cascade.functions import UNARY
from stitchloop.cascade.graph import cascade_graph, draw
from stitchloop.cascade.parse import EquationError, parse_equation
from stitchloop.cascade.read import load_cascade, read_cascade
from stitchloop.cascade.show import table, to_yaml
from stitchloop.cascade.stitch import stitch
from stitchloop.errors import InputError
from stitchloop.read.document import parse

PROBLEMS = Path(__file__).parents[1] / "problems"
SHIPPED = sorted([*(PROBLEMS / "mamba").glob("*.yaml"), *(PROBLEMS / "cascades").glob("*.yaml")])

SMALL = """\
problem:
  ranks:
    B: 4
    I: {size: 8, iterative: true}
    E: 6
    D: 2 * E
  constants: {half: 0.5}
  tensors:
    H: {initial: H0, final: Hlast}
  inputs: [X]
  weights: [W, V]
  outputs: [Y, Z]
  einsums:
    project: U[b,i,d] = X[b,i,e] * W[e,d]
    scan: H[b,i,d] = half * H[b,i-1,d] + U[b,i,d]
    both:
      equations:
        - Y[b,i,e] = H[b,i,d] * V[e,d]
        - Q[b,i,e] = U[b,i,d] * V[e,d]
    last: Z[b,i,e] = SiLU(Q[b,i,e])
"""


def read(text):
    return read_cascade(parse(text, "small.yaml"), "small.yaml")


def small(old="", new=""):
    assert old in SMALL
    return SMALL.replace(old, new, 1)


def test_parts_of_a_cascade():
    cascade = read(small())
    assert cascade.sizes == {"B": 4, "I": 8, "E": 6, "D": 12}
    assert cascade.iterative_ranks == ("I",)
    assert cascade.states == (State("H", "I", "H0", "Hlast"),)
    assert cascade.state_words(cascade.states[0]) == cascade.words("H0") == cascade.words("Hlast") == 48
    both = cascade.einsum("both")
    assert both.output_tensors == ("Y", "Q")
    assert both.ranks == ("B", "I", "E", "D")
    assert both.reduced == ("D",)
    assert both.is_gemm
    assert cascade.operations("both") == 2 * 4 * 8 * 6 * 12
    assert cascade.consumers["U"] == ("scan", "both")
    assert cascade.predecessors == {"project": frozenset(), "scan": {"project"}, "both": {"scan", "project"}, "last": {"both"}}
    assert cascade.with_sizes({"I": 1}).words("U") == 48
    assert [row["kind"] for row in table(cascade)] == ["GEMM", "elementwise", "GEMM", "silu"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_cascades_print_back(path):
    cascade = load_cascade(path)
    assert read(to_yaml(cascade)) == cascade


def test_variables_of_the_mamba_files():
    cascade = load_cascade(PROBLEMS / "mamba/mamba-2.8b.yaml", {"batch": 2, "sequence": 2**20})
    assert cascade.sizes == {"B": 2, "I": 2**20, "E": 2560, "D": 5120, "N": 16, "R": 160, "F": 4}
    assert load_cascade(PROBLEMS / "mamba/mamba-2.8b.yaml", {"phase": "generation"}).sizes["I"] == 1
    assert load_cascade(PROBLEMS / "mamba/mamba-2.8b.yaml", {"convolution_state": "false"}).state("TX").initial == 0
    assert load_cascade(PROBLEMS / "mamba/mamba-2.8b.yaml", {"convolution_state": "true"}).state("TX").initial == "TX0"
    assert (cascade.layers, len(cascade.einsums)) == (64, 24)


def test_the_line_survives_reading_with_other_files(tmp_path):
    file = tmp_path / "cascade.yaml"
    file.write_text(small("* W[e,d]", "* W[e,q]"))
    with pytest.raises(InputError) as caught:
        load_cascade(file)
    assert (caught.value.place.file, caught.value.place.line) == (str(file), 14)


@pytest.mark.parametrize("model", ["370m", "2.8b"])
def test_lines_of_a_shipped_template(tmp_path, model):
    """Templates keep their lines, so that a change to a shipped file is told where it stands."""
    text = (PROBLEMS / f"mamba/mamba-{model}.yaml").read_text()
    file = tmp_path / "changed.yaml"
    for old, new, message in (
        ("silu(TTX[", "silu(TTXX[", "undefined tensor TTXX"),
        ("* H[b,i-1,d,n]", "* H[b,i,d,n]", "cyclic dependence E17 -> E20 -> E17 that passes through no iterative rank"),
    ):
        line = next(n for n, row in enumerate(text.splitlines(), 1) if old in row)
        file.write_text(text.replace(old, new))
        with pytest.raises(InputError, match=message) as caught:
            load_cascade(file)
        assert caught.value.place.line == line


def test_list_forms_and_default_names():
    cascade = read_cascade(
        {"ranks": {"M": 2}, "einsums": ["T[m] = A[m]", {"name": "last", "equations": ["U[m] = T[m]", "V[m] = T[m]"]}]}
    )
    assert [einsum.name for einsum in cascade.einsums] == ["T", "last"]
    assert cascade.outputs == ("U", "V")


def test_any_listing_order_is_put_in_order_of_dependence():
    cascade = read_cascade({"ranks": {"M": 2}, "einsums": ["U[m] = T[m]", "T[m] = A[m]", "V[m] = U[m]"]})
    assert [einsum.name for einsum in cascade.einsums] == ["T", "U", "V"]


def test_weights_are_inferred_from_the_ranks_that_work_streams_along():
    einsums = ["K[b,l,d] = X[b,l,e] * W[e,d]", "Y[b,l,e] = K[b,l,d] * V[e,d] + MEAN[b,e]"]
    assert read_cascade({"ranks": {"B": 2, "L": 3, "E": 4, "D": 5}, "einsums": einsums}).weights == ("W", "V")
    marked = {"ranks": {"B": {"size": 2, "batch": True}, "L": 3, "E": 4, "D": 5}, "einsums": einsums}
    assert read_cascade(marked).weights == ("W", "V")
    assert read_cascade({**marked, "weights": ["W"]}).inputs == ("X", "V", "MEAN")
    assert read_cascade({**marked, "inputs": ["X"]}).weights == ("W", "V", "MEAN")


def test_states_may_stand_in_the_lists():
    with_states = small("inputs: [X]", "inputs: [X, H0]").replace("[Y, Z]", "[Y, Z, Hlast]")
    assert read(with_states) == read(small())


def test_gemm_like_einsums_of_mamba():
    cascade = load_cascade(PROBLEMS / "mamba/mamba-370m.yaml")
    assert [e.name for e in cascade.einsums if e.is_gemm] == ["E6", "E8", "E11", "E12", "E13", "E14", "E24"]


FAULTS = {
    "undefined tensor": ("H[b,i,d] * V", "HH[b,i,d] * V", 16, "undefined tensor HH", "did you mean H"),
    "undefined constant": ("half *", "helf *", 15, "undefined constant helf", "did you mean half"),
    "unknown index": ("W[e,d]", "W[k,d]", 14, "index 'k' names no rank", "b, i, e, d"),
    "syntax": ("* W[e,d]", "* * W[e,d]", 14, "found '*' at character 23", "operand is expected"),
    "unclosed": ("* W[e,d]", "* (W[e,d]", 14, "found the end", "')' is expected"),
    "missing index": ("= U[b,i,d]", "= U[b,i]", 16, "U[b, i] has 2 indices, but U has 3 dimensions", "index it as U[b, i, d]"),
    "cycle": ("X[b,i,e] * W", "X[b,i,e] + Z[b,i,e] * W", 14, "cyclic dependence project -> ", "earlier step"),
    "own output": ("half * H[b,i-1,d]", "half * H[b,i,d]", None, "", ""),
    "not iterative": ("{size: 8, iterative: true}", "8", None, "", ""),
    "unused output": ("[Y, Z]", "[Y]", 20, "unused output Z", "list it under outputs"),
    "no such output": ("[Y, Z]", "[Y, ZZ]", 12, "no equation uses the tensor ZZ", "did you mean Z"),
    "written weight": ("[W, V]", "[W, V, U]", 11, "Einsum project writes it", "remove"),
    "size": ("D: 2 * E", "D: 2 / 3", 6, "0.66", "whole number"),
    "size loop": ("D: 2 * E", "D: 2 * D", 6, "'D' is sized by itself", "as a number"),
    "zero": ("E: 6", "E: 0", 5, "found 0", "from 1 to 2^62"),
    "unknown key": ("constants:", "constant:", 7, "unknown key 'constant'", "did you mean constants"),
    "rank key": ("iterative: true", "iterativ: true", 4, "unknown key 'iterativ'", "did you mean iterative"),
    "function": ("SiLU(", "sillu(", 20, "unknown function 'sillu'", "silu"),
    "state without need": ("H: {initial", "U: {initial", 9, "U has a state", "remove"),
    "state name": ("initial: H0", "initial: U", 9, "U names another tensor already", "choose another"),
    "two writers": ("Z[b,i,e] = SiLU", "Y[b,i,e] = SiLU", 20, "Y is written by both and by last", "one Einsum"),
    "output index": ("U[b,i,d] = X", "U[b,i,d+1] = X", 14, "not indexed by plain, distinct ranks", "one variable"),
    "ahead": ("half * H[b,i-1,d]", "half * H[b,i+1,d]", None, "", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_errors_name_the_line_and_the_mend(fault):
    old, new, line, found, mend = FAULTS[fault]
    with pytest.raises(InputError) as caught:
        read(small(old, new))
    error = caught.value
    assert error.place.file == "small.yaml"
    assert error.place.line is not None
    assert error.exit_status == 2
    if line:
        assert error.place.line == line
    assert found in str(error)
    assert mend in str(error)


def test_cycle_through_a_rank_that_is_not_iterative():
    with pytest.raises(InputError, match="reaches -1; declare rank I 'iterative: true'"):
        read(small("{size: 8, iterative: true}", "8"))


def test_einsum_that_reads_itself():
    with pytest.raises(InputError, match=r"cyclic dependence: it reads H\[b, i, d\], which it writes itself"):
        read(small("half * H[b,i-1,d]", "half * H[b,i,d]").replace("  tensors:\n    H: {initial: H0, final: Hlast}\n", ""))


def test_recurrence_that_leaves_its_rank():
    problem = {
        "ranks": {"I": {"size": 4, "iterative": True}},
        "einsums": ["S[] = H[i-1]", "H[i] = S[] * X[i]"],
    }
    with pytest.raises(InputError, match=r"cyclic dependence through I, but S\[\] is not indexed by i"):
        read_cascade(problem)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({"ranks": {"M": 3, "K": 4}, "einsums": ["T[m] = A[m]", "U[k] = T[k]"]}, r"T\[k\] runs over K = 4, but T has M = 3"),
        ({"ranks": {"M": 3}, "tensors": {"A": {"shape": "[m]"}}, "einsums": ["T[m] = A[m+1]"]}, "reaches 3, but A ends at 2"),
        (
            {"ranks": {"M": 3}, "tensors": {"A": {"shape": "[m]"}}, "einsums": ["T[m] = A[m-1]"]},
            "reaches -1; give the tensor a 'padding'",
        ),
        ({"ranks": {"M": 3}, "einsums": ["T[m] = A[m] * A[m,m]"]}, "A has 1 dimensions"),
        ({"ranks": {"M": 3}, "einsums": ["T[m] = max[m](A[m])"]}, "rank M is both reduced and kept"),
        ({"ranks": {"M": 3, "K": 2}, "einsums": ["T[m] = max[k](A[m])"]}, "reduces K, which does not occur"),
        ({"ranks": {"M": 3, "m": 3}, "einsums": ["T[m] = A[m]"]}, "same index variable"),
        ({"ranks": {"M": 3}, "einsums": []}, "found a list"),
        ({"ranks": {"M": 3}, "einsums": [7]}, "found 7"),
        ({"ranks": {"M": True}, "einsums": ["T[m] = A[m]"]}, "found True"),
        ({"ranks": {"M": float("nan")}, "einsums": ["T[m] = A[m]"]}, "below 2"),
        ({"ranks": {"M": "1/0"}, "einsums": ["T[m] = A[m]"]}, "no value"),
        ({"ranks": [3], "einsums": ["T[m] = A[m]"]}, "a mapping from names"),
        ({"ranks": {"M": 3}, "einsums": ["T[m] = A[m]", "T[m] = B[m]"]}, "second Einsum named T"),
        ([], "found a list"),
        ({"ranks": {"M": 3}, "einsums": ["T[m] = " + "(" * 100 + "A[m]" + ")" * 100]}, "nested too deeply"),
        ({"ranks": {"M": 3}, "einsums": ["T[m] = " + "-" * 100 + "A[m]"]}, "expected here"),
        ({"ranks": {"M": 3}, "einsums": ["T[m] = A[m]" + " + A[m]" * 1000]}, "signs in one equation"),
        ({"ranks": {"M": 3}, "einsums": ["T[m] = A[m] ; B[m]"]}, "unknown sign ';'"),
        ({"ranks": {"M": 3}, "einsums": ["T[m] = A[m] * " + "9" * 5000]}, "a name or number of 5000 characters"),
        ({"ranks": {"M": "9" * 100 + " * " + "9" * 100}, "einsums": ["T[m] = A[m]"]}, "a whole number from 1 to 2"),
        ({"ranks": {"M": "1e200 * 1e200"}, "einsums": ["T[m] = A[m]"]}, "a whole number from 1 to 2"),
        ({"ranks": {"M": 2.5}, "einsums": ["T[m] = A[m]"]}, "found 2.5; a whole number"),
        ({"ranks": {"M": 3}, "tensors": {"T": {"shape": "[m]"}}, "einsums": ["T[m] = A[m]"]}, "give shapes to inputs only"),
        ({"ranks": {"M": 3}, "einsums": {"1-3": "T[m] = A[m]"}}, "found the name '1-3'"),
    ],
)
def test_faults_without_lines(problem, message):
    with pytest.raises(InputError, match=message):
        read_cascade(problem)


VARIABLES = {"m": "M", "k": "K"}


def expressions():
    leaves = st.sampled_from(["A[m]", "B[m-1]", "C[2*m+1]", "eps", "M", "3", "0.25"])

    def grow(inner):
        return st.one_of(
            st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            st.tuples(st.sampled_from(["exp", "relu", "silu"]), inner).map(lambda t: f"{t[0]}({t[1]})"),
            st.tuples(st.sampled_from(["max", "power"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
            inner.map(lambda t: f"-({t})"),
            inner.map(lambda t: f"max[k](D[m,k] * {t})"),
        )

    return st.recursive(leaves, grow, max_leaves=8)


@settings(max_examples=200, deadline=None)
@given(expressions())
def test_printing_an_equation_is_the_inverse_of_reading_it(text):
    equation = parse_equation(f"Z[m] = {text}", VARIABLES)
    again = parse_equation(str(equation), VARIABLES)
    assert again == equation
    assert str(again) == str(equation)


def test_precedence_and_brackets():
    expression = parse_equation("Z[m] = 1 - (2 - 3) * -A[m]", VARIABLES).expression
    assert expression == Binary(
        "subtract",
        Number(1),
        Binary(
            "multiply", Binary("subtract", Number(2), Number(3)), Unary("neg", parse_equation("Z[m]=A[m]", VARIABLES).expression)
        ),
    )
    assert to_text(expression) == "1 - (2 - 3) * -A[m]"


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ABmk[](),=+-*/ 1.2max", max_size=40))
def test_no_text_breaks_the_parser(text):
    with contextlib.suppress(EquationError):
        equation = parse_equation(text, VARIABLES)
        assert parse_equation(str(equation), VARIABLES) == equation


def test_template_and_file_faults(tmp_path):
    with pytest.raises(InputError, match=r"missing\.yaml"):
        load_cascade(tmp_path / "missing.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_text("problem: {{ 1 / 0 }}")
    with pytest.raises(InputError, match="template"):
        load_cascade(bad)
    bad.write_text("problem: {shape: {dimensions: [M], data_spaces: []}}")
    with pytest.raises(InputError, match=r"bad\.yaml"):
        load_cascade(bad)


def test_graph_and_picture(tmp_path):
    cascade = load_cascade(PROBLEMS / "mamba/mamba-370m.yaml")
    graph = cascade_graph(cascade)
    carried = [(u, v) for u, v, data in graph.edges(data=True) if data["carried"]]
    assert carried == [("E20", "E17")]
    draw(cascade, tmp_path / "cascade.png", stitch(cascade, "ri"))
    draw(cascade, tmp_path / "cascade.svg")
    assert (tmp_path / "cascade.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "cascade.svg").read_text()
    assert "E24" in text or "<use" in text


def test_the_guide_is_true(tmp_path, monkeypatch, capsys):
    """The example of problems/cascades/README.md is read, executed and stitched as it says, with every function it lists."""
    text = (PROBLEMS / "cascades/README.md").read_text()
    example, code = (text.split(f"```{language}\n")[1].split("```")[0] for language in ("yaml", "python"))
    (tmp_path / "gated.yaml").write_text(example)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["('project', 'gate', 'scan', 'scale')", "('out',)"]
    listed = next(line for line in text.splitlines() if line.startswith("| unary functions")).split("`")[1].split()
    assert sorted([*listed, "neg"]) == sorted(UNARY)
