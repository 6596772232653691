"""A default fused mapping for an exported group: what streams through is tiled, what every tile needs stays where it fits.

Above the branch stand loops over ranks of the group's last Einsum. A loop that every intermediate, input and result is
indexed by makes each tile cross DRAM once; a tensor that a loop does not index is stored above that loop. Operands that
every tile needs (weights) are kept on chip if they fit, else each Einsum streams its own in chunks, once per tile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from stitchloop.cascade.flow import Flow, Run, divisors
from stitchloop.cascade.group_export import SINK, GroupExport, rank_name, reach, volume
from stitchloop.fused.reference.evaluate import evaluate_fused
from stitchloop.fused.stats import FusedStats
from stitchloop.fused.tree import Branch, Compute, FusedMapping, Node, Storage, Temporal

DRAM, BUFFER, COMPUTE = 0, 1, 2


@dataclass(frozen=True)
class MappedGroup:
    """An exported group with its default mapping.

    ``stats`` are the counts of the fused reference model (sound convention), ``capacity`` the words that the buffer must
    hold, ``fits`` whether they are within the limit that was given.
    """

    export: GroupExport
    mapping: FusedMapping
    tile: Mapping[str, int]
    weights_stay: bool
    stats: FusedStats
    fits: bool

    @property
    def capacity(self) -> int:
        return self.stats.capacity[BUFFER]

    @property
    def dram_words(self) -> int:
        """Words over DRAM, without those of the sink."""
        counts = (self.stats.reads, self.stats.writes)
        return sum(n for count in counts for (target, _, einsum), n in count.items() if target == DRAM and einsum != SINK)


def map_group(export: GroupExport, limit: int | None = None) -> MappedGroup:
    """The default mapping of least DRAM traffic, then of fewest tiles, that fits a buffer of ``limit`` words.

    When none fits, the one of least capacity is returned with ``fits`` False.
    """
    plain = Flow(export)
    flows = [plain, *(Flow(export, outer) for outer in plain.outer_ranks() if limit is not None)]
    best = _best(flows, limit, with_runs=False)
    if limit is not None and (best.capacity > limit or best.dram_words > best.least_words):
        best = min(best, _best(flows, limit, with_runs=True), key=lambda choice: choice.key)
    tree = best.tree()
    stats = evaluate_fused(export.workload, tree)
    return MappedGroup(export, tree, best.tile, best.weights_stay, stats, limit is None or stats.capacity[BUFFER] <= limit)


def _best(flows: Sequence[Flow], limit: int | None, *, with_runs: bool) -> _Choice:
    """The first choice of least key, over loops, tilings, and weights kept or streamed."""
    choices = (
        _Choice(flow, tile, weights_stay, limit, run)
        for flow in flows
        for run in ((flow.run(),) if with_runs else (None,))
        for weights_stay in (True, False)
        for tile in flow.tilings(limit)
    )
    return min(choices, key=lambda choice: choice.key)


class _Choice:
    """One tiling, with the weights kept on chip or streamed."""

    def __init__(
        self, flow: Flow, tile: Mapping[str, int], weights_stay: bool, limit: int | None, run: Run | None = None
    ) -> None:
        self.flow, self.tile, self.weights_stay, self.limit, self.run = flow, tile, weights_stay, limit, run
        self.export = flow.export

    @cached_property
    def key(self) -> tuple[bool, int, bool, int]:
        """What fits comes first; then less traffic (or less capacity), a plainer tree, fewer tiles."""
        over = self.limit is not None and self.capacity > self.limit
        return over, self.capacity if over else self.dram_words, self.run is not None, self.tiles

    @property
    def least_words(self) -> int:
        """Words that cross DRAM when each tensor does so once."""
        return sum(self._whole(name) for name in (*self.export.inputs, *self.export.results))

    @cached_property
    def tiles(self) -> int:
        return prod(self._trips(rank) for rank in self.flow.loops)

    @cached_property
    def extents(self) -> tuple[tuple[dict[str, int], ...], ...]:
        """By number of loops, outermost first, that cut: per step the extents of its ranks in the largest tile."""
        found = []
        for depth in range(len(self.flow.loops) + 1):
            whole = [dict(sizes) for sizes in self.export.sizes]
            whole[-1] |= {rank: self.tile[rank] for rank in self.flow.loops[:depth]}
            found.append(reach(self.export.steps, whole, grow=False))
        return tuple(found)

    def block(self, tensor: str) -> int:
        """Words of the tensor's block above the branch: the largest that one of its users sees."""
        depth = self.flow.depth(tensor)
        return max(volume(dimensions, self.extents[depth][at]) for at, dimensions in self.export.uses[tensor])

    @cached_property
    def streamed(self) -> tuple[str, ...]:
        """Weights that their only reader fetches again for each tile."""
        if self.weights_stay or self.tiles == 1:
            return ()
        in_run = range(self.run.first, self.run.last + 1) if self.run else range(0)
        lone = {name: uses[0][0] for name in self.export.weights if len(uses := self.export.uses[name]) == 1}
        return tuple(name for name, at in lone.items() if name in self.export.inputs and at not in in_run)

    @cached_property
    def resident(self) -> int:
        """Words above the branch."""
        return sum(self.block(name) for name in self._above())

    def _above(self) -> tuple[str, ...]:
        """Tensors with a block above the branch."""
        inner = self.run.tensors if self.run else ()
        return tuple(name for name in self._buffered() if name not in self.streamed and name not in inner)

    def _buffered(self) -> tuple[str, ...]:
        """Tensors with a block in the buffer: all but what a load reads or a store or the sink writes."""
        skipped = {name for step in self.export.steps if step.name.startswith("load_") for name, _ in step.reads}
        skipped |= {step.output for step in self.export.steps if not step.stands_for and not step.name.startswith("load_")}
        names = (*self.export.inputs, *(step.output for step in self.export.steps))
        return tuple(name for name in dict.fromkeys(names) if name not in skipped)

    @cached_property
    def chunks(self) -> dict[str, tuple[str, int]]:
        """Streamed weight to the rank that its chunks cut and their size along it."""
        room = None if self.limit is None else max(0, self.limit - self.resident)
        found = {}
        for name in self.streamed:
            ((at, dimensions),) = self.export.uses[name]
            step, sizes = self.export.steps[at], self.extents[-1][at]
            outputs = {terms[0].rank for terms in step.dimensions}
            ranks = [terms[0].rank for terms in dimensions if terms[0].rank in outputs]
            if not ranks or [n for n, _ in step.reads if n in self.streamed] != [name]:
                continue
            rank = max(ranks, key=lambda r: sizes[r])
            words = volume(dimensions, sizes) // sizes[rank]
            fitting = [size for size in divisors(sizes[rank]) if room is None or size * words <= room]
            found[name] = (rank, max(fitting, default=1))
        return found

    @cached_property
    def capacity(self) -> int:
        branches = [self._branch_words(at) for at in range(len(self.export.steps))]
        return self.resident + max([*branches, self.run_step[1]])

    @cached_property
    def run_step(self) -> tuple[int, int]:
        """Step of the run along its rank, the largest that fits, and the words of its own tensors."""
        if self.run is None:
            return 0, 0
        sizes = divisors(self.extents[-1][self.run.last][self.run.rank])
        room = 0 if self.limit is None else self.limit - self.resident
        fitting = bisect_right(sizes, room, key=self._run_words)
        size = sizes[max(0, fitting - 1)]
        return size, self._run_words(size)

    def _run_words(self, size: int) -> int:
        """Words of the run's own tensors when it goes on in steps of ``size``."""
        assert self.run is not None
        first, last = self.run.first, self.run.last
        whole = self.extents[-1][first : last + 1]
        cut = reach(self.export.steps[first : last + 1], [*whole[:-1], {**whole[-1], self.run.rank: size}], grow=False)
        return sum(max(volume(dims, cut[at - first]) for at, dims in self.export.uses[name]) for name in self.run.tensors)

    def _branch_words(self, at: int) -> int:
        """Words that an Einsum streams at a time inside its branch."""
        words = 0
        for name, dimensions in self.export.steps[at].reads:
            if name in self.streamed:
                sizes = dict(self.extents[-1][at])
                if name in self.chunks:
                    rank, size = self.chunks[name]
                    sizes[rank] = size
                words += volume(dimensions, sizes)
        return words

    @cached_property
    def dram_words(self) -> int:
        """Words over DRAM, the sink's apart: an estimate by which tilings are ranked."""
        words = sum(self._whole(name) * self._times(name) for name in self.export.inputs)
        return words + sum(self._whole(name) for name in self.export.results)

    def _times(self, name: str) -> int:
        """How often an input comes in: a streamed weight in each tile of the loops that do not cut it."""
        loops = set(self.flow.loops) - self.flow.tensor_cuts[name] if name in self.streamed else set()
        if self.flow.passes_again(name) and any(self._trips(r) > 1 for r in self.flow.tensor_cuts[name] & set(self.flow.loops)):
            loops = {self.flow.outer or ""}
        return prod(self._trips(rank) for rank in loops)

    def _trips(self, rank: str) -> int:
        return -(-self.flow.sizes[rank] // self.tile[rank])

    def _whole(self, name: str) -> int:
        return max(volume(dimensions, self.export.sizes[at]) for at, dimensions in self.export.uses[name])

    # -- the tree ---------------------------------------------------------------------------------------------------

    def tree(self) -> FusedMapping:
        export, flow = self.export, self.flow
        last = len(export.steps) - 1
        ends = [export.steps[-1].output] if export.steps[-1].output not in export.results else []
        nodes: list[Node] = [Storage(DRAM, tuple(dict.fromkeys((*export.inputs, *export.results, *ends))))]
        kept = self._above()
        for depth in range(len(flow.loops) + 1):
            here = tuple(name for name in kept if flow.depth(name) == depth)
            if here:
                nodes.append(Storage(BUFFER, here))
            if depth < len(flow.loops):
                rank = flow.loops[depth]
                nodes.append(Temporal(rank_name(rank, last), self.tile[rank]))
        leaves = [self._leaf(at) for at in range(len(export.steps))]
        if self.run is not None:
            first, last = self.run.first, self.run.last
            inner: tuple[Node, ...] = (
                Temporal(rank_name(self.run.rank, last), self.run_step[0]),
                Storage(BUFFER, self.run.tensors),
                Branch("sequential", tuple(leaves[first : last + 1])),
            )
            leaves[first : last + 1] = [inner]
        if len(leaves) == 1:
            return FusedMapping((*nodes, *leaves[0]))
        return FusedMapping((*nodes, Branch("sequential", tuple(leaves))))

    def _leaf(self, at: int) -> tuple[Node, ...]:
        step = self.export.steps[at]
        nodes: list[Node] = []
        for name, _ in step.reads:
            if name in self.streamed:
                if name in self.chunks:
                    rank, size = self.chunks[name]
                    nodes.append(Temporal(rank_name(rank, at), size))
                nodes.append(Storage(BUFFER, (name,)))
        return (*nodes, Compute(step.name, COMPUTE))
