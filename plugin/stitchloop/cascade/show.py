"""A cascade written back: as the document that it can be read from, and as a table for people."""

from __future__ import annotations

from typing import Any

from stitchloop.cascade.cascade import Cascade, CascadeTensor, Rank
from stitchloop.cascade.expression import Access
from stitchloop.cascade.read import inferred_dimensions


def to_document(cascade: Cascade) -> dict[str, Any]:
    """The mapping from which :func:`stitchloop.cascade.read.read_cascade` reads an equal cascade."""
    problem: dict[str, Any] = {"name": cascade.name, "layers": cascade.layers, "word_bits": cascade.word_bits}
    problem["ranks"] = {rank.name: _rank(rank) for rank in cascade.ranks}
    problem["constants"] = dict(cascade.constants)
    problem["tensors"] = {tensor.name: entry for tensor in cascade.tensors if (entry := _tensor(cascade, tensor))}
    problem["inputs"], problem["weights"], problem["outputs"] = map(list, (cascade.inputs, cascade.weights, cascade.outputs))
    problem["einsums"] = {
        einsum.name: texts[0] if len(texts) == 1 else texts
        for einsum in cascade.einsums
        for texts in [[str(equation) for equation in einsum.equations]]
    }
    return {"problem": {key: value for key, value in problem.items() if key in ("inputs", "weights") or value not in ({}, [])}}


def to_yaml(cascade: Cascade) -> str:
    """The document as YAML text."""
    import yaml

    return yaml.safe_dump(to_document(cascade), sort_keys=False, width=1000, allow_unicode=True)


def table(cascade: Cascade) -> list[dict[str, str]]:
    """One row per Einsum: its name, equations, ranks, reduced ranks, kind and operations."""
    return [
        {
            "Einsum": einsum.name,
            "equation": "; ".join(map(str, einsum.equations)),
            "ranks": " ".join(einsum.ranks),
            "reduced": " ".join(einsum.reduced),
            "kind": kind(cascade, einsum.name),
            "operations": str(cascade.operations(einsum.name)),
        }
        for einsum in cascade.einsums
    ]


def kind(cascade: Cascade, name: str) -> str:
    """What sort of Einsum it is: GEMM, reduce, a unary function's name, or elementwise."""
    einsum = cascade.einsum(name)
    if einsum.is_gemm:
        return "GEMM"
    if einsum.reduced:
        return "reduce"
    return ", ".join(dict.fromkeys(einsum.functions)) or "elementwise"


def _rank(rank: Rank) -> Any:
    flags = {key: True for key in ("iterative", "batch") if getattr(rank, key)}
    return {"size": rank.size, **flags} if flags else rank.size


def _tensor(cascade: Cascade, tensor: CascadeTensor) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    if tensor.producer is None:
        reads = [access for einsum in cascade.einsums for access in einsum.inputs if access.tensor == tensor.name]
        if inferred_dimensions(reads) != tensor.dimensions:
            entry["shape"] = str(Access("", tensor.dimensions))
    state = cascade.state(tensor.name)
    if state is not None and state.initial != 0:
        entry["initial"] = state.initial
    if state is not None and state.final is not None:
        entry["final"] = state.final
    if tensor.padding is not None:
        entry["padding"] = tensor.padding
    return entry
