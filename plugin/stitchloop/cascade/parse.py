"""Text to equations of extended Einsums, by recursive descent.

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

from stitchloop.cascade.expression import Access, Binary, Equation, Expression, Index, Name, Number, Reduce, Unary, walk
from stitchloop.cascade.functions import INFIX, MAP, REDUCE, REDUCE_ALIASES, UNARY
from stitchloop.workload import Term


class EquationError(ValueError):
    """A fault in the text of an equation. ``position`` counts characters from 0."""

    def __init__(self, text: str, position: int, found: str, mend: str) -> None:
        self.text, self.position, self.found, self.mend = text, position, found, mend
        super().__init__(f"{found} at character {position + 1} of '{text}'; {mend}")


_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<mark>[-+*/=,()\[\]]))"
)
_MAXIMAL_DEPTH = 60
_MAXIMAL_TOKENS = 600
_MAXIMAL_WORD = 200


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
            if len(match[kind]) > _MAXIMAL_WORD:
                found = f"a name or number of {len(match[kind])} characters"
                raise EquationError(self.text[:60], match.start(kind), found, f"use at most {_MAXIMAL_WORD}")
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
            number = int(word) if word.isdigit() else float(word)
            if not number < float("inf"):
                raise self.fail("a number below 1.8e308")
            self.next += 1
            return Number(number)
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
