"""Random small Einsums, architectures and mappings for the model's tests."""

from __future__ import annotations

import random

from stitchloop.architecture import Architecture, Compute, Energy, Level
from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.workload import Einsum, Tensor, Term


def tensor(name: str, *expressions: str, output: bool = False) -> Tensor:
    """``tensor('I', '2P+R', 'C')``."""
    projection = []
    for expression in expressions:
        terms = []
        for part in expression.replace("-", "+-").lstrip("+").split("+"):
            number, rank = part[:-1], part[-1]
            terms.append(Term(rank, {"": 1, "-": -1}.get(number) or int(number)))
        projection.append(tuple(terms))
    return Tensor(name, tuple(projection), output)


SHAPES: dict[str, tuple[Tensor, ...]] = {
    "gemm": (tensor("A", "M", "K"), tensor("B", "K", "N"), tensor("Z", "M", "N", output=True)),
    "conv": (tensor("W", "C", "R"), tensor("I", "C", "P+R"), tensor("O", "P", output=True)),
    "strided": (tensor("W", "R"), tensor("I", "2P+R"), tensor("O", "P", output=True)),
    "dilated": (tensor("W", "R"), tensor("I", "P+3R"), tensor("O", "P", output=True)),
    "scatter": (tensor("W", "R"), tensor("I", "P"), tensor("O", "2P+R", output=True)),
    "diagonal": (tensor("A", "M+N", "M"), tensor("B", "N"), tensor("Z", "M", output=True)),
    "twooutputs": (tensor("A", "M", "N"), tensor("Y", "M", output=True), tensor("Z", "N", output=True)),
    "reversed": (tensor("W", "R"), tensor("I", "P-R"), tensor("O", "P", output=True)),
}


def random_einsum(rng: random.Random, name: str, largest: int) -> Einsum:
    tensors = SHAPES[name]
    ranks = sorted({rank for t in tensors for rank in t.ranks})
    return Einsum(name, tuple(ranks), tuple(rng.randint(1, largest) for _ in ranks), tensors)


def random_architecture(rng: random.Random, fan: int) -> Architecture:
    """Two to four storage levels with fan-outs between them, wide enough for anything, some with wide blocks."""
    levels: list[Level] = []
    mesh_x = mesh_y = 1

    def storage(name: str) -> Level:
        energy = Energy(rng.randint(1, 9), rng.randint(1, 9), rng.randint(1, 9), 0.0, 0.25, 9.0, "test")
        block = rng.choice((1, 1, 2, 4))
        bandwidths = [rng.choice((None, None, 0.5, 2.75, 16.0)) for _ in range(3)]
        return Level(
            name, False, mesh_x * mesh_y, mesh_x, mesh_y, 1, 1, None, block, 1, block, 1.0, 0.0, *bandwidths, energy=energy
        )

    levels.append(storage("DRAM"))
    for index in range(rng.randint(1, 3)):
        if rng.random() < 0.7:
            levels.append(Level(f"inter_C{index}_spatial", True, mesh_x * mesh_y, mesh_x, mesh_y, fan, fan))
            mesh_x, mesh_y = mesh_x * fan, mesh_y * fan
        levels.append(storage(f"B{index}"))
    if rng.random() < 0.3:
        levels.append(Level("inter_MAC_spatial", True, mesh_x * mesh_y, mesh_x, mesh_y, fan, fan))
        mesh_x, mesh_y = mesh_x * fan, mesh_y * fan
    compute = Compute("MAC", mesh_x * mesh_y, mesh_x, mesh_y, energy=Energy(compute=1.5, source="test"))
    return Architecture("random", tuple(reversed(levels)), compute)


def random_mapping(
    rng: random.Random, einsum: Einsum, architecture: Architecture, *, imperfect: bool, most_elements: int = 16
) -> Mapping:
    """A mapping whose loops spell every rank; spatial loops only at fan-outs, bypass anywhere but in the outermost level."""
    left = dict(einsum.sizes)
    elements = 1
    rows = []
    for level in architecture.levels:
        is_outermost = level is architecture.levels[-1]
        x, y, temporal = [], [], []
        order = list(einsum.ranks)
        rng.shuffle(order)
        if level.is_fanout:
            for rank in order:
                loop = _loop(rng, rank, left, imperfect, most=4)
                if loop is None or elements * loop.bound > most_elements:
                    continue
                axis = x if rng.random() < 0.6 else y
                limit = level.fanout_x if axis is x else level.fanout_y
                used = loop.bound
                for other in axis:
                    used *= other.bound
                if used > limit:
                    continue
                axis.append(loop)
                elements *= loop.bound
                left[rank] = -(-left[rank] // loop.bound)
        rng.shuffle(order)
        for rank in order:
            loop = _loop(rng, rank, left, imperfect, most=99) if not is_outermost else _whole(rank, left)
            if loop is not None:
                temporal.append(loop)
                left[rank] = -(-left[rank] // loop.bound)
        keep = frozenset(t.name for t in einsum.tensors if is_outermost or (not level.is_fanout and rng.random() < 0.75))
        rows.append(LevelMapping(tuple(temporal), tuple(x), tuple(y), keep))
    return Mapping(tuple(rows))


def _loop(rng: random.Random, rank: str, left: dict[str, int], imperfect: bool, most: int) -> Loop | None:
    n = left[rank]
    if rng.random() < 0.45:
        return None
    bounds = (
        range(2, min(n, most) + (2 if imperfect else 1)) if imperfect else [b for b in range(2, min(n, most) + 1) if n % b == 0]
    )
    if not bounds:
        return None
    bound = rng.choice(list(bounds))
    last = (n - 1) % bound + 1
    return Loop(rank, bound, 0 if last == bound else last)


def _whole(rank: str, left: dict[str, int]) -> Loop | None:
    return Loop(rank, left[rank]) if left[rank] > 1 else None
