"""How a fusion group runs tile by tile: its segments, what must lie in the buffer meanwhile, and what may be spilled.

A group is cut along its *tile ranks*, the iterative and batch ranks that all its Einsums keep. For each tile its *segments*
run one after the other. A segment is a run of Einsums in the same mode in which every value is used as soon as it is made (no
consumer iterates a rank that the tensor between them lacks), so that such tensors pass through registers. A tensor that goes
from one segment to a later one lies in the buffer for the whole interval, one tile of it, or it is *spilled* for that
interval: written out and read back.

The choices, enumerated and judged by :mod:`stitchloop.cascade.performance`:

* the tile size of each tile rank. Blocks of an iterative rank are *I-blocking*; blocks of one step with the carried state
  kept are *B-D-N
  stationary*; blocks of the iterative rank together with a split of the batch are the *hybrid*;
* how many intervals are spilled, in one fixed order (the longest first, by what a spill costs), so that a smaller buffer only
  adds spills;
* only where nothing fits after all spills: a GEMM's streamed operand is read again for each of its passes over the array;
* whether the carried state stays in the buffer from block to block or is written out and read back;
* which share of the remaining capacity pins operands that every tile would read again; the rest lets transfers run ahead.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from stitchloop.cascade.cascade import Cascade, State
from stitchloop.cascade.compute import Numbers, Sizes, gemms
from stitchloop.cascade.expression import Access, Equation, Index
from stitchloop.cascade.merge import Node

MOST_TILE_RANKS = 3
MINOR = 1 / 50
"""Intervals of less than this share of the largest one, at one step of the iterative ranks, are spilled last."""


@dataclass(frozen=True)
class Segment:
    """Nodes that run as one pass over a tile, in one mode."""

    nodes: tuple[Node, ...]
    is_array: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for node in self.nodes for name in node)


@dataclass(frozen=True)
class Interval:
    """A tensor between two segments that use it and nothing in between does. ``start`` may produce it or read it first."""

    tensor: str
    start: int
    stop: int
    cost: int
    """Words moved per word spilled: 2, or 1 where the tensor lies in DRAM anyway."""


@dataclass(frozen=True)
class Pipeline:
    """A group's structure, whatever the tile sizes.

    Attributes
    ----------
    segments : tuple of Segment
    tile_ranks : tuple of str
        Batch ranks first, iterative ranks last (innermost).
    intervals : tuple of Interval
        In the order in which they are spilled.
    whole : frozenset of (str, int)
        Tensors that a segment uses again and again, so that a tile of them lies in the buffer while it runs.
    refetched : tuple of str
        Tensors from outside that lack some tile rank (weights): every tile along it needs them again.
    streams : tuple of int
        Per segment how many tensors stream through it.
    states : tuple of State
        Carried inside the group, in one segment or in several.
    lockstep : bool
        A carried dependence leaves the segment, so that each step must end before the next begins.
    chain : int
        Einsums on the longest carried dependence that stays inside one segment.
    """

    segments: tuple[Segment, ...]
    tile_ranks: tuple[str, ...]
    intervals: tuple[Interval, ...]
    whole: frozenset[tuple[str, int]]
    refetched: tuple[str, ...]
    streams: tuple[int, ...]
    states: tuple[State, ...]
    lockstep: bool
    chain: int
    chain_segment: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for segment in self.segments for name in segment.names)

    @property
    def streams_past_state(self) -> bool:
        """One segment with a carried chain: slices of the state stay in the PEs and the steps stream past them."""
        return len(self.segments) == 1 and self.chain > 0 and not self.lockstep


def equations_of(cascade: Cascade, node: Node) -> tuple[Equation, ...]:
    return tuple(equation for name in node for equation in cascade.einsum(name).equations)


def is_array_node(cascade: Cascade, node: Node) -> bool:
    """Whether the node runs in the 2D mode."""
    return all(equation.is_gemm for equation in equations_of(cascade, node))


def segments_of(cascade: Cascade, nodes: Sequence[Node]) -> tuple[Segment, ...]:
    """Cut a group, in its order, into segments."""
    segments: list[list[Node]] = []
    for node in nodes:
        if segments and _flows_on(cascade, segments[-1], node):
            segments[-1].append(node)
        else:
            segments.append([node])
    return tuple(Segment(tuple(members), is_array_node(cascade, members[0])) for members in segments)


def _flows_on(cascade: Cascade, segment: Sequence[Node], node: Node) -> bool:
    if is_array_node(cascade, node) != is_array_node(cascade, segment[-1]):
        return False
    made = {tensor for member in segment for name in member for tensor in cascade.einsum(name).output_tensors}
    meets = False
    for equation in equations_of(cascade, node):
        for access in equation.inputs:
            if access.tensor in made and not cascade.is_carried(access):
                meets = True
                if set(equation.ranks) - set(access.ranks) or any(index.plain_rank is None for index in access.indices):
                    return False
    spaces = {frozenset(equation.ranks) for member in segment for equation in equations_of(cascade, member)}
    return meets or all(frozenset(equation.ranks) in spaces for equation in equations_of(cascade, node))


def pipeline_of(cascade: Cascade, nodes: Sequence[Node]) -> Pipeline:
    """The structure of one group."""
    segments = segments_of(cascade, nodes)
    tile_ranks = _tile_ranks(cascade, nodes)
    place = {name: index for index, segment in enumerate(segments) for name in segment.names}
    uses = _uses(cascade, segments)
    states = tuple(
        state
        for state in cascade.states
        if cascade.tensor(state.tensor).producer in place and _reads_state(cascade, state, place)
    )
    lockstep, chain, chain_segment = _carried(cascade, place)
    outside = tuple(tensor for tensor in uses if cascade.tensor(tensor).producer not in place)
    refetched = tuple(t for t in outside if not set(tile_ranks) <= set(_access_ranks(cascade, t, place)))
    return Pipeline(
        segments,
        tile_ranks,
        _intervals(cascade, uses, place, refetched),
        frozenset((tensor, s) for s, segment in enumerate(segments) for tensor in _reused(cascade, segment, refetched)),
        tuple(sorted(refetched, key=lambda t: (len(set(tile_ranks) & set(cascade.tensor(t).ranks)), t))),
        tuple(
            sum(s in used and not _stays_inside(cascade, t, used, place) for t, used in uses.items())
            for s in range(len(segments))
        ),
        states,
        lockstep,
        chain,
        chain_segment,
    )


def leaves(cascade: Cascade, tensor: str, group: Container[str]) -> bool:
    """Whether a tensor that the group makes is needed outside it."""
    return cascade.tensor(tensor).is_output or any(name not in group for name in cascade.consumers[tensor])


def _stays_inside(cascade: Cascade, tensor: str, used: Sequence[int], place: Mapping[str, int]) -> bool:
    """Whether a tensor is made and used up within one segment."""
    return cascade.tensor(tensor).producer in place and len(used) == 1 and not leaves(cascade, tensor, place)


def _tile_ranks(cascade: Cascade, nodes: Sequence[Node]) -> tuple[str, ...]:
    """Ranks that every equation keeps: batch, then iterative; the others too where no iterative one is among them.

    A rank by which the group makes a tensor and along which it then reads all of it (keys, for every query) is none.
    """
    equations = [equation for node in nodes for equation in equations_of(cascade, node)]
    kept = set.intersection(*(set(equation.output.ranks) for equation in equations))
    made = {equation.output.tensor: equation.output.ranks for equation in equations}
    for access in (access for equation in equations for access in equation.inputs if access.tensor in made):
        kept -= {own for own, index in zip(made[access.tensor], access.indices) if own not in index.ranks}
    batch = [rank.name for rank in cascade.ranks if rank.name in kept and rank.batch and not rank.iterative]
    iterative = [rank.name for rank in cascade.ranks if rank.name in kept and rank.iterative]
    others = [] if iterative else sorted(kept - set(batch), key=lambda rank: (-cascade.sizes[rank], rank))
    return tuple([*batch, *others][: MOST_TILE_RANKS - len(iterative)] + iterative)


def _uses(cascade: Cascade, segments: Sequence[Segment]) -> dict[str, tuple[int, ...]]:
    """Tensor to the segments that make it or read it (carried reads of a state aside)."""
    found: dict[str, list[int]] = {}
    for s, segment in enumerate(segments):
        for name in segment.names:
            einsum = cascade.einsum(name)
            read = [access.tensor for access in einsum.inputs if not cascade.is_carried(access)]
            for tensor in (*read, *einsum.output_tensors):
                if s not in found.setdefault(tensor, []):
                    found[tensor].append(s)
    return {tensor: tuple(sorted(used)) for tensor, used in found.items()}


def _access_ranks(cascade: Cascade, tensor: str, place: Mapping[str, int]) -> set[str]:
    return {r for name in place for access in cascade.einsum(name).inputs if access.tensor == tensor for r in access.ranks}


def _reads_state(cascade: Cascade, state: State, place: Mapping[str, int]) -> bool:
    return any(access.tensor == state.tensor for name in place for access in cascade.einsum(name).inputs)


def _intervals(
    cascade: Cascade, uses: Mapping[str, tuple[int, ...]], place: Mapping[str, int], refetched: Sequence[str]
) -> tuple[Interval, ...]:
    found = []
    for tensor, used in uses.items():
        if tensor in refetched:
            continue
        producer = cascade.tensor(tensor).producer
        in_dram = producer not in place or leaves(cascade, tensor, place)
        found += [Interval(tensor, start, stop, 1 if in_dram else 2) for start, stop in pairwise(used)]
    step = cascade.with_sizes(dict.fromkeys(cascade.iterative_ranks, 1))
    words = {interval.tensor: step.words(interval.tensor) for interval in found}
    largest = max(words.values(), default=0)
    return tuple(sorted(found, key=lambda i: (words[i.tensor] < MINOR * largest, (i.start - i.stop) / i.cost, i.start, i.tensor)))


def _reused(cascade: Cascade, segment: Segment, refetched: Sequence[str]) -> set[str]:
    """Tensors of a segment, not made in it, that some node reads at more points than they have."""
    made = {tensor for name in segment.names for tensor in cascade.einsum(name).output_tensors}
    found: set[str] = set()
    for node in segment.nodes:
        equations = equations_of(cascade, node)
        if segment.is_array:
            found |= {gemm.streamed.tensor for gemm in gemms(cascade, equations)}
        else:
            found |= {a.tensor for equation in equations for a in equation.inputs if set(equation.ranks) - set(a.ranks)}
    return found - made - set(refetched)


def _carried(cascade: Cascade, place: Mapping[str, int]) -> tuple[bool, int, int]:
    """Lockstep?, length of the carried chain in a segment, and which segment."""
    longest, where, lockstep = 0, -1, False
    for state in cascade.states:
        cycle = cascade.carried_cycles[state.tensor]
        here = {place[name] for name in cycle if name in place}
        if not here:
            continue
        if len(here) > 1 or any(name not in place for name in cycle):
            lockstep = True
        elif len(cycle) > longest:
            longest, where = len(cycle), here.pop()
    return lockstep, longest, where


@dataclass(frozen=True)
class Tiles:
    """Candidate tilings: ``sizes[rank]`` holds one tile size per candidate, other ranks are whole.

    ``count`` is the number of tiles, ``blocks`` of them along each tile rank.
    """

    sizes: Sizes
    blocks: Mapping[str, np.ndarray]
    count: np.ndarray

    def extent(self, index: Index) -> Numbers:
        """Length of the span that an index takes within a tile."""
        length: Numbers = 1.0
        for term in index.terms:
            length = length + abs(term.coefficient) * (self.sizes[term.rank] - 1)
        return length

    def words(self, accesses: Sequence[Access]) -> np.ndarray:
        """Words of a tensor's tile: the box that all the accesses touch."""
        words: Numbers = 1.0
        for indices in zip(*(access.indices for access in accesses)):
            words = words * np.maximum.reduce(np.broadcast_arrays(*(self.extent(index) for index in indices)))
        return np.broadcast_to(np.asarray(words, dtype=float), self.count.shape)

    def repeats(self, ranks: Sequence[str]) -> np.ndarray:
        """How many tiles need the same words of a tensor that these ranks index."""
        times = np.ones_like(self.count)
        for rank, blocks in self.blocks.items():
            if rank not in ranks:
                times = times * blocks
        return times


def tiles_of(cascade: Cascade, tile_ranks: Sequence[str], one_step: bool, least_tiles: int = 1) -> Tiles:
    """All candidate tilings along the tile ranks.

    Parameters
    ----------
    one_step : bool
        Iterative ranks in steps of one only.
    least_tiles : int
        Leave out tilings with fewer tiles, as far as the ranks' sizes allow.
    """
    iterative = set(cascade.iterative_ranks)
    choices = [_tile_sizes(cascade.sizes[rank], rank in iterative, one_step and rank in iterative) for rank in tile_ranks]
    tilings = list(product(*choices))
    table = np.array(tilings, dtype=float).reshape(len(tilings), len(tile_ranks))
    whole = np.array([cascade.sizes[rank] for rank in tile_ranks], dtype=float)
    blocks = np.ceil(whole / table)
    count = blocks.prod(axis=1)
    kept = count >= min(least_tiles, count.max())
    table, blocks, count = table[kept], blocks[kept], count[kept]
    sizes: dict[str, Numbers] = {rank: float(size) for rank, size in cascade.sizes.items()}
    sizes.update({rank: table[:, i] for i, rank in enumerate(tile_ranks)})
    return Tiles(sizes, {rank: blocks[:, i] for i, rank in enumerate(tile_ranks)}, count)


def _tile_sizes(size: int, fine: bool, one_step: bool) -> list[int]:
    """Balanced tile sizes near the powers of two (and, where ``fine``, three times those)."""
    if one_step:
        return [1]
    targets = [2**k for k in range(size.bit_length())] + ([3 * 2**k for k in range(size.bit_length())] if fine else [])
    return sorted({-(-size // -(-size // target)) for target in (*targets, size) if target <= size})


def partition_kind(tile: Mapping[str, int], split: set[str], iterative: set[str], streams_past_state: bool = False) -> str:
    """The name of a partitioning, from the ranks that it splits.

    Steps of one with the state kept are B-D-N stationary, and so is a segment past whose state all steps stream.
    """
    along = split & iterative
    if not along and streams_past_state:
        return "B-D-N stationary"
    if not split:
        return "whole"
    if not along:
        return "batch split"
    if split - iterative:
        return "hybrid"
    return "B-D-N stationary" if all(tile[rank] == 1 for rank in along) else "I-blocking"
