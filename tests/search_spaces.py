"""Small random mapspaces of all constraint kinds, and their optima by brute force over the reference model."""

from __future__ import annotations

import random
from collections.abc import Sequence

from stitchloop.architecture import Architecture, Compute, Energy, Level
from stitchloop.constraints import Constraints, FactorConstraint, LevelConstraints, LoopConstraint
from stitchloop.errors import InputError, InvalidMapping
from stitchloop.mapspace import Mapspace, build_mapspace
from stitchloop.model import TIMELOOP_WITHOUT_LINKS, Counting, Evaluator
from stitchloop.search.objectives import completed, value_of
from stitchloop.stats import Stats
from stitchloop.workload import Einsum, Tensor, Term


def plain(*ranks: str) -> tuple[tuple[Term, ...], ...]:
    return tuple((Term(rank),) for rank in ranks)


def gemm(m: int, n: int, k: int) -> Einsum:
    tensors = Tensor("A", plain("M", "K")), Tensor("B", plain("K", "N")), Tensor("Z", plain("M", "N"), True)
    return Einsum("gemm", ("M", "N", "K"), (m, n, k), tensors)


def convolution(c: int, m: int, r: int, s: int, p: int, q: int, stride: int = 1, n: int = 1) -> Einsum:
    inputs = (*plain("N", "C"), (Term("R"), Term("P", stride)), (Term("S"), Term("Q", stride)))
    tensors = (
        Tensor("Weights", plain("C", "M", "R", "S")),
        Tensor("Inputs", inputs),
        Tensor("Outputs", plain("N", "M", "Q", "P"), True),
    )
    return Einsum("conv", ("C", "M", "R", "S", "N", "P", "Q"), (c, m, r, s, n, p, q), tensors)


def random_einsum(rng: random.Random) -> Einsum:
    """A GEMM, a batched one, a matrix-vector product, or three inputs."""
    kind = rng.randint(0, 4)
    if kind <= 1:
        return gemm(*(rng.choice([1, 2, 3, 4, 6]) for _ in range(3)))
    if kind == 2:
        tensors = Tensor("A", plain("B", "M", "K")), Tensor("W", plain("B", "K", "N")), Tensor("Z", plain("B", "M", "N"), True)
        return Einsum("bmm", ("B", "M", "N", "K"), (rng.choice([1, 2]), rng.choice([2, 3]), 2, rng.choice([2, 4])), tensors)
    if kind == 3:
        tensors = Tensor("A", plain("M", "K")), Tensor("X", plain("K")), Tensor("Z", plain("M"), True)
        return Einsum("mv", ("M", "K"), (rng.choice([4, 6, 8, 12]), rng.choice([4, 6, 9])), tensors)
    inputs = Tensor("A", plain("I", "K", "L")), Tensor("B", plain("K", "J")), Tensor("C", plain("L", "J"))
    tensors = (*inputs, Tensor("Z", plain("I", "J"), True))
    return Einsum("mttkrp", ("I", "J", "K", "L"), (2, rng.choice([2, 4]), rng.choice([1, 3]), 2), tensors)


def random_sliding_einsum(rng: random.Random) -> Einsum:
    """One- and two-dimensional, depthwise and three-term convolutions with strides and dilations."""
    kind, stride, dilation = rng.randint(0, 3), rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2])
    window = (Term("P", stride), Term("R", dilation))
    if kind == 0:
        tensors = Tensor("W", plain("C", "M", "R")), Tensor("I", (*plain("C"), window)), Tensor("O", plain("M", "P"), True)
        return Einsum("c1", ("C", "M", "P", "R"), (rng.choice([1, 2]), rng.choice([1, 2]), rng.choice([2, 4, 6]), 2), tensors)
    if kind == 1:
        tensors = Tensor("W", plain("C", "R")), Tensor("I", (*plain("C"), window)), Tensor("O", plain("C", "P"), True)
        return Einsum("dw", ("C", "P", "R"), (2, rng.choice([4, 6, 8]), rng.choice([2, 3])), tensors)
    if kind == 2:
        other = (Term("Q", stride), Term("S", dilation))
        tensors = Tensor("W", plain("R", "S")), Tensor("I", (window, other)), Tensor("O", plain("P", "Q"), True)
        return Einsum("c2", ("P", "Q", "R", "S"), (rng.choice([2, 4]), 2, 2, rng.choice([1, 3])), tensors)
    three = (Term("A", stride), Term("B"), Term("C", dilation))
    tensors = Tensor("I", (three,)), Tensor("O", plain("A"), True)
    return Einsum("c3", ("A", "B", "C"), (rng.choice([2, 4]), 2, rng.choice([2, 3])), tensors)


def random_architecture(rng: random.Random, storage: int) -> Architecture:
    """``storage`` levels with random fan-outs between them, vectors, bandwidths, leakage; none below the innermost."""
    levels, mesh = [], [1, 1]
    for depth in range(storage):
        capacity, block = rng.choice([4, 6, 8, 12, 16, 24, 40]), rng.choice([1, 1, 2, 4])
        scale = 10.0 ** (2 - depth)
        energy = Energy(
            rng.choice([1.0, 2.25, 7.3]) * scale,
            rng.choice([1.0, 3.1]) * scale,
            rng.choice([1.5, 2.0]) * scale,
            leak=rng.choice([0, 0.01]),
        )
        levels.append(
            Level(
                f"S{storage - 1 - depth}",
                instances=mesh[0] * mesh[1], mesh_x=mesh[0], mesh_y=mesh[1],
                depth=None if depth == 0 else max(1, capacity // block),
                width=16 * block, datawidth=16, block_size=block,
                read_bandwidth=rng.choice([None, None, 1.0, 2.5]),
                write_bandwidth=rng.choice([None, None, 2.0]),
                shared_bandwidth=rng.choice([None, None, 3.0]),
                energy=energy,
            )
        )  # fmt: skip
        if depth < storage - 1 and rng.random() < 0.7:
            x, y = rng.choice([(2, 2), (4, 1), (2, 3), (1, 4)])
            name, own = f"inter_{depth}_spatial", mesh[0] * mesh[1]
            levels.append(Level(name, True, instances=own, mesh_x=mesh[0], mesh_y=mesh[1], fanout_x=x, fanout_y=y))
            mesh = [mesh[0] * x, mesh[1] * y]
    compute = Compute("MAC", mesh[0] * mesh[1], mesh[0], mesh[1], energy=Energy(compute=0.5))
    return Architecture("random", tuple(reversed(levels)), compute)


def random_constraints(rng: random.Random, einsum: Einsum, architecture: Architecture) -> Constraints:
    """Factors with all relations, permutations with both ends, splits, keeps and bypasses, utilization and parallelism."""
    entries = []
    for i, level in enumerate(architecture.levels):
        outermost = i == len(architecture.levels) - 1
        if level.is_fanout:
            listed = rng.sample(einsum.ranks, rng.randint(0, len(einsum.ranks)))
            factors = tuple(FactorConstraint(r, "<=", rng.choice([1, 2])) for r in einsum.ranks if rng.random() < 0.3)
            split = rng.choice([None, 0, 1, 2])
            spatial = LoopConstraint(factors, tuple(listed), split=split) if rng.random() < 0.5 else LoopConstraint()
            entries.append(LevelConstraints(spatial=spatial, min_parallelism=rng.choice([0, 0, 0.3])))
            continue
        factors = ()
        for rank, size in zip(einsum.ranks, einsum.rank_sizes):
            if rng.random() < 0.15:
                relation = rng.choice(["=", "<="] if outermost else ["=", "<=", ">="])
                own = [d for d in range(1, size + 1) if size % d == 0]
                factors += (FactorConstraint(rank, relation, rng.choice(own if relation == "<=" else own[:2])),)
        listed = rng.sample(einsum.ranks, rng.randint(0, len(einsum.ranks)) if rng.random() < 0.5 else 0)
        outer = tuple(r for r in einsum.ranks if r not in listed)[:1] if rng.random() < 0.2 else ()
        draws = {tensor.name: rng.random() for tensor in einsum.tensors}
        entries.append(
            LevelConstraints(
                temporal=LoopConstraint(factors, tuple(listed), outer),
                keep=frozenset(name for name, draw in draws.items() if draw < 0.35),
                bypass=frozenset() if outermost else frozenset(name for name, draw in draws.items() if 0.35 <= draw < 0.5),
                min_utilization=0 if outermost else rng.choice([0, 0, 0, 0.2]),
            )
        )
    return Constraints(tuple(entries))


def random_mapspace(seed: int, sliding: bool = False, most: int = 3000) -> Mapspace | None:
    """The mapspace of a seed; None when constraints contradict each other or it is larger than ``most``."""
    rng = random.Random(seed)
    einsum = random_sliding_einsum(rng) if sliding else random_einsum(rng)
    architecture = random_architecture(rng, rng.choice([2, 3, 3, 4, 5]))
    constraints = random_constraints(rng, einsum, architecture) if rng.random() < 0.85 else None
    try:
        space = build_mapspace(einsum, architecture, constraints)
    except InputError:
        return None
    return space if 1 <= space.size <= most else None


def valid_stats(space: Mapspace, counting: Counting = TIMELOOP_WITHOUT_LINKS) -> list[Stats]:
    """Figures of every valid mapping of the mapspace."""
    evaluator, found = Evaluator(space.einsum, space.architecture, counting), []
    for mapping in space.enumerate_mappings(fitting=True):
        if space.contains(mapping) is None:
            try:
                found.append(evaluator.evaluate(mapping))
            except InvalidMapping:
                continue
    return found


def least(stats: Sequence[Stats], objectives: Sequence[str]) -> tuple[float, ...] | None:
    """Lexicographic minimum, figures within 1e-9 taken for equal; None without any valid mapping."""
    left = [tuple(value_of(name, one) for name in completed(objectives)) for one in stats]
    if not left:
        return None
    for i in range(len(left[0])):
        best = min(values[i] for values in left)
        left = [values for values in left if values[i] <= best * (1 + 1e-9)]
    return left[0]
