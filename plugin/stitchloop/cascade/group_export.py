"""What an exported fusion group is: LoopTree's Einsums for it, their sizes, and what was lost on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.merge import Node
from stitchloop.workload import Einsum, Tensor, Term, Workload

Dimension = tuple[Term, ...]
SINK = "last"


@dataclass(frozen=True)
class Step:
    """One Einsum of the exported list, still with the cascade's rank names.

    ``stands_for`` names the cascade's Einsums that it computes; it is empty for a load, a store or the sink.
    """

    name: str
    output: str
    dimensions: tuple[Dimension, ...]
    reads: tuple[tuple[str, tuple[Dimension, ...]], ...]
    stands_for: Node = ()

    @property
    def ranks(self) -> tuple[str, ...]:
        spaces = (self.dimensions, *(dimensions for _, dimensions in self.reads))
        return tuple(dict.fromkeys(term.rank for space in spaces for terms in space for term in terms))


@dataclass(frozen=True)
class GroupExport:
    """A group's Einsums for LoopTree.

    Attributes
    ----------
    steps : tuple of Step
        Producers first; the last one is the only one whose output nobody reads.
    sizes : tuple of mapping
        Per step, the sizes of its ranks (larger than the cascade's where padding is computed).
    results : tuple of str
        Tensors that go to DRAM.
    weights : tuple of str
        Operands that every tile needs whole; kept on chip where they fit.
    state : mapping of str to int
        Initial states that stand for carried ones, with their words.
    parts : mapping of str to tuple of str
        Exported tensor to the cascade's tensors that it holds, in DRAM.
    not_expressed : tuple of str
        Sentences on what LoopTree does not see.
    missing_writes : mapping of str to int
        Words that cross DRAM in the cascade and in no exported tensor (final states).
    """

    cascade: Cascade = field(repr=False)
    nodes: tuple[Node, ...]
    steps: tuple[Step, ...]
    sizes: tuple[Mapping[str, int], ...]
    results: tuple[str, ...]
    weights: tuple[str, ...]
    state: Mapping[str, int]
    parts: Mapping[str, tuple[str, ...]]
    not_expressed: tuple[str, ...]
    missing_writes: Mapping[str, int]

    @cached_property
    def workload(self) -> Workload:
        """The Einsums with rank names of their own (``I_0``, ``I_1``), as LoopTree wants them."""
        return Workload(tuple(self._einsum(at) for at in range(len(self.steps))), self.not_expressed)

    def _einsum(self, at: int) -> Einsum:
        step, sizes = self.steps[at], self.sizes[at]
        tensors = [self._tensor(at, name, dimensions, False) for name, dimensions in step.reads]
        tensors.append(self._tensor(at, step.output, step.dimensions, True))
        return Einsum(step.name, tuple(rank_name(r, at) for r in step.ranks), tuple(sizes[r] for r in step.ranks), tuple(tensors))

    def _tensor(self, at: int, name: str, dimensions: tuple[Dimension, ...], is_output: bool) -> Tensor:
        projection = tuple(tuple(Term(rank_name(t.rank, at), t.coefficient) for t in terms) for terms in dimensions)
        return Tensor(name, projection, is_output, tuple(f"{name}_r{n}" for n in range(len(dimensions))))

    @cached_property
    def written(self) -> dict[str, int]:
        """Tensor to the step that writes it."""
        return {step.output: at for at, step in enumerate(self.steps)}

    @cached_property
    def uses(self) -> dict[str, tuple[tuple[int, tuple[Dimension, ...]], ...]]:
        """Tensor to the steps that read or write it, each with the tensor's dimensions there."""
        found: dict[str, list[tuple[int, tuple[Dimension, ...]]]] = {}
        for at, step in enumerate(self.steps):
            for name, dimensions in (*step.reads, (step.output, step.dimensions)):
                found.setdefault(name, []).append((at, dimensions))
        return {name: tuple(uses) for name, uses in found.items()}

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that come from DRAM."""
        return tuple(dict.fromkeys(name for step in self.steps for name, _ in step.reads if name not in self.written))

    @cached_property
    def intermediates(self) -> tuple[str, ...]:
        """Tensors that stay on chip."""
        return tuple(step.output for step in self.steps if step.output not in self.results and step.name != SINK)


def rank_name(rank: str, at: int) -> str:
    """The rank of the ``at``-th exported Einsum."""
    return f"{rank}_{at}"


def reach(steps: Sequence[Step], sizes: Sequence[Mapping[str, int]], *, grow: bool) -> tuple[dict[str, int], ...]:
    """Extent of each step's ranks that the last step's extents ask for, through the chain of reads.

    ``sizes`` bounds the ranks of a step, but where ``grow`` lets the asked extents exceed them.
    """
    asked: dict[str, list[int]] = {}
    found: list[dict[str, int]] = []
    for step, own in zip(reversed(steps), reversed(sizes), strict=True):
        extents = dict(own)
        for terms, extent in zip(step.dimensions, asked.get(step.output, ()), strict=False):
            rank = terms[0].rank
            extents[rank] = max(own[rank], extent) if grow else min(own[rank], extent)
        for name, dimensions in step.reads:
            now = [1 + sum(t.coefficient * (extents[t.rank] - 1) for t in terms) for terms in dimensions]
            asked[name] = [max(pair) for pair in zip(asked.get(name, now), now, strict=True)]
        found.append(extents)
    return tuple(reversed(found))


def volume(dimensions: Sequence[Dimension], tile: Mapping[str, int]) -> int:
    """Words of the box that a tile touches."""
    return prod(1 + sum(t.coefficient * (tile[t.rank] - 1) for t in terms) for terms in dimensions)
