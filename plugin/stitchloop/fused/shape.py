"""What a fused chain looks like once its Einsums speak of the same ranks.

The ranks of the *head* (the last Einsum, whose output leaves the chain) name the tiles. Through the intermediate tensors a
tile of ``n`` points of a head rank asks each earlier Einsum for ``stride*(n-1) + window`` points of its own rank: the window
is larger than the stride where a convolution leaves a halo. Ranks of an earlier Einsum that no later one knows (its
reductions) are private.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Literal

from stitchloop.workload import Workload

Kind = Literal["input", "output", "intermediate"]


@dataclass(frozen=True, order=True)
class Index:
    """``stride*(n-1) + window`` words of a tensor (or points of an Einsum) for ``n`` points of rank ``rank``."""

    rank: int
    stride: int = 1
    window: int = 1

    @property
    def as_tuple(self) -> tuple[int, int, int]:
        return (self.rank, self.stride, self.window)


@dataclass(frozen=True)
class Operand:
    """A tensor as one Einsum of the chain reads or writes it; ``index`` counts the points of that Einsum's own ranks."""

    kind: Kind
    index: tuple[Index, ...]
    windows: tuple[int, ...] = ()
    """Whole ranks that index the tensor only by widening another rank's window (a filter's taps in the input)."""

    @cached_property
    def ranks(self) -> frozenset[int]:
        return frozenset(i.rank for i in self.index)

    @cached_property
    def touching(self) -> frozenset[int]:
        """All ranks that a step of which may change the element that is read or written."""
        return self.ranks | frozenset(self.windows)


@dataclass(frozen=True)
class Op:
    """One Einsum of the chain: the range of each of its ranks for a tile of the head's, and its operands (output last)."""

    ranges: tuple[Index, ...]
    operands: tuple[Operand, ...]

    @cached_property
    def ranks(self) -> frozenset[int]:
        return frozenset(i.rank for i in self.ranges)

    @cached_property
    def range_of(self) -> dict[int, Index]:
        return {i.rank: i for i in self.ranges}

    @property
    def output(self) -> Operand:
        return self.operands[-1]

    @cached_property
    def inputs(self) -> tuple[Operand, ...]:
        return self.operands[:-1]

    @cached_property
    def reduced(self) -> frozenset[int]:
        """Ranks that the output does not have."""
        return self.ranks - self.output.ranks


@dataclass(frozen=True)
class Structure:
    """A chain without its sizes and names: all that loop templates and symbolic pruning depend on.

    ``whole`` ranks are never cut (windows, and ranks of size 1); ``ops`` run from the first producer to the head.
    """

    rank_count: int
    whole: frozenset[int]
    ops: tuple[Op, ...]

    @cached_property
    def looped(self) -> frozenset[int]:
        return frozenset(range(self.rank_count)) - self.whole

    @property
    def head(self) -> Op:
        return self.ops[-1]

    @cached_property
    def shareable(self) -> frozenset[int]:
        """Ranks whose loops may stand above the branch: those of the head."""
        return self.head.ranks & self.looped

    @cached_property
    def key(self) -> str:
        """A text that equal structures share."""
        ops = [
            [
                [i.as_tuple for i in op.ranges],
                [(o.kind, [i.as_tuple for i in o.index], o.windows) for o in op.operands],
            ]
            for op in self.ops
        ]
        return repr((self.rank_count, sorted(self.whole), ops))


@dataclass(frozen=True)
class Shape:
    """A structure with names and sizes.

    Attributes
    ----------
    structure : Structure
    rank_names : tuple of str
        Joint names: the head's, then those of private ranks.
    sizes : tuple of int
        Size of each joint rank (for the head's ranks as the head counts them).
    einsum_names : tuple of str
    own_names : tuple of dict
        For each Einsum, its own name of each joint rank that it has.
    tensor_names : tuple of tuple of str
        For each Einsum, the names of its operands in the structure's order.
    batch : tuple of tuple of str
        For each rank that indexes every tensor alike (heads, batch): its name in each Einsum. They stand outermost, with one
        point to a tile: no other place or tile needs less buffer or moves less.
    batch_sizes : tuple of int
    """

    structure: Structure
    rank_names: tuple[str, ...]
    sizes: tuple[int, ...]
    einsum_names: tuple[str, ...]
    own_names: tuple[dict[int, str], ...]
    tensor_names: tuple[tuple[str, ...], ...]
    batch: tuple[tuple[str, ...], ...] = ()
    batch_sizes: tuple[int, ...] = ()
    workload: Workload | None = field(default=None, compare=False, repr=False)

    @cached_property
    def copies(self) -> int:
        """How many times the per-head work is done."""
        return prod(self.batch_sizes)

    @cached_property
    def output_words(self) -> int:
        """Words of the head's output, per head."""
        return self.words(len(self.structure.ops) - 1, len(self.structure.head.operands) - 1)

    def points(self, op: int, rank: int) -> int:
        """Points of the rank that Einsum ``op`` runs through when nothing is done twice."""
        index = self.structure.ops[op].range_of[rank]
        return index.stride * (self.sizes[rank] - 1) + index.window

    def words(self, op: int, operand: int) -> int:
        """Words of a whole tensor, per head."""
        index = self.structure.ops[op].operands[operand].index
        return prod(i.stride * (self.points(op, i.rank) - 1) + i.window for i in index)

    def operations(self, op: int) -> int:
        """Points of the iteration space of an Einsum, per head, without recomputation."""
        return prod(self.points(op, rank) for rank in self.structure.ops[op].ranks)

    @cached_property
    def compulsory(self) -> int:
        """Words that must cross the DRAM interface, per head: every tensor that is not intermediate, once."""
        return sum(
            self.words(e, t)
            for e, op in enumerate(self.structure.ops)
            for t, o in enumerate(op.operands)
            if o.kind != "intermediate"
        )
