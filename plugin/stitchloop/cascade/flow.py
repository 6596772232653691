"""How loops of a group's last Einsum cut what the other Einsums compute and move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from stitchloop.cascade.group_export import GroupExport, Step, volume

_MOST_TILE_SIZES = 24


@dataclass(frozen=True)
class Run:
    """Neighbouring Einsums that pass tensors only among themselves, up to the output of the last one.

    Below a branch of their own they can go on in smaller steps along ``rank`` of the last one, so that of ``tensors`` only a
    slice is held: the state-space part of a Mamba layer inside a group of GEMMs.
    """

    first: int
    last: int
    rank: str
    tensors: tuple[str, ...]


class Flow:
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
        for part in reversed(divisors(self.sizes[self.outer])) if self.outer else (0,):
            whole = {self.outer: part, **inner} if self.outer else inner
            yield whole
            for at, rank in enumerate(inner if limit is not None else ()):
                for size in reversed(divisors(inner[rank])[:-1]):
                    yield {**whole, **dict.fromkeys(list(inner)[:at], 1), rank: size}

    def run(self) -> Run | None:
        """The run with most words in tensors of its own, the shortest such; None when there is none.

        Behind each last step the longest run has most words.
        """
        if not self.loops:
            return None
        loop, found = self.loops[-1], []
        readers: dict[str, list[int]] = {}
        for at, step in enumerate(self.steps):
            for name, _ in step.reads:
                readers.setdefault(name, []).append(at)
        light = [bool(step.stands_for) and not self._contracts_weight(step) for step in self.steps]
        inner = [
            step.output not in self.export.results and step.output in readers and loop in self.tensor_cuts[step.output]
            for step in self.steps
        ]
        for last in range(1, len(self.steps)):
            rank = next((rank for rank, cut in self.cuts[last].items() if cut == {loop}), None)
            first = last
            least = 1 if last == len(self.steps) - 1 else 0
            while first > least and inner[first - 1] and light[first - 1] and max(readers[self.steps[first - 1].output]) <= last:
                first -= 1
            if rank is not None and light[last] and first < last:
                found.append(Run(first, last, rank, tuple(step.output for step in self.steps[first:last])))
        return max(found, key=lambda run: (self._words(run), run.first - run.last), default=None)

    def _contracts_weight(self, step: Step) -> bool:
        """Whether the Einsum sums over a rank of a weight: smaller steps would stream that weight more often."""
        kept = {term.rank for terms in step.dimensions for term in terms}
        weights = [dimensions for name, dimensions in step.reads if name in self.export.weights]
        return any(term.rank not in kept for dimensions in weights for terms in dimensions for term in terms)

    def _words(self, run: Run) -> int:
        return sum(volume(self.steps[at].dimensions, self.export.sizes[at]) for at in range(run.first, run.last))


@cache
def divisors(size: int) -> list[int]:
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
