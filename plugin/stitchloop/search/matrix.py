"""The matrix evaluator: many templates times many tilings at once.

Counts are products of bounds (:mod:`stitchloop.search.rows`), so for a table B of tilings all of them are ``exp(Q . ln B)``:
one matrix product and one exponential. Energies are a second matrix product, of the templates' coefficients with the
rows. :meth:`MatrixEvaluator.screen` does this in floating point; :meth:`MatrixEvaluator.exact` multiplies integers and adds
energies in the reference model's order, for the pairs that a decision hangs on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stitchloop.architecture import Level
from stitchloop.mapspace.space import Mapspace
from stitchloop.options import METRICS
from stitchloop.search.columns import Template, mapping_of, templates, tilings
from stitchloop.search.exhaustive import Optimum
from stitchloop.search.objectives import counted_level
from stitchloop.search.rows import Compiler, Rows, is_product

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stitchloop.search.columns import Columns

    Table = NDArray[Any]

TOLERANCE = 1e-9
"""Relative error that a screen may have: a hundred thousand times what double precision gives."""


@dataclass(frozen=True)
class Figures:
    """Figures of mappings: (templates, tilings) from a screen, one per pair from the exact evaluation."""

    valid: NDArray[np.bool_]
    energy_pJ: Table
    cycles: Table
    accesses: dict[int, Table]
    """By level index, words over all instances, for the levels asked for."""

    def metric(self, name: str, mapspace: Mapspace) -> Table:
        """The figures of one objective."""
        name = METRICS.get(name, name)
        level = counted_level(name, mapspace.architecture)
        if level is not None:
            return self.accesses[level]
        if name == "edp":
            return self.energy_pJ * 1e-12 * self.cycles
        return self.energy_pJ if name == "energy" else self.cycles


class MatrixEvaluator:
    """Evaluates templates of one pattern at tilings of the same pattern.

    Parameters
    ----------
    mapspace : Mapspace
        Its Einsum has to be a product (:func:`~stitchloop.search.rows.is_product`); ``ValueError`` otherwise.
    templates : sequence of Template
    accesses : sequence of int
        Levels whose accesses are wanted.
    bounded_links : bool
        Below level 0, count a lower bound of Timeloop's count instead of the count without link transfers.
    """

    def __init__(
        self, mapspace: Mapspace, templates: Sequence[Template], accesses: Sequence[int] = (), bounded_links: bool = False
    ) -> None:
        if not is_product(mapspace.einsum):
            raise ValueError(f"the counts of Einsum {mapspace.einsum.name} are no products of bounds")
        if mapspace.einsum.computes >= 2**62:
            raise ValueError(f"the counts of Einsum {mapspace.einsum.name} exceed 64 bits")
        self.mapspace, self.templates, self.accesses = mapspace, templates, tuple(accesses)
        self.levels = [(i, level) for i, level in enumerate(mapspace.architecture.levels) if not level.is_fanout]
        self.rows: Rows = Compiler(mapspace, bounded_links).compile(templates)
        self.is_timeloops = mapspace.levels[0].spatial.fanout == 1
        """Whether the counts are Timeloop's to the word; else link transfers may act below level 0."""
        self._prepare_energy()
        self._prepare_limits()

    def screen(self, columns: Columns) -> Figures:
        """Lower bounds of the figures of every template at every tiling: right to :data:`TOLERANCE`, and a cycle at times.

        The tool divides in double precision before it rounds cycles up, which can add one where a level's bandwidth is
        just met; a screen leaves that one out. ``columns`` has one row per slot and rank, one column per tiling; the
        result has shape (templates, tilings).
        """
        import numpy as np

        rows = self.rows
        monomials = np.rint(np.exp(rows.exponents @ np.log(columns.astype(float))))
        counts = monomials[rows.plus] - np.where(rows.whole[:, None], 0.0, monomials[rows.minus])
        np.maximum(counts, 0.0, out=counts)
        steps = monomials[rows.steps]
        cycles = self._cycles(steps, counts)
        energy = self._energy_weights @ self._vectors(counts, monomials)
        energy += self.mapspace.einsum.computes * self.mapspace.architecture.compute.energy.compute
        leakage = sum(level.energy.leak * monomials[rows.instances[i]] for i, level in self.levels)
        energy += leakage * cycles
        accesses = {i: (self._access_weights[i] @ counts) * monomials[rows.instances[i]] for i in self.accesses}
        return Figures(self._valid(monomials), energy, cycles, accesses)

    def exact(self, columns: Columns, template: NDArray[np.intp], tiling: NDArray[np.intp]) -> Figures:
        """Figures of the pairs ``(template[k], tiling[k])``: integers, and energies added up as the reference model does."""
        import numpy as np

        rows = self.rows
        monomials = np.ones((len(rows.exponents), columns.shape[1]), dtype=np.int64)
        for number, row in enumerate(rows.exponents):
            monomials[number] = columns[row > 0].prod(axis=0)
        counts = np.maximum(monomials[rows.plus] - np.where(rows.whole[:, None], 0, monomials[rows.minus]), 0)

        def pairs(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
            return counts[numbers[template], tiling]

        steps = monomials[rows.steps, tiling]
        words = {
            (i, t): (pairs(rows.reads[i, t]), pairs(rows.fills[i, t]), pairs(rows.updates[i, t]))
            for i, _ in self.levels
            for t in range(len(self.mapspace.einsum.tensors))
        }
        cycles = steps
        for i, level in self.levels:
            cycles = np.maximum(cycles, _throttled(level, [w for (j, _), w in words.items() if j == i], steps))
        energy = np.full(len(steps), self.mapspace.einsum.computes * self.mapspace.architecture.compute.energy.compute)
        accesses = {}
        for i, level in self.levels:
            instances = monomials[rows.instances[i], tiling]
            share = level.energy.leak * cycles * instances / len(self.mapspace.einsum.tensors)
            total = np.zeros(len(steps))
            for t in range(len(self.mapspace.einsum.tensors)):
                total += _access_energy(level, words[i, t]) * instances + share
            energy += total
            if i in self.accesses:
                accesses[i] = sum(sum(words[i, t]) for t in range(len(self.mapspace.einsum.tensors))) * instances
        return Figures(self._valid(monomials)[template, tiling], energy, cycles, accesses)

    def counts(self, column: Columns) -> dict[str, NDArray[np.int64]]:
        """Reads, fills and updates of every template at one tiling (a vector), each of shape (levels, tensors, templates)."""
        import numpy as np

        rows = self.rows
        monomials = np.array([column[row > 0].prod() for row in rows.exponents])
        counts = monomials[rows.plus] - np.where(rows.whole, 0, monomials[rows.minus])
        return {"reads": counts[rows.reads], "fills": counts[rows.fills], "updates": counts[rows.updates]}

    def _prepare_energy(self) -> None:
        """Distinct (count, block, instances) rows, and each template's pJ per unit of them."""
        import numpy as np

        rows = self.rows
        index: dict[tuple[int, int, int], int] = {}
        entries: list[tuple[int, Table, float]] = []
        for i, level in self.levels:
            actions = (rows.reads, level.energy.read), (rows.fills, level.energy.write), (rows.updates, level.energy.update)
            for numbers, cost in actions:
                for of_tensor in numbers[i]:
                    for count in np.unique(of_tensor):
                        if count and cost:
                            key = int(count), level.block_size, int(rows.instances[i])
                            entries.append((index.setdefault(key, len(index)), of_tensor == count, cost))
        self._energy_weights = np.zeros((len(self.templates), len(index)))
        for row, chosen, cost in entries:
            self._energy_weights[chosen, row] += cost
        self._vector_rows = np.array(list(index), dtype=np.int64).reshape(-1, 3)

    def _vectors(self, counts: Table, monomials: Table) -> Table:
        import numpy as np

        number, block, instances = self._vector_rows.T
        vectors = counts[number]
        for size in np.unique(block):
            if size > 1:
                vectors[block == size] = np.ceil(vectors[block == size] / size)
        return vectors * monomials[instances]

    def _prepare_limits(self) -> None:
        """Weights of reads and writes at levels with a bandwidth, of accesses, and of tiles per distinct set of kept tensors."""
        import numpy as np

        rows = self.rows
        self._paced = {i: _limits(level) for i, level in self.levels if _limits(level)}
        self._read_weights = {i: _selection([rows.reads[i]], len(rows.plus)) for i in self._paced}
        self._write_weights = {i: _selection([rows.fills[i], rows.updates[i]], len(rows.plus)) for i in self._paced}
        every = (rows.reads, rows.fills, rows.updates)
        self._access_weights = {i: _selection([numbers[i] for numbers in every], len(rows.plus)) for i in self.accesses}
        bits = rows.kept.reshape(rows.kept.shape[0] * rows.kept.shape[1], len(self.templates))
        choices = np.concatenate([bits, rows.on_x, rows.on_y])
        self._layouts, self._layout_of = np.unique(choices, axis=1, return_inverse=True)
        self._layout_of = self._layout_of.reshape(-1)

    def _cycles(self, steps: Table, counts: Table) -> Table:
        import numpy as np

        cycles = np.broadcast_to(steps, (len(self.templates), len(steps)))
        for i, limits in self._paced.items():
            reads, writes = self._read_weights[i] @ counts, self._write_weights[i] @ counts
            for kind, bandwidth in limits.items():
                words = {"read": reads, "write": writes}.get(kind)
                cycles = np.maximum(cycles, (reads + writes if words is None else words) / bandwidth)
        return np.ceil(cycles * (1 - 1e-12))

    def _valid(self, monomials: Table) -> NDArray[np.bool_]:
        """Capacity, least utilisation and the sides of the fan-outs, once per distinct choice of kept tensors and sides."""
        import numpy as np

        rows, shape = self.rows, self.rows.kept.shape
        cut = shape[0] * shape[1]
        kept = self._layouts[:cut].reshape(shape[0], shape[1], -1).astype(float)
        on_x, on_y = self._layouts[cut : cut + shape[0]], self._layouts[cut + shape[0] :]
        valid = np.ones((self._layouts.shape[1], monomials.shape[1]), dtype=bool)
        for i, (level, space) in enumerate(self.mapspace.named()):
            valid &= (monomials[on_x[i]] <= space.spatial.fanout_x) & (monomials[on_y[i]] <= space.spatial.fanout_y)
            if level.capacity is not None and not level.is_fanout:
                filled = kept[i].T @ monomials[rows.tiles[i]]
                valid &= (filled <= level.capacity) & (filled >= level.capacity * space.min_utilization)
        return valid[self._layout_of]


def _limits(level: Level) -> dict[str, float]:
    bandwidths = {"read": level.read_bandwidth, "write": level.write_bandwidth, "shared": level.shared_bandwidth}
    return {kind: bandwidth for kind, bandwidth in bandwidths.items() if bandwidth is not None}


def _selection(numbers: Sequence[NDArray[np.int64]], count: int) -> Table:
    """(templates, counts): how often each count enters a template's sum; count 0 is nothing."""
    import numpy as np

    weights = np.zeros((numbers[0].shape[-1], count))
    for table in numbers:
        for row in table:
            np.add.at(weights, (np.arange(len(row)), row), 1.0)
    weights[:, 0] = 0.0
    return weights


def _throttled(level: Level, words: Sequence[tuple[Table, Table, Table]], steps: Table) -> Table:
    """Cycles that a level's bandwidths force, in doubles and in the tool's order, as the reference model computes them."""
    import numpy as np

    limits = _limits(level)
    read = sum((reads / steps for reads, _, _ in words), np.zeros(len(steps)))
    write = sum(((fills + updates) / steps for _, fills, updates in words), np.zeros(len(steps)))
    slowdown = np.ones(len(steps))
    for kind, demand in (("read", read), ("write", write), ("shared", write + read)):
        if kind in limits:
            with np.errstate(divide="ignore"):
                slowdown = np.where(demand > 0, np.minimum(slowdown, limits[kind] / demand), slowdown)
    return np.ceil(steps / slowdown).astype(np.int64)


def _access_energy(level: Level, words: tuple[Table, Table, Table]) -> Table:
    """pJ of one tensor and instance: whole vectors, rounded up per action."""
    block = level.block_size
    reads, fills, updates = (-(-some // block) for some in words)
    return reads * level.energy.read + fills * level.energy.write + updates * level.energy.update


Best = tuple[tuple[float, ...], Template, "Columns"]
"""Values, template and bounds of the best mapping so far."""


def _decide(
    evaluator: MatrixEvaluator,
    table: Columns,
    metrics: Sequence[str],
    pairs: tuple[NDArray[np.intp], ...],
    best: Best | None,
) -> Best | None:
    """The better of the best so far and of the given pairs, by exact figures."""
    import numpy as np

    template, tiling = pairs
    if not len(template):
        return best
    exact = evaluator.exact(table, template, tiling)
    values = [np.where(exact.valid, exact.metric(metric, evaluator.mapspace), np.inf) for metric in metrics]
    chosen = np.lexsort(values[::-1])[0]
    found = tuple(float(value[chosen]) for value in values)
    if not np.isfinite(found[0]) or (best is not None and found >= best[0]):
        return best
    return found, evaluator.templates[template[chosen]], table[:, tiling[chosen]]


def matrix_search(mapspace: Mapspace, metrics: Sequence[str], columns: int = 4096) -> Optimum | None:
    """The optimum of a mapspace of perfect bounds by templates x tilings; None when no mapping is valid.

    A screen's lower bounds rule out what is worse than the best so far; the rest is decided by exact figures, in the order
    of ``metrics``. The mapping's figures are the reference model's. Where link transfers may act
    (``MatrixEvaluator.is_timeloops`` is False) the optimum is that of the count without them.
    """
    import numpy as np

    from stitchloop.model import TIMELOOP, TIMELOOP_WITHOUT_LINKS, evaluate
    from stitchloop.search.objectives import value_of

    wanted = [level for level in (counted_level(metric, mapspace.architecture) for metric in metrics) if level is not None]
    best: Best | None = None
    valid = listed = 0
    known: dict[object, MatrixEvaluator] = {}
    for pattern, table in tilings(mapspace, columns):
        if pattern not in known:
            known = {pattern: MatrixEvaluator(mapspace, templates(mapspace, pattern), wanted)}
        evaluator = known[pattern]
        figures = evaluator.screen(table)
        listed += figures.valid.size
        valid += int(figures.valid.sum())
        bound = np.where(figures.valid, figures.metric(metrics[0], mapspace), np.inf) * (1 - TOLERANCE)
        if not np.isfinite(bound.min(initial=np.inf)):
            continue
        nearest = np.unravel_index([bound.argmin()], bound.shape)
        best = _decide(evaluator, table, metrics, nearest, best)
        if best is not None:
            best = _decide(evaluator, table, metrics, np.nonzero(bound <= best[0][0]), best)
    if best is None:
        return None
    mapping = mapping_of(mapspace, best[1], best[2])
    counting = TIMELOOP if mapspace.levels[0].spatial.fanout == 1 else TIMELOOP_WITHOUT_LINKS
    stats = evaluate(mapspace.einsum, mapspace.architecture, mapping, counting)
    return Optimum(tuple(value_of(metric, stats) for metric in metrics), mapping, stats, valid, listed)
