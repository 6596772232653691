"""What each Einsum computes in which iteration: its ranks as axes, derived from what its readers need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from stitchloop.fused.reference.axis import (
    Axis,
    Loop,
    first_block,
    first_only,
    last_block,
    levels_of,
    newly_visited,
    slides,
    tiled,
)
from stitchloop.fused.reference.needs import Need, Space, common_part, leaves, needed, visits
from stitchloop.fused.reference.sets import EMPTY, NotSeparable, interval
from stitchloop.fused.rules import Rules
from stitchloop.fused.structure import Address, BranchPoint, Path, StoragePoint, Structure
from stitchloop.workload import Tensor


@dataclass(frozen=True)
class _Known:
    """Spaces found so far, and where several branches restrict an Einsum, those that the outer ones alone leave."""

    spaces: dict[str, Space]
    stages: dict[tuple[str, Address], Space]

    def at(self, name: str, branch: BranchPoint) -> Space:
        """The space of an Einsum as the loops above a branch determine it."""
        return self.stages.get((name, branch.address), self.spaces[name])


def spaces(structure: Structure, rules: Rules) -> dict[str, Space]:
    """The space of every Einsum of a tree.

    Blocks of intermediates that stand inside a sequential branch may be lost to another branch, which runs or not
    depending on what is lost: starting from nothing lost, losses are added until they stay the same.
    """
    lost: dict[str, frozenset[int]] = {}
    while True:
        found: dict[str, Space] = {}
        known = _Known(found, {})
        for name in structure.upstream_order:
            found[name] = _space(structure, rules, name, known, lost)
        now = _losses(structure, rules, found) if rules.refetch else {}
        if now == lost:
            return found
        lost = {name: levels | lost.get(name, frozenset()) for name, levels in now.items()}


def _space(structure: Structure, rules: Rules, name: str, known: _Known, lost: dict[str, frozenset[int]]) -> Space:
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
    structure: Structure, rules: Rules, path: Path, joint: BranchPoint, known: _Known, lost: dict[str, frozenset[int]]
) -> Space:
    """The space of an Einsum at the branch where its own loops begin: what computes the missing part of its output."""
    joints = structure.joints(path.einsum.name)
    followed = [structure.common_input(point.group) for point in joints if not rules.follow_needs]
    if not any(followed):
        return _filling(structure, rules, path, joint, known, lost)
    space, so_far = Space({}), []
    for point, common in zip(joints, followed, strict=True):
        if common is None:
            space = _filling(structure, rules, path, point, known, lost)
        else:
            space = _following(structure, path, point, common, known)
        so_far.append(Need(tuple(space.ranks.values()), space.idle, space.gates, space.skips))
        both = common_part(path.einsum.name, so_far)
        ranks = dict(zip(path.einsum.ranks, both.dimensions, strict=True))
        space = known.stages[path.einsum.name, point.address] = replace(space, ranks=ranks, idle=both.idle, skips=both.skips)
    return space


def _filling(
    structure: Structure, rules: Rules, path: Path, joint: BranchPoint, known: _Known, lost: dict[str, frozenset[int]]
) -> Space:
    """The space of an Einsum at a branch: what computes the part of its output that the readers miss."""
    outputs = structure.intermediates(path.einsum.name)
    if len(outputs) != 1:
        raise NotSeparable(f"{path.einsum.name} has {len(outputs)} outputs that others read")
    output = path.einsum.tensor(outputs[0])
    readers = structure.readers[output.name]
    spaces = {reader: known.at(reader, joint) for reader in readers}
    needs = [needed(structure, output.name, some, joint.depth, spaces) for some in _together(rules, readers)]
    lost_levels = lost.get(output.name, frozenset())
    memories = [_memory(rules, path, output.name, joint, need, lost_levels) for need in needs]
    missing = common_part(output.name, list(map(_missing, needs, memories)))
    return Space(
        _touching(path, output, missing.dimensions),
        tuple(axis for axis in missing.idle if levels_of(axis)),
        missing.gates,
        missing.skips,
        prod(visits(axis) for axis in (*missing.dimensions, *missing.idle)),
        frozenset(range(joint.depth)) - memories[0].held,
    )


def _together(rules: Rules, readers: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The readers whose needs count as one; LoopTree looks at what is missing for each apart, and computes what all lack."""
    return [readers] if rules.unite_readers else [(reader,) for reader in readers]


def _missing(need: Need, memory: _Memory) -> Need:
    """What of a need the memory does not hold."""
    if any(slides(axis, memory.apart, memory.held) for axis in need.dimensions):
        raise NotSeparable("units side by side slide along one dimension")
    dimensions = tuple(newly_visited(axis, memory.depth, memory.held, memory.apart) for axis in need.dimensions)
    idle = tuple(first_only(axis, memory.held) for axis in need.idle)
    if any(axis == EMPTY for axis in dimensions):
        raise NotSeparable("nothing is missing at any time")
    stopped = frozenset(level for axis in need.idle for level in levels_of(axis) & memory.held if _repeats(axis, level))
    skips = any(leaves(old) != leaves(new) for old, new in zip(need.dimensions, dimensions, strict=True))
    return Need(dimensions, idle, need.gates | stopped, need.skips or skips)


def _following(structure: Structure, path: Path, joint: BranchPoint, common: str, known: _Known) -> Space:
    """LoopTree's way with a tensor that all Einsums of a group read: what touches the head's tile of it is computed."""
    (head,) = structure.heads(joint.group)
    space = known.spaces[head].seen_from(joint.depth)
    access = structure.paths[head].einsum.tensor(common)
    idle = tuple(axis for axis in space.others(access) if levels_of(axis))
    ranks = _touching(path, path.einsum.tensor(common), space.dimensions(access))
    return Space(ranks, idle, space.gates, space.skips, restarts=frozenset(range(joint.depth)))


def _touching(path: Path, tensor: Tensor, parts: tuple[Axis, ...]) -> dict[str, Axis]:
    """The points of an Einsum's ranks that access parts of a tensor."""
    ranks: dict[str, Axis] = {rank: interval(extent) for rank, extent in path.einsum.sizes.items()}
    ranked = [term.rank for terms in tensor.projection for term in terms]
    if len(set(ranked)) != len(ranked):
        raise NotSeparable(f"{path.einsum.name} accesses a diagonal of {tensor.name}")
    for terms, axis in zip(tensor.projection, parts, strict=True):
        if len(terms) == 1 and terms[0].coefficient == 1:
            ranks[terms[0].rank] = axis
        elif terms or levels_of(axis):
            raise NotSeparable(f"{path.einsum.name} accesses {tensor.name} at a sum of ranks")
    return ranks


@dataclass(frozen=True)
class _Memory:
    """How long an intermediate stays: per block of the loops from ``depth`` on, and over the steps of the loops ``held``.

    A loop's step either always keeps what the next block shares with the last one, or never.
    """

    depth: int
    held: frozenset[int]
    apart: frozenset[int] = frozenset()


def _memory(rules: Rules, path: Path, tensor: str, joint: BranchPoint, need: Need, lost: frozenset[int]) -> _Memory:
    points = path.storages_of(tensor)
    if not rules.keep_unchanged:
        return _memory_of_looptree(path, points, joint)
    point = points[0]
    if len(point.address) > len(joint.address):
        return _Memory(joint.depth, frozenset())
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


def _losses(structure: Structure, rules: Rules, known: dict[str, Space]) -> dict[str, frozenset[int]]:
    """Levels at whose steps an intermediate's block is lost because another sequential branch runs in its space."""
    found: dict[str, frozenset[int]] = {}
    for name, path in structure.paths.items():
        joint = structure.joint(name)
        for output in structure.intermediates(name) if joint is not None else ():
            assert joint is not None
            branches = path.branch_above(path.storages_of(output)[0])
            readers = structure.readers[output] if rules.unite_readers else structure.readers[output][:1]
            need = needed(structure, output, readers, joint.depth, known) if branches else None
            levels = {
                level
                for branch in branches
                for level in range(branch.depth)
                if need is not None and losing_conditions(structure, known, need, branch, level)
            }
            if levels:
                found[output] = frozenset(levels)
    return found


def losing_conditions(
    structure: Structure, known: dict[str, Space], need: Need, branch: BranchPoint, level: int
) -> list[frozenset[int]]:
    """When what a branch left in its memory is lost as the loop at ``level`` steps on to where it is needed next.

    One set of levels per other Einsum that may run in between: it does if the loops at these levels are in their first
    iteration; the empty set means that it always runs. No set: nothing runs in between.
    """
    if branch.kind != "sequential":
        return []
    own = branch.members[branch.index]
    heads = structure.heads(branch.group)
    if any(head not in own for head in heads):
        return [frozenset()]
    gates = need.gates
    conditions = []
    for other in branch.group:
        if other in own:
            continue
        if known[other].skips or need.skips:
            raise NotSeparable(f"{' or '.join(branch.group)} leaves out iterations")
        if any(gate > level and gate not in known[other].gates and gate < branch.depth for gate in gates):
            raise NotSeparable(f"{other} runs where {', '.join(own)} does not")
        if level not in known[other].gates:
            conditions.append(frozenset(gate for gate in known[other].gates - gates if gate < level))
    return conditions


def _repeats(axis: Axis, level: int) -> bool:
    """Whether the loop at ``level`` has more than one iteration anywhere."""
    if not isinstance(axis, Loop):
        return False
    if axis.level == level:
        return axis.trips > 1
    return any(_repeats(run.tree, level) for run in axis.runs)
