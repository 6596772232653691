"""Equations of extended Einsums as trees, and the way back to text; :mod:`stitchloop.cascade.parse` reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from stitchloop.cascade.functions import MAP
from stitchloop.workload import Term


@dataclass(frozen=True)
class Index:
    """One affine index expression: ``sum(coefficient * rank) + offset``."""

    terms: tuple[Term, ...]
    offset: int = 0

    @property
    def ranks(self) -> tuple[str, ...]:
        return tuple(term.rank for term in self.terms)

    @property
    def plain_rank(self) -> str | None:
        """The rank when the index is that rank and nothing else."""
        if len(self.terms) == 1 and self.terms[0].coefficient == 1 and self.offset == 0:
            return self.terms[0].rank
        return None

    def bounds(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """Least and greatest value over the whole ranks, both included."""
        reach = [term.coefficient * (sizes[term.rank] - 1) for term in self.terms]
        return self.offset + sum(min(r, 0) for r in reach), self.offset + sum(max(r, 0) for r in reach)

    def __str__(self) -> str:
        text = ""
        for term in self.terms:
            sign = "-" if term.coefficient < 0 else "+" if text else ""
            times = f"{abs(term.coefficient)}*" if abs(term.coefficient) != 1 else ""
            text += f"{sign}{times}{term.rank.lower()}"
        if self.offset or not text:
            text += f"{self.offset:+d}" if text else str(self.offset)
        return text


@dataclass(frozen=True)
class Access:
    """A tensor read or written at affine indices, one per rank of the tensor."""

    tensor: str
    indices: tuple[Index, ...]

    @cached_property
    def ranks(self) -> tuple[str, ...]:
        """Ranks that index the tensor, in order of appearance."""
        return tuple(dict.fromkeys(rank for index in self.indices for rank in index.ranks))

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.indices))}]"


@dataclass(frozen=True)
class Number:
    value: int | float


@dataclass(frozen=True)
class Name:
    """A constant of the cascade, or the size of a rank."""

    name: str


@dataclass(frozen=True)
class Unary:
    function: str
    operand: Expression


@dataclass(frozen=True)
class Binary:
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Reduce:
    """``operator`` over all values of ``ranks``; the ranks exist inside ``operand`` only."""

    operator: str
    ranks: tuple[str, ...]
    operand: Expression


Expression = Number | Name | Access | Unary | Binary | Reduce


@dataclass(frozen=True)
class Equation:
    """``output = expression``; ranks that the output lacks are reduced (explicitly, after parsing)."""

    output: Access
    expression: Expression

    @cached_property
    def inputs(self) -> tuple[Access, ...]:
        """Distinct accesses on the right side, in order of appearance."""
        return tuple(dict.fromkeys(node for node in walk(self.expression) if isinstance(node, Access)))

    @cached_property
    def ranks(self) -> tuple[str, ...]:
        """The iteration space: the output's ranks, then the reduced ones."""
        inside = (rank for access in self.inputs for rank in access.ranks)
        return tuple(dict.fromkeys((*self.output.ranks, *inside)))

    @cached_property
    def reduced(self) -> tuple[str, ...]:
        return tuple(rank for rank in self.ranks if rank not in self.output.ranks)

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """Unary functions applied at each point, in order of appearance."""
        return tuple(node.function for node in walk(self.expression) if isinstance(node, Unary))

    @cached_property
    def is_gemm(self) -> bool:
        """A sum of products of two tensors, each with an output rank of its own, that contracts a rank of both.

        Matrix-vector products and depthwise convolutions are not: nothing of one operand is reused along a second rank.
        """
        body = self.expression.operand if isinstance(self.expression, Reduce) else None
        if body is None or self.expression.operator != "sum" or len(self.inputs) != 2:  # type: ignore[union-attr]
            return False
        if not (isinstance(body, Binary) and body.operator == "multiply" and {body.left, body.right} == set(self.inputs)):
            return False
        left, right = (set(access.ranks) for access in self.inputs)
        out = set(self.output.ranks)
        return bool((left - right) & out) and bool((right - left) & out) and bool((left & right) - out)

    def __str__(self) -> str:
        body = self.expression
        if isinstance(body, Reduce) and body.operator == "sum" and body.ranks == self.reduced:
            body = body.operand
        return f"{self.output} = {to_text(body)}"


def walk(node: Expression) -> Iterator[Expression]:
    """The node and everything below it, left to right."""
    yield node
    if isinstance(node, Unary | Reduce):
        yield from walk(node.operand)
    elif isinstance(node, Binary):
        yield from walk(node.left)
        yield from walk(node.right)


def to_text(node: Expression, precedence: int = 0) -> str:
    """The expression as the parser reads it back, with the fewest brackets."""
    if isinstance(node, Number):
        return repr(node.value)
    if isinstance(node, Name):
        return node.name
    if isinstance(node, Access):
        return str(node)
    if isinstance(node, Reduce):
        return f"{node.operator}[{', '.join(rank.lower() for rank in node.ranks)}]({to_text(node.operand)})"
    if isinstance(node, Unary):
        if node.function == "neg":
            return f"-{to_text(node.operand, 3)}"
        return f"{node.function}({to_text(node.operand)})"
    operator = MAP[node.operator]
    if operator.symbol is None:
        return f"{operator.name}({to_text(node.left)}, {to_text(node.right)})"
    own = operator.precedence
    text = f"{to_text(node.left, own)} {operator.symbol} {to_text(node.right, own + 1)}"
    return f"({text})" if own < precedence else text
