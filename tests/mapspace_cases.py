"""Small Einsums and architectures that the tests of mapspaces, matrices and networks share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stitchloop.architecture import Architecture, Compute, Energy, Level
from stitchloop.workload import Einsum, Tensor, Term


def tensor(name: str, *indices: str | Sequence[tuple[str, int]], output: bool = False) -> Tensor:
    """``tensor('I', 'C', (('P', 2), ('R', 1)))`` is ``I[C, 2*P + R]``."""
    terms = tuple((Term(i),) if isinstance(i, str) else tuple(Term(rank, c) for rank, c in i) for i in indices)
    return Tensor(name, terms, output)


def gemm(m: int, n: int, k: int) -> Einsum:
    tensors = (tensor("A", "M", "K"), tensor("B", "K", "N"), tensor("Z", "M", "N", output=True))
    return Einsum("gemm", ("M", "N", "K"), (m, n, k), tensors)


def matvec(m: int, k: int) -> Einsum:
    return Einsum("matvec", ("M", "K"), (m, k), (tensor("A", "M", "K"), tensor("X", "K"), tensor("Z", "M", output=True)))


def conv(m: int, c: int, p: int, r: int, stride: int = 1) -> Einsum:
    tensors = (
        tensor("Weights", "M", "C", "R"),
        tensor("Inputs", "C", (("P", stride), ("R", 1))),
        tensor("Outputs", "M", "P", output=True),
    )
    return Einsum("conv", ("M", "C", "P", "R"), (m, c, p, r), tensors)


def storage(name: str, depth: int | None = None, *, x: int = 1, y: int = 1, cost: float = 1.0, **more: Any) -> Level:
    """A storage level of words as wide as its rows, in x * y instances."""
    energy = Energy(cost, cost, cost, 0.0, 0.01 * cost, cost, "test")
    return Level(name, instances=x * y, mesh_x=x, mesh_y=y, depth=depth, width=16, datawidth=16, energy=energy, **more)


def fanout(name: str, to_x: int, to_y: int = 1, *, x: int = 1, y: int = 1) -> Level:
    """A fan-out to to_x * to_y children each, in x * y instances."""
    return Level(f"inter_{name}_spatial", is_fanout=True, fanout_x=to_x, fanout_y=to_y, instances=x * y, mesh_x=x, mesh_y=y)


def tiny(x: int = 2, y: int = 2, rf: int = 8, glb: int = 32) -> Architecture:
    """DRAM, a buffer, and x * y PEs with a register file each."""
    levels = (
        storage("RF", rf, x=x, y=y, cost=0.5),
        fanout("PE", x, y),
        storage("GLB", glb, cost=2.0, read_bandwidth=4.0, write_bandwidth=4.0),
        storage("DRAM", cost=100.0, shared_bandwidth=2.0, technology="DRAM"),
    )
    return Architecture("tiny", levels, Compute("MAC", x * y, x, y, energy=Energy(compute=1.0)))


def two_levels(buffer: int = 16) -> Architecture:
    levels = (storage("Buffer", buffer), storage("DRAM", cost=100.0, shared_bandwidth=2.0, technology="DRAM"))
    return Architecture("two_levels", levels, Compute("MAC", energy=Energy(compute=1.0)))
