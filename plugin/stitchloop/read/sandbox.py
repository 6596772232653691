"""Jinja2's sandbox, narrowed to a language in which no template can work or grow without bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.runtime import LoopContext
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import Namespace

MAX_STEPS = 50_000
"""Calls, operations, filters, outputs and loop passes of all templates of one run together; long strings count more."""
MAX_STRING = 100_000
MAX_TEMPLATE = 1_000_000
"""Characters of one template."""
MAX_MARKS = 5_000
"""Expressions and statements of one template."""

_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Assign, nodes.AssignBlock, nodes.If, nodes.For, nodes.Macro),
    *(nodes.Name, nodes.NSRef, nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair),
    *(nodes.Getattr, nodes.Getitem, nodes.Slice),
    *(nodes.Call, nodes.Keyword, nodes.Filter, nodes.Test, nodes.CondExpr, nodes.Concat, nodes.Compare, nodes.Operand),
    *(nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos),
    *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow),
)
_FILTERS = (
    *("abs", "d", "default", "dictsort", "first", "float", "int", "items", "last", "length", "list", "lower", "max", "min"),
    *("reverse", "round", "sort", "string", "sum", "trim", "unique", "upper"),
)
_STRING_METHODS = ("endswith", "lower", "split", "startswith", "strip", "upper")
_LOOP_ATTRIBUTES = ("index", "index0", "first", "last", "length", "revindex", "revindex0")
_DICT_METHODS = ("get", "items", "keys", "values")
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
}


class TemplateRefused(Exception):
    """A template asked for something that is refused; the message is a clause for the user."""


class _Generator(CodeGenerator):
    """Compiles ``a ~ b`` to a call that bounds the result."""

    def visit_Concat(self, node: nodes.Concat, frame: Any) -> None:
        self.write("environment.join_bounded((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


def _charge_for(repeated: nodes.For | nodes.Macro) -> nodes.Output:
    """An output of nothing that counts the text of a loop body or macro."""
    size = sum(len(data.data) for data in repeated.find_all(nodes.TemplateData))
    return nodes.Output([_call("_charge", nodes.Const(size), repeated.lineno)], lineno=repeated.lineno)


def _call(name: str, argument: nodes.Expr, line: int) -> nodes.Call:
    return nodes.Call(nodes.Name(name, "load"), [argument], [], None, None, lineno=line)


class BoundedEnvironment(SandboxedEnvironment):
    """Jinja2's sandbox, without imports, blocks and most filters, and with every step counted."""

    code_generator_class = _Generator
    intercepted_binops = frozenset(_BINARY)

    def __init__(self) -> None:
        super().__init__(undefined=jinja2.StrictUndefined, autoescape=False, cache_size=0, finalize=self._output)
        self.filters = {name: self._metered(self.filters[name]) for name in _FILTERS}
        self.filters["join"] = self._join
        self.globals = {"range": self._range, "namespace": Namespace, "_counted": self._counted, "_charge": self._charge}
        self.steps = 0
        self.names: set[str] = set()
        """What the templates so far have asked for by name."""

    def template(self, text: str) -> jinja2.Template:
        """Compile a template. Raises :class:`TemplateRefused` or a Jinja2 error."""
        if len(text) > MAX_TEMPLATE:
            raise TemplateRefused(f"a template of {len(text)} characters (at most {MAX_TEMPLATE} are read)")
        marks = text.count("{{") + text.count("{%")
        if marks > MAX_MARKS:
            raise TemplateRefused(f"a template with {marks} expressions (at most {MAX_MARKS} are read)")
        return self.from_string(text)

    def step(self, size: int = 0) -> None:
        """Count one step over so many characters or items."""
        self.steps += 1 + size // 100
        if self.steps > MAX_STEPS:
            raise TemplateRefused(f"templates that take more than {MAX_STEPS} steps")

    def join_bounded(self, parts: tuple[Any, ...]) -> str:
        texts = [str(part) for part in parts]
        size = sum(map(len, texts))
        self.step(size)
        if size > MAX_STRING:
            raise TemplateRefused(f"a string of more than {MAX_STRING} characters")
        return "".join(texts)

    # What Jinja2 calls

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for node in tree.find_all(nodes.Node):
            if not isinstance(node, _ALLOWED) or (isinstance(node, nodes.For) and node.recursive):
                raise TemplateRefused(f"'{type(node).__name__}' in a template (line {node.lineno}), which is not read")
        self.names |= {name.name for name in tree.find_all(nodes.Name) if name.ctx == "load"}
        for loop in list(tree.find_all(nodes.For)):
            loop.body.insert(0, _charge_for(loop))
            loop.iter = _call("_counted", loop.iter, loop.lineno)  # type: ignore[arg-type]
        for macro in list(tree.find_all(nodes.Macro)):
            macro.body.insert(0, _charge_for(macro))
        return tree.set_environment(self)  # type: ignore[return-value]

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        self.step(len(owner) if isinstance(owner, str | dict) else 0)
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.step()
        sized = [value for value in (left, right) if isinstance(value, str | list | tuple)]
        if sized and (operator != "+" or len(sized) < 2 or len(sized[0]) + len(sized[1]) > MAX_STRING):
            raise TemplateRefused(f"'{operator}' of a string or list")
        for value in (left, right):
            if isinstance(value, int | float) and abs(value) > (128 if operator == "**" else 2**128):
                raise TemplateRefused(f"'{operator}' of a huge number")
        return _BINARY[operator](left, right)

    def _counted(self, values: Iterable[Any]) -> Iterator[Any]:
        """Wraps what every ``for`` runs over."""
        for value in values:
            self.step()
            yield value

    def _charge(self, size: int) -> str:
        """Stands at the beginning of every loop body and macro, with the text that it writes."""
        self.step(max(0, int(size)))
        return ""

    def _output(self, value: Any) -> Any:
        """Sees every value that a template writes."""
        self.step(len(value) if isinstance(value, str | list | dict) else 0)
        return value

    def _join(self, values: Iterable[Any], separator: str = "") -> str:
        parts: list[Any] = []
        for value in values:
            parts += [separator, value] if parts else [value]
            self.step()
        return self.join_bounded(tuple(parts))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str):
            return attr in _STRING_METHODS
        if isinstance(obj, LoopContext):
            return attr in _LOOP_ATTRIBUTES
        if isinstance(obj, Namespace):
            return not attr.startswith("_")
        return isinstance(obj, dict) and attr in _DICT_METHODS

    def wrap_str_format(self, value: Any) -> None:
        """No formatting: a width in a format string is memory for the asking."""

    def _metered(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if hasattr(function, "jinja_pass_arg"):
            # The filter takes the context or environment first, which Jinja2 knows by a mark on the function.
            def passed(first: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
                self.step(len(value) if isinstance(value, str | list | dict) else 0)
                return function(first, value, *args, **kwargs)

            passed.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]
            return passed

        def metered(value: Any, *args: Any, **kwargs: Any) -> Any:
            self.step(len(value) if isinstance(value, str | list | dict) else 0)
            return function(value, *args, **kwargs)

        return metered

    def _range(self, *bounds: int) -> range:
        values = range(*bounds)
        if len(values) > MAX_STEPS:
            raise TemplateRefused(f"a range of {len(values)} values")
        return values
