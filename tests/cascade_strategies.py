"""Random cascades: directed acyclic graphs of small Einsums over a handful of ranks, some with carried state."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.read import read_cascade

SIZES = {"B": 2, "I": 3, "M": 4, "N": 2, "K": 3}


def random_cascade(seed: int, count: int, reach: int = 6) -> Cascade:
    """``count`` Einsums; each reads up to three of the last ``reach`` tensors or an input, and keeps some of their ranks."""
    generator = random.Random(seed)
    ranks: dict[str, tuple[str, ...]] = {}
    einsums = []
    for number in range(count):
        recent = list(ranks)[-reach:]
        reads = generator.sample(recent, k=min(len(recent), generator.choice([1, 1, 2, 3]))) if recent else []
        operands = [f"{name}[{_indices(ranks[name])}]" for name in reads]
        spaces = [ranks[name] for name in reads]
        if not reads or generator.random() < 0.3:
            spaces.append(tuple(generator.sample(list(SIZES), k=generator.randint(1, 3))))
            operands.append(f"W{number}[{_indices(spaces[-1])}]")
        space = tuple(dict.fromkeys(rank for ranks_ in spaces for rank in ranks_))
        kept = tuple(rank for rank in space if generator.random() < 0.8) or space
        name = f"T{number}"
        if "I" in kept and generator.random() < 0.3:
            operands.append(f"{name}[{_indices(kept).replace('i', 'i-1')}]")
        einsums.append(f"{name}[{_indices(kept)}] = {' * '.join(operands)}")
        ranks[name] = kept
    return read_cascade({"ranks": {**SIZES, "I": {"size": SIZES["I"], "iterative": True}}, "einsums": einsums})


def cascades(most: int = 14) -> st.SearchStrategy[Cascade]:
    return st.builds(random_cascade, st.integers(0, 10**6), st.integers(1, most), st.integers(1, 6))


def _indices(ranks: tuple[str, ...]) -> str:
    return ",".join(rank.lower() for rank in ranks)
