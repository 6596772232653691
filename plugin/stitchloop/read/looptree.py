"""LoopTree's form of a fused problem (a list of Einsums) and of a fused mapping (``type: fused``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

from stitchloop.fused.check import check_workload, checked
from stitchloop.fused.tree import Branch, BranchKind, Compute, FusedMapping, Node, Spatial, Storage, Temporal
from stitchloop.read.fields import LARGEST, Field, nearest
from stitchloop.read.problem import read_einsum
from stitchloop.workload import Einsum, Tensor, Term, Workload

SHAPE_KEYS = ("name", "dimensions", "data_spaces", "version")
TENSOR_KEYS = ("name", "dimensions", "projection", "read_write")
NODE_KEYS = {
    "storage": ("type", "target", "dspace", "exploits_reuse"),
    "temporal": ("type", "rank", "tile_shape"),
    "spatial": ("type", "rank", "tile_shape"),
    "sequential": ("type", "branches"),
    "pipeline": ("type", "branches"),
    "compute": ("type", "einsum", "target"),
}
MOST_NODES = 10_000
MOST_DEPTH = 64
MOST_ABOVE = 128
"""Nodes from the root down to one leaf."""
_TERM = re.compile(r"\s*([+-])?\s*(?:(\d+)\s*\*?\s*)?([A-Za-z_]\w*)?(?:\s*\*\s*(\d+))?\s*")
_BOUNDS = re.compile(r"\(?\s*(-?\d+)\s*(<=|<)\s*([A-Za-z_]\w*)\s*(<=|<)\s*(-?\d+)\s*\)?\Z")
_AND = re.compile(r"\s+and\s+|\s*&&\s*|\s+AND\s+")


def read_workload(section: Field) -> Workload:
    """Read a list of Einsums, each in LoopTree's form or in Timeloop's.

    Parameters
    ----------
    section : Field
        The section ``problem``: a list of ``{shape, instance}``, or one such mapping.

    Raises
    ------
    InputError
        For a projection, instance or name that cannot be read, a size below 1, and Einsums that do not fit together.
    """
    items = section.items() if isinstance(section.value, list | tuple) else [section]
    if not items:
        section.fail("an empty list", "list at least one Einsum: '- {shape: ..., instance: ...}'")
    einsums = [_einsum(item, index) for index, item in enumerate(items)]
    workload = Workload(tuple(einsums))
    check_workload(workload, [item.place for item in items])
    return workload


def read_fused_mapping(section: Field, workload: Workload | None = None) -> FusedMapping:
    """Read ``{type: fused, nodes: [...]}`` and, where the workload is known, check that it maps it.

    Raises
    ------
    InputError
        For an unknown node, a missing key, a tile shape below 1, or a tree that does not fit the workload.
    """
    section.known(("type", "nodes"))
    kind = section.need("type").text()
    if kind != "fused":
        section.need("type").fail(f"a mapping of type '{kind[:40]}'", "write 'type: fused'")
    mapping = FusedMapping(_nodes(section.need("nodes"), [0], 0, 0))
    if workload is not None:
        checked(workload, mapping, section.place)
    return mapping


# Problem


def _einsum(item: Field, index: int) -> Einsum:
    shape = item.need("shape")
    shape.mapping()
    instance = item.need("instance")
    spaces = shape.need("data_spaces").items()
    in_words = isinstance(instance.value, str) or any(isinstance(s.need("projection").value, str) for s in spaces)
    if not in_words:
        einsum, _ = read_einsum(item)
        return einsum if shape.get("name") is not None else replace(einsum, name=f"Einsum{index + 1}")
    item.known(("shape", "instance", "version"))
    shape.known(SHAPE_KEYS)
    ranks = _names(shape.need("dimensions"), "ranks")
    tensors = tuple(_tensor(space, ranks) for space in spaces)
    names = [tensor.name for tensor in tensors]
    for space, name in zip(spaces, names, strict=True):
        if names.count(name) > 1:
            space.fail(f"tensor '{name}' twice", "list each tensor once")
    if not any(tensor.is_output for tensor in tensors):
        shape.need("data_spaces").fail("no output", "mark the output with 'read_write: true'")
    given = shape.get("name")
    sizes = _sizes(instance, ranks)
    return Einsum(given.text() if given else f"Einsum{index + 1}", ranks, tuple(sizes[rank] for rank in ranks), tensors)


def _names(field: Field, what: str) -> tuple[str, ...]:
    words = field.words()
    for word in words:
        if not word.isidentifier():
            field.fail(f"'{word[:40]}' among the {what}", "use letters, digits and '_', beginning with a letter")
        if words.count(word) > 1:
            field.fail(f"'{word}' twice", "list each once")
    return tuple(words)


def _tensor(space: Field, ranks: tuple[str, ...]) -> Tensor:
    space.known(TENSOR_KEYS)
    name, projection = space.need("name").text(), space.need("projection")
    sums = [] if projection.text().strip(" []") == "" else _inside(projection).split(",")
    terms = tuple(_terms(text, ranks, projection) for text in sums)
    names = space.get("dimensions")
    rank_names = tuple(names.words()) if names is not None else ()
    if rank_names and len(rank_names) != len(terms):
        space.fail(f"{len(rank_names)} dimensions and {len(terms)} projections of '{name[:40]}'", "give one projection for each")
    read_write = space.get("read_write")
    return Tensor(name, terms, read_write.boolean() if read_write is not None else False, rank_names)


def _inside(projection: Field) -> str:
    text = projection.text().strip()
    if not (text.startswith("[") and text.endswith("]")):
        projection.fail(f"projection {projection.shown()}", "write it in brackets: '[ P1 + R1, C1 ]'")
    return text[1:-1]


def _terms(text: str, ranks: tuple[str, ...], projection: Field) -> tuple[Term, ...]:
    """``2*P1 + R1`` as terms."""

    def fail(found: str) -> NoReturn:
        projection.fail(f"{found} in projection {projection.shown()}", "write sums such as 'P1 + R1' or '2*P1 + R1'")

    found: dict[str, int] = {}
    at = 0
    if not text.strip():
        fail("an empty sum")
    while at < len(text):
        match = _TERM.match(text, at)
        if match is None or match.end() == at or match[3] is None:
            fail(f"'{text[at : at + 20].strip()}'")
        sign, before, rank, after = match.groups()
        if sign is None and found:
            fail(f"no '+' before '{rank}'")
        if rank not in ranks:
            projection.fail(f"'{rank[:40]}' in projection {projection.shown()}", nearest(rank, ranks, "ranks are"))
        if len(before or "") > 18 or len(after or "") > 18:
            fail("a huge coefficient")
        if int(before or 1) * int(after or 1) == 0:
            fail(f"coefficient 0 of '{rank}'")
        coefficient = int(before or 1) * int(after or 1)
        found[rank] = found.get(rank, 0) + (-coefficient if sign == "-" else coefficient)
        at = match.end()
    return tuple(Term(rank, coefficient) for rank, coefficient in found.items())


def _sizes(instance: Field, ranks: tuple[str, ...]) -> dict[str, int]:
    """Rank sizes, from ``0 <= P1 < 9 and ...`` or from ``{P1: 9}``."""
    if isinstance(instance.value, Mapping):
        instance.known(ranks)
        return {rank: instance.need(rank).integer() for rank in ranks}
    sizes: dict[str, int] = {}
    for part in _AND.split(instance.text().strip()):
        match = _BOUNDS.match(part.strip())
        if match is None:
            instance.fail(f"condition '{part.strip()[:60]}'", "write '0 <= P1 < 9 and 0 <= R1 < 3'")
        low, at_low, rank, at_high, high = match.groups()
        if len(high) > 19 or len(low) > 19:
            instance.fail(f"bounds of '{rank}'", f"at most {LARGEST} is possible")
        first, size = int(low) + (at_low == "<"), int(high) + (at_high == "<=")
        if rank not in ranks:
            instance.fail(f"unknown rank '{rank[:40]}'", nearest(rank, ranks, "ranks are"))
        if rank in sizes:
            instance.fail(f"rank '{rank}' twice", "give each rank one condition")
        if first != 0:
            instance.fail(f"rank '{rank}' from {first}", f"let it begin at 0: '0 <= {rank} < {size - first}'")
        if not 1 <= size <= LARGEST:
            instance.fail(f"rank '{rank}' of size {size}", f"sizes are from 1 to {LARGEST}")
        sizes[rank] = size
    for rank in ranks:
        if rank not in sizes:
            instance.fail(f"no size of rank '{rank}'", f"add 'and 0 <= {rank} < SIZE'")
    return sizes


# Mapping


def _nodes(field: Field, seen: list[int], depth: int, above: int) -> tuple[Node, ...]:
    if depth > MOST_DEPTH:
        field.fail(f"branches nested more than {MOST_DEPTH} deep", "flatten the tree")
    items = field.items()
    seen[0] += len(items)
    if seen[0] > MOST_NODES:
        field.fail(f"more than {MOST_NODES} nodes", "map fewer Einsums at once")
    if above + len(items) > MOST_ABOVE:
        field.fail(f"{above + len(items)} nodes above one another", f"use at most {MOST_ABOVE} from the root to a leaf")
    return tuple(_node(item, seen, depth, above + at) for at, item in enumerate(items))


def _node(item: Field, seen: list[int], depth: int, above: int) -> Node:
    kind = item.need("type").text()
    if kind not in NODE_KEYS:
        item.need("type").fail(f"node type '{kind[:40]}'", nearest(kind, NODE_KEYS, "types are"))
    item.known(NODE_KEYS[kind])
    if kind == "storage":
        names = item.need("dspace").words()
        reuse = item.get("exploits_reuse")
        if len(set(names)) != len(names):
            item.need("dspace").fail("a tensor twice", "list each tensor once")
        return Storage(_target(item), tuple(names), reuse.boolean() if reuse is not None else True)
    if kind in ("temporal", "spatial"):
        rank, shape = item.need("rank").text(), item.need("tile_shape").integer()
        return Temporal(rank, shape) if kind == "temporal" else Spatial(rank, shape)
    if kind == "compute":
        return Compute(item.need("einsum").text(), _target(item))
    branches = item.need("branches").items()
    if not branches:
        item.need("branches").fail("no branches", "give one list of nodes for each branch")
    order: BranchKind = "sequential" if kind == "sequential" else "pipeline"
    return Branch(order, tuple(_nodes(branch, seen, depth + 1, above + 1) for branch in branches))


def _target(item: Field) -> int:
    return item.need("target").integer(least=0, most=1000)
