"""What each Einsum computes in which iteration: its ranks as axes, derived from what its readers need."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stitchloop.fused.reference.axis import (
    Axis,
    Loop,
    first_block,
    first_only,
    last_block,
    levels_of,
    newly_visited,
    silent,
    slides,
    summed,
    tiled,
    truncated,
)
from stitchloop.fused.reference.sets import EMPTY, interval, size
from stitchloop.fused.rules import Rules
from stitchloop.fused.structure import BranchPoint, Path, StoragePoint, Structure
from stitchloop.workload import Tensor


class NotSeparable(Exception):
    """The counts of this tree are no products over axes; it must be stepped through."""


@dataclass(frozen=True)
class Space:
    """An Einsum's iteration space as its loops visit it.

    Attributes
    ----------
    ranks : dict
        The axis of each rank of the Einsum.
    idle : tuple of Axis
        Loops above that cut no rank of the Einsum, each iteration of which it runs again in full.
    gates : frozenset of int
        Levels of loops above in whose first iteration only it runs.
    skips : bool
        It also leaves out iterations in which nothing is missing.
    computed : int
        Points of the intermediate that it computes, each as often as it is computed.
    restarts : frozenset of int
        Levels of the loops above at whose steps nothing of the intermediate is kept.
    """

    ranks: dict[str, Axis]
    idle: tuple[Axis, ...] = ()
    gates: frozenset[int] = frozenset()
    skips: bool = False
    computed: int = 0
    restarts: frozenset[int] = frozenset()

    def seen_from(self, depth: int) -> Space:
        """The space as the loops above ``depth`` step through it."""
        return replace(
            self,
            ranks={rank: truncated(axis, depth) for rank, axis in self.ranks.items()},
            idle=tuple(axis for axis in (truncated(axis, depth) for axis in self.idle) if levels_of(axis)),
        )

    def dimensions(self, tensor: Tensor) -> tuple[Axis, ...]:
        """The axis of each rank of a tensor; raises :class:`NotSeparable` if two of them share a rank of the Einsum."""
        used = [term.rank for terms in tensor.projection for term in terms]
        if len(used) != len(set(used)):
            raise NotSeparable(f"{tensor.name}: a rank stands in two dimensions")
        return tuple(summed([(term.coefficient, self.ranks[term.rank]) for term in terms]) for terms in tensor.projection)

    def others(self, tensor: Tensor) -> tuple[Axis, ...]:
        """Silent axes of all loops that do not index the tensor."""
        axes = tuple(silent(axis) for rank, axis in self.ranks.items() if rank not in tensor.ranks and levels_of(axis))
        return axes + self.idle


def spaces(structure: Structure, rules: Rules) -> dict[str, Space]:
    """The space of every Einsum of a tree.

    Blocks of intermediates that stand inside a sequential branch may be lost to another branch, which runs or not
    depending on what is lost: starting from nothing lost, losses are added until they stay the same.
    """
    lost: dict[str, frozenset[int]] = {}
    while True:
        found: dict[str, Space] = {}
        for name in structure.upstream_order:
            found[name] = _space(structure, rules, name, found, lost)
        now = _losses(structure, found) if rules.refetch else {}
        if now == lost:
            return found
        lost = {name: levels | lost.get(name, frozenset()) for name, levels in now.items()}


def _space(structure: Structure, rules: Rules, name: str, known: dict[str, Space], lost: dict[str, frozenset[int]]) -> Space:
    path, joint = structure.paths[name], structure.joint(name)
    space = Space({rank: interval(extent) for rank, extent in path.einsum.sizes.items()})
    if joint is not None:
        space = _derived(structure, rules, path, joint, known, lost)
    ranks = dict(space.ranks)
    start = joint.depth if joint else 0
    for level, loop in enumerate(path.loops[start:], start):
        ranks[loop.rank] = tiled(ranks[loop.rank], level, loop.tile_shape)
    return replace(space, ranks=ranks)


def _derived(
    structure: Structure, rules: Rules, path: Path, joint: BranchPoint, known: dict[str, Space], lost: dict[str, frozenset[int]]
) -> Space:
    """The space of an Einsum at the branch where its own loops begin: what computes the missing part of its output."""
    outputs = structure.intermediates(path.einsum.name)
    if len(outputs) != 1:
        raise NotSeparable(f"{path.einsum.name} has {len(outputs)} outputs that others read")
    output = path.einsum.tensor(outputs[0])
    need = _need(structure, output.name, joint.depth, known)
    memory = _memory(rules, path, output.name, joint, need, lost.get(output.name, frozenset()))
    if any(slides(axis, memory.apart, memory.held) for axis in need.dimensions):
        raise NotSeparable("units side by side slide along one dimension")
    missing = tuple(newly_visited(axis, memory.depth, memory.held, memory.apart) for axis in need.dimensions)
    idle = tuple(first_only(axis, memory.held) for axis in need.idle)
    if any(axis == EMPTY for axis in missing):
        raise NotSeparable(f"{path.einsum.name} never runs")
    computed = 1
    for axis in (*missing, *idle):
        computed *= visits(axis)
    return Space(
        _writing(path, output, missing),
        tuple(axis for axis in idle if levels_of(axis)),
        need.gates | frozenset(level for axis in need.idle for level in levels_of(axis) & memory.held if _repeats(axis, level)),
        need.skips or any(_leaves(old) != _leaves(new) for old, new in zip(need.dimensions, missing, strict=True)),
        computed,
        frozenset(range(joint.depth)) - memory.held,
    )


def _writing(path: Path, output: Tensor, missing: tuple[Axis, ...]) -> dict[str, Axis]:
    """The points of an Einsum's ranks that write the missing part of its output."""
    ranks: dict[str, Axis] = {rank: interval(extent) for rank, extent in path.einsum.sizes.items()}
    written = [term.rank for terms in output.projection for term in terms]
    if len(set(written)) != len(written):
        raise NotSeparable(f"{path.einsum.name} writes a diagonal of {output.name}")
    for terms, axis in zip(output.projection, missing, strict=True):
        if len(terms) == 1 and terms[0].coefficient == 1:
            ranks[terms[0].rank] = axis
        elif terms or levels_of(axis):
            raise NotSeparable(f"{path.einsum.name} writes {output.name} at a sum of ranks")
    return ranks


@dataclass(frozen=True)
class _Need:
    dimensions: tuple[Axis, ...]
    idle: tuple[Axis, ...]
    gates: frozenset[int]
    skips: bool


def _need(structure: Structure, tensor: str, depth: int, known: dict[str, Space]) -> _Need:
    """What the readers of an intermediate need in each iteration of the loops above the branch."""
    needs = []
    for reader in structure.readers[tensor]:
        space = known[reader].seen_from(depth)
        access = structure.paths[reader].einsum.tensor(tensor)
        needs.append(_Need(space.dimensions(access), space.others(access), space.gates, space.skips))
    if any(need != needs[0] for need in needs):
        raise NotSeparable(f"the readers of {tensor} need different parts of it")
    return needs[0]


@dataclass(frozen=True)
class _Memory:
    """How long an intermediate stays: per block of the loops from ``depth`` on, and over the steps of the loops ``held``.

    A loop's step either always keeps what the next block shares with the last one, or never.
    """

    depth: int
    held: frozenset[int]
    apart: frozenset[int] = frozenset()


def _memory(rules: Rules, path: Path, tensor: str, joint: BranchPoint, need: _Need, lost: frozenset[int]) -> _Memory:
    points = path.storages_of(tensor)
    if not rules.keep_unchanged:
        return _memory_of_looptree(path, points, joint)
    point = points[0]
    apart = path.unit_levels(point, tensor, common=rules.same_units)
    inside = frozenset(range(point.depth, joint.depth)) - apart
    if not point.node.exploits_reuse:
        return _Memory(point.depth, inside, apart)
    kept = set()
    for level in range(point.depth):
        if level in lost or level in path.spatial_levels:
            continue
        others = [axis for axis in need.dimensions if level not in levels_of(axis)]
        if all(_stays(axis, level, point.depth, apart) for axis in others):
            kept.add(level)
    return _Memory(point.depth, inside | kept, apart)


def _memory_of_looptree(path: Path, points: tuple[StoragePoint, ...], joint: BranchPoint) -> _Memory:
    """The first node that exploits reuse decides; the step of the loop right above it keeps the block."""
    shared = [point for point in points if point.node.exploits_reuse and len(point.address) <= len(joint.address)]
    if not shared:
        return _Memory(joint.depth, frozenset())
    depth = shared[0].depth
    within = max((branch.depth for branch in path.branch_above(shared[0])), default=0)
    right_above = frozenset({depth - 1}) if depth > within else frozenset()
    return _Memory(depth, frozenset(range(depth, joint.depth)) | right_above)


def _stays(axis: Axis, level: int, depth: int, apart: frozenset[int]) -> bool:
    """Whether the loops from ``level`` to ``depth``, starting anew, always come back to the block that they ended with."""
    if isinstance(axis, Loop) and (axis.level < level or axis.level in apart or axis.trips == 1):
        return all(_stays(run.tree, level, depth, apart) for run in axis.runs)
    if isinstance(axis, Loop) and axis.level < depth and axis.levels & apart:
        raise NotSeparable("units side by side step along one dimension")
    return first_block(axis, depth) == last_block(axis, depth)


def _losses(structure: Structure, known: dict[str, Space]) -> dict[str, frozenset[int]]:
    """Levels at whose steps an intermediate's block is lost because another sequential branch runs in its space."""
    found = {}
    for name in structure.upstream_order:
        for output in structure.intermediates(name):
            path = structure.paths[name]
            point = path.storages_of(output)[0]
            reader = structure.readers[output][0]
            levels = set()
            for branch in path.branch_above(point):
                for level in range(branch.depth):
                    if losing_conditions(structure, known, reader, branch, level):
                        levels.add(level)
            found[output] = frozenset(levels)
    return {name: levels for name, levels in found.items() if levels}


def losing_conditions(
    structure: Structure, known: dict[str, Space], einsum: str, branch: BranchPoint, level: int
) -> list[frozenset[int]]:
    """When what ``einsum`` left in its branch is lost as the loop at ``level`` steps on.

    One set of levels per other Einsum that may run in between: it does if the loops at these levels are in their first
    iteration; the empty set means that it always runs. No set: nothing runs in between.
    """
    if branch.kind != "sequential":
        return []
    own = branch.members[branch.index]
    heads = structure.heads(branch.group)
    if any(head not in own for head in heads):
        return [frozenset()]
    gates = known[einsum].gates
    conditions = []
    for other in branch.group:
        if other in own:
            continue
        if known[other].skips or known[einsum].skips:
            raise NotSeparable(f"{other} or {einsum} leaves out iterations")
        if any(gate > level and gate not in known[other].gates and gate < branch.depth for gate in gates):
            raise NotSeparable(f"{other} runs while {einsum} does not")
        if level not in known[other].gates:
            conditions.append(frozenset(gate for gate in known[other].gates - gates if gate < level))
    return conditions


def visits(axis: Axis) -> int:
    """Points over all leaves, each as often as it is visited."""
    if not isinstance(axis, Loop):
        return size(axis)
    return sum(run.count * visits(run.tree) for run in axis.runs)


def _leaves(axis: Axis) -> int:
    if not isinstance(axis, Loop):
        return 1 if axis else 0
    return sum(run.count * _leaves(run.tree) for run in axis.runs)


def _repeats(axis: Axis, level: int) -> bool:
    """Whether the loop at ``level`` has more than one iteration anywhere."""
    if not isinstance(axis, Loop):
        return False
    if axis.level == level:
        return axis.trips > 1
    return any(_repeats(run.tree, level) for run in axis.runs)
