"""The structures whose pruned rows come with the package, and the file that holds them.

``python -m stitchloop.fused.shipped`` derives and writes it anew.
"""

from __future__ import annotations

import json
from typing import Any

from stitchloop.fused.cache import SHIPPED, digest, encoded
from stitchloop.fused.pair import shape_of
from stitchloop.fused.prune import prune
from stitchloop.fused.shape import Structure
from stitchloop.workload import Einsum, Tensor, Term, Workload


def _einsum(name: str, text: str, sizes: dict[str, int]) -> Einsum:
    """``'A[i k] B[k l] -> S[i l]'`` as an Einsum."""
    inputs, output = text.split(" -> ")
    tensors = [_tensor(part, False) for part in inputs.split("] ")] + [_tensor(output, True)]
    ranks = sorted({rank for t in tensors for rank in t.ranks})
    return Einsum(name, tuple(ranks), tuple(sizes[rank] for rank in ranks), tuple(tensors))


def _tensor(text: str, is_output: bool) -> Tensor:
    name, index = text.rstrip("]").split("[")
    return Tensor(name, tuple(tuple(Term(rank) for rank in place.split("+")) for place in index.split()), is_output)


def _conv_pair(first: int, second: int) -> Workload:
    sizes = {"p": 64, "q": 64, "m": 64, "n": 64, "c": 64, "x": 63 + second, "y": 63 + second}
    one = {**sizes, "r": first, "s": first}
    two = {**sizes, "u": second, "v": second}
    return Workload(
        (
            _einsum("Conv1", "F1[c x+r y+s] W1[m c r s] -> F2[m x y]", one),
            _einsum("Conv2", "F2[m p+u q+v] W2[n m u v] -> F3[n p q]", two),
        )
    )


def common_workloads() -> dict[str, Workload]:
    """One workload of each common structure; sizes above 1 do not matter."""
    sizes = dict.fromkeys("iklj", 64)
    gemm = _einsum("P", "A[i k] B[k l] -> S[i l]", sizes)
    return {
        "GEMM": Workload((gemm,)),
        "GEMM pair (attention, MLP)": Workload((gemm, _einsum("C", "S[i l] D[l j] -> E[i j]", sizes))),
        "GEMM, then elementwise": Workload((gemm, _einsum("C", "S[i l] -> E[i l]", sizes))),
        "GEMM, then elementwise with a vector": Workload((gemm, _einsum("C", "S[i l] G[l] -> E[i l]", sizes))),
        "elementwise, then GEMM": Workload(
            (_einsum("P", "A[i l] -> S[i l]", sizes), _einsum("C", "S[i l] D[l j] -> E[i j]", sizes))
        ),
        "convolutions 3x3, 3x3": _conv_pair(3, 3),
        "convolutions 1x1, 3x3": _conv_pair(1, 3),
        "convolutions 3x3, 1x1": _conv_pair(3, 1),
        "convolutions 1x1, 1x1": _conv_pair(1, 1),
    }


def common_structures() -> dict[str, Structure]:
    return {name: shape_of(workload).structure for name, workload in common_workloads().items()}


def shipped_document() -> dict[str, Any]:
    """All entries, derived now."""
    return {digest(structure): encoded(prune(structure)) for structure in common_structures().values()}


def main() -> None:
    SHIPPED.write_text(json.dumps(shipped_document(), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
