"""From a YAML document in extended Einsum notation to a :class:`Cascade`.

The form::

    problem:
      name: gated
      ranks: {B: 4, I: {size: 16, iterative: true}, D: 2*E, E: 8}
      constants: {eps: 1.0e-5}
      tensors: {H: {initial: H0, final: Hlast}, X: {shape: "[b, i, e]", padding: 0}}
      inputs: [X]
      weights: [W]
      outputs: [H]
      einsums:
        project: "U[b,i,d] = X[b,i,e] * W[e,d]"
        scan: "H[b,i,d] = sigmoid(U[b,i,d]) * H[b,i-1,d] + U[b,i,d]"

``einsums`` may also be a list, of equations or of ``{name, equation}`` or ``{name, equations}``; an equation alone is
named after its output. Everything but ``ranks`` and ``einsums`` may be left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stitchloop.cascade.cascade import Cascade, CascadeTensor, ExtendedEinsum, Rank, State
from stitchloop.cascade.check import check_cascade, close_to, einsum_path
from stitchloop.cascade.expression import Access, Equation, Index
from stitchloop.cascade.order import topological_order
from stitchloop.cascade.parse import EquationError, parse_equation, parse_indices, parse_scalar
from stitchloop.cascade.places import Places
from stitchloop.cascade.scalar import evaluate_scalar
from stitchloop.errors import InputError

_KEYS = (
    "name", "version", "ranks", "constants", "tensors", "inputs", "weights", "outputs", "einsums", "word_bits", "layers",
)  # fmt: skip
_RANK_KEYS = ("size", "iterative", "batch")
_TENSOR_KEYS = ("shape", "initial", "final", "padding")
_LARGEST_SIZE = 2**62
_LONGEST_NAME = 200


def read_cascade(document: Any, source_name: str | None = None) -> Cascade:
    """Read and check a cascade.

    Parameters
    ----------
    document : mapping
        The parsed YAML: ``{problem: {...}}`` or what stands under ``problem``.
    source_name : str, optional
        File named in errors. Lines are known when the document comes from :func:`stitchloop.read.document.parse`.

    Raises
    ------
    InputError
        With the key path and line of the fault and what would do.
    """
    places = Places.of_document(document, source_name)
    if isinstance(document, Mapping) and "problem" in document:
        problem, places = document["problem"], places.below("problem")
    else:
        problem = document
    return _Reader(problem, places).cascade()


def load_cascade(path: str | Path, variables: Mapping[str, Any] | None = None) -> Cascade:
    """Read the cascade in one file, after filling in its Jinja2 ``variables``.

    Raises
    ------
    InputError
        Also when the file holds another kind of problem, or none.
    """
    from stitchloop.read.spec import load_spec

    cascade = load_spec([path], {name: str(value) for name, value in (variables or {}).items()}).cascade
    if not isinstance(cascade, Cascade):
        raise InputError(path, "no cascade", "give a problem with 'ranks' and 'einsums'")
    return cascade


class _Reader:
    def __init__(self, problem: Any, places: Places) -> None:
        self.places = places
        self.problem = self._mapping((), problem, _KEYS)
        self.constants = self._constants()
        self.ranks = self._ranks()
        self.variables = {rank.name.lower(): rank.name for rank in self.ranks}
        self.declared = {
            name: self._mapping(("tensors", name), entry, _TENSOR_KEYS) for name, entry in self._names("tensors").items()
        }

    def cascade(self) -> Cascade:
        einsums = self._einsums()
        tensors = self._tensors(einsums)
        states = self._states(einsums, tensors)
        cascade = Cascade(
            name=self._title(),
            ranks=self.ranks,
            einsums=einsums,
            tensors=tensors,
            states=states,
            constants=tuple(self.constants.items()),
            word_bits=self._integer(("word_bits",), self.problem.get("word_bits", 16)),
            layers=self._integer(("layers",), self.problem.get("layers", 1)),
            source=self.places.file,
        )
        check_cascade(cascade, self.places, self.problem)
        return cascade.with_order(topological_order(cascade))

    # -- parts of the document ------------------------------------------------------------------------------------

    def _mapping(self, path: tuple[str | int, ...], entry: Any, keys: tuple[str, ...]) -> dict[str, Any]:
        entry = {} if entry is None and path else entry
        if not isinstance(entry, Mapping):
            raise self.places.error(path, f"found {_kind(entry)}", f"a mapping with the keys {', '.join(keys)} is expected")
        for key in entry:
            if key not in keys:
                raise self.places.error(
                    (*path, key), f"unknown key '{key}'", f"keys here are {', '.join(keys)}{close_to(str(key), keys)}"
                )
        return dict(entry)

    def _title(self) -> str:
        """The cascade's name, which stands in tables and figures."""
        name = self.problem.get("name", "cascade")
        if isinstance(name, bool) or not isinstance(name, str | int | float) or not 0 < len(str(name)) <= _LONGEST_NAME:
            raise self.places.error(("name",), f"found {_kind(name)}", f"a name of at most {_LONGEST_NAME} signs is expected")
        if not str(name).isprintable():
            raise self.places.error(("name",), f"found {_kind(name)}", "leave out what cannot be printed")
        return str(name)

    def _names(self, key: str) -> dict[str, Any]:
        entry = self.problem.get(key) or {}
        if not isinstance(entry, Mapping) or not all(isinstance(name, str) for name in entry):
            raise self.places.error((key,), f"found {_kind(entry)}", "a mapping from names is expected")
        return {str(name): below for name, below in entry.items()}

    def _list_of_names(self, key: str) -> tuple[str, ...] | None:
        entry = self.problem.get(key)
        if entry is None:
            return None
        entry = [entry] if isinstance(entry, str) else entry
        if not isinstance(entry, list) or not all(isinstance(name, str) for name in entry):
            raise self.places.error((key,), f"found {_kind(entry)}", "a list of tensor names is expected")
        return tuple(str(name) for name in entry)

    def _integer(self, path: tuple[str | int, ...], entry: Any, names: Mapping[str, float] | None = None) -> int:
        value = self._number(path, entry, names)
        if not 1 <= value <= _LARGEST_SIZE or value != int(value):
            is_value = f", which is {value:g}" if isinstance(entry, str) and abs(value) <= _LARGEST_SIZE else ""
            raise self.places.error(path, f"found {_kind(entry)}{is_value}", "a whole number from 1 to 2^62 is expected")
        return int(value)

    def _number(self, path: tuple[str | int, ...], entry: Any, names: Mapping[str, float] | None = None) -> float:
        if isinstance(entry, bool) or not isinstance(entry, int | float | str):
            raise self.places.error(path, f"found {_kind(entry)}", "a number is expected")
        if not isinstance(entry, str):
            if entry != entry or abs(entry) > _LARGEST_SIZE:
                raise self.places.error(path, f"found {entry}", "a number below 2^62 is expected")
            return entry
        try:
            return evaluate_scalar(parse_scalar(entry), names or {})
        except EquationError as fault:
            raise self.places.error(path, str(fault), "") from None
        except KeyError as fault:
            raise self.places.error(
                path, f"'{entry}' uses {fault.args[0]}, which has no value", f"known here: {', '.join(names or {}) or 'nothing'}"
            ) from None
        except (ArithmeticError, ValueError) as fault:
            raise self.places.error(path, f"'{entry}' has no value ({fault})", "a number is expected") from None

    def _constants(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, entry in self._names("constants").items():
            found[name] = self._number(("constants", name), entry, found)
        return found

    def _ranks(self) -> tuple[Rank, ...]:
        entries = self._names("ranks")
        if not entries:
            raise self.places.error(
                ("ranks",), "no ranks", "name each rank with its size: 'ranks: {B: 64, I: {size: 2048, iterative: true}}'"
            )
        waiting = dict(entries)
        sizes: dict[str, int] = {}
        while waiting:
            ready = [name for name, entry in waiting.items() if not self._size_names(entry) & set(waiting)]
            if not ready:
                first = next(iter(waiting))
                why = "itself" if len(waiting) == 1 else f"one of {', '.join(waiting)}, which wait for one another"
                found = f"'{first}' is sized by {why}"
                raise self.places.error(("ranks", first), found, "give one of them as a number")
            for name in ready:
                path: tuple[str, ...] = ("ranks", name)
                entry = waiting.pop(name)
                if isinstance(entry, Mapping):
                    entry = self._mapping(path, entry, _RANK_KEYS).get("size")
                    path = (*path, "size")
                sizes[name] = self._integer(path, entry, {**self.constants, **sizes})
        variables: dict[str, str] = {}
        for name in entries:
            if not _is_name(name):
                raise self.places.error(("ranks", name), f"'{name}' is no name", "use letters, digits and _")
            if name.lower() in variables:
                raise self.places.error(
                    ("ranks", name), f"ranks {variables[name.lower()]} and {name} have the same index variable", "rename one"
                )
            variables[name.lower()] = name
            if name in self.constants:
                raise self.places.error(("constants", name), f"{name} is both a constant and a rank", "rename one")
        return tuple(
            Rank(name, sizes[name], self._flag(name, entry, "iterative"), self._flag(name, entry, "batch"))
            for name, entry in entries.items()
        )

    def _size_names(self, entry: Any) -> set[str]:
        """Names that a size in writing refers to; faults in it are reported when it is evaluated."""
        size = entry.get("size") if isinstance(entry, Mapping) else entry
        words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in size) if isinstance(size, str) else ""
        return set(words.split())

    def _flag(self, name: str, entry: Any, key: str) -> bool:
        value = entry.get(key, False) if isinstance(entry, Mapping) else False
        if not isinstance(value, bool):
            raise self.places.error(("ranks", name, key), f"found {_kind(value)}", "true or false is expected")
        return value

    # -- Einsums, tensors and states ------------------------------------------------------------------------------

    def _einsums(self) -> tuple[ExtendedEinsum, ...]:
        entry = self.problem.get("einsums")
        if not isinstance(entry, Mapping | list) or not entry:
            raise self.places.error(("einsums",), f"found {_kind(entry)}", "a list or a mapping of equations is expected")
        items: list[tuple[Any, Any]] = list(entry.items()) if isinstance(entry, Mapping) else list(enumerate(entry))
        einsums: dict[str, ExtendedEinsum] = {}
        for key, item in items:
            einsum = self._einsum(key, item)
            if einsum.name in einsums:
                raise self.places.error(
                    ("einsums", key), f"a second Einsum named {einsum.name}", "give each Einsum a name of its own"
                )
            einsums[einsum.name] = einsum
        return tuple(einsums.values())

    def _einsum(self, key: str | int, item: Any) -> ExtendedEinsum:
        path: tuple[str | int, ...] = ("einsums", key)
        name = key if isinstance(key, str) else None
        texts: Any = item
        if isinstance(item, Mapping):
            entry = self._mapping(path, item, ("name", "equation", "equations"))
            name = name or entry.get("name")
            if "equation" in entry and "equations" in entry:
                raise self.places.error(path, "both 'equation' and 'equations'", "list all of them under 'equations'")
            which = "equation" if "equation" in entry else "equations"
            texts, path = entry.get(which), (*path, which)
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise self.places.error(path, f"found {_kind(texts)}", "an equation such as 'Z[m,n] = A[m,k] * B[k,n]' is expected")
        equations = tuple(self._equation((*path, i) if len(texts) > 1 else path, text) for i, text in enumerate(texts))
        name = equations[0].output.tensor if name is None else name
        if not _is_name(name):
            found = f"found the name {_kind(name)}"
            raise self.places.error(path, found, f"use letters, digits and _, at most {_LONGEST_NAME} of them")
        return ExtendedEinsum(str(name), equations)

    def _equation(self, path: tuple[str | int, ...], text: str) -> Equation:
        try:
            return parse_equation(text, self.variables)
        except EquationError as fault:
            raise self.places.error(path, str(fault), "") from None

    def _tensors(self, einsums: tuple[ExtendedEinsum, ...]) -> tuple[CascadeTensor, ...]:
        producers: dict[str, str] = {}
        written: dict[str, Access] = {}
        for einsum in einsums:
            for output in einsum.outputs:
                if output.tensor in producers:
                    found = f"{output.tensor} is written by {producers[output.tensor]} and by {einsum.name}"
                    raise self.places.error(einsum_path(self.problem, einsum.name), found, "let one Einsum write each tensor")
                producers[output.tensor], written[output.tensor] = einsum.name, output
        accesses: dict[str, list[Access]] = {}
        for einsum in einsums:
            for access in (*einsum.inputs, *einsum.outputs):
                accesses.setdefault(access.tensor, []).append(access)
        given_outputs, weights = self._list_of_names("outputs"), self._weights(einsums, accesses, producers)
        read = {a.tensor for einsum in einsums for a in einsum.inputs if producers.get(a.tensor) != einsum.name}
        outputs = tuple(name for name in producers if name not in read) if given_outputs is None else given_outputs
        return tuple(
            CascadeTensor(
                name,
                self._shape(name, written.get(name), found),
                producers.get(name),
                name in weights,
                name in outputs,
                self._padding(name),
            )
            for name, found in accesses.items()
        )

    def _shape(self, name: str, written: Access | None, accesses: list[Access]) -> tuple[Index, ...]:
        shape = self.declared.get(name, {}).get("shape")
        if written is not None and shape is not None:
            found = f"a shape for {name}, which is written as {written}"
            raise self.places.error(("tensors", name, "shape"), found, "give shapes to inputs only")
        if written is not None or shape is None:
            return written.indices if written is not None else inferred_dimensions(accesses)
        text = f"[{', '.join(map(str, shape))}]" if isinstance(shape, list) else str(shape)
        try:
            return parse_indices(text, {**self.variables, **{rank: rank for rank in self.variables.values()}})
        except EquationError as fault:
            raise self.places.error(("tensors", name, "shape"), str(fault), "") from None

    def _padding(self, name: str) -> float | None:
        padding = self.declared.get(name, {}).get("padding")
        return None if padding is None else float(self._number(("tensors", name, "padding"), padding, self.constants))

    def _weights(
        self, einsums: tuple[ExtendedEinsum, ...], accesses: Mapping[str, list[Access]], producers: Mapping[str, str]
    ) -> frozenset[str]:
        """Weights as listed, else every unlisted input, else the inputs that lack all ranks along which work streams."""
        weights, inputs = self._list_of_names("weights"), self._list_of_names("inputs")
        free = [name for name in accesses if name not in producers]
        if weights is not None:
            return frozenset(weights)
        if inputs is not None:
            return frozenset(name for name in free if name not in inputs)
        streams = {rank.name for rank in self.ranks if rank.iterative or rank.batch}
        if not any(rank.batch for rank in self.ranks):
            streams |= set.intersection(*(set(output.ranks) for einsum in einsums for output in einsum.outputs))
        return (
            frozenset(name for name in free if not any(streams & set(access.ranks) for access in accesses[name]))
            if streams
            else frozenset()
        )

    def _states(self, einsums: tuple[ExtendedEinsum, ...], tensors: tuple[CascadeTensor, ...]) -> tuple[State, ...]:
        """A state for each tensor read at earlier steps of an iterative rank."""
        sizes = {rank.name: rank.size for rank in self.ranks}
        iterative = {rank.name for rank in self.ranks if rank.iterative}
        reads = [access for einsum in einsums for access in einsum.inputs]
        states = []
        for tensor in tensors:
            for position, rank in enumerate(index.plain_rank for index in tensor.dimensions):
                if rank not in iterative or tensor.padding is not None:
                    continue
                same = [
                    a.indices[position] for a in reads if a.tensor == tensor.name and len(a.indices) == len(tensor.dimensions)
                ]
                if any(index.bounds({**sizes, rank: 1})[0] < 0 for index in same):
                    states.append(self._state(tensor.name, rank))
            if len(of_tensor := [state.rank for state in states if state.tensor == tensor.name]) > 1:
                found = f"{tensor.name} is read at earlier steps of {' and '.join(of_tensor)}"
                mend = f"carry a tensor along one iterative rank; give {tensor.name} a 'padding' if what lies before is constant"
                raise self.places.error(einsum_path(self.problem, tensor.producer or ""), found, mend)
        return tuple(states)

    def _state(self, tensor: str, rank: str) -> State:
        entry = self.declared.get(tensor, {})
        initial, final = entry.get("initial", 0), entry.get("final")
        if _is_name(initial):
            initial = str(initial)
        elif isinstance(initial, bool | str) or not isinstance(initial, int | float) or not abs(initial) < float("inf"):
            path = ("tensors", tensor, "initial")
            raise self.places.error(path, f"found {_kind(initial)}", "a tensor's name or a number is expected")
        if final is not None and not _is_name(final):
            path = ("tensors", tensor, "final")
            raise self.places.error(path, f"found {_kind(final)}", "a name for the last state is expected")
        return State(tensor, rank, initial, None if final is None else str(final))


def inferred_dimensions(accesses: Sequence[Access]) -> tuple[Index, ...]:
    """Dimensions of an input whose shape is not declared: those of its first access by plain ranks, else of its first one."""
    return next((a for a in accesses if all(index.plain_rank for index in a.indices)), accesses[0]).indices


def _is_name(entry: Any) -> bool:
    return isinstance(entry, str) and entry.isascii() and entry.isidentifier() and len(entry) <= _LONGEST_NAME


def _kind(entry: Any) -> str:
    if entry is None:
        return "nothing"
    if isinstance(entry, Mapping):
        return "a mapping"
    if isinstance(entry, list):
        return "a list"
    return f"{entry!r}"[:80]
