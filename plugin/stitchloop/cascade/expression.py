"""Equations of extended Einsums: their tree, a recursive-descent parser, and the way back to text.

Grammar (no juxtaposition, spaces free)::

    equation   = access "=" sum
    sum        = product { ("+" | "-") product }
    product    = factor { ("*" | "/") factor }
    factor     = "-" factor | number | "(" sum ")" | access | reduction | call | name
    access     = name "[" [ index { "," index } ] "]"
    index      = ["-"] step { ("+" | "-") step }        step = integer | [integer "*"] variable
    reduction  = name "[" variable { "," variable } "]" "(" sum ")"
    call       = name "(" sum { "," sum } ")"

A variable is a rank's name in lower case; a bare name is a constant or the size of a rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from stitchloop.cascade.functions import INFIX, MAP, REDUCE, REDUCE_ALIASES, UNARY
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
    """``output = expression``; ranks that the output lacks are reduced (explicitly, after :func:`parse_equation`)."""

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


class EquationError(ValueError):
    """A fault in the text of an equation. ``position`` counts characters from 0."""

    def __init__(self, text: str, position: int, found: str, mend: str) -> None:
        self.text, self.position, self.found, self.mend = text, position, found, mend
        super().__init__(f"{found} at character {position + 1} of '{text}'; {mend}")


_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<mark>[-+*/=,()\[\]]))"
)
_MAXIMAL_DEPTH = 60
_MAXIMAL_TOKENS = 800


class _Parser:
    def __init__(self, text: str, variables: Mapping[str, str]) -> None:
        self.text, self.variables = text, variables
        self.tokens = list(self._tokens())
        if len(self.tokens) > _MAXIMAL_TOKENS:
            found = f"{len(self.tokens)} signs in one equation"
            raise EquationError(text[:60], 0, found, f"at most {_MAXIMAL_TOKENS}; split it in several Einsums")
        self.next = 0
        self.depth = 0

    def _tokens(self) -> Iterator[tuple[str, str, int]]:
        position = 0
        end = len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                start = position + len(self.text[position:]) - len(self.text[position:].lstrip())
                raise EquationError(
                    self.text, start, f"unknown sign '{self.text[start]}'", "use names, numbers and + - * / = , ( ) [ ]"
                )
            kind = match.lastgroup or ""
            yield kind, match[kind], match.start(kind)
            position = match.end()
        yield "end", "", end

    @property
    def kind(self) -> str:
        return self.tokens[self.next][0]

    @property
    def word(self) -> str:
        return self.tokens[self.next][1]

    def fail(self, wanted: str) -> EquationError:
        found = f"'{self.word}'" if self.kind != "end" else "the end"
        return EquationError(self.text, self.tokens[self.next][2], f"found {found}", f"{wanted} is expected here")

    def take(self, mark: str) -> None:
        if self.kind == "end" or self.word != mark:
            raise self.fail(f"'{mark}'")
        self.next += 1

    def taken(self, *marks: str) -> str | None:
        if self.kind == "mark" and self.word in marks:
            self.next += 1
            return self.tokens[self.next - 1][1]
        return None

    def identifier(self, wanted: str) -> str:
        if self.kind != "name":
            raise self.fail(wanted)
        self.next += 1
        return self.tokens[self.next - 1][1]

    def finish(self) -> None:
        if self.kind != "end":
            raise self.fail("the end of the equation, or an operator,")

    def rank(self) -> str:
        position = self.tokens[self.next][2]
        variable = self.identifier("an index variable")
        if variable not in self.variables:
            known = ", ".join(self.variables) or "none"
            raise EquationError(self.text, position, f"index '{variable}' names no rank", f"index variables are {known}")
        return self.variables[variable]

    def step(self, sign: int) -> tuple[str | None, int]:
        if self.kind != "number":
            return self.rank(), sign
        try:
            factor = sign * int(self.word)
        except ValueError:
            raise self.fail("a whole number") from None
        self.next += 1
        return (self.rank(), factor) if self.taken("*") else (None, factor)

    def index(self) -> Index:
        coefficients: dict[str, int] = {}
        offset = 0
        sign: str | None = self.taken("-") or "+"
        while sign:
            rank, value = self.step(-1 if sign == "-" else 1)
            if rank is None:
                offset += value
            else:
                coefficients[rank] = coefficients.get(rank, 0) + value
            sign = self.taken("+", "-")
        return Index(tuple(Term(rank, c) for rank, c in coefficients.items() if c), offset)

    def indices(self) -> tuple[Index, ...]:
        self.take("[")
        found: list[Index] = []
        if self.taken("]"):
            return ()
        while True:
            found.append(self.index())
            if not self.taken(","):
                break
        self.take("]")
        return tuple(found)

    def access(self) -> Access:
        name = self.identifier("a tensor")
        return Access(name, self.indices())

    def sum(self) -> Expression:
        self.depth += 1
        if self.depth > _MAXIMAL_DEPTH:
            raise EquationError(
                self.text, self.tokens[self.next][2], "brackets nested too deeply", "split the equation in several Einsums"
            )
        node = self.product()
        while symbol := self.taken("+", "-"):
            node = Binary(INFIX[symbol].name, node, self.product())
        self.depth -= 1
        return node

    def product(self) -> Expression:
        node = self.factor()
        while symbol := self.taken("*", "/"):
            node = Binary(INFIX[symbol].name, node, self.factor())
        return node

    def factor(self) -> Expression:
        if self.taken("-"):
            self.depth += 1
            if self.depth > _MAXIMAL_DEPTH:
                raise self.fail("an operand")
            node = self.factor()
            self.depth -= 1
            return Number(-node.value) if isinstance(node, Number) else Unary("neg", node)
        if self.taken("("):
            node = self.sum()
            self.take(")")
            return node
        if self.kind == "number":
            word = self.word
            self.next += 1
            return Number(int(word) if word.isdigit() else float(word))
        position = self.tokens[self.next][2]
        name = self.identifier("an operand")
        if self.kind == "mark" and self.word == "[":
            return self.access_or_reduction(name, position)
        if self.taken("("):
            return self.call(name, position)
        return Name(name)

    def access_or_reduction(self, name: str, position: int) -> Expression:
        indices = self.indices()
        if not self.taken("("):
            return Access(name, indices)
        operator = REDUCE_ALIASES.get(name.lower(), name.lower())
        ranks = tuple(index.plain_rank for index in indices)
        if operator not in REDUCE:
            raise EquationError(self.text, position, f"'{name}' is no reduce operator", f"use one of {', '.join(REDUCE)}")
        if not ranks or None in ranks:
            raise EquationError(self.text, position, f"'{name}[...](' must name ranks to reduce", f"write {operator}[k](...)")
        operand = self.sum()
        self.take(")")
        return Reduce(operator, tuple(rank for rank in ranks if rank), operand)

    def call(self, name: str, position: int) -> Expression:
        arguments = [self.sum()]
        while self.taken(","):
            arguments.append(self.sum())
        self.take(")")
        function = name.lower()
        if len(arguments) == 1 and function in UNARY:
            return Unary(function, arguments[0])
        if len(arguments) == 2 and function in MAP:
            return Binary(function, *arguments)
        known = ", ".join(sorted(UNARY) if len(arguments) == 1 else sorted(MAP))
        mend = f"functions of {len(arguments)} operand{'s' if len(arguments) > 1 else ''} are {known}"
        raise EquationError(self.text, position, f"unknown function '{name}'", mend)


def parse_equation(text: str, variables: Mapping[str, str]) -> Equation:
    """Read one equation.

    Parameters
    ----------
    text : str
        Such as ``H[b,i,d,n] = AD[b,i,d,n] * H[b,i-1,d,n] + HX[b,i,d,n]``.
    variables : mapping of str to str
        Index variable to rank name.

    Returns
    -------
    Equation
        Ranks of the right side that neither the output nor a reduction holds are summed over the whole right side.

    Raises
    ------
    EquationError
        With the position of the fault.
    """
    parser = _Parser(text, variables)
    output = parser.access()
    parser.take("=")
    expression = parser.sum()
    parser.finish()
    _check_output(text, output)
    free = tuple(rank for rank in _free_ranks(text, expression) if rank not in output.ranks)
    for node in walk(expression):
        if isinstance(node, Reduce) and (kept := set(node.ranks) & set(output.ranks)):
            found = f"rank {min(kept)} is both reduced and kept"
            raise EquationError(text, 0, found, "reduce in one Einsum and use the result in a second one")
    return Equation(output, Reduce("sum", free, expression) if free else expression)


def _check_output(text: str, output: Access) -> None:
    plain = [index.plain_rank for index in output.indices]
    if None in plain or len(set(plain)) != len(plain):
        raise EquationError(
            text, 0, f"the output {output} is not indexed by plain, distinct ranks", "write each output index as one variable"
        )


def _free_ranks(text: str, node: Expression) -> tuple[str, ...]:
    """Ranks of an expression that no reduction inside it removes."""
    if isinstance(node, Access):
        return node.ranks
    if isinstance(node, Unary):
        return _free_ranks(text, node.operand)
    if isinstance(node, Binary):
        return tuple(dict.fromkeys((*_free_ranks(text, node.left), *_free_ranks(text, node.right))))
    if isinstance(node, Reduce):
        inner = _free_ranks(text, node.operand)
        for rank in node.ranks:
            if rank not in inner:
                found = f"'{node.operator}' reduces {rank}, which does not occur inside it"
                raise EquationError(text, 0, found, "name only ranks of its operand")
        return tuple(rank for rank in inner if rank not in node.ranks)
    return ()


def parse_scalar(text: str) -> Expression:
    """Read an expression of numbers and names, such as the rank size ``ceil(E / 16)``."""
    parser = _Parser(text, {})
    node = parser.sum()
    parser.finish()
    return node


def parse_indices(text: str, variables: Mapping[str, str]) -> tuple[Index, ...]:
    """Read ``[b, p+r, c]``."""
    parser = _Parser(text, variables)
    indices = parser.indices()
    parser.finish()
    return indices
