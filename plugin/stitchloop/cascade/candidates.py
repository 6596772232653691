"""All partitionings of one fusion group as arrays, and the fastest of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from stitchloop.cascade.compute import Numbers, gemms
from stitchloop.cascade.partition import Pipeline, equations_of, partition_kind
from stitchloop.cascade.traffic import Move, moves_of

if TYPE_CHECKING:
    from stitchloop.cascade.evaluate import Model

PIN_SHARES = (0.0, 0.5, 1.0)
"""Shares of the spare capacity that may pin operands."""
MOST_LEVELS = 16
"""Different numbers of spilled intervals that are tried, from none to all."""
FIRST_LOOK = 64
"""Candidates with the best lower bounds, evaluated first."""
EQUAL = 1 + 1e-7
"""Times within this factor count as equal."""


@dataclass(frozen=True)
class Refetched:
    """Operands that lack the same tile ranks, taken together.

    ``tile_words`` of them are needed for a tile, each word ``times`` times in all; ``per_segment`` and ``volume`` are words
    of the whole tensors; ``tensors`` are their names.
    """

    tensors: frozenset[str]
    tile_words: np.ndarray
    times: np.ndarray
    per_segment: np.ndarray
    volume: float


class Candidates:
    """The partitionings of a pipeline: spilled intervals x state kept or not x share of pinned operands x tiling."""

    def __init__(self, model: Model, pipeline: Pipeline, switches: bool = False) -> None:
        self.model, self.pipeline, self.switches = model, pipeline, switches
        self.tiles = model.tiles(pipeline)
        self.count = self.tiles.count
        capacity = model.settings.capacity
        self.moves = moves_of(model.cascade, pipeline.names, () if capacity else model.settings.spilled)
        self.depths = len(pipeline.intervals) + 1 if capacity else 1
        self.levels = np.unique(np.linspace(0, self.depths - 1, MOST_LEVELS + 1).round().astype(int))
        self.restreamed = self._restreamed() if capacity else ()
        if self.restreamed:
            self.levels = np.append(self.levels, self.depths)
            self.depths += 1
        self.place = {name: s for s, segment in enumerate(pipeline.segments) for name in segment.names}
        self._collect_moves()
        self.cycles, self.live_sums = self._segment_cycles()
        self.first_switch = float(model.machine.switch_cycles * switches) if model.settings.switches else 0.0
        self.footprint = self._footprint()
        self.kept_state, self.state_traffic = self._state()
        self._spread()

    # -- traffic ------------------------------------------------------------------------------------------------------

    def _collect_moves(self) -> None:
        """Words over DRAM by segment and number of spills, apart from operands that tiles read again."""
        self.moved = np.zeros((len(self.pipeline.segments), self.depths))
        refetched: dict[tuple[str, ...], list[Move]] = {}
        again = set(self.pipeline.refetched) if self.model.settings.capacity else set()
        for move in self.moves:
            if not move.is_write and move.tensor in again:
                ranks = tuple(r for r in self.pipeline.tile_ranks if r in self.model.cascade.tensor(move.tensor).ranks)
                refetched.setdefault(ranks, []).append(move)
            else:
                self.moved[self.place[move.einsums[0]]] += move.words
        self.refetched = [self._refetch(ranks, moves) for ranks, moves in refetched.items()]
        self.spilled_words, self.spill_writes = np.zeros(self.depths), np.zeros(self.depths)
        written: set[str] = set()
        intervals = self.pipeline.intervals if self.model.settings.capacity else ()
        for depth, interval in enumerate(intervals, start=1):
            words = self.model.words[interval.tensor]
            self.moved[interval.stop, depth:] += words
            self.spilled_words[depth:] += words
            if interval.cost == 2 and interval.tensor not in written:
                written.add(interval.tensor)
                self.moved[interval.start, depth:] += words
                self.spilled_words[depth:] += words
                self.spill_writes[depth:] += words
        for _, s, words in self.restreamed:
            self.moved[s, -1] += words
            self.spilled_words[-1] += words

    def _refetch(self, ranks: tuple[str, ...], moves: list[Move]) -> Refetched:
        per_segment = np.zeros(len(self.pipeline.segments))
        tile_words = np.zeros_like(self.count)
        for move in moves:
            tile_words = tile_words + self.model.tile_words(move.tensor, self.tiles)
            per_segment[self.place[move.einsums[0]]] += move.words
        names = frozenset(move.tensor for move in moves)
        return Refetched(names, tile_words, self.tiles.repeats(ranks), per_segment, float(per_segment.sum()))

    # -- computing ----------------------------------------------------------------------------------------------------

    def _segment_cycles(self) -> tuple[np.ndarray, np.ndarray]:
        """Cycles of each segment per tile, and the partial sums that lie in the buffer meanwhile."""
        machine, settings, segments = self.model.machine, self.model.settings, self.pipeline.segments
        found = np.zeros((len(segments), len(self.count)))
        live = np.zeros_like(found)
        for s, segment in enumerate(segments):
            works = [self.model.work(node, self.tiles) for node in segment.nodes]
            cycles = sum((work.cycles for work in works), 0.0)
            live[s] = sum((work.live_sums for work in works), 0.0)
            if settings.stalls and s == self.pipeline.chain_segment:
                cycles = np.maximum(cycles, self._stall_cycles())
            if settings.bandwidth:
                reads, writes = self.array_accesses(s)
                cycles = np.maximum(cycles, np.maximum(reads / machine.near_reads, writes / machine.near_writes))
            if settings.overlap:
                cycles = cycles + machine.pipeline_depth + (machine.rows + machine.columns - 2 if segment.is_array else 0)
            if settings.switches and machine.shared_array and segment.is_array != segments[s - 1].is_array:
                cycles = cycles + machine.switch_cycles
            found[s] = cycles
        return found, live

    def _stall_cycles(self) -> Numbers:
        """Least cycles of the carried chain: each step waits for the pipeline unless other points fill it."""
        steps: Numbers = 1.0
        for rank in self.model.cascade.iterative_ranks:
            steps = steps * self.tiles.sizes[rank]
        return steps * self.model.machine.pipeline_depth * self.pipeline.chain

    def array_accesses(self, s: int) -> tuple[Numbers, Numbers]:
        """Words that the PEs read and write per tile in a segment, past their registers."""
        segment = self.pipeline.segments[s]
        if not segment.is_array:
            return self.operand_words(s)
        works = [self.model.work(node, self.tiles) for node in segment.nodes]
        return sum((w.reads for w in works), 0.0), sum((w.writes for w in works), 0.0)

    def operand_words(self, s: int) -> tuple[Numbers, Numbers]:
        """Words of the tiles that a segment takes in and gives out, each once."""
        cascade, names = self.model.cascade, self.pipeline.segments[s].names
        made = {tensor for name in names for tensor in cascade.einsum(name).output_tensors}
        read = {tensor for name in names for tensor in cascade.einsum(name).input_tensors} - made
        left = {t for t in made if cascade.tensor(t).is_output or any(c not in names for c in cascade.consumers[t])}
        words, tiles, none = self.model.tile_words, self.tiles, np.zeros(1)
        return sum((words(t, tiles) for t in sorted(read)), none), sum((words(t, tiles) for t in sorted(left)), none)

    @cached_property
    def tile_cycles(self) -> np.ndarray:
        """Cycles of computing per tile; two separate units work at the same time on different tiles."""
        serial = self.cycles.sum(axis=0)
        if self.model.machine.shared_array:
            return serial
        modes = np.array([segment.is_array for segment in self.pipeline.segments])
        apart = np.maximum(self.cycles[modes].sum(axis=0), self.cycles[~modes].sum(axis=0))
        return apart if not self.model.settings.capacity else np.where(self.count > 1, apart, serial)

    @cached_property
    def compute_cycles(self) -> np.ndarray:
        """Cycles of computing over all tiles."""
        return self.first_switch + self.count * self.tile_cycles

    # -- capacity -----------------------------------------------------------------------------------------------------

    def _chunk_words(self, s: int) -> float:
        """Words that occupy the PEs once: a stationary tile of the arrays, or one of every stream for each lane."""
        machine = self.model.machine
        return float(machine.array_pes if self.pipeline.segments[s].is_array else machine.lanes * self.pipeline.streams[s])

    def _footprint(self) -> np.ndarray:
        """Most words that lie in the buffer at a time, by spills and tiling; streams pass through double buffers."""
        if not self.model.settings.capacity:
            return np.zeros((1, len(self.count)))
        segments, intervals = self.pipeline.segments, self.pipeline.intervals
        tensors = sorted({i.tensor for i in intervals} | {tensor for tensor, _ in self.pipeline.whole})
        column = {tensor: i for i, tensor in enumerate(tensors)}
        held = np.zeros((len(self.levels), len(segments), len(tensors)))
        for tensor, s in self.pipeline.whole:
            held[:, s, column[tensor]] = float(self._passes(tensor, s) != 1)
        for tensor, s, _ in self.restreamed:
            held[-1, s, column[tensor]] = 0.0
        for position, interval in enumerate(intervals):
            kept = np.searchsorted(self.levels, position, side="right")
            held[:kept, interval.start : interval.stop + 1, column[interval.tensor]] = 1.0
        words = np.array([self.model.tile_words(tensor, self.tiles) for tensor in tensors]).reshape(len(tensors), len(self.count))
        streams = [min(2 * self._chunk_words(s), self.model.machine.buffer_words / 8) for s in range(len(segments))]
        return (held @ words + self.live_sums + np.array(streams)[:, None]).max(axis=1)

    def _passes(self, tensor: str, s: int) -> int:
        """Passes over the arrays in which a GEMM's streamed operand meets all its columns; 0 for any other operand."""
        segment, cascade = self.pipeline.segments[s], self.model.cascade
        if not segment.is_array:
            return 0
        met = [gemm for node in segment.nodes for gemm in gemms(cascade, equations_of(cascade, node))]
        side = self.model.machine.columns * self.model.machine.arrays
        columns = [sum(cascade.volume(ranks) for ranks in gemm.columns) for gemm in met if gemm.streamed.tensor == tensor]
        return sum(-(-count // side) for count in columns)

    def _restreamed(self) -> tuple[tuple[str, int, int], ...]:
        """Streamed operands that come from DRAM anew for each pass where nothing else fits, with the extra words."""
        found = []
        for tensor, s in sorted(self.pipeline.whole):
            passes = self._passes(tensor, s)
            if passes > 1:
                found.append((tensor, s, (passes - 1) * self.model.words[tensor]))
        return tuple(found)

    def _state(self) -> tuple[np.ndarray, np.ndarray]:
        """Words of carried state kept from block to block, and words moved if they are not."""
        kept, traffic = np.zeros_like(self.count), np.zeros_like(self.count)
        cascade = self.model.cascade
        for state in self.pipeline.states if self.model.settings.capacity else ():
            blocks = self.tiles.blocks.get(state.rank)
            if blocks is None:
                continue
            words: Numbers = float(cascade.state_words(state))
            traffic += 2 * words * (blocks - 1)
            for rank in cascade.tensor(state.tensor).ranks:
                if rank in self.tiles.blocks and rank != state.rank:
                    words = words * self.tiles.sizes[rank] / cascade.sizes[rank]
            kept += np.where(blocks > 1, words, 0.0)
        return kept, traffic

    # -- all together -------------------------------------------------------------------------------------------------

    def _spread(self) -> None:
        """Spread the choices over the axes and keep those that fit; the nearest miss where none does."""
        settings, capacity = self.model.settings, self.model.machine.buffer_words
        states = (1.0, 0.0) if self.kept_state.any() and not self.pipeline.lockstep else (1.0,)
        repeats = any((r.times > 1).any() for r in self.refetched)
        shares = PIN_SHARES if repeats and settings.overlap else (1.0,)
        kept = np.array(states)[None, :, None, None]
        footprint = self.footprint[:, None, None, :] + kept * self.kept_state
        spare = capacity - footprint if settings.capacity else np.full_like(footprint, np.inf)
        self.shortfall = float(max(0.0, -spare.max()))
        shape = (len(self.levels), len(states), len(shares), len(self.count))
        spare = np.broadcast_to(spare, shape)
        fits = spare >= 0
        if self.restreamed and fits[:-1].any():
            fits[-1] = False
        chosen = np.nonzero(fits.ravel())[0] if not self.shortfall else np.array([int(np.argmax(spare))])
        level, state, pin, self.tiling = np.unravel_index(chosen, shape)
        self.depth = self.levels[level]
        self.is_kept = np.array(states)[state] > 0
        self.spare = np.maximum(spare.ravel()[chosen], 0.0)
        self.n = self.count[self.tiling]
        self._pin(np.array(shares)[pin])

    def _pin(self, share: np.ndarray) -> None:
        """Pin operands in the spare capacity, those that most tiles need first; add up what moves in all."""
        room = self.spare * share
        self.pinned, self.reread = np.zeros_like(room), np.zeros_like(room)
        self.fetches: list[np.ndarray] = []
        for operands in self.refetched:
            tile_words, times = operands.tile_words[self.tiling], operands.times[self.tiling]
            pinned = np.where(times > 1, np.minimum(room - self.pinned, tile_words), 0.0)
            self.pinned += pinned
            fetches = times - (times - 1) * pinned / tile_words
            self.fetches.append(fetches)
            self.reread += operands.volume * (fetches - 1)
        self.window = self.spare - self.pinned
        self.state_moves = np.where(self.is_kept, 0.0, self.state_traffic[self.tiling])
        once = self.moved.sum(axis=0)[self.depth] + sum(r.volume for r in self.refetched)
        self.dram_words = once + self.reread + self.state_moves

    def _tile_moves(self, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Words over DRAM by segment in the first tile and in each later one, for the candidates with these indices."""
        n = self.n[some]
        steady = self.moved[:, self.depth[some]] / n
        steady[max(self.pipeline.chain_segment, 0)] += self.state_moves[some] / n
        first = steady.copy()
        for operands, fetches in zip(self.refetched, self.fetches):
            once = operands.tile_words[self.tiling[some]] / operands.volume
            first += operands.per_segment[:, None] * once
            steady += operands.per_segment[:, None] * ((fetches[some] - once) / np.maximum(n - 1, 1))
        return first, steady

    def total_cycles(self, some: np.ndarray) -> np.ndarray:
        """Time in cycles of the candidates with these indices."""
        tiling, n, window, machine = self.tiling[some], self.n[some], self.window[some], self.model.machine
        bandwidth = machine.dram_words
        if not self.model.settings.overlap:
            return np.maximum(self.compute_cycles[tiling], self.dram_words[some] / bandwidth)
        cycles, nothing = self.cycles[:, tiling], np.zeros(len(some))
        first_moves, steady_moves = self._tile_moves(some)
        first, lead = walk(cycles, first_moves, window, bandwidth, nothing)
        if self.pipeline.lockstep:
            steady, _ = walk(cycles, steady_moves, window, bandwidth, nothing)
            return self.first_switch + n * self._fill_and_drain() + first + (n - 1) * steady
        steady, _ = walk(cycles, steady_moves, window, bandwidth, lead)
        if not machine.shared_array:
            steady = np.where(n > 1, np.maximum(self.tile_cycles[tiling], steady_moves.sum(axis=0) / bandwidth), steady)
        return self.first_switch + self._fill_and_drain() + first + (n - 1) * steady

    def _fill_and_drain(self) -> float:
        """Cycles before the first operands are there and after the last result is made."""
        taken = float(self.moved[0, 0] + sum(r.per_segment[0] for r in self.refetched))
        given = float(self.moved[-1, 0])
        machine = self.model.machine
        return (min(self._chunk_words(0), taken) + min(float(machine.lanes), given)) / machine.dram_words

    @cached_property
    def best(self) -> tuple[int, float]:
        """Index of the fastest candidate (among equals the one with the least traffic, then the fewest tiles) and its cycles."""
        return self._best_among(np.arange(len(self.n)))

    def best_of_kind(self) -> dict[str, tuple[int, float]]:
        """The same for each kind of partitioning that fits."""
        kinds = np.array([self.kind(tiling) for tiling in range(len(self.count))])[self.tiling]
        return {str(kind): self._best_among(np.nonzero(kinds == kind)[0]) for kind in dict.fromkeys(kinds)}

    def kind(self, tiling: int) -> str:
        """The name of a tiling."""
        split = {rank for rank, blocks in self.tiles.blocks.items() if blocks[tiling] > 1}
        tile = {rank: int(np.asarray(self.tiles.sizes[rank])[tiling]) for rank in self.tiles.blocks}
        return partition_kind(tile, split, set(self.model.cascade.iterative_ranks), self.pipeline.streams_past_state)

    def _best_among(self, some: np.ndarray) -> tuple[int, float]:
        words = self.dram_words[some]
        bound = np.maximum(self.compute_cycles[self.tiling[some]], words / self.model.machine.dram_words)
        likely = np.argpartition(bound, FIRST_LOOK)[:FIRST_LOOK] if len(bound) > FIRST_LOOK else np.arange(len(bound))
        limit = self.total_cycles(some[likely]).min() * EQUAL
        left = some[bound <= limit]
        cycles = self.total_cycles(left)
        equal = np.nonzero(cycles <= cycles.min() * EQUAL)[0]
        winner = equal[np.lexsort((self.n[left[equal]], np.round(self.dram_words[left[equal]])))[0]]
        return int(left[winner]), float(cycles[winner])


def walk(
    cycles: np.ndarray, words: np.ndarray, window: np.ndarray, bandwidth: float, lead: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One tile, segment by segment, with transfers ahead of the computation.

    Parameters
    ----------
    cycles, words : array of shape (segments, candidates)
        Cycles of computing; words over DRAM.
    window, lead : array of shape (candidates,)
        Room for words ahead of their use; words that are there already.
    bandwidth : float
        Words a cycle.

    Returns
    -------
    tuple of array
        Cycles, and the lead at the end.
    """
    total = np.zeros_like(lead)
    for c, m in zip(cycles, words):
        took = np.maximum(c, (m - lead) / bandwidth)
        lead = np.minimum(window, np.maximum(lead + took * bandwidth - m, 0.0))
        total = total + took
    return total, lead
