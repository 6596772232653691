"""The performance model at work: for one group, all partitionings at once, and the fastest of them in full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.compute import Numbers, Work, array_work, ideal_work, lane_work
from stitchloop.cascade.cost import cost_of
from stitchloop.cascade.expression import Access
from stitchloop.cascade.machine import Machine
from stitchloop.cascade.merge import Node
from stitchloop.cascade.partition import Pipeline, Tiles, equations_of, is_array_node, pipeline_of, tiles_of
from stitchloop.cascade.performance import DETAILED, GroupCost, Performance, Settings
from stitchloop.cascade.traffic import Transfer, transfers

PIN_SHARES = (0.0, 0.5, 1.0)
"""Shares of the spare capacity that may pin operands."""


class Model:
    """Evaluates groups of one cascade on one machine. Keeps what it has worked out, so that many groupings share it.

    Parameters
    ----------
    cascade : Cascade
    machine : Machine
    settings : Settings
    """

    def __init__(self, cascade: Cascade, machine: Machine, settings: Settings = DETAILED) -> None:
        self.cascade, self.machine, self.settings = cascade, machine, settings
        self._order = {einsum.name: position for position, einsum in enumerate(cascade.einsums)}
        self._tilings: dict[object, Tiles] = {}
        self._works: dict[object, Work] = {}
        self._words: dict[object, np.ndarray] = {}
        self._groups: dict[tuple[Node, ...], GroupCost] = {}

    def evaluate(self, groups: Iterable[Sequence[Node]], strategy: str = "") -> Performance:
        """A whole grouping: each group a sequence of nodes, in order."""
        return Performance(strategy, self.cascade, tuple(self.group(tuple(group)) for group in groups))

    def group(self, nodes: tuple[Node, ...]) -> GroupCost:
        """One group, with the partitioning that takes the least time (then the least traffic)."""
        if nodes not in self._groups:
            pipeline = pipeline_of(self.cascade, nodes)
            self._groups[nodes] = cost_of(Candidates(self, pipeline))
        return self._groups[nodes]

    def tiles(self, pipeline: Pipeline) -> Tiles:
        """Candidate tilings of a pipeline; one tile of everything where capacity does not count."""
        least = self.settings.least_tiles if len(pipeline.segments) > 1 else 1
        ranks = pipeline.tile_ranks if self.settings.capacity else ()
        key = (ranks, pipeline.lockstep, least)
        if key not in self._tilings:
            self._tilings[key] = tiles_of(self.cascade, ranks, pipeline.lockstep, least)
        return self._tilings[key]

    def work(self, node: Node, tiles: Tiles) -> Work:
        """Cycles and buffer accesses of one node for every candidate tiling."""
        key = (node, id(tiles))
        if key not in self._works:
            equations = equations_of(self.cascade, node)
            if is_array_node(self.cascade, node):
                detailed = self.settings.array
                work = array_work(self.cascade, equations, self.machine, tiles.sizes) if detailed else None
            else:
                detailed = self.settings.functions
                work = lane_work(equations, self.machine, tiles.sizes) if detailed else None
            self._works[key] = work or ideal_work(equations, self.machine, tiles.sizes)
        return self._works[key]

    def tile_words(self, tensor: str, tiles: Tiles) -> np.ndarray:
        """Words of one tile of a tensor, as wide as any access needs it (halo included)."""
        key = (tensor, id(tiles))
        if key not in self._words:
            self._words[key] = tiles.words(self._accesses[tensor])
        return self._words[key]

    @cached_property
    def _accesses(self) -> dict[str, list[Access]]:
        found: dict[str, list[Access]] = {}
        for einsum in self.cascade.einsums:
            for access in (*einsum.inputs, *einsum.outputs):
                found.setdefault(access.tensor, []).append(access)
        return found

    def switches_before(self, pipeline: Pipeline) -> bool:
        """Whether the Einsum before the group, in the cascade's order, leaves the array in the other mode."""
        position = self._order[pipeline.segments[0].names[0]]
        if position == 0:
            return False
        return is_array_node(self.cascade, (self.cascade.einsums[position - 1].name,)) != pipeline.segments[0].is_array


@dataclass
class _Refetched:
    """Operands that lack the same tile ranks, taken together: what a tile needs of them, and how often each word is needed."""

    tile_words: np.ndarray
    times: np.ndarray
    per_segment: np.ndarray
    """Words of the whole tensors, by the segment that uses them."""
    volume: float


class Candidates:
    """All partitionings of one pipeline as arrays: axes are spilled intervals, state kept or not, pin share, tiling."""

    def __init__(self, model: Model, pipeline: Pipeline) -> None:
        self.model, self.pipeline = model, pipeline
        self.tiles = model.tiles(pipeline)
        self.count = self.tiles.count
        self.moves = transfers(model.cascade, pipeline.names, () if model.settings.capacity else model.settings.spilled)
        self.depths = len(pipeline.intervals) + 1 if model.settings.capacity else 1
        self._split_moves()
        self._build_cycles()
        self._build_footprint()
        self._build_state()

    # -- traffic ------------------------------------------------------------------------------------------------------

    def _split_moves(self) -> None:
        """Words over DRAM by segment and number of spills, apart from operands that tiles read again."""
        segments = len(self.pipeline.segments)
        self.moved = np.zeros((segments, self.depths))
        place = {name: s for s, segment in enumerate(self.pipeline.segments) for name in segment.names}
        refetched: dict[tuple[str, ...], list[Transfer]] = {}
        for move in self.moves:
            first = place[move.einsums[0]]
            if not move.is_write and move.tensor in self.pipeline.refetched and self.model.settings.capacity:
                ranks = tuple(r for r in self.pipeline.tile_ranks if r in self.model.cascade.tensor(move.tensor).ranks)
                refetched.setdefault(ranks, []).append(move)
            else:
                self.moved[first] += move.words
        self.spilled_words = np.zeros(self.depths)
        written: set[str] = set()
        if self.model.settings.capacity:
            for depth, interval in enumerate(self.pipeline.intervals, start=1):
                words = self.model.cascade.words(interval.tensor)
                self.moved[interval.stop, depth:] += words
                self.spilled_words[depth:] += words
                if interval.cost == 2 and interval.tensor not in written:
                    written.add(interval.tensor)
                    self.moved[interval.start, depth:] += words
                    self.spilled_words[depth:] += words
        self.refetched = [self._refetch(ranks, moves, place) for ranks, moves in refetched.items()]

    def _refetch(self, ranks: tuple[str, ...], moves: list[Transfer], place: dict[str, int]) -> _Refetched:
        per_segment = np.zeros(len(self.pipeline.segments))
        tile_words = np.zeros_like(self.count)
        for move in moves:
            tile_words = tile_words + self.model.tile_words(move.tensor, self.tiles)
            per_segment[place[move.einsums[0]]] += move.words
        return _Refetched(tile_words, self.tiles.repeats(ranks), per_segment, float(sum(move.words for move in moves)))

    # -- computing ----------------------------------------------------------------------------------------------------

    def _build_cycles(self) -> None:
        """Cycles of each segment per tile."""
        model, machine, settings = self.model, self.model.machine, self.model.settings
        self.cycles = np.zeros((len(self.pipeline.segments), len(self.count)))
        self.live_sums = np.zeros_like(self.cycles)
        for s, segment in enumerate(self.pipeline.segments):
            works = [model.work(node, self.tiles) for node in segment.nodes]
            cycles = sum((work.cycles for work in works), 0.0)
            self.live_sums[s] = sum((work.live_sums for work in works), 0.0)
            if settings.stalls and s == self.pipeline.chain_segment:
                cycles = np.maximum(cycles, self._stall_cycles())
            if settings.bandwidth:
                reads, writes = self.buffer_accesses(s)
                cycles = np.maximum(cycles, np.maximum(reads / machine.buffer_reads, writes / machine.buffer_writes))
            if settings.overlap:
                cycles = cycles + machine.pipeline_depth + (machine.rows + machine.columns - 2 if segment.is_array else 0)
            self.cycles[s] = cycles
        modes = [segment.is_array for segment in self.pipeline.segments]
        self.first_switch = 0.0
        if settings.switches and machine.shared_array:
            self.first_switch = float(machine.switch_cycles * model.switches_before(self.pipeline))
            for s, mode in enumerate(modes):
                if mode != modes[s - 1]:
                    self.cycles[s] += machine.switch_cycles

    def _stall_cycles(self) -> Numbers:
        """Least cycles of the carried chain: each step waits for the pipeline unless other points fill it."""
        steps: Numbers = 1.0
        for rank in self.model.cascade.iterative_ranks:
            steps = steps * self.tiles.sizes[rank]
        return steps * self.model.machine.pipeline_depth * self.pipeline.chain

    def buffer_accesses(self, s: int) -> tuple[Numbers, Numbers]:
        """Words that a segment reads from and writes to the buffer per tile."""
        segment = self.pipeline.segments[s]
        if segment.is_array:
            works = [self.model.work(node, self.tiles) for node in segment.nodes]
            return sum((w.buffer_reads for w in works), 0.0), sum((w.buffer_writes for w in works), 0.0)
        cascade, inside = self.model.cascade, set(segment.names)
        made = {tensor for name in segment.names for tensor in cascade.einsum(name).output_tensors}
        read = {tensor for name in segment.names for tensor in cascade.einsum(name).input_tensors} - made
        left = {t for t in made if cascade.tensor(t).is_output or any(c not in inside for c in cascade.consumers[t])}
        words = self.model.tile_words
        return sum((words(t, self.tiles) for t in read), np.zeros(1)), sum((words(t, self.tiles) for t in left), np.zeros(1))

    # -- capacity -----------------------------------------------------------------------------------------------------

    def stream_words(self, s: int) -> Numbers:
        """Double buffers through which a segment's operands stream."""
        machine, segment = self.model.machine, self.pipeline.segments[s]
        nominal = 2.0 * machine.arrays * machine.rows * machine.columns if segment.is_array else 2.0 * machine.lanes * self.pipeline.streams[s]
        return min(nominal, machine.buffer_words / 8)

    def _build_footprint(self) -> None:
        """Most words that lie in the buffer at a time, by spills and tiling."""
        segments, intervals = self.pipeline.segments, self.pipeline.intervals
        tensors = sorted({i.tensor for i in intervals} | {tensor for tensor, _ in self.pipeline.whole})
        if not self.model.settings.capacity:
            self.footprint = np.zeros((1, len(self.count)))
            return
        column = {tensor: i for i, tensor in enumerate(tensors)}
        held = np.zeros((self.depths, len(segments), len(tensors)), dtype=bool)
        for tensor, s in self.pipeline.whole:
            held[:, s, column[tensor]] = True
        for position, interval in enumerate(intervals):
            held[: position + 1, interval.start : interval.stop + 1, column[interval.tensor]] = True
        words = np.array([self.model.tile_words(tensor, self.tiles) for tensor in tensors]).reshape(len(tensors), len(self.count))
        live = np.einsum("dst,tc->dsc", held.astype(float), words)
        live += self.live_sums + np.array([self.stream_words(s) for s in range(len(segments))])[:, None]
        self.footprint = live.max(axis=1)

    def _build_state(self) -> None:
        """What carried states need between blocks of an iterative rank."""
        cascade = self.model.cascade
        self.kept_state = np.zeros_like(self.count)
        self.state_traffic = np.zeros_like(self.count)
        if not self.model.settings.capacity:
            return
        for state in self.pipeline.states:
            blocks = self.tiles.blocks.get(state.rank)
            if blocks is None:
                continue
            words = float(cascade.state_words(state))
            split = np.ones_like(self.count)
            for rank in cascade.tensor(state.tensor).ranks:
                if rank in self.tiles.blocks and rank != state.rank:
                    split = split * (self.tiles.sizes[rank] / cascade.sizes[rank])
            self.kept_state += np.where(blocks > 1, words * split, 0.0)
            self.state_traffic += 2 * words * (blocks - 1)

    # -- all together -------------------------------------------------------------------------------------------------

    def build(self) -> None:
        """Spread the choices over the axes and keep those that fit."""
        machine, settings = self.model.machine, self.model.settings
        states = (True, False) if self.kept_state.any() and not self.pipeline.lockstep else (True,)
        repeats = any((r.times > 1).any() for r in self.refetched)
        shares = PIN_SHARES if repeats and settings.overlap else (1.0,)
        kept = np.array(states, dtype=float)[None, :, None, None]
        share = np.array(shares)[None, None, :, None]
        footprint = self.footprint[:, None, None, :] + kept * self.kept_state
        spare = machine.buffer_words - footprint if settings.capacity else np.full_like(footprint, np.inf)
        self.shortfall = float(max(0.0, -spare.max()))
        shape = (self.depths, len(states), len(shares), len(self.count))
        chosen = np.nonzero(np.broadcast_to(spare >= 0, shape).ravel())[0]
        if self.shortfall:
            chosen = np.array([int(np.argmax(np.broadcast_to(spare, shape)))])
        self.depth, self.state, self.pin, self.tiling = np.unravel_index(chosen, shape)
        self.is_kept = kept.ravel()[self.state]
        self.spare = np.maximum(np.broadcast_to(spare, shape).ravel()[chosen], 0.0)
        self.n = self.count[self.tiling]
        self._pin(share.ravel()[self.pin])

    def _pin(self, share: np.ndarray) -> None:
        """Pin operands in the spare capacity; ``steady`` and ``first`` are words per segment and candidate."""
        self.steady = self.moved[:, self.depth] / self.n
        self.first = self.steady.copy()
        room = self.spare * share
        self.pinned = np.zeros_like(room)
        self.reread = np.zeros_like(room)
        for operands in self.refetched:
            tile_words, times = operands.tile_words[self.tiling], operands.times[self.tiling]
            pinned = np.where(times > 1, np.minimum(room - self.pinned, tile_words), 0.0)
            self.pinned += pinned
            fraction = pinned / np.maximum(tile_words, 1.0)
            total = fraction + (1 - fraction) * times
            self.reread += operands.volume * (total - 1)
            first = tile_words / max(operands.volume, 1.0)
            self.first += np.outer(operands.per_segment, np.ones_like(first)) * first
            self.steady += np.outer(operands.per_segment, np.ones_like(first)) * (total - first) / np.maximum(self.n - 1, 1)
        self.window = self.spare - self.pinned
        self.state_moves = np.where(self.is_kept > 0, 0.0, self.state_traffic[self.tiling])
        self.steady[max(self.pipeline.chain_segment, 0)] += self.state_moves / self.n
        self.first[max(self.pipeline.chain_segment, 0)] += self.state_moves / self.n

    def dram_words(self) -> np.ndarray:
        """All words over DRAM, by candidate."""
        return self.moved.sum(axis=0)[self.depth] + sum(r.volume for r in self.refetched) + self.reread + self.state_moves

    def compute_cycles(self) -> np.ndarray:
        """Cycles of computing over all tiles, by tiling; two separate units work at the same time on different tiles."""
        return self.first_switch + self.count * self._tile_cycles()

    def _tile_cycles(self) -> np.ndarray:
        if self.model.machine.shared_array:
            return self.cycles.sum(axis=0)
        modes = np.array([segment.is_array for segment in self.pipeline.segments])
        apart = np.maximum(self.cycles[modes].sum(axis=0), self.cycles[~modes].sum(axis=0))
        if not self.model.settings.capacity:
            return apart
        return np.where(self.count > 1, apart, self.cycles.sum(axis=0))

    def total_cycles(self, some: np.ndarray) -> np.ndarray:
        """Time in cycles of the candidates with these indices."""
        tiling, n, window = self.tiling[some], self.n[some], self.window[some]
        bandwidth = self.model.machine.dram_words
        moving = self.dram_words()[some] / bandwidth
        if not self.model.settings.overlap:
            return np.maximum(self.compute_cycles()[tiling], moving)
        cycles = self.cycles[:, tiling]
        first, lead = walk(cycles, self.first[:, some], window, bandwidth, np.zeros(len(some)))
        ends = self.first_switch + self._fill_and_drain()
        if self.pipeline.lockstep:
            steady, _ = walk(cycles, self.steady[:, some], window, bandwidth, np.zeros(len(some)))
            return ends * np.maximum(n, 1) + first + (n - 1) * steady
        steady, _ = walk(cycles, self.steady[:, some], window, bandwidth, lead)
        if not self.model.machine.shared_array:
            steady = np.maximum(self._tile_cycles()[tiling], self.steady[:, some].sum(axis=0) / bandwidth)
        return ends + first + (n - 1) * steady

    def _fill_and_drain(self) -> float:
        """Cycles before the first operands are there and after the last result is made."""
        last = len(self.pipeline.segments) - 1
        first_words = min(float(self.stream_words(0)) / 2, float(self.moved[0, 0] + sum(r.per_segment[0] for r in self.refetched)))
        machine = self.model.machine
        last_words = min(float(machine.lanes), float(self.moved[last, 0]))
        return (first_words + last_words) / machine.dram_words

    def best(self) -> tuple[int, float]:
        """Index of the fastest candidate (the one with the least traffic among equals) and its cycles."""
        self.build()
        words = self.dram_words()
        bound = np.maximum(self.compute_cycles()[self.tiling], words / self.model.machine.dram_words)
        likely = np.argpartition(bound, min(63, len(bound) - 1))[:64]
        limit = self.total_cycles(likely).min() * (1 + 1e-9)
        some = np.nonzero(bound <= limit)[0]
        cycles = self.total_cycles(some)
        equal = np.nonzero(cycles <= cycles.min() * (1 + 1e-9))[0]
        winner = equal[np.argmin(words[some[equal]])]
        return int(some[winner]), float(cycles[winner])


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
