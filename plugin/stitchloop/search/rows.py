"""Templates compiled to rows of exponents: every count of a mapping as a product of its bounds.

For tensors whose every rank is indexed by one rank of the Einsum, with coefficient 1, the counting rules reduce to monomials:

- a tile's words are the product of the bounds, at its level and inside, of the ranks that index the tensor;
- a level delivers to a child the child's tile times all temporal loops of the level and outside it, without the innermost
  run of loops that do not index the tensor (no partial slides: strides are at least the tile);
- the spatial loops that index the tensor count apart, those that do not are multicast or reduced;
- the words whose first read is elided are the tensor's size without the spatial loops outside.

Neighbours pass tiles on (link transfers) only below level 0: one step of a temporal loop moves a tile by at least the whole
reach of the spatial loops over the same rank, so no neighbour held it; a tile that does not move at all is not delivered
again, except to the compute units, which hold nothing. So counts are Timeloop's wherever level 0 has a single child; else
they are those without link transfers, or, on request, a lower bound that lets neighbours pass on all that does not move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stitchloop.mapspace.space import Mapspace
from stitchloop.search.columns import Template
from stitchloop.workload import Einsum, Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Variables = frozenset[int]
"""A monomial: the numbers of the bounds that are multiplied."""


def is_product(einsum: Einsum) -> bool:
    """Whether every count of the Einsum is a product of bounds: no sums, strides or diagonals in a projection."""
    return all(
        all(len(terms) <= 1 and all(term.coefficient == 1 for term in terms) for terms in tensor.projection)
        and sum(len(terms) for terms in tensor.projection) == len(tensor.ranks)
        for tensor in einsum.tensors
    )


@dataclass(frozen=True)
class Rows:
    """What all templates need, each monomial and each count once.

    ``reads``, ``fills``, ``updates`` have shape (levels, tensors, templates) and number counts; count 0 is no words at all.
    """

    exponents: NDArray[np.int64]
    """(monomials, bounds): 1 where a bound is a factor."""
    plus: NDArray[np.int64]
    minus: NDArray[np.int64]
    """Count k is monomial ``plus[k]`` less monomial ``minus[k]``; monomial 0 is the constant 1."""
    whole: NDArray[np.bool_]
    """Whether count k is its first monomial alone."""
    reads: NDArray[np.int64]
    fills: NDArray[np.int64]
    updates: NDArray[np.int64]
    kept: NDArray[np.bool_]
    tiles: NDArray[np.int64]
    """(levels, tensors): monomial of the tile."""
    instances: NDArray[np.int64]
    """(levels,): monomial of the used instances of a level."""
    steps: int
    """Monomial of all temporal loops."""
    on_x: NDArray[np.int64]
    on_y: NDArray[np.int64]
    """(levels, templates): monomial of the used columns and rows of a fan-out."""


class _Numbers:
    """Numbers distinct things in order of appearance."""

    def __init__(self, *known: object) -> None:
        self.index: dict[object, int] = {thing: number for number, thing in enumerate(known)}

    def __call__(self, thing: object) -> int:
        return self.index.setdefault(thing, len(self.index))


class Compiler:
    """Compiles templates of one mapspace; ``bounded_links`` lowers level 0 to what link transfers leave at least."""

    def __init__(self, mapspace: Mapspace, bounded_links: bool = False) -> None:
        self.mapspace, self.einsum = mapspace, mapspace.einsum
        self.width = len(self.einsum.ranks)
        self.number = {rank: number for number, rank in enumerate(self.einsum.ranks)}
        self.links_at_0 = bounded_links and mapspace.levels[0].spatial.fanout > 1
        self.storage = [not level.is_fanout for level in mapspace.architecture.levels]

    def variables(self, index: int, spatial: bool, ranks: Iterable[str]) -> Variables:
        slot = 2 * index + (not spatial)
        return frozenset(slot * self.width + self.number[rank] for rank in ranks)

    def compile(self, templates: Sequence[Template]) -> Rows:
        """Rows of ``templates``, in their order."""
        import numpy as np

        monomials, counts = _Numbers(frozenset()), _Numbers((0, 0))
        shape = len(self.mapspace.levels), len(self.einsum.tensors), len(templates)
        numbers = {name: np.zeros(shape, dtype=np.int64) for name in ("reads", "fills", "updates")}
        kept = np.zeros(shape, dtype=bool)
        sides = np.zeros((2, shape[0], shape[2]), dtype=np.int64)
        known: dict[object, list[tuple[int, int, int, int]]] = {}
        for column, template in enumerate(templates):
            for position, tensor in enumerate(self.einsum.tensors):
                keep = tuple(tensor.name in level for level in template.keeps)
                key = (position, template.orders, keep)
                if key not in known:
                    known[key] = self._counts(tensor, keep, template.orders, monomials, counts)
                for index, reads, fills, updates in known[key]:
                    kept[index, position, column] = True
                    numbers["reads"][index, position, column] = reads
                    numbers["fills"][index, position, column] = fills
                    numbers["updates"][index, position, column] = updates
            for side, ranks in enumerate((template.on_x, template.on_y)):
                for index, looped in enumerate(ranks):
                    sides[side, index, column] = monomials(self.variables(index, True, looped))
        tiles = np.array([[monomials(self._tile(tensor, i)) for tensor in self.einsum.tensors] for i in range(shape[0])])
        instances = np.array([monomials(self._outside(index)) for index in range(shape[0])])
        steps = monomials(self._temporal(range(shape[0])))
        exponents = np.zeros((len(monomials.index), 2 * shape[0] * self.width), dtype=np.int64)
        for monomial, number in monomials.index.items():
            exponents[number, sorted(monomial)] = 1  # type: ignore[call-overload]
        pairs = np.array(list(counts.index), dtype=np.int64).reshape(-1, 2)
        whole = pairs[:, 1] < 0
        return Rows(
            exponents, pairs[:, 0], np.maximum(pairs[:, 1], 0), whole, **numbers, kept=kept, tiles=tiles, instances=instances,
            steps=steps, on_x=sides[0], on_y=sides[1],
        )  # fmt: skip

    def _counts(
        self, tensor: Tensor, keep: tuple[bool, ...], orders: tuple[tuple[str, ...], ...], monomials: _Numbers, counts: _Numbers
    ) -> list[tuple[int, int, int, int]]:
        """(level, reads, fills, updates) as numbers of counts, at every level that keeps the tensor."""
        levels = [index for index, kept in enumerate(keep) if kept]
        found, child = [], -1
        for index in levels:
            apart = frozenset().union(*(self.variables(i, True, tensor.ranks) for i in range(child + 1, index + 1)))
            served = monomials(self._delivered(tensor, child + 1, orders) | apart)
            received = monomials(self._delivered(tensor, index + 1, orders)) if index != levels[-1] else None
            if tensor.is_output:
                first = monomials(self._covered(tensor, index))
                reads = counts((served, first)) if served != first else 0
                fills = 0 if received is None or received == first else counts((received, first))
                found.append((index, reads, fills, counts((served, -1))))
            else:
                fills = 0 if received is None else counts((received, -1))
                found.append((index, counts((served, -1)), fills, 0))
            child = index
        return found

    def _delivered(self, tensor: Tensor, index: int, orders: tuple[tuple[str, ...], ...]) -> Variables:
        """Words that level ``index`` delivers to one child."""
        if index == 0 and not self.links_at_0:
            return self._temporal(range(len(orders)))
        nest = [(level, rank) for level in range(index, len(orders)) for rank in orders[level]]
        moving = next((m for m, (_, rank) in enumerate(nest) if rank in tensor.ranks), len(nest))
        loops = frozenset().union(*(self.variables(level, False, [rank]) for level, rank in nest[moving:]))
        return loops | (self._tile(tensor, index - 1) if index else frozenset())

    def _tile(self, tensor: Tensor, index: int) -> Variables:
        halves = (self.variables(i, spatial, tensor.ranks) for i in range(index + 1) for spatial in (True, False))
        return frozenset().union(*halves)

    def _covered(self, tensor: Tensor, index: int) -> Variables:
        """Words of the tensor that one instance of a level covers over the whole run."""
        last = len(self.mapspace.levels)
        outside = (self.variables(i, False, tensor.ranks) for i in range(index + 1, last))
        return self._tile(tensor, index).union(*outside)

    def _outside(self, index: int) -> Variables:
        """Used instances of a level: all spatial loops outside it."""
        outer = range(index + 1, len(self.mapspace.levels))
        return frozenset().union(*(self.variables(i, True, self.einsum.ranks) for i in outer))

    def _temporal(self, levels: Iterable[int]) -> Variables:
        return frozenset().union(*(self.variables(index, False, self.einsum.ranks) for index in levels))
