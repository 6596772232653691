"""What every Einsum of a tree computes in every iteration, point by point, in the order of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from stitchloop.errors import InputError
from stitchloop.fused.rules import Rules
from stitchloop.fused.structure import Address, BranchPoint, Path, StoragePoint, Structure
from stitchloop.workload import Tensor

Point = tuple[int, ...]
Index = tuple[int, ...]
"""Iterations of the loops from the root to some depth."""
Steps = dict[Index, set[Point]]
"""What an Einsum computes in each iteration, in the order of time."""

MOST_POINTS = 1_000_000
"""Points of one Einsum, recomputation included, that are stepped through."""


class Timeline:
    """Steps of every Einsum, consumers first.

    Attributes
    ----------
    steps : dict
        For each Einsum, the points computed in each iteration of all loops on its path.
    made : dict
        For each intermediate, the elements computed in each iteration of the loops above the branch.

    Raises
    ------
    InputError
        Where there are more points than can be stepped through.
    """

    def __init__(self, structure: Structure, rules: Rules) -> None:
        self.structure, self.rules = structure, rules
        self.steps: dict[str, Steps] = {}
        self.made: dict[str, Steps] = {}
        self._before: dict[str, Steps] = {}
        self._stages: dict[tuple[str, Address], Steps] = {}
        """Where several branches restrict an Einsum, what the outer ones alone leave of it."""
        self._run_cache: dict[tuple[str, int], set[Index]] = {}
        self._compute()

    def units(self, path: Path, point: StoragePoint, tensor: str) -> frozenset[int]:
        """Spatial loops whose iterations hold a tensor's block in units of their own."""
        return path.unit_levels(point, tensor, common=self.rules.same_units)

    def _compute(self) -> None:
        """Steps of every Einsum, consumers first; again while blocks are found to be lost to branches that run."""
        lost: set[tuple[str, int]] = set()
        while True:
            self._before, self.steps, found = self.steps, {}, set(lost)
            self._stages.clear()
            for name in self.structure.upstream_order:
                self._run_cache.clear()
                self.steps[name] = self._steps(self.structure.paths[name], found)
            self._run_cache.clear()
            if found == lost and self._before.keys() == self.steps.keys():
                return
            lost = found

    def _steps(self, path: Path, lost: set[tuple[str, int]]) -> Steps:
        joint = self.structure.joint(path.einsum.name)
        _limit(path.einsum.computes, path)
        if joint is None:
            steps: Steps = {(): set(every_point(path))}
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
        joints = self.structure.joints(path.einsum.name)
        followed = {point.address: self.structure.common_input(point.group) for point in joints if not self.rules.follow_needs}
        if not any(followed.values()):
            return self._filling_steps(path, joint, lost)
        so_far: list[tuple[int, Steps]] = []
        both: Steps = {}
        for point in joints:
            common = followed[point.address]
            steps = self._filling_steps(path, point, lost) if common is None else self._following_steps(path, point, common)
            both = {i: points.intersection(*(s.get(i[:depth], set()) for depth, s in so_far)) for i, points in steps.items()}
            self._stages[path.einsum.name, point.address] = both = {index: points for index, points in both.items() if points}
            so_far.append((point.depth, steps))
        return both

    def _filling_steps(self, path: Path, joint: BranchPoint, lost: set[tuple[str, int]]) -> Steps:
        """In each iteration of the loops above a branch, the points that write what the readers miss."""
        steps: Steps = defaultdict(set)
        for output in self.structure.intermediates(path.einsum.name):
            missing = self.made[output] = self._all_missing(path, output, joint, lost)
            writers: dict[Point, list[Point]] = defaultdict(list)
            for point in every_point(path):
                writers[_element(path, path.einsum.tensor(output), point)].append(point)
            total = 0
            for index in missing:
                for element in missing[index]:
                    steps[index].update(writers[element])
                total += len(steps[index])
                _limit(total, path)
        return {index: steps[index] for index in sorted(steps) if steps[index]}

    def _following_steps(self, path: Path, joint: BranchPoint, common: str) -> Steps:
        """LoopTree's way with a tensor that all Einsums of a group read: what touches the head's tile of it is computed."""
        (head,) = self.structure.heads(joint.group)
        leading = self.structure.paths[head]
        touching: dict[Point, list[Point]] = defaultdict(list)
        for point in every_point(path):
            touching[_element(path, path.einsum.tensor(common), point)].append(point)
        steps: Steps = defaultdict(set)
        for index, points in self.steps[head].items():
            for element in elements_of(leading, leading.einsum.tensor(common), points):
                steps[index[: joint.depth]].update(touching.get(element, ()))
        return {index: steps[index] for index in sorted(steps) if steps[index]}

    def _all_missing(self, path: Path, output: str, joint: BranchPoint, lost: set[tuple[str, int]]) -> Steps:
        """What is missing for all readers together; by LoopTree, what each of them lacks."""
        readers = self.structure.readers[output]
        parts = []
        for some in [readers] if self.rules.unite_readers else [(reader,) for reader in readers]:
            need = self._need(output, some, joint)
            if self.rules.keep_unchanged:
                parts.append(self._missing(path, output, joint, need, lost))
            else:
                parts.append(self._missing_to_looptree(path, output, joint, need))
        return {index: set.intersection(*(part.get(index, set()) for part in parts)) for index in parts[0]}

    def _need(self, tensor: str, readers: tuple[str, ...], joint: BranchPoint) -> Steps:
        seen: Steps = defaultdict(set)
        for reader in readers:
            path = self.structure.paths[reader]
            for index, points in self._stages.get((reader, joint.address), self.steps[reader]).items():
                seen[index[: joint.depth]] |= elements_of(path, path.einsum.tensor(tensor), points)
        return {index: seen[index] for index in sorted(seen)}

    def _missing(self, path: Path, tensor: str, joint: BranchPoint, need: Steps, lost: set[tuple[str, int]]) -> Steps:
        """What the memory of an intermediate does not hold: it keeps one block per unit, and what of it slides along."""
        point = path.storages_of(tensor)[0]
        if len(point.address) > len(joint.address):
            return need
        units = self.units(path, point, tensor)
        whole: dict[tuple[Index, Index], set[Point]] = defaultdict(set)
        for index, elements in need.items():
            whole[split(path, index, point.depth, units)] |= elements
        changes = list(self._changes(path, joint, need, point, units))
        levels = {change.level for change in changes}
        dropping = set() if point.node.exploits_reuse else levels
        for change in changes:
            if self.is_lost(path, point, change.last, change.now):
                lost.add((tensor, change.level))
            if not self._slides(path, tensor, change.level, whole[change.before, change.unit], whole[change.step, change.unit]):
                dropping.add(change.level)
        dropping |= {level for name, level in lost if name == tensor}
        kept = {(c.step, c.unit): whole[c.before, c.unit] & whole[c.step, c.unit] for c in changes if c.level not in dropping}
        missing = {}
        for index, elements in need.items():
            if elements:
                content = kept.setdefault(split(path, index, point.depth, units), set())
                missing[index] = elements - content
                content |= elements
        return missing

    @staticmethod
    def _changes(path: Path, joint: BranchPoint, need: Steps, point: StoragePoint, units: frozenset[int]) -> Iterator[_Change]:
        """Where a memory goes from one block to the next."""
        levels = [level for level in range(len(path.loops)) if level not in path.spatial_levels]
        at: dict[Index, tuple[Index, Index]] = {}
        for index, elements in need.items():
            if elements:
                step, unit = split(path, index, point.depth, units)
                now = temporal(path, index, joint.depth)
                before, last = at.get(unit, (step, now))
                if before != step:
                    level = next(levels[n] for n in range(len(step)) if before[n] != step[n])
                    yield _Change(unit, level, before, step, last, now)
                at[unit] = (step, now)

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

    def _missing_to_looptree(self, path: Path, tensor: str, joint: BranchPoint, need: Steps) -> Steps:
        """LoopTree's rule: without what the last step of the loop right above the memory, and earlier deeper ones, need."""
        points = [p for p in path.storages_of(tensor) if p.node.exploits_reuse and len(p.address) <= len(joint.address)]
        if not points:
            return need
        depth = points[0].depth
        within = max((branch.depth for branch in path.branch_above(points[0])), default=0)
        whole: Steps = defaultdict(set)
        for index, elements in need.items():
            whole[index[:depth]] |= elements
        earlier: Steps = defaultdict(set)
        missing = {}
        for index, elements in need.items():
            above = index[:depth]
            right_before = (*above[:-1], above[-1] - 1) if depth > within else None
            missing[index] = elements - earlier[above] - (whole.get(right_before, set()) if right_before else set())
            earlier[above] |= elements
        return missing

    def is_lost(self, path: Path, point: StoragePoint, before: Index, now: Index) -> bool:
        """Whether another sequential branch ran, and took the space, between two steps of a node's own branch."""
        if not self.rules.refetch:
            return False
        for branch in path.branch_above(point):
            then, here = (step[: temporal_loops(path, branch.depth)] for step in (before, now))
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
        if (einsum, depth) not in self._run_cache:
            runs = self.steps.get(einsum, self._before.get(einsum, {}))
            path = self.structure.paths[einsum]
            self._run_cache[einsum, depth] = {temporal(path, index, depth) for index in runs}
        return self._run_cache[einsum, depth]


@dataclass(frozen=True)
class _Change:
    """A memory's unit goes from block ``before`` to block ``step`` as the loop at ``level`` steps on.

    ``last`` and ``now`` are the iterations of the loops above the branch on either side.
    """

    unit: Index
    level: int
    before: Index
    step: Index
    last: Index
    now: Index


def every_point(path: Path) -> Iterator[Point]:
    """The whole iteration space of an Einsum."""
    return product(*(range(size) for size in path.einsum.rank_sizes))


def _limit(points: int, path: Path) -> None:
    if points > MOST_POINTS:
        found = f"more than {MOST_POINTS} points of '{path.einsum.name}' in a tree that has to be stepped through"
        raise InputError(None, found, "use smaller rank sizes, or let each reader of a tensor need the same part of it")


def _element(path: Path, tensor: Tensor, point: Point) -> Point:
    at = dict(zip(path.einsum.ranks, point, strict=True))
    return tuple(sum(term.coefficient * at[term.rank] for term in terms) for terms in tensor.projection)


def elements_of(path: Path, tensor: Tensor, points: Iterable[Point]) -> set[Point]:
    where = [[(path.einsum.ranks.index(t.rank), t.coefficient) for t in terms] for terms in tensor.projection]
    return {tuple(sum(c * point[at] for at, c in terms) for terms in where) for point in points}


def temporal(path: Path, index: Index, depth: int) -> Index:
    return tuple(index[level] for level in range(depth) if level not in path.spatial_levels)


def temporal_loops(path: Path, depth: int) -> int:
    return sum(level not in path.spatial_levels for level in range(depth))


def units_of(index: Index, levels: frozenset[int]) -> Index:
    return tuple(index[level] for level in sorted(levels) if level < len(index))


def split(path: Path, index: Index, depth: int, units: frozenset[int]) -> tuple[Index, Index]:
    """The temporal step of a node below ``depth`` loops, and the unit."""
    return temporal(path, index, depth), units_of(index, units)
