"""Stepping through a fused mapping, iteration by iteration, with buffers that hold sets of elements.

Nothing here knows about axes or closed forms: every loop is run, every element is named. It proves the ``sound`` convention
of :mod:`stitchloop.fused.reference` on small problems, and evaluates the trees whose counts are no products over axes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

from stitchloop.errors import InputError
from stitchloop.fused.rules import SOUND, Rules
from stitchloop.fused.stats import Access
from stitchloop.fused.structure import Address, BranchPoint, Path, StoragePoint, Structure
from stitchloop.fused.tree import Branch, Node, Storage
from stitchloop.workload import Tensor

Point = tuple[int, ...]
Index = tuple[int, ...]
"""Iterations of the loops from the root to some depth."""
Steps = dict[Index, set[Point]]
"""What an Einsum computes in each iteration, in the order of time."""

MOST_POINTS = 4_000_000
"""Points of iteration spaces, added up over recomputation, that are stepped through."""


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
    return _Simulator(structure, rules).run()


class _Simulator:
    def __init__(self, structure: Structure, rules: Rules) -> None:
        self.structure, self.rules = structure, rules
        self.steps: dict[str, Steps] = {}
        self.steps_before: dict[str, Steps] = {}
        self.made: dict[str, dict[Index, set[Point]]] = {}
        """Of each intermediate, the elements computed in each iteration of the loops above the branch."""
        self.reads: dict[Access, int] = defaultdict(int)
        self.writes: dict[Access, int] = defaultdict(int)
        self.blocks: dict[tuple[Address, str, str], dict[tuple[Index, Index], set[Point]]] = {}

    def run(self) -> Simulation:
        self._compute()
        for path in self.structure.paths.values():
            for tensor in path.einsum.tensors:
                for point in path.storages_of(tensor.name):
                    self.blocks[point.address, tensor.name, path.einsum.name] = self._blocks(path, tensor, point)
        for path in self.structure.paths.values():
            for tensor in path.einsum.tensors:
                self._move(path, tensor)
        capacity, varies = self._capacity()
        operations = {name: sum(map(len, self.steps[name].values())) for name in self.structure.paths}
        return Simulation(capacity, varies, dict(self.reads), dict(self.writes), operations, self._peak())

    def _units(self, path: Path, point: StoragePoint, tensor: str) -> frozenset[int]:
        return path.unit_levels(point, tensor, common=self.rules.same_units)

    # What is computed when

    def _compute(self) -> None:
        """Steps of every Einsum, consumers first; again while blocks are found to be lost to branches that run."""
        lost: set[tuple[str, int]] = set()
        while True:
            self.steps_before, self.steps, found = self.steps, {}, set(lost)
            for name in self.structure.upstream_order:
                self.steps[name] = self._steps(self.structure.paths[name], found)
            if found == lost and self.steps_before.keys() == self.steps.keys():
                return
            lost = found

    def _steps(self, path: Path, lost: set[tuple[str, int]]) -> Steps:
        joint = self.structure.joint(path.einsum.name)
        if joint is None:
            every = set(product(*(range(size) for size in path.einsum.rank_sizes)))
            _limit(len(every), path)
            steps: Steps = {(): every}
        else:
            steps = self._needed_steps(path, joint, lost)
        for loop in path.loops[joint.depth if joint else 0 :]:
            at = path.einsum.ranks.index(loop.rank)
            inside: Steps = {}
            for index, points in steps.items():
                start = min(point[at] for point in points)
                pieces: dict[int, set[Point]] = defaultdict(set)
                for point in points:
                    pieces[(point[at] - start) // loop.tile_shape].add(point)
                for piece in sorted(pieces):
                    inside[(*index, piece)] = pieces[piece]
            steps = inside
        return steps

    def _needed_steps(self, path: Path, joint: BranchPoint, lost: set[tuple[str, int]]) -> Steps:
        """In each iteration of the loops above the branch, the points that write what is missing of the output."""
        steps: Steps = defaultdict(set)
        for output in self.structure.intermediates(path.einsum.name):
            need = self._need(output, joint.depth)
            if self.rules.keep_unchanged:
                missing = self._missing(path, output, joint, need, lost)
            else:
                missing = self._missing_to_looptree(path, output, joint, need)
            self.made[output] = missing
            writers: dict[Point, list[Point]] = defaultdict(list)
            for point in product(*(range(size) for size in path.einsum.rank_sizes)):
                writers[_element(path, path.einsum.tensor(output), point)].append(point)
            total = 0
            for index in missing:
                for element in missing[index]:
                    steps[index].update(writers[element])
                total += len(steps[index])
                _limit(total, path)
        return {index: steps[index] for index in sorted(steps) if steps[index]}

    def _need(self, tensor: str, depth: int) -> dict[Index, set[Point]]:
        needs = []
        for reader in self.structure.readers[tensor]:
            path = self.structure.paths[reader]
            seen: dict[Index, set[Point]] = defaultdict(set)
            for index, points in self.steps[reader].items():
                seen[index[:depth]] |= _elements(path, path.einsum.tensor(tensor), points)
            needs.append(seen)
        every = sorted({index for seen in needs for index in seen})
        if self.rules.unite_readers:
            return {index: set().union(*(seen.get(index, set()) for seen in needs)) for index in every}
        return {index: set.intersection(*(seen.get(index, set()) for seen in needs)) for index in every}

    def _missing(
        self, path: Path, tensor: str, joint: BranchPoint, need: dict[Index, set[Point]], lost: set[tuple[str, int]]
    ) -> dict[Index, set[Point]]:
        """What the memory of an intermediate does not hold: it keeps one block per unit, and what of it slides along."""
        point = path.storages_of(tensor)[0]
        units = self._units(path, point, tensor)
        whole: dict[tuple[Index, Index], set[Point]] = defaultdict(set)
        for index, elements in need.items():
            whole[_split(path, index, point.depth, units)] |= elements
        temporal = [level for level in range(len(path.loops)) if level not in path.spatial_levels]
        changes = self._changes(path, joint, need, point, units)
        dropping = set() if point.node.exploits_reuse else set(temporal)
        for unit, before, step, last, now in changes:
            level = next(temporal[at] for at in range(len(step)) if before[at] != step[at])
            if self._is_lost(path, point, last, now):
                lost.add((tensor, level))
            if not self._slides(path, tensor, level, whole[before, unit], whole[step, unit]):
                dropping.add(level)
        dropping |= {level for name, level in lost if name == tensor}
        kept = {}
        for unit, before, step, _, _ in changes:
            level = next(temporal[at] for at in range(len(step)) if before[at] != step[at])
            kept[step, unit] = set() if level in dropping else whole[before, unit] & whole[step, unit]
        missing = {}
        for index, elements in need.items():
            if elements:
                content = kept.setdefault(_split(path, index, point.depth, units), set())
                missing[index] = elements - content
                content |= elements
        return missing

    def _changes(
        self, path: Path, joint: BranchPoint, need: dict[Index, set[Point]], point: StoragePoint, units: frozenset[int]
    ) -> list[tuple[Index, Index, Index, Index, Index]]:
        """Where a memory goes from one block to the next: unit, both steps of the node, both iterations above the branch."""
        changes = []
        at: dict[Index, tuple[Index, Index]] = {}
        for index, elements in need.items():
            if elements:
                step, unit = _split(path, index, point.depth, units)
                now = _temporal(path, index, joint.depth)
                if unit in at and at[unit][0] != step:
                    changes.append((unit, at[unit][0], step, at[unit][1], now))
                at[unit] = (step, now)
        return changes

    def _slides(self, path: Path, tensor: str, level: int, old: set[Point], new: set[Point]) -> bool:
        """Whether a block changes at most along the dimensions that the loop stepping on moves."""
        moved = {at for reader in self.structure.readers[tensor] for at in self._moved_dimensions(reader, tensor, level)}
        fixed = [at for at in range(len(next(iter(new)))) if at not in moved]
        return all({element[at] for element in old} == {element[at] for element in new} for at in fixed)

    def _moved_dimensions(self, einsum: str, tensor: str, level: int) -> set[int]:
        """The dimensions of a tensor that the loop at ``level`` on an Einsum's path moves."""
        path = self.structure.paths[einsum]
        joint = self.structure.joint(einsum)
        if level >= (joint.depth if joint else 0):
            ranks = {path.loops[level].rank}
        else:
            ranks = set()
            for output in self.structure.intermediates(einsum):
                for reader in self.structure.readers[output]:
                    for at in self._moved_dimensions(reader, output, level):
                        ranks |= {term.rank for term in path.einsum.tensor(output).projection[at]}
        projection = path.einsum.tensor(tensor).projection
        return {at for at, terms in enumerate(projection) if any(term.rank in ranks for term in terms)}

    def _missing_to_looptree(
        self, path: Path, tensor: str, joint: BranchPoint, need: dict[Index, set[Point]]
    ) -> dict[Index, set[Point]]:
        """LoopTree's rule: without what the last step of the loop right above the memory, and earlier deeper ones, need."""
        points = [p for p in path.storages_of(tensor) if p.node.exploits_reuse and len(p.address) <= len(joint.address)]
        if not points:
            return need
        depth = points[0].depth
        within = max((branch.depth for branch in path.branch_above(points[0])), default=0)
        whole: dict[Index, set[Point]] = defaultdict(set)
        for index, elements in need.items():
            whole[index[:depth]] |= elements
        earlier: dict[Index, set[Point]] = defaultdict(set)
        missing = {}
        for index, elements in need.items():
            above = index[:depth]
            right_before = (*above[:-1], above[-1] - 1) if depth > within else None
            missing[index] = elements - earlier[above] - (whole.get(right_before, set()) if right_before else set())
            earlier[above] |= elements
        return missing

    def _is_lost(self, path: Path, point: StoragePoint, before: Index, now: Index) -> bool:
        """Whether another sequential branch ran, and took the space, between two steps of a node's own branch."""
        if not self.rules.refetch:
            return False
        for branch in path.branch_above(point):
            then, here = (step[: _temporal_loops(path, branch.depth)] for step in (before, now))
            if branch.kind != "sequential" or then == here:
                continue
            for at, members in enumerate(branch.members):
                for member in members if at != branch.index else ():
                    for run in self._runs(member, branch.depth):
                        after_us, before_us = run == then and at > branch.index, run == here and at < branch.index
                        if then < run < here or after_us or before_us:
                            return True
        return False

    def _runs(self, einsum: str, depth: int) -> set[Index]:
        """The iterations of the temporal loops above ``depth`` in which an Einsum runs, as far as known."""
        runs = self.steps.get(einsum, self.steps_before.get(einsum, {}))
        return {_temporal(self.structure.paths[einsum], index, depth) for index in runs}

    # What is moved

    def _blocks(self, path: Path, tensor: Tensor, point: StoragePoint) -> dict[tuple[Index, Index], set[Point]]:
        """What each unit of a node holds of a tensor for one Einsum, by temporal step and unit."""
        units = self._units(path, point, tensor.name)
        blocks: dict[tuple[Index, Index], set[Point]] = defaultdict(set)
        for index, points in self.steps[path.einsum.name].items():
            blocks[_split(path, index, point.depth, units)] |= _elements(path, tensor, points)
        return blocks

    def _move(self, path: Path, tensor: Tensor) -> None:
        points = path.storages_of(tensor.name)
        valid: dict[tuple[int, Index], set[Point]] = defaultdict(set)
        """Elements whose partial sum stands in a unit of the n-th node, so that it has to be read to go on."""
        fills = [self._fill(path, tensor, child) for child in [*points[1:], None]]
        if not tensor.is_output or not self.rules.fresh_sums:
            for parent, child, fill in zip(points, [*points[1:], None], fills):
                self._count(path, tensor, parent, child, fill)
            return
        joint = self.structure.joint(path.einsum.name)
        made = self.made.get(tensor.name, {}) if joint else {}
        begun: set[tuple[Index, int, Index]] = set()
        pending = [iter(fill) for fill in fills]
        coming = [next(one, None) for one in pending]
        for now, indices in sorted(
            _grouped(self.steps[path.einsum.name], lambda index: _temporal(path, index, len(index))).items()
        ):
            for index in indices:
                above = index[: joint.depth if joint else 0]
                for at, unit in enumerate(_units(index, self._units(path, point, tensor.name)) for point in points):
                    if (above, at, unit) not in begun:
                        begun.add((above, at, unit))
                        valid[at, unit] -= made.get(above, set())
            for at, step in enumerate(coming):
                if step is not None and step.time == now[: len(step.time)]:
                    self._bring(path, tensor, points, at, step, valid)
                    coming[at] = next(pending[at], None)

    def _fill(self, path: Path, tensor: Tensor, child: StoragePoint | None) -> list[_Step]:
        """What comes into a node (or, None, into the compute units) at each of its steps."""
        if child is None:
            touched: dict[Index, dict[Index, set[Point]]] = defaultdict(lambda: defaultdict(set))
            for index, points in self.steps[path.einsum.name].items():
                unit = _units(index, path.spatial_levels)
                touched[_temporal(path, index, len(index))][unit] |= _elements(path, tensor, points)
            return [_Step(time, units, units) for time, units in sorted(touched.items())]
        blocks = self.blocks[child.address, tensor.name, path.einsum.name]
        beside = self._beside_in_block(path, tensor, child)
        times = sorted({time for one in (blocks, *beside.values()) for time, _ in one})
        order, result = list(self.structure.paths), []
        for time in sorted({time for time, _ in blocks}):
            before = times[times.index(time) - 1] if time != times[0] else None
            starts_anew = before is not None and tensor.is_output and self._starts_anew(path, tensor, before, time)
            if before is not None and (not child.node.exploits_reuse or starts_anew or self._is_lost(path, child, before, time)):
                before = None
            held = {unit: block for (at, unit), block in blocks.items() if at == time}
            new = {}
            for unit, block in held.items():
                there = [one.get((before, unit), set()) for one in (blocks, *beside.values())] if before is not None else []
                first = [
                    one.get((time, unit), set())
                    for name, one in beside.items()
                    if order.index(name) < order.index(path.einsum.name)
                ]
                new[unit] = block.difference(*there, *first)
            result.append(_Step(time, new, held))
        return result

    def _starts_anew(self, path: Path, tensor: Tensor, before: Index, now: Index) -> bool:
        """Whether an intermediate is computed from nothing in between, so that no old sum is of use."""
        joint = self.structure.joint(path.einsum.name)
        if joint is None or not self.rules.fresh_sums or tensor.name not in self.structure.intermediates(path.einsum.name):
            return False
        loops = _temporal_loops(path, joint.depth)
        return before[:loops] != now[:loops]

    def _beside_in_block(
        self, path: Path, tensor: Tensor, child: StoragePoint
    ) -> dict[str, dict[tuple[Index, Index], set[Point]]]:
        """What other Einsums put into the same node; it needs no second fetch."""
        if not self.rules.unite_readers or self.structure.producers.get(tensor.name) == path.einsum.name:
            return {}
        return {
            einsum: blocks
            for (address, name, einsum), blocks in self.blocks.items()
            if address == child.address and name == tensor.name and einsum != path.einsum.name
        }

    def _count(
        self,
        path: Path,
        tensor: Tensor,
        parent: StoragePoint,
        child: StoragePoint | None,
        fill: list[_Step],
    ) -> None:
        """Inputs, and outputs as LoopTree counts them: the first read is left out once."""
        above = self._units(path, parent, tensor.name)
        below = self._units(path, child, tensor.name) if child else path.spatial_levels
        own = sum(len(elements) for step in fill for elements in step.new.values())
        joint = sum(len(elements) for step in fill for elements in _jointly(step.new, below, above).values())
        p = (parent.node.target, tensor.name, path.einsum.name)
        fresh = 0
        if tensor.is_output:
            fresh = len(set().union(*(_elements(path, tensor, points) for points in self.steps[path.einsum.name].values())))
            self.writes[p] += joint
        self.reads[p] += joint - fresh
        if child:
            self.writes[child.node.target, tensor.name, path.einsum.name] += own - fresh

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
        above = self._units(path, parent, tensor.name)
        below = self._units(path, child, tensor.name) if child else path.spatial_levels
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

    # What is held

    def _capacity(self) -> tuple[dict[int, int], frozenset[int]]:
        needed = {t: self._needed(t, self.structure.mapping.nodes, ()) for t in self.structure.mapping.targets if t}
        if 0 in self.structure.mapping.targets:
            nodes = [node for _, node in self.structure.mapping.walk if isinstance(node, Storage) and node.target == 0]
            needed[0] = sum(self._touched(name) for name in {name for node in nodes for name in node.tensors})
        varies = set()
        for path in self.structure.paths.values():
            for point in path.storages:
                for (address, _, _), blocks in self.blocks.items():
                    if address == point.address and len({len(block) for block in blocks.values()}) > 1:
                        varies.add(point.node.target)
        return needed, frozenset(varies - {0})

    def _touched(self, name: str) -> int:
        counts = []
        for path in self.structure.paths.values():
            for tensor in path.einsum.tensors:
                if tensor.name == name:
                    steps = self.steps[path.einsum.name].values()
                    counts.append(len(set().union(*(_elements(path, tensor, points) for points in steps))))
        return max(counts)

    def _together(self, address: Address, name: str) -> dict[tuple[Index, Index], int]:
        """Words of a tensor at a node by step and unit; by LoopTree, of the Einsum that needs most of it."""
        words: dict[tuple[Index, Index], int] = {}
        united: dict[tuple[Index, Index], set[Point]] = defaultdict(set)
        for (at, tensor, _), blocks in self.blocks.items():
            if at == address and tensor == name:
                for key, block in blocks.items():
                    united[key] |= block
                    size = len(united[key]) if self.rules.unite_readers else len(block)
                    words[key] = max(words.get(key, 0), size)
        return words

    def _needed(self, target: int, nodes: tuple[Node, ...], address: Address) -> int:
        words = 0
        for at, node in enumerate(nodes):
            here = (*address, at)
            if isinstance(node, Storage) and node.target == target:
                words += sum(max(self._together(here, name).values(), default=0) for name in node.tensors)
            elif isinstance(node, Branch):
                inside = [self._needed(target, branch, (*here, index)) for index, branch in enumerate(node.branches)]
                words += max(inside) if node.kind == "sequential" else sum(inside)
        return words

    def _peak(self) -> dict[int, int]:
        """The most words that a unit of each target holds while some Einsum computes, with what runs beside it in a pipeline."""
        peak: dict[int, int] = defaultdict(int)
        sizes = {
            (address, name): self._together(address, name)
            for address, node in self.structure.mapping.walk
            if isinstance(node, Storage)
            for name in node.tensors
        }
        for path in self.structure.paths.values():
            beside = self._beside(path)
            for index in self.steps[path.einsum.name]:
                words: dict[int, int] = defaultdict(int, beside)
                for point in path.storages:
                    for name in point.node.tensors:
                        key = _split(path, index, point.depth, self._units(path, point, name))
                        words[point.node.target] += sizes[point.address, name].get(key, 0)
                for target, held in words.items():
                    peak[target] = max(peak[target], held)
        return {target: held for target, held in peak.items() if target}

    def _beside(self, path: Path) -> dict[int, int]:
        """What branches that run at the same time in a pipeline may hold."""
        words: dict[int, int] = defaultdict(int)
        for branch in path.branches:
            if branch.kind == "pipeline":
                node = next(node for address, node in self.structure.mapping.walk if address == branch.address)
                assert isinstance(node, Branch)
                for at, nodes in enumerate(node.branches):
                    for target in self.structure.mapping.targets if at != branch.index else ():
                        words[target] += self._needed(target, nodes, (*branch.address, at))
        return words


def _limit(points: int, path: Path) -> None:
    if points > MOST_POINTS:
        found = f"more than {MOST_POINTS} points of '{path.einsum.name}' in a tree that has to be stepped through"
        raise InputError(None, found, "use smaller rank sizes, or let each reader of a tensor need the same part of it")


def _element(path: Path, tensor: Tensor, point: Point) -> Point:
    at = dict(zip(path.einsum.ranks, point, strict=True))
    return tuple(sum(term.coefficient * at[term.rank] for term in terms) for terms in tensor.projection)


def _elements(path: Path, tensor: Tensor, points: Iterable[Point]) -> set[Point]:
    where = [[(path.einsum.ranks.index(t.rank), t.coefficient) for t in terms] for terms in tensor.projection]
    return {tuple(sum(c * point[at] for at, c in terms) for terms in where) for point in points}


def _temporal(path: Path, index: Index, depth: int) -> Index:
    return tuple(index[level] for level in range(depth) if level not in path.spatial_levels)


def _temporal_loops(path: Path, depth: int) -> int:
    return sum(level not in path.spatial_levels for level in range(depth))


def _grouped(indices: Iterable[Index], key: Callable[[Index], Index]) -> dict[Index, list[Index]]:
    groups: dict[Index, list[Index]] = defaultdict(list)
    for index in indices:
        groups[key(index)].append(index)
    return groups


def _units(index: Index, levels: frozenset[int]) -> Index:
    return tuple(index[level] for level in sorted(levels) if level < len(index))


def _split(path: Path, index: Index, depth: int, units: frozenset[int]) -> tuple[Index, Index]:
    """The temporal step of a node below ``depth`` loops, and the unit."""
    return _temporal(path, index, depth), _units(index, units)


def _parent_of(unit: Index, below: frozenset[int], above: frozenset[int]) -> Index:
    return tuple(part for level, part in zip(sorted(below), unit) if level in above)


def _jointly(new: dict[Index, set[Point]], below: frozenset[int], above: frozenset[int]) -> dict[Index, set[Point]]:
    """What the units of each parent unit take together."""
    together: dict[Index, set[Point]] = defaultdict(set)
    for unit, elements in new.items():
        together[_parent_of(unit, below, above)] |= elements
    return together
