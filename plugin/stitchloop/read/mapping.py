"""The section ``mapping``: directives for the loops and the kept tensors of each level."""

from __future__ import annotations

from dataclasses import dataclass, field

from stitchloop.architecture import Level
from stitchloop.constraints import Constraints, LevelConstraints, LoopConstraint
from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.read.constraints import DATASPACE_TYPES, UNMODELLED_LOOP_KEYS, find_level
from stitchloop.read.fields import Field, nearest
from stitchloop.read.loops import Factor, read_factors, read_permutation, read_tensors
from stitchloop.read.source import ArchitectureSource
from stitchloop.workload import Einsum

TYPES = ("temporal", "spatial", *DATASPACE_TYPES)
LOOP_KEYS = ("target", "type", "factors", "permutation", "split", *UNMODELLED_LOOP_KEYS)
TENSOR_KEYS = ("target", "type", "keep", "bypass", "no_coalesce")


@dataclass
class _Directives:
    """What the mapping says of one level."""

    temporal: Field | None = None
    spatial: Field | None = None
    keep: set[str] = field(default_factory=set)
    bypass: set[str] = field(default_factory=set)


def read_mapping(
    section: Field,
    source: ArchitectureSource,
    einsum: Einsum,
    node_constraints: Constraints | None = None,
) -> tuple[Mapping, list[str]]:
    """Read a mapping of one Einsum.

    A missing directive or rank means factor 1; a missing permutation is padded in the problem's order; without ``split``
    every spatial loop is on X; factor 0 means the whole rank; what is not bypassed is kept. Whether the factors multiply
    to the rank sizes is for the model to say.

    Parameters
    ----------
    node_constraints : Constraints, optional
        Constraints inside the nodes of a v0.4 architecture: as in Timeloop's front end, they fill in what the mapping
        leaves open.

    Returns
    -------
    Mapping and warnings

    Raises
    ------
    InputError
    """
    listed = section.get("targets") or section.get("nodes") or section if isinstance(section.value, dict) else section
    levels = source.architecture.levels
    directives = {level.name: _Directives() for level in levels}
    warnings: list[str] = []
    tensors = tuple(tensor.name for tensor in einsum.tensors)
    for item in listed.items():
        _take(item, source, tensors, directives, warnings)
    result = []
    for index, level in enumerate(levels):
        constraints = node_constraints.levels[index] if node_constraints is not None else LevelConstraints()
        result.append(_level(level, directives[level.name], einsum, constraints))
    return Mapping(tuple(result)), warnings


def _take(
    item: Field, source: ArchitectureSource, tensors: tuple[str, ...], directives: dict[str, _Directives], warnings: list[str]
) -> None:
    kind = item.need("type", "give a type: " + ", ".join(TYPES)).text()
    if kind not in TYPES:
        item.need("type").fail(f"directive of type '{kind[:60]}'", nearest(kind, TYPES, "types are"))
    item.known(LOOP_KEYS if kind in ("temporal", "spatial") else TENSOR_KEYS)
    target = item.need("target")
    level = find_level(target, source, is_spatial=kind == "spatial")
    mine = directives[level.name]
    for key in (*UNMODELLED_LOOP_KEYS, "no_coalesce"):
        if item.get(key) is not None and item.value[key]:
            warnings.append(f"{item.place}: '{key}' is not modelled and changes nothing")
    if kind in ("temporal", "spatial"):
        before = getattr(mine, kind)
        if before is not None:
            item.fail(f"a second {kind} directive for {level.name} (the first: {before.place})", "keep one of them")
        setattr(mine, kind, item)
        return
    keep, bypass = read_tensors(item.get("keep"), tensors), read_tensors(item.get("bypass"), tensors)
    if both := (mine.keep | keep) & (mine.bypass | bypass):
        item.fail(f"'{min(both)}' both kept and bypassed at {level.name}", "keep it or bypass it")
    if level.is_fanout and keep:
        item.fail(f"'{min(keep)}' kept at {level.name}, a fan-out that stores nothing", "keep it at a storage level")
    mine.keep |= keep
    mine.bypass |= bypass


def _level(level: Level, directives: _Directives, einsum: Einsum, constraints: LevelConstraints) -> LevelMapping:
    kept: frozenset[str] = frozenset()
    if not level.is_fanout:
        bypassed = directives.bypass | (constraints.bypass - directives.keep)
        kept = frozenset(tensor.name for tensor in einsum.tensors if tensor.name not in bypassed)
    temporal, _ = _loops(directives.temporal, einsum, constraints.temporal)
    spatial, split = _loops(directives.spatial, einsum, constraints.spatial)
    if directives.spatial is not None and level.fanout_x * level.fanout_y == 1 and any(loop.bound > 1 for loop in spatial):
        found = f"spatial loops at {level.name}, which has no fan-out below it"
        directives.spatial.fail(found, "move them to a level with a fan-out")
    return LevelMapping(
        temporal=_without_ones(temporal),
        spatial_x=_without_ones(spatial[:split]),
        spatial_y=_without_ones(spatial[split:]),
        keep=kept,
    )


def _without_ones(loops: list[Loop]) -> tuple[Loop, ...]:
    return tuple(loop for loop in loops if loop.bound > 1)


def _loops(directive: Field | None, einsum: Einsum, constraint: LoopConstraint) -> tuple[list[Loop], int]:
    """One loop for each rank, innermost first, and how many of them are on X."""
    factors = {factor.rank: (factor.value, 0) for factor in constraint.factors if factor.relation == "="}
    order, outer, split = list(constraint.permutation), list(constraint.outer), constraint.split
    if directive is not None:
        given = directive.get("factors")
        for factor in read_factors(given, einsum.ranks) if given is not None else ():
            factors[factor.rank] = _bound(factor, einsum, directive)
        given = directive.get("permutation")
        if given is not None:
            permutation = read_permutation(given, einsum.ranks)
            order, outer = list(permutation.inner), list(permutation.outer)
        given = directive.get("split")
        split = given.integer(least=0) if given is not None else split
    order += [rank for rank in einsum.ranks if rank not in order and rank not in outer] + outer
    return [Loop(rank, *factors.get(rank, (1, 0))) for rank in order], len(order) if split is None else min(split, len(order))


def _bound(factor: Factor, einsum: Einsum, directive: Field) -> tuple[int, int]:
    if factor.relation != "=":
        found = f"'{factor.rank}{factor.relation}{factor.value}' in a mapping"
        directive.fail(found, f"give the factor: {factor.rank}={factor.value}")
    value = factor.value or einsum.sizes[factor.rank]
    if factor.last > value:
        directive.fail(f"a last pass of {factor.last} for {factor.rank}={value}", f"the last pass is at most {value}")
    return value, 0 if factor.last == value else factor.last
