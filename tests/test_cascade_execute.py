"""Every shipped cascade, executed at small sizes, equals the layer written directly in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stitchloop.cascade.execute import execute, input_shapes, random_inputs
from stitchloop.cascade.read import load_cascade, read_cascade

PROBLEMS = Path(__file__).parents[1] / "problems"


def silu(x):
    return x / (1 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(x))


def rms(x, axes, eps=1e-5):
    return x / np.sqrt(np.mean(x * x, axis=axes, keepdims=True) + eps)


def layer_norm(x, gain, shift, eps=1e-5):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * gain + shift


def causal(x, kernel, past=None):
    """Depthwise causal convolution along axis 1; tap f multiplies the value f steps back."""
    taps = kernel.shape[-1]
    past = np.zeros((x.shape[0], taps - 1, *x.shape[2:])) if past is None else past
    padded = np.concatenate([past, x], axis=1)
    return sum(padded[:, taps - 1 - f : taps - 1 - f + x.shape[1]] * kernel[..., f] for f in range(taps))


def mamba(v, convolution_past=None):
    """A Mamba-1 layer as its reference code does it: one loop over the positions."""
    residual = v["OUTprev"] + v["LEXprev"]
    normed = rms(residual, -1) * v["G"]
    x = silu(causal(normed @ v["WTX"], v["WTTX"], convolution_past) + v["cbias"])
    z = normed @ v["WRX"]
    delta = softplus(x @ v["WTTD"] @ v["WTD"] + v["dbias"])
    b, c = x @ v["WB"], x @ v["WC"]
    h = v["H0"]
    y = np.empty_like(x)
    for i in range(x.shape[1]):
        h = np.exp(delta[:, i, :, None] * v["A"]) * h + (delta[:, i] * x[:, i])[:, :, None] * b[:, i, None, :]
        y[:, i] = (h * c[:, i, None, :]).sum(-1) + v["Dskip"] * x[:, i]
    return {"LEX": residual, "OUT": (y * silu(z)) @ v["WO"], "Hlast": h}


def mamba_2(v):
    residual = v["OUTprev"] + v["LEXprev"]
    normed = rms(residual, -1) * v["G"]
    x, b, c = (
        silu(causal(np.tensordot(normed, v[w], 1), v[k]) + v[bias])
        for w, k, bias in (("WX", "KX", "biasX"), ("WB", "KB", "biasB"), ("WC", "KC", "biasC"))
    )
    dt = softplus(normed @ v["WDT"] + v["dtbias"])
    state, y = v["ST0"], np.empty_like(x)
    for i in range(x.shape[1]):
        state = np.exp(dt[:, i] * v["A"])[..., None, None] * state + np.einsum("bh,bhp,bn->bhpn", dt[:, i], x[:, i], b[:, i])
        y[:, i] = np.einsum("bhpn,bn->bhp", state, c[:, i]) + v["Dskip"][:, None] * x[:, i]
    gated = rms(y * silu(np.tensordot(normed, v["WZ"], 1)), (-2, -1)) * v["GY"]
    return {"LEX": residual, "OUT": np.tensordot(gated, v["WO"], 2), "STlast": state}


def ssd(v):
    """The recurrence that the chunked form must equal, position by position."""
    x, b, c, dt = (v[name].reshape(v[name].shape[0], -1, *v[name].shape[3:]) for name in ("X", "BX", "CX", "DT"))
    state, y = v["ST0"], np.empty_like(x)
    for i in range(x.shape[1]):
        state = np.exp(dt[:, i] * v["A"])[..., None, None] * state + np.einsum("bh,bhp,bn->bhpn", dt[:, i], x[:, i], b[:, i])
        y[:, i] = np.einsum("bhpn,bn->bhp", state, c[:, i])
    return {"Y": y.reshape(v["X"].shape), "STlast": state}


def attend(x, v, mask=0.0):
    q, k, value = (np.einsum("bie,ehd->bhid", x, v[w]) for w in ("WQ", "WK", "WV"))
    scores = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1]) + mask
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    return np.einsum("bhij,bhjd,hde->bie", weights, value, v["WO"])


def transformer(v):
    from scipy.stats import norm

    y = v["X"] + attend(layer_norm(v["X"], v["G1"], v["BETA1"]), v, v["MASK"])
    hidden = layer_norm(y, v["G2"], v["BETA2"]) @ v["W1"] + v["BIAS1"]
    return {"OUT": y + (hidden * norm.cdf(hidden)) @ v["W2"] + v["BIAS2"]}


def convolution_block(v):
    from scipy.signal import correlate

    def scaled(x, n):
        return x * v[f"G{n}"][:, None, None] + v[f"T{n}"][:, None, None]

    narrow = np.maximum(scaled(np.einsum("bcpq,mc->bmpq", v["X"], v["W1"]), 1), 0)
    same = np.array(
        [[sum(correlate(x, w, "same") for x, w in zip(image, kernels, strict=True)) for kernels in v["W2"]] for image in narrow]
    )
    wide = scaled(np.einsum("bnpq,kn->bkpq", np.maximum(scaled(same, 2), 0), v["W3"]), 3)
    return {"OUT": np.maximum(wide + v["X"], 0)}


MAMBA = {"B": 2, "I": 7, "E": 6, "D": 12, "N": 3, "R": 2, "F": 4}
MAMBA_2 = {"B": 2, "I": 6, "E": 6, "P": 3, "H": 4, "N": 5}
CASES = {
    "mamba/mamba-370m.yaml": (mamba, MAMBA),
    "mamba/mamba-2.8b.yaml": (mamba, MAMBA),
    "mamba/mamba-2-130m.yaml": (mamba_2, MAMBA_2),
    "mamba/mamba-2-370m.yaml": (mamba_2, MAMBA_2),
    "mamba/mamba-2-2.7b.yaml": (mamba_2, MAMBA_2),
    "mamba/ssd.yaml": (ssd, {"B": 2, "K": 3, "T": 4, "U": 4, "H": 2, "P": 3, "N": 5}),
    "cascades/attention.yaml": (lambda v: {"OUT": attend(v["X"], v)}, {"B": 2, "I": 5, "J": 5, "H": 3, "D": 4, "E": 12}),
    "cascades/transformer.yaml": (transformer, {"B": 2, "I": 5, "J": 5, "H": 3, "D": 4, "E": 12, "M": 20}),
    "cascades/convolution-block.yaml": (convolution_block, {"B": 2, "P": 5, "Q": 6, "C": 4, "M": 3, "N": 3, "K": 4}),
}


def test_every_shipped_cascade_is_compared():
    paths = [path for folder in ("mamba", "cascades") for path in (PROBLEMS / folder).glob("*.yaml")]
    shipped = {path.relative_to(PROBLEMS).as_posix() for path in paths}
    assert shipped == set(CASES)


@pytest.mark.parametrize("file", CASES)
def test_cascade_equals_direct_code(file):
    direct, sizes = CASES[file]
    cascade = load_cascade(PROBLEMS / file).with_sizes(sizes)
    values = {name: 0.5 * value for name, value in random_inputs(cascade, seed=3).items()}
    for name, value in (("LOWER", np.tri), ("MASK", lambda n: np.where(np.tri(n), 0.0, -1e30))):
        if name in values:
            values[name] = value(values[name].shape[0])
    found, expected = execute(cascade, values), direct(values)
    for name, value in expected.items():
        assert found[name].shape == value.shape
        assert np.max(np.abs(found[name] - value)) <= 1e-12 * max(1.0, np.max(np.abs(value)))


def test_generation_continues_prefill():
    """Step by step with the convolution's state carried gives what one pass over all positions gives."""
    variables = {"convolution_state": True}
    whole = load_cascade(PROBLEMS / "mamba/mamba-370m.yaml", variables).with_sizes(MAMBA)
    values = {name: 0.5 * value for name, value in random_inputs(whole).items()}
    assert values["TX0"].shape == (2, 3, 12)
    expected = mamba(values, values["TX0"])
    assert np.max(np.abs(execute(whole, values)["OUT"] - expected["OUT"])) <= 1e-12
    step = load_cascade(PROBLEMS / "mamba/mamba-370m.yaml", {**variables, "phase": "generation"}).with_sizes({**MAMBA, "I": 1})
    h, tx, outputs = values["H0"], values["TX0"], []
    for i in range(MAMBA["I"]):
        now = {name: values[name][:, i : i + 1] for name in ("OUTprev", "LEXprev")}
        found = execute(step, {**values, **now, "H0": h, "TX0": tx})
        h, tx = found["Hlast"], found["TXlast"]
        outputs.append(found["OUT"])
    assert np.max(np.abs(np.concatenate(outputs, axis=1) - expected["OUT"])) <= 1e-12
    assert np.max(np.abs(h - expected["Hlast"])) <= 1e-12


def test_recurrence_against_a_loop():
    problem = {"ranks": {"I": {"size": 5, "iterative": True}, "N": 3}, "einsums": ["H[i,n] = 0.5 * H[i-1,n] + H[i-2,n] * X[i,n]"]}
    cascade = read_cascade({**problem, "tensors": {"H": {"initial": "H0", "final": "last"}}})
    assert input_shapes(cascade) == {"X": (5, 3), "H0": (2, 3)}
    values = random_inputs(cascade)
    h = list(values["H0"])
    for i in range(5):
        h.append(0.5 * h[-1] + h[-2] * values["X"][i])
    found = execute(cascade, values)
    np.testing.assert_allclose(found["H"], h[2:], rtol=0, atol=1e-15)
    np.testing.assert_array_equal(found["last"], h[-2:])


def test_initial_state_as_a_number():
    cascade = read_cascade(
        {
            "ranks": {"I": {"size": 4, "iterative": True}},
            "tensors": {"H": {"initial": 7}},
            "einsums": ["H[i] = max(H[i-1], X[i])"],
        }
    )
    assert execute(cascade, {"X": [1.0, 9.0, 2.0, 3.0]})["H"].tolist() == [7, 9, 9, 9]


@pytest.mark.parametrize(
    ("equation", "expected"),
    [
        ("Z[m] = A[m,k] * B[k]", lambda a, b: a @ b),
        ("Z[m] = max[k](A[m,k] - B[k])", lambda a, b: (a - b).max(1)),
        ("Z[m] = min[k](abs(A[m,k]) + B[k])", lambda a, b: (abs(a) + b).min(1)),
        ("Z[] = prod[m,k](A[m,k])", lambda a, b: a.prod()),
        ("Z[m] = sum[k](A[m,k]) / K", lambda a, b: a.mean(1)),
        ("Z[m] = 2 * sum[k](A[m,k]) - sum[k](B[k])", lambda a, b: 2 * a.sum(1) - b.sum()),
        ("Z[m,k] = max(A[m,k], min(B[k], 0.5))", lambda a, b: np.maximum(a, np.minimum(b, 0.5))),
        ("Z[m,k] = -A[m,k] * -(B[k] - 3)", lambda a, b: -a * -(b - 3)),
        ("Z[m,k] = A[m,k] - (B[k] - 1) / (2 / B[k])", lambda a, b: a - (b - 1) / (2 / b)),
        ("Z[m,k] = tanh(sigmoid(A[m,k])) * relu(square(B[k]))", lambda a, b: np.tanh(1 / (1 + np.exp(-a))) * b**2),
        ("Z[m] = A[m, 2]", lambda a, b: a[:, 2]),
        ("Z[m] = A[m, 4-2*m]", lambda a, b: a[np.arange(3), 4 - 2 * np.arange(3)]),
        ("Z[m] = power(abs(A[m,m+1]), 3) + gelu(0)", lambda a, b: abs(np.diagonal(a, 1)) ** 3),
    ],
)
def test_operators(equation, expected):
    shapes = {name: {"shape": shape} for name, shape in (("A", ["m", "k"]), ("B", ["k"])) if f"{name}[" in equation}
    cascade = read_cascade({"ranks": {"M": 3, "K": 5}, "tensors": shapes, "einsums": [equation]})
    generator = np.random.default_rng(1)
    a, b = generator.standard_normal((3, 5)), generator.standard_normal(5)
    given = {name: value for name, value in (("A", a), ("B", b)) if name in input_shapes(cascade)}
    np.testing.assert_allclose(execute(cascade, given)["Z"], expected(a, b), rtol=1e-14, atol=1e-15)


def test_inputs_are_checked():
    cascade = read_cascade({"ranks": {"M": 3}, "einsums": ["Z[m] = A[m]"]})
    with pytest.raises(ValueError, match=r"input A of shape \(3,\) is missing"):
        execute(cascade, {})
    with pytest.raises(ValueError, match="has shape"):
        execute(cascade, {"A": np.zeros(4)})
    big = cascade.with_sizes({"M": 2**28})
    with pytest.raises(ValueError, match="too many to execute"):
        execute(big, {"A": np.broadcast_to(0.0, 2**28)})
