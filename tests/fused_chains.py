"""Workloads and helpers for the tests of the fused search."""

from __future__ import annotations

import random
from itertools import pairwise

from stitchloop.fused.machine import Machine, Port
from stitchloop.fused.shape import Shape
from stitchloop.fused.template import Template, choices, skeletons
from stitchloop.workload import Einsum, Tensor, Term, Workload

MACHINE = Machine(1 << 19, 32, 32, 4, Port(shared=30), 128, 128, 16.56, 18.4, 3.275, 3.275)
"""The NVDLA-like architecture: 1 MiB, four arrays of 32 x 32, 30 words per cycle."""


def tensor(name: str, index: str, is_output: bool = False) -> Tensor:
    """``tensor('F', 'C P+R')``: a sum of ranks in each place; ``2P+R`` has a coefficient."""

    def term(text: str) -> Term:
        digits = text[: len(text) - len(text.lstrip("0123456789"))]
        return Term(text[len(digits) :], int(digits or 1))

    return Tensor(name, tuple(tuple(term(t) for t in place.split("+")) for place in index.split()), is_output)


def einsum(name: str, sizes: dict[str, int], *tensors: Tensor) -> Einsum:
    return Einsum(name, tuple(sizes), tuple(sizes.values()), tensors)


def gemm_pair(i: int, k: int, l: int, j: int, heads: int = 1) -> Workload:  # noqa: E741
    """S[i,l] = A[i,k] B[k,l]; E[i,j] = S[i,l] D[l,j], with a heads rank when there are several."""
    h1, h2, one, two = ("H1 ", "H2 ", {"H1": heads}, {"H2": heads}) if heads > 1 else ("", "", {}, {})
    producer = einsum(
        "Producer",
        {**one, "I1": i, "K1": k, "L1": l},
        tensor("A", h1 + "I1 K1"),
        tensor("B", h1 + "K1 L1"),
        tensor("S", h1 + "I1 L1", True),
    )
    consumer = einsum(
        "Consumer",
        {**two, "I2": i, "L2": l, "J2": j},
        tensor("S", h2 + "I2 L2"),
        tensor("D", h2 + "L2 J2"),
        tensor("E", h2 + "I2 J2", True),
    )
    return Workload((producer, consumer))


def conv_pair(p: int, c: int, m: int, n: int, first: int = 3, second: int = 3, stride: int = 1) -> Workload:
    """Two one-dimensional convolutions, ``p`` output points of the second."""
    middle = stride * (p - 1) + second
    sizes1, sizes2 = {"P1": middle, "R1": first, "C1": c, "M1": m}, {"P2": p, "R2": second, "M2": m, "N2": n}
    read = f"M2 {stride if stride > 1 else ''}P2+R2"
    return Workload(
        (
            einsum("Conv1", sizes1, tensor("F1", "C1 P1+R1"), tensor("W1", "M1 C1 R1"), tensor("F2", "M1 P1", True)),
            einsum("Conv2", sizes2, tensor("F2", read), tensor("W2", "N2 M2 R2"), tensor("F3", "N2 P2", True)),
        )
    )


def conv2d_pair(p: int, c: int, m: int, n: int, first: int = 3, second: int = 3) -> Workload:
    """Two square convolutions."""
    middle = p + second - 1
    sizes1 = {"P1": middle, "Q1": middle, "R1": first, "S1": first, "C1": c, "M1": m}
    sizes2 = {"P2": p, "Q2": p, "R2": second, "S2": second, "M2": m, "N2": n}
    return Workload(
        (
            einsum("Conv1", sizes1, tensor("F1", "C1 P1+R1 Q1+S1"), tensor("W1", "M1 C1 R1 S1"), tensor("F2", "M1 P1 Q1", True)),
            einsum("Conv2", sizes2, tensor("F2", "M2 P2+R2 Q2+S2"), tensor("W2", "N2 M2 R2 S2"), tensor("F3", "N2 P2 Q2", True)),
        )
    )


def gemm_then_activation(i: int, k: int, l: int) -> Workload:  # noqa: E741
    """S[i,l] = A[i,k] B[k,l]; E[i,l] = S[i,l] with a bias G[l]."""
    return Workload(
        (
            einsum("Gemm", {"I1": i, "K1": k, "L1": l}, tensor("A", "I1 K1"), tensor("B", "K1 L1"), tensor("S", "I1 L1", True)),
            einsum("Act", {"I2": i, "L2": l}, tensor("S", "I2 L2"), tensor("G", "L2"), tensor("E", "I2 L2", True)),
        )
    )


def scale_then_gemm(i: int, l: int, j: int) -> Workload:  # noqa: E741
    """S[i,l] = A[i,l] G[l]; E[i,j] = S[i,l] D[l,j]."""
    return Workload(
        (
            einsum("Scale", {"I1": i, "L1": l}, tensor("A", "I1 L1"), tensor("G", "L1"), tensor("S", "I1 L1", True)),
            einsum("Gemm", {"I2": i, "L2": l, "J2": j}, tensor("S", "I2 L2"), tensor("D", "L2 J2"), tensor("E", "I2 J2", True)),
        )
    )


def gemm_chain(m: int, widths: list[int]) -> Workload:
    """Fully connected layers: ``widths`` from the input's to the last output's."""
    made = []
    for at, (before, after) in enumerate(pairwise(widths), 1):
        ranks = {f"M{at}": m, f"A{at}": before, f"B{at}": after}
        made.append(
            einsum(
                f"Fc{at}",
                ranks,
                tensor(f"X{at - 1}", f"M{at} A{at}"),
                tensor(f"W{at}", f"A{at} B{at}"),
                tensor(f"X{at}", f"M{at} B{at}", True),
            )
        )
    return Workload(tuple(made))


def random_template(shape: Shape, chance: random.Random) -> Template:
    """Any template of the mapspace."""
    walks = [chance.choice(orders) for orders in chance.choice(_skeletons(shape)).orders]
    picks = [[chance.choice(choices(walk, operand)) for operand in walk.op.operands] for walk in walks]
    return Template(
        walks[0].loops[: walks[0].shared],
        tuple(walk.loops[walk.shared :] for walk in walks),
        tuple(tuple(pick.level for pick in own) for own in picks),
        tuple(tuple(pick.held for pick in own) for own in picks),
    )


_FOUND: dict = {}


def _skeletons(shape: Shape) -> list:
    if shape.structure not in _FOUND:
        _FOUND[shape.structure] = list(skeletons(shape.structure))
    return _FOUND[shape.structure]
