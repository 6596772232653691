"""Einsums and the workloads made of them: ranks, tensors and affine projections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Term:
    """``coefficient * rank`` in one index expression of a projection."""

    rank: str
    coefficient: int = 1


@dataclass(frozen=True)
class Tensor:
    """One tensor as an Einsum accesses it (Timeloop: data space).

    Attributes
    ----------
    name : str
    projection : tuple of tuple of Term
        One sum of terms per tensor rank: ``((Term('P', 2), Term('R')), (Term('C'),))`` is ``[2*P + R, C]``.
    is_output : bool
        Read-write: the Einsum writes (and, for partial sums, re-reads) it.
    rank_names : tuple of str
        Names of the tensor's own ranks where the input gives them (LoopTree's ``dimensions``), else empty.
    """

    name: str
    projection: tuple[tuple[Term, ...], ...]
    is_output: bool = False
    rank_names: tuple[str, ...] = ()

    @cached_property
    def ranks(self) -> frozenset[str]:
        """Einsum ranks that index the tensor (its relevant ranks); those with coefficient 0 do not."""
        return frozenset(term.rank for terms in self.projection for term in terms if term.coefficient)

    def extents(self, tile: Mapping[str, int]) -> tuple[int, ...]:
        """Length along each tensor rank of the box that a tile of the iteration space touches."""
        return tuple(1 + sum(abs(t.coefficient) * (tile.get(t.rank, 1) - 1) for t in terms) for terms in self.projection)

    def volume(self, tile: Mapping[str, int]) -> int:
        """Words of that box (dense, also over the gaps of a stride, as Timeloop counts)."""
        words = 1
        for extent in self.extents(tile):
            words *= extent
        return words


@dataclass(frozen=True)
class Einsum:
    """One Einsum: an iteration space (ranks with sizes) and the tensors that it reads and writes."""

    name: str
    ranks: tuple[str, ...]
    rank_sizes: tuple[int, ...]
    tensors: tuple[Tensor, ...]

    @cached_property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.ranks, self.rank_sizes, strict=True))

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.tensors if not tensor.is_output)

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.is_output)

    @cached_property
    def computes(self) -> int:
        """Points of the iteration space."""
        product = 1
        for size in self.rank_sizes:
            product *= size
        return product

    def tensor(self, name: str) -> Tensor:
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    def size_of(self, tensor: Tensor) -> int:
        """Words of the whole tensor."""
        return tensor.volume(self.sizes)


@dataclass(frozen=True)
class Workload:
    """One Einsum, or a list of Einsums that share tensors by name (fused work), in the order given."""

    einsums: tuple[Einsum, ...]
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def einsum(self) -> Einsum:
        """The only Einsum; ``ValueError`` when there are several."""
        if len(self.einsums) != 1:
            raise ValueError(f"the workload holds {len(self.einsums)} Einsums, not one")
        return self.einsums[0]
