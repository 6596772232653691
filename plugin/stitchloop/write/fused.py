"""LoopTree's files: a list of Einsums as ``problem``, a fused tree as ``mapping``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stitchloop.fused.tree import Branch, Compute, FusedMapping, Node, Storage, Temporal
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
