"""Stepping through a fused mapping, iteration by iteration, with buffers that hold sets of elements.

Nothing here knows about axes or closed forms: every loop is run, every element is named. It proves the ``sound`` convention
of :mod:`stitchloop.fused.reference` on small problems, and evaluates the trees whose counts are no products over axes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from stitchloop.fused.holding import Blocks, Holding
from stitchloop.fused.rules import SOUND, Rules
from stitchloop.fused.stats import Access
from stitchloop.fused.stepping import Index, Point, Timeline, elements_of, every_point, temporal, temporal_loops, units_of
from stitchloop.fused.structure import Path, StoragePoint, Structure
from stitchloop.workload import Tensor


@dataclass(frozen=True)
class Simulation:
    """What stepping through a mapping found.

    Attributes
    ----------
    capacity, reads, writes, operations
        As in :class:`~stitchloop.fused.stats.FusedStats`.
    varies : frozenset of int
        Targets with blocks of different sizes.
    peak : dict
        Words that a unit of each target held at most at any one time.
    """

    capacity: dict[int, int]
    varies: frozenset[int]
    reads: dict[Access, int]
    writes: dict[Access, int]
    operations: dict[str, int]
    peak: dict[int, int]


@dataclass(frozen=True)
class _Step:
    """One step of a node: what comes in anew in each unit, and what each holds then."""

    time: Index
    new: dict[Index, set[Point]]
    held: dict[Index, set[Point]]


def simulate(structure: Structure, rules: Rules = SOUND) -> Simulation:
    """Run every loop of a checked tree.

    Raises
    ------
    InputError
        Where there are more iterations than can be stepped through.
    """
    timeline = Timeline(structure, rules)
    holding = Holding(timeline)
    traffic = _Traffic(timeline, holding)
    for path in structure.paths.values():
        for tensor in path.einsum.tensors:
            traffic.move(path, tensor)
    operations = {name: sum(map(len, timeline.steps[name].values())) for name in structure.paths}
    return Simulation(
        holding.capacity(), holding.varying(), dict(traffic.reads), dict(traffic.writes), operations, holding.peak()
    )


class _Traffic:
    def __init__(self, timeline: Timeline, holding: Holding) -> None:
        self.timeline, self.holding = timeline, holding
        self.structure, self.rules = timeline.structure, timeline.rules
        self.reads: dict[Access, int] = defaultdict(int)
        self.writes: dict[Access, int] = defaultdict(int)

    def move(self, path: Path, tensor: Tensor) -> None:
        points = path.storages_of(tensor.name)
        valid: dict[tuple[int, Index], set[Point]] = defaultdict(set)
        """Elements whose partial sum stands in a unit of the n-th node, so that it has to be read to go on."""
        fills = [self._fill(path, tensor, child) for child in [*points[1:], None]]
        if not tensor.is_output or not self.rules.fresh_sums:
            for parent, child, fill in zip(points, [*points[1:], None], fills):
                self._count(path, tensor, parent, child, fill)
            return
        joint = self.structure.joint(path.einsum.name)
        made = self.timeline.made.get(tensor.name, {}) if joint else {}
        begun: set[tuple[Index, int, Index]] = set()
        pending = [iter(fill) for fill in fills]
        coming = [next(one, None) for one in pending]
        for now, indices in sorted(self._by_time(path).items()):
            for index in indices:
                above = index[: joint.depth if joint else 0]
                for at, unit in enumerate(units_of(index, self.timeline.units(path, point, tensor.name)) for point in points):
                    if (above, at, unit) not in begun:
                        begun.add((above, at, unit))
                        valid[at, unit] -= made.get(above, set())
            for at, step in enumerate(coming):
                if step is not None and step.time == now[: len(step.time)]:
                    self._bring(path, tensor, points, at, step, valid)
                    coming[at] = next(pending[at], None)

    def _by_time(self, path: Path) -> dict[Index, list[Index]]:
        """Innermost iterations that happen at the same time, by their temporal part."""
        groups: dict[Index, list[Index]] = defaultdict(list)
        for index in self.timeline.steps[path.einsum.name]:
            groups[temporal(path, index, len(index))].append(index)
        return groups

    def _fill(self, path: Path, tensor: Tensor, child: StoragePoint | None) -> list[_Step]:
        """What comes into a node (or, None, into the compute units) at each of its steps."""
        if child is None:
            steps = self.timeline.steps[path.einsum.name]
            innermost = []
            for time, indices in sorted(self._by_time(path).items()):
                touched: dict[Index, set[Point]] = defaultdict(set)
                for index in indices:
                    touched[units_of(index, path.spatial_levels)] |= elements_of(path, tensor, steps[index])
                innermost.append(_Step(time, touched, touched))
            return innermost
        blocks = _by_step(self._blocks(path, tensor, child))
        beside = {name: _by_step(other) for name, other in self._made_beside(path, tensor, child).items()}
        order = list(self.structure.paths)
        earlier = [other for name, other in beside.items() if order.index(name) < order.index(path.einsum.name)]
        result: list[_Step] = []
        before: Index | None = None
        for time in sorted({*blocks, *(time for other in beside.values() for time in other)}):
            if time in blocks:
                stays = before is not None and self._stays(path, tensor, child, before, time)
                there = [
                    other[before] for other in (blocks, *beside.values()) if stays and before is not None and before in other
                ]
                new = {}
                for unit, block in blocks[time].items():
                    beside_now = (other.get(time, {}).get(unit, set()) for other in earlier)
                    new[unit] = block.difference(*beside_now, *(other.get(unit, set()) for other in there))
                result.append(_Step(time, new, blocks[time]))
            before = time
        return result

    def _stays(self, path: Path, tensor: Tensor, child: StoragePoint, before: Index, now: Index) -> bool:
        """Whether a node still holds its last block when it goes on to the next."""
        drops = self.rules.heed_no_reuse and not child.node.exploits_reuse
        if drops or self.timeline.is_lost(path, child, before, now):
            return False
        return not (tensor.is_output and self._starts_anew(path, tensor, before, now))

    def _starts_anew(self, path: Path, tensor: Tensor, before: Index, now: Index) -> bool:
        """Whether an intermediate is computed from nothing in between, so that no old sum is of use."""
        joint = self.structure.joint(path.einsum.name)
        if joint is None or not self.rules.fresh_sums or tensor.name not in self.structure.intermediates(path.einsum.name):
            return False
        loops = temporal_loops(path, joint.depth)
        return before[:loops] != now[:loops]

    def _blocks(self, path: Path, tensor: Tensor, child: StoragePoint) -> Blocks:
        """What comes into a node for an Einsum; what several read there comes in once, for the first of them."""
        if not self.rules.unite_readers or tensor.is_output:
            return self.holding.blocks[child.address, tensor.name, path.einsum.name]
        maker = self.structure.producers.get(tensor.name)
        sharing = [(einsum, blocks) for einsum, blocks in self._at(child, tensor).items() if einsum != maker]
        if path.einsum.name != sharing[0][0]:
            return {}
        united: Blocks = defaultdict(set)
        for _, blocks in sharing:
            for key, block in blocks.items():
                united[key] |= block
        return united

    def _made_beside(self, path: Path, tensor: Tensor, child: StoragePoint) -> dict[str, Blocks]:
        """What the maker of a tensor puts into the same node; it needs no fetch."""
        maker = self.structure.producers.get(tensor.name)
        if not self.rules.unite_readers or tensor.is_output:
            return {}
        return {einsum: blocks for einsum, blocks in self._at(child, tensor).items() if einsum == maker}

    def _at(self, child: StoragePoint, tensor: Tensor) -> dict[str, Blocks]:
        """The blocks of a tensor at a node by Einsum, in the tree's order."""
        keys = ((child.address, tensor.name, einsum) for einsum in self.structure.paths)
        return {key[2]: self.holding.blocks[key] for key in keys if key in self.holding.blocks}

    def _count(
        self,
        path: Path,
        tensor: Tensor,
        parent: StoragePoint,
        child: StoragePoint | None,
        fill: list[_Step],
    ) -> None:
        """Inputs, and outputs as LoopTree counts them: the first read is left out once."""
        above = path.feeding_levels(parent, child, tensor.name, common=self.rules.same_units)
        below = self.timeline.units(path, child, tensor.name) if child else path.spatial_levels
        own = sum(len(elements) for step in fill for elements in step.new.values())
        joint = sum(len(elements) for step in fill for elements in _jointly(step.new, below, above).values())
        p = (parent.node.target, tensor.name, path.einsum.name)
        fresh = 0
        if tensor.is_output:
            fresh = len(self._handed_on(path, tensor))
            self.writes[p] += joint
        self.reads[p] += joint - fresh
        if child:
            self.writes[child.node.target, tensor.name, path.einsum.name] += own - fresh

    def _handed_on(self, path: Path, tensor: Tensor) -> set[Point]:
        """The elements of an output that are also read; all of it if nobody reads it."""
        readers = [self.structure.paths[name] for name in self.structure.readers[tensor.name]]
        written = elements_of(path, tensor, every_point(path))
        read = (elements_of(reader, reader.einsum.tensor(tensor.name), every_point(reader)) for reader in readers)
        return written & set().union(*read) if readers else written

    def _bring(
        self,
        path: Path,
        tensor: Tensor,
        points: tuple[StoragePoint, ...],
        at: int,
        step: _Step,
        valid: dict[tuple[int, Index], set[Point]],
    ) -> None:
        """One step of an output between the n-th node and the next: read sums that stand there, begin the others at zero."""
        parent, child = points[at], points[at + 1] if at + 1 < len(points) else None
        above = self.timeline.units(path, parent, tensor.name)
        below = self.timeline.units(path, child, tensor.name) if child else path.spatial_levels
        p = (parent.node.target, tensor.name, path.einsum.name)
        fetched: dict[Index, set[Point]] = {}
        for unit, elements in _jointly(step.new, below, above).items():
            fetched[unit] = elements & valid[at, unit]
            self.reads[p] += len(fetched[unit])
            self.writes[p] += len(elements)
            valid[at, unit] = valid[at, unit] | elements
        if child is None:
            return
        self.writes[child.node.target, tensor.name, path.einsum.name] += sum(map(len, fetched.values()))
        for unit, elements in step.new.items():
            sums = fetched[_parent_of(unit, below, above)]
            mine = elements & sums
            sums -= mine
            valid[at + 1, unit] = (valid[at + 1, unit] - elements) & step.held[unit] | mine


def _parent_of(unit: Index, below: frozenset[int], above: frozenset[int]) -> Index:
    return tuple(part for level, part in zip(sorted(below), unit) if level in above)


def _jointly(new: dict[Index, set[Point]], below: frozenset[int], above: frozenset[int]) -> dict[Index, set[Point]]:
    """What the units of each parent unit take together."""
    together: dict[Index, set[Point]] = defaultdict(set)
    for unit, elements in new.items():
        together[_parent_of(unit, below, above)] |= elements
    return together


def _by_step(blocks: Blocks) -> dict[Index, dict[Index, set[Point]]]:
    steps: dict[Index, dict[Index, set[Point]]] = defaultdict(dict)
    for (step, unit), block in blocks.items():
        steps[step][unit] = block
    return dict(steps)
