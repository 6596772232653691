"""The operators of extended Einsums, by name: unary functions, map operators and reduce operators, as numpy computes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf

import numpy as np

Array = np.ndarray


def _sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -x))


_erf = np.vectorize(erf, otypes=[float])


UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "square": np.square,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "reciprocal": lambda x: 1.0 / x,
    "ceil": np.ceil,
    "floor": np.floor,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "softplus": lambda x: np.logaddexp(0.0, x),
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": lambda x: 0.5 * x * (1.0 + _erf(x / np.sqrt(2.0))),
}
"""Unary functions; an equation applies one as ``exp(...)``. Names are read without regard to case (``SiLU``)."""


@dataclass(frozen=True)
class MapOperator:
    """A pointwise operator of two operands. ``symbol`` is its infix form, or None when it is written as a call."""

    name: str
    compute: Callable[[Array, Array], Array]
    symbol: str | None = None
    precedence: int = 3


MAP: dict[str, MapOperator] = {
    operator.name: operator
    for operator in (
        MapOperator("add", np.add, "+", 1),
        MapOperator("subtract", np.subtract, "-", 1),
        MapOperator("multiply", np.multiply, "*", 2),
        MapOperator("divide", np.divide, "/", 2),
        MapOperator("max", np.maximum),
        MapOperator("min", np.minimum),
        MapOperator("power", np.power),
    )
}
"""Map operators; ``a + b`` is ``add``, ``max(a, b)`` is ``max``."""

INFIX = {operator.symbol: operator for operator in MAP.values() if operator.symbol}


@dataclass(frozen=True)
class ReduceOperator:
    """An operator that removes ranks. ``identity`` is its value over no points."""

    name: str
    compute: Callable[..., Array]
    identity: float


REDUCE: dict[str, ReduceOperator] = {
    "sum": ReduceOperator("sum", np.sum, 0.0),
    "prod": ReduceOperator("prod", np.prod, 1.0),
    "max": ReduceOperator("max", np.max, -np.inf),
    "min": ReduceOperator("min", np.min, np.inf),
}
"""Reduce operators; an equation names one as ``max[j](...)``, and ``sum`` is meant where ranks vanish without one."""

REDUCE_ALIASES = {"add": "sum", "multiply": "prod"}
