"""Values of expressions without tensors: rank sizes and constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from stitchloop.cascade.expression import Binary, Expression, Name, Number, Unary

_UNARY: dict[str, Callable[[float], float]] = {
    "neg": lambda x: -x,
    "abs": abs,
    "sqrt": math.sqrt,
    "ceil": math.ceil,
    "floor": math.floor,
    "exp": math.exp,
    "log": math.log,
}
_BINARY: dict[str, Callable[[float, float], float]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "max": max,
    "min": min,
    "power": math.pow,
}


def evaluate_scalar(node: Expression, names: Mapping[str, float]) -> float:
    """The number that an expression of numbers and names stands for.

    Raises
    ------
    KeyError
        For a name without a value.
    ValueError, ArithmeticError
        For an expression that has none.
    """
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Name):
        return names[node.name]
    if isinstance(node, Unary) and node.function in _UNARY:
        return _UNARY[node.function](evaluate_scalar(node.operand, names))
    if isinstance(node, Binary):
        return _BINARY[node.operator](evaluate_scalar(node.left, names), evaluate_scalar(node.right, names))
    raise ValueError("it uses a tensor or a function that numbers do not take here")
