"""Arithmetic in attributes (``max(32, width)``, ``ceil(log2(depth)) if depth > 1 else 1``), evaluated within bounds.

simpleeval walks the expression; this module gives it the operators and functions, each of which refuses results that
would cost more than a moment: no attribute access, no strings to grow, no powers beyond a few hundred digits.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import simpleeval

from stitchloop.errors import InputError, Place

if TYPE_CHECKING:
    from stitchloop.read.fields import Field

MAX_LENGTH = 2000
MAX_BITS = 2048
"""Bits of any integer in an expression."""
MAX_DEPTH = 50
"""Attributes that refer to one another in a chain, and brackets in one expression."""

Number = int | float | bool


class ExpressionError(ValueError):
    """The expression cannot be evaluated; the message is a clause for the user."""


def _number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise ExpressionError(f"{str(value)[:40]!r} is no number")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ExpressionError("a number grows beyond all bounds")
    return value


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return _number(function(*[_number(argument) for argument in arguments]))

    return call


def _power(base: Any, exponent: Any) -> Any:
    base, exponent = _number(base), _number(exponent)
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > MAX_BITS:
        raise ExpressionError("a power grows beyond all bounds")
    result = base**exponent
    if isinstance(result, complex):
        raise ExpressionError("a power is no real number")
    return _number(result)


def _factorial(value: Any) -> Any:
    if not isinstance(value, int) or not 0 <= value <= 170:
        raise ExpressionError("factorial of something that is not an integer from 0 to 170")
    return math.factorial(value)


def _numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        if not arguments:
            raise ExpressionError("a function without arguments")
        return function(*[_number(argument) for argument in arguments])

    return call


def _sum(*arguments: Any) -> Any:
    total: Any = 0
    for argument in arguments:
        total = _number(total + _number(argument))
    return total


OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: _bounded(operator.add),
    ast.Sub: _bounded(operator.sub),
    ast.Mult: _bounded(operator.mul),
    ast.Div: _bounded(operator.truediv),
    ast.FloorDiv: _bounded(operator.floordiv),
    ast.Mod: _bounded(operator.mod),
    ast.Pow: _power,
    ast.USub: _bounded(operator.neg),
    ast.UAdd: _bounded(operator.pos),
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: _bounded(operator.lt),
    ast.LtE: _bounded(operator.le),
    ast.Gt: _bounded(operator.gt),
    ast.GtE: _bounded(operator.ge),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{function.__name__: _bounded(function) for function in (math.ceil, math.floor, math.trunc, math.sqrt, math.exp)},
    **{function.__name__: _bounded(function) for function in (math.log, math.log2, math.log10, math.gcd, math.hypot)},
    **{function.__name__: _bounded(function) for function in (abs, round, int, float, bool)},
    "min": _numbers(min),
    "max": _numbers(max),
    "sum": _sum,
    "pow": _power,
    "factorial": _factorial,
}
CONSTANTS: dict[str, Any] = {"pi": math.pi, "e": math.e, "tau": math.tau, "inf": math.inf, "True": True, "False": False}
_REFUSED = (ast.Attribute, ast.Subscript, ast.JoinedStr, ast.FormattedValue)


def evaluate(text: str, names: Mapping[str, Any] | None = None) -> Any:
    """The value of an arithmetic expression.

    Parameters
    ----------
    text : str
    names : mapping, optional
        Values of the names that the expression may use, besides the constants and functions of this module.

    Raises
    ------
    ExpressionError
        When the text is no expression, uses an unknown name, or would grow beyond bounds.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression of {len(text)} characters")
    if text.count("(") + text.count("[") > MAX_DEPTH or max(text.count("-"), text.count("~"), text.count("not ")) > MAX_DEPTH:
        raise ExpressionError("an expression nested too deep")
    evaluator = simpleeval.SimpleEval(operators=OPERATORS, functions=FUNCTIONS, names=_Names(names or {}))
    for node in _REFUSED:
        evaluator.nodes.pop(node, None)
    try:
        tree = ast.parse(text.strip(), mode="eval")
        value = evaluator.eval(text, previously_parsed=tree.body)
    except ExpressionError:
        raise
    except simpleeval.NameNotDefined as error:
        raise ExpressionError(f"the name '{error.name}' has no value here") from None
    except simpleeval.FunctionNotDefined as error:
        raise ExpressionError(f"there is no function '{error.func_name}'") from None
    except ZeroDivisionError:
        raise ExpressionError("a division by zero") from None
    except RecursionError:
        raise ExpressionError("an expression nested too deep") from None
    except (SyntaxError, simpleeval.InvalidExpression, ValueError, TypeError, OverflowError, KeyError, MemoryError):
        raise ExpressionError("it is no arithmetic expression") from None
    if not isinstance(value, int | float | str):
        raise ExpressionError("it is no number")
    return value


class _Names:
    """Looks names up in the user's values, then among the constants."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = names

    def __getitem__(self, name: str) -> Any:
        try:
            return self.names[name]
        except KeyError:
            return CONSTANTS[name]


def evaluate_field(field: Field, names: Mapping[str, Any] | None = None) -> Any:
    """Evaluate the string of an input field, or raise :class:`InputError` at its place."""
    try:
        return evaluate(field.value, names)
    except ExpressionError as error:
        found = f"{field.shown()} is no value: {error}"
        raise InputError(field.place, found, "write a number or an arithmetic expression") from None


class Scope:
    """Attributes that may refer to one another and to those of an outer scope, evaluated when first asked for.

    A string that is no expression over known names stays a string (``type: LPDDR4``).
    """

    def __init__(self, fields: Mapping[str, Field], outer: Mapping[str, Any]) -> None:
        self.fields, self.outer = fields, outer
        self.values: dict[str, Any] = {}
        self.pending: list[str] = []

    def __getitem__(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        if name not in self.fields or (name in self.pending and name in self.outer):
            return self.outer[name]
        field = self.fields[name]
        if name in self.pending:
            chain = " -> ".join([*self.pending[self.pending.index(name) :], name])
            found = f"attributes that refer to one another in a circle ({chain})"
            raise InputError(field.place, found, "give one of them a number")
        if len(self.pending) >= MAX_DEPTH:
            raise InputError(field.place, f"a chain of more than {MAX_DEPTH} attributes", "shorten it")
        self.pending.append(name)
        try:
            self.values[name] = self._value(field)
        finally:
            self.pending.pop()
        return self.values[name]

    def _value(self, field: Field) -> Any:
        if not isinstance(field.value, str):
            if isinstance(field.value, int) and field.value.bit_length() > MAX_BITS:
                field.fail("a huge number", f"at most {MAX_BITS} bits are read")
            return field.value
        try:
            return evaluate(field.value, self)  # type: ignore[arg-type]
        except ExpressionError:
            return field.value

    def all(self) -> dict[str, Any]:
        """Every attribute, evaluated."""
        return {name: self[name] for name in self.fields}

    def place(self, name: str) -> Place:
        return self.fields[name].place
