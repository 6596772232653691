"""LoopTree's files: a list of Einsums as ``problem``, a fused tree as ``mapping``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from stitchloop.fused.check import checked
from stitchloop.fused.structure import Structure
from stitchloop.fused.tree import Branch, Compute, FusedMapping, Loop, Node, Storage, Temporal
from stitchloop.workload import Einsum, Tensor, Term, Workload


def fused_problem_document(workload: Workload) -> list[dict[str, Any]]:
    """What stands under ``problem``: one ``{shape, instance}`` per Einsum."""
    return [
        {
            "shape": {
                "name": einsum.name,
                "dimensions": list(einsum.ranks),
                "data_spaces": [_tensor(tensor) for tensor in einsum.tensors],
            },
            "instance": _instance(einsum),
        }
        for einsum in workload.einsums
    ]


def fused_mapping_document(mapping: FusedMapping) -> dict[str, Any]:
    """What stands under ``mapping``."""
    return {"type": "fused", "nodes": [_node(node) for node in mapping.nodes]}


def fused_problem_yaml(workload: Workload) -> str:
    """The text of ``fused-problem.yaml``, with the workload's notes as comments."""
    return _yaml({"problem": fused_problem_document(workload)}, workload.notes)


def fused_mapping_yaml(mapping: FusedMapping) -> str:
    """The text of ``fused-mapping.yaml``."""
    return _yaml({"mapping": fused_mapping_document(mapping)})


def fused_files(workload: Workload, mapping: FusedMapping) -> dict[str, str]:
    """``fused-problem.yaml`` and ``fused-mapping.yaml`` by name, ready for LoopTree.

    Ranks are renamed where two Einsums use one name, as LoopTree knows ranks by name alone. What the tool counts otherwise
    than it should (see :func:`unfaithful`) stands in the mapping's comments.
    """
    remarks = unfaithful(workload, mapping)
    workload, mapping = with_unique_ranks(workload, mapping)
    notes = [f"LoopTree: {remark}" for remark in remarks]
    return {
        "fused-problem.yaml": fused_problem_yaml(workload),
        "fused-mapping.yaml": _yaml({"mapping": fused_mapping_document(mapping)}, notes),
    }


def with_unique_ranks(workload: Workload, mapping: FusedMapping) -> tuple[Workload, FusedMapping]:
    """The same mapping with rank names that no two Einsums share."""
    taken = [rank for einsum in workload.einsums for rank in einsum.ranks]
    if len(set(taken)) == len(taken):
        return workload, mapping
    names: dict[str, dict[str, str]] = {}
    used: set[str] = set()
    for number, einsum in enumerate(workload.einsums, 1):
        names[einsum.name] = {}
        for rank in einsum.ranks:
            name = rank if taken.count(rank) == 1 else f"{rank}{number}"
            while name in used or (name != rank and name in taken):
                name += "_"
            names[einsum.name][rank] = name
            used.add(name)
    structure = checked(workload, mapping)
    einsums = tuple(_renamed_einsum(einsum, names[einsum.name]) for einsum in workload.einsums)
    nodes = _renamed_nodes(structure, mapping.nodes, (), tuple(structure.paths), names)
    return replace(workload, einsums=einsums), FusedMapping(nodes)


def _renamed_einsum(einsum: Einsum, names: dict[str, str]) -> Einsum:
    def renamed(tensor: Tensor) -> Tensor:
        projection = tuple(tuple(replace(term, rank=names[term.rank]) for term in terms) for terms in tensor.projection)
        return replace(tensor, projection=projection)

    return replace(einsum, ranks=tuple(names[rank] for rank in einsum.ranks), tensors=tuple(map(renamed, einsum.tensors)))


def _renamed_nodes(
    structure: Structure,
    nodes: tuple[Node, ...],
    address: tuple[int, ...],
    group: tuple[str, ...],
    names: dict[str, dict[str, str]],
) -> tuple[Node, ...]:
    head = structure.heads(group)[-1]
    renamed: list[Node] = []
    for at, node in enumerate(nodes):
        if isinstance(node, Loop):
            renamed.append(replace(node, rank=names[head][node.rank]))
        elif isinstance(node, Branch):
            members = structure.members((*address, at))
            inside = (
                _renamed_nodes(structure, branch, (*address, at, index), members[index], names)
                for index, branch in enumerate(node.branches)
            )
            renamed.append(replace(node, branches=tuple(inside)))
        else:
            renamed.append(node)
    return tuple(renamed)


def unfaithful(workload: Workload, mapping: FusedMapping) -> list[str]:
    """What LoopTree gets wrong, or does not answer, about a tree; empty for a tree that it evaluates by its own rules."""
    structure = checked(workload, mapping)
    remarks = []
    groups = {address: structure.members(address) for address, node in mapping.walk if isinstance(node, Branch)}
    for tensor, producer in structure.producers.items():
        readers = structure.readers[tensor]
        if len(readers) > 1:
            remarks.append(
                f"{tensor} of {producer} has {len(readers)} readers ({', '.join(readers)}): "
                "their needs are intersected where the union is needed"
            )
    for members in groups.values():
        group = [name for branch in members for name in branch]
        heads = structure.heads(tuple(group))
        common = structure.common_input(tuple(group))
        if len(heads) > 1:
            remarks.append(f"{' and '.join(heads)} both end below one branch node: there is no answer for a set with two heads")
        elif len(group) > 1 and common is not None:
            remarks.append(f"all of {', '.join(group)} read {common}: tiles follow that tensor and not what the consumers need")
    return remarks


def _tensor(tensor: Tensor) -> dict[str, Any]:
    names = tensor.rank_names or tuple(f"{tensor.name}_{n}" for n in range(len(tensor.projection)))
    projection = ", ".join(_sum(terms) for terms in tensor.projection)
    entry: dict[str, Any] = {"name": tensor.name, "dimensions": list(names), "projection": f"[ {projection} ]"}
    return {**entry, "read_write": True} if tensor.is_output else entry


def _sum(terms: Iterable[Term]) -> str:
    text = ""
    for term in terms:
        sign = " - " if term.coefficient < 0 else " + " if text else ""
        times = f"{abs(term.coefficient)}*" if abs(term.coefficient) != 1 else ""
        text += f"{sign if text else sign.strip()}{times}{term.rank}"
    return text


def _instance(einsum: Einsum) -> str:
    return " and ".join(f"0 <= {rank} < {size}" for rank, size in einsum.sizes.items())


def _node(node: Node) -> dict[str, Any]:
    if isinstance(node, Storage):
        entry: dict[str, Any] = {"type": "storage", "target": node.target, "dspace": list(node.tensors)}
        return entry if node.exploits_reuse else {**entry, "exploits_reuse": False}
    if isinstance(node, Compute):
        return {"type": "compute", "einsum": node.einsum, "target": node.target}
    if isinstance(node, Branch):
        return {"type": node.kind, "branches": [[_node(inner) for inner in branch] for branch in node.branches]}
    kind = "temporal" if isinstance(node, Temporal) else "spatial"
    return {"type": kind, "rank": node.rank, "tile_shape": node.tile_shape}


def _yaml(document: Any, notes: Iterable[str] = ()) -> str:
    import yaml

    comments = "".join(f"# {' '.join(note.split())}\n" for note in notes)
    return comments + yaml.safe_dump(document, sort_keys=False, width=1000, default_flow_style=None)
