"""A default fused mapping for an exported group: what streams through is tiled, what every tile needs stays where it fits.

Above the branch stand loops over ranks of the group's last Einsum. A loop that every intermediate, input and result is
indexed by makes each tile cross DRAM once; a tensor that a loop does not index is stored above that loop. Operands that
every tile needs (weights) are kept on chip if they fit, else each Einsum streams its own in chunks, once per tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from stitchloop.cascade.group_export import SINK, Dimension, GroupExport, rank_name, reach, volume
from stitchloop.fused.reference.evaluate import evaluate_fused
from stitchloop.fused.stats import FusedStats
from stitchloop.fused.tree import Branch, Compute, FusedMapping, Node, Storage, Temporal

DRAM, BUFFER, COMPUTE = 0, 1, 2
_MOST_TILE_SIZES = 24


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
    plain = _Flow(export)
    flows = [plain, *(_Flow(export, outer) for outer in plain.outer_ranks() if limit is not None)]
    best: tuple[tuple[bool, int, int], _Choice] | None = None
    for flow, weights_stay in product(flows, (True, False)):
        for tile in flow.tilings(limit):
            choice = _Choice(flow, tile, weights_stay, limit)
            over = limit is not None and choice.capacity > limit
            key = (over, choice.capacity if over else choice.dram_words, choice.tiles)
            if best is None or key < best[0]:
                best = (key, choice)
    assert best is not None
    choice = best[1]
    tree = choice.tree()
    stats = evaluate_fused(export.workload, tree)
    return MappedGroup(export, tree, choice.tile, choice.weights_stay, stats, limit is None or stats.capacity[BUFFER] <= limit)


class _Flow:
    """Which loops of the last Einsum cut which tensors, through the chain of dependences."""

    def __init__(self, export: GroupExport, outer: str | None = None) -> None:
        self.export, self.outer = export, outer
        self.steps, self.last = export.steps, export.steps[-1]
        self.sizes = export.sizes[-1]
        self.cuts: list[dict[str, frozenset[str]]] = [{} for _ in self.steps]
        """Per step, its rank to the loops that cut it."""
        self.tensor_cuts: dict[str, frozenset[str]] = {}
        self.at_odds: set[str] = set()
        """Loops that cut a tensor for one of its readers and not for another."""
        self._propagate()
        self.loops = (*((outer,) if outer else ()), *self._choose_loops())

    def _propagate(self) -> None:
        made: dict[str, list[frozenset[str]]] = {}
        self.cuts[-1] = {terms[0].rank: frozenset({terms[0].rank}) for terms in self.last.dimensions}
        for at in range(len(self.steps) - 1, -1, -1):
            step = self.steps[at]
            if step is not self.last:
                self.cuts[at] = {terms[0].rank: cut for terms, cut in zip(step.dimensions, made[step.output], strict=True)}
            for name, dimensions in step.reads:
                cuts = [frozenset().union(*(self.cuts[at].get(t.rank, frozenset()) for t in terms)) for terms in dimensions]
                before = made.setdefault(name, cuts)
                self.at_odds |= {loop for a, b in zip(before, cuts, strict=True) for loop in a ^ b}
        made[self.last.output] = [frozenset({terms[0].rank}) for terms in self.last.dimensions]
        self.tensor_cuts = {name: frozenset().union(*cuts) for name, cuts in made.items()}

    def _choose_loops(self) -> tuple[str, ...]:
        """Ranks that cut every intermediate, input and result, else the one that cuts most; iterative ranks innermost."""
        export = self.export
        moving = [*export.intermediates, *export.results]
        moving += [n for n in export.inputs if n not in export.weights and n not in export.state]
        ranks = [terms[0].rank for terms in self.last.dimensions if terms[0].rank not in self.at_odds]
        counts = {rank: sum(rank in self.tensor_cuts[name] for name in moving) for rank in ranks}
        ranks = [rank for rank in ranks if counts[rank] == len(moving)] or sorted(ranks, key=lambda rank: -counts[rank])[:1]
        iterative = export.cascade.iterative_ranks
        return tuple(sorted(ranks, key=lambda rank: rank in iterative))

    def outer_ranks(self) -> tuple[str, ...]:
        """Ranks of the result along which a lone Einsum can take its weights in parts, its input once for each part."""
        if self.export.intermediates or len(self.steps) > 1:
            return ()
        cut = frozenset().union(*(self.tensor_cuts[name] for name in self.export.weights))
        return tuple(terms[0].rank for terms in self.last.dimensions if terms[0].rank in cut and terms[0].rank not in self.loops)

    def passes_again(self, tensor: str) -> bool:
        """Whether the tensor is read once for each tile of the outer loop, because that loop does not cut it."""
        moving = tensor in self.export.inputs and tensor not in self.export.weights and tensor not in self.export.state
        return self.outer is not None and moving and self.outer not in self.tensor_cuts[tensor]

    def depth(self, tensor: str) -> int:
        """Number of loops, outermost first, below which the tensor's block is stored."""
        cuts = self.tensor_cuts[tensor] | ({self.outer} if self.outer and self.passes_again(tensor) else set())
        depth = next((n for n, rank in enumerate(self.loops) if rank not in cuts), len(self.loops))
        if tensor in self.export.state or tensor in self.export.inputs:
            while depth < len(self.loops) and not set(self.loops[depth + 1 :]) & self.tensor_cuts[tensor]:
                depth += 1
        return depth

    def tilings(self, limit: int | None) -> Iterator[dict[str, int]]:
        """Tiles that are whole in the inner loops, cut in one, and 1 in the loops outside it; the largest first."""
        inner = {rank: self.sizes[rank] for rank in self.loops if rank != self.outer}
        for part in reversed(_divisors(self.sizes[self.outer])) if self.outer else (0,):
            whole = {self.outer: part, **inner} if self.outer else inner
            yield whole
            for at, rank in enumerate(inner if limit is not None else ()):
                for size in reversed(_divisors(inner[rank])[:-1]):
                    yield {**whole, **dict.fromkeys(list(inner)[:at], 1), rank: size}


class _Choice:
    """One tiling, with the weights kept on chip or streamed."""

    def __init__(self, flow: _Flow, tile: Mapping[str, int], weights_stay: bool, limit: int | None) -> None:
        self.flow, self.tile, self.weights_stay, self.limit = flow, tile, weights_stay, limit
        self.export = flow.export

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
        return max(volume(dimensions, self.extents[depth][at]) for at, dimensions in self._uses(tensor))

    def _uses(self, tensor: str) -> list[tuple[int, tuple[Dimension, ...]]]:
        uses = [(at, dims) for at, step in enumerate(self.export.steps) for name, dims in step.reads if name == tensor]
        written = self.export.written.get(tensor)
        return uses if written is None else [*uses, (written, self.export.steps[written].dimensions)]

    @cached_property
    def streamed(self) -> tuple[str, ...]:
        """Weights that their only reader fetches again for each tile."""
        return (
            ()
            if self.weights_stay or self.tiles == 1
            else tuple(n for n in self.export.weights if len(self._uses(n)) == 1 and n in self.export.inputs)
        )

    @cached_property
    def resident(self) -> int:
        """Words above the branch."""
        return sum(self.block(name) for name in self._buffered() if name not in self.streamed)

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
            ((at, dimensions),) = self._uses(name)
            step, sizes = self.export.steps[at], self.extents[-1][at]
            outputs = {terms[0].rank for terms in step.dimensions}
            ranks = [terms[0].rank for terms in dimensions if terms[0].rank in outputs]
            if not ranks or [n for n, _ in step.reads if n in self.streamed] != [name]:
                continue
            rank = max(ranks, key=lambda r: sizes[r])
            words = volume(dimensions, sizes) // sizes[rank]
            fitting = [size for size in _divisors(sizes[rank]) if room is None or size * words <= room]
            found[name] = (rank, max(fitting, default=1))
        return found

    @cached_property
    def capacity(self) -> int:
        return self.resident + max((self._branch_words(at) for at in range(len(self.export.steps))), default=0)

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
        return max(volume(dimensions, self.export.sizes[at]) for at, dimensions in self._uses(name))

    # -- the tree ---------------------------------------------------------------------------------------------------

    def tree(self) -> FusedMapping:
        export, flow = self.export, self.flow
        last = len(export.steps) - 1
        ends = [export.steps[-1].output] if export.steps[-1].output not in export.results else []
        nodes: list[Node] = [Storage(DRAM, tuple(dict.fromkeys((*export.inputs, *export.results, *ends))))]
        kept = [name for name in self._buffered() if name not in self.streamed]
        for depth in range(len(flow.loops) + 1):
            here = tuple(name for name in kept if flow.depth(name) == depth)
            if here:
                nodes.append(Storage(BUFFER, here))
            if depth < len(flow.loops):
                rank = flow.loops[depth]
                nodes.append(Temporal(rank_name(rank, last), self.tile[rank]))
        leaves = [self._leaf(at) for at in range(len(export.steps))]
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


def _divisors(size: int) -> list[int]:
    """Divisors of a size, thinned out evenly when there are many; 1 and the size are always among them."""
    found = (
        [d for d in range(1, int(size**0.5) + 1) if size % d == 0]
        if size < 2**40
        else [2**n for n in range(size.bit_length()) if size % 2**n == 0]
    )
    every = sorted({*found, *(size // d for d in found)})
    if len(every) <= _MOST_TILE_SIZES:
        return every
    return sorted({every[round(n * (len(every) - 1) / (_MOST_TILE_SIZES - 1))] for n in range(_MOST_TILE_SIZES)})
