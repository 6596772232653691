"""Constraints on the mapspace: inside architecture nodes, and as lists of targets in sections of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from stitchloop.architecture import Level
from stitchloop.constraints import Constraints, FactorConstraint, LevelConstraints, LoopConstraint
from stitchloop.errors import InputError, Place
from stitchloop.read.fields import Field, nearest
from stitchloop.read.loops import Permutation, read_factors, read_permutation, read_ranks, read_tensors
from stitchloop.read.source import ArchitectureSource, NodeConstraints, ParallelNode, unknown_target
from stitchloop.workload import Einsum

DATASPACE_TYPES = ("dataspace", "datatype", "bypass", "bypassing")
PARALLELISM_TYPES = ("utilization", "parallelism")
TYPES = ("temporal", "spatial", *DATASPACE_TYPES, *PARALLELISM_TYPES, "max_overbooked_proportion")
COMMON_KEYS = ("type", "target", "name", "attributes", "version")
LOOP_KEYS = (
    *("factors", "permutation", "split", "factors_only", "no_iteration_over_dataspaces", "no_iteration_over_dims"),
    *("must_iterate_over_dataspaces", "maximize_dims", "maximize_dims_capacity", "remove_sequential_factors"),
    *("default_max_factor", "default_min_factor"),
)
UNMODELLED_LOOP_KEYS = (
    *("remainders", "no_reuse", "no_link_transfer", "rmw_first_update", "no_multicast_no_reduction", "no_temporal_reuse"),
)
DATASPACE_KEYS = ("keep", "bypass", "keep_only", "bypass_only", "must_keep", "no_coalesce")


@dataclass
class LoopNotes:
    """Loop constraints of one level, gathered from every place that gives some."""

    factors: dict[tuple[str, str], FactorConstraint] = field(default_factory=dict)
    permutation: Permutation = Permutation()
    permutation_place: Place | None = None
    split: int | None = None
    split_place: Place | None = None
    maximize: tuple[tuple[str, ...], ...] = ()
    maximize_capacity: int | None = None
    remove_sequential_factors: bool = False
    place: Place = Place()

    def add_factor(self, factor: FactorConstraint) -> None:
        """Add one; a different value of the same relation, or a bound that excludes the fixed value, is an error."""
        before = self.factors.get((factor.rank, factor.relation))
        if before is not None and before.value != factor.value:
            raise _contradiction(factor, before)
        self.factors[factor.rank, factor.relation] = factor
        fixed = self.factors.get((factor.rank, "="))
        low, high = self.factors.get((factor.rank, ">=")), self.factors.get((factor.rank, "<="))
        if low and high and low.value > high.value:
            raise _contradiction(factor, low if factor is high else high)
        for bound in (low, high):
            if fixed and bound and (fixed.value < bound.value if bound is low else fixed.value > bound.value):
                raise _contradiction(factor, fixed if factor is not fixed else bound)

    def frozen(self) -> LoopConstraint:
        return LoopConstraint(
            factors=tuple(self.factors.values()),
            permutation=self.permutation.inner,
            outer=self.permutation.outer,
            split=self.split,
            maximize=self.maximize,
            maximize_capacity=self.maximize_capacity,
            remove_sequential_factors=self.remove_sequential_factors,
            place=self.place,
        )


@dataclass
class LevelNotes:
    """All constraints of one level while they are gathered."""

    level: Level
    temporal: LoopNotes = field(default_factory=LoopNotes)
    spatial: LoopNotes = field(default_factory=LoopNotes)
    keep: dict[str, Place] = field(default_factory=dict)
    bypass: dict[str, Place] = field(default_factory=dict)
    no_coalesce: frozenset[str] = frozenset()
    min_parallelism: float = 0.0
    max_parallelism: float = 1.0
    max_overbooked: float = 0.0
    place: Place = Place()

    def add_tensors(self, keep: Iterable[str], bypass: Iterable[str], place: Place) -> None:
        for mine, others, names in ((self.keep, self.bypass, keep), (self.bypass, self.keep, bypass)):
            for name in names:
                if name in others:
                    found = f"'{name}' both kept and bypassed at {self.level.name} (the other place: {others[name]})"
                    raise InputError(place, found, "keep it or bypass it")
                mine.setdefault(name, place)

    def frozen(self) -> LevelConstraints:
        return LevelConstraints(
            temporal=self.temporal.frozen(),
            spatial=self.spatial.frozen(),
            keep=frozenset(self.keep),
            bypass=frozenset(self.bypass),
            no_coalesce=self.no_coalesce,
            min_parallelism=self.min_parallelism,
            max_parallelism=self.max_parallelism,
            min_utilization=self.level.min_utilization,
            max_overbooked=self.max_overbooked,
            place=self.place,
        )


def _contradiction(one: FactorConstraint, other: FactorConstraint) -> InputError:
    found = f"{one.rank}{one.relation}{one.value} against {other.rank}{other.relation}{other.value} (there: {other.place})"
    return InputError(one.place, found, "keep one of the two constraints")


class ConstraintReader:
    """Gathers constraints for one architecture and one Einsum.

    Parameters
    ----------
    source : ArchitectureSource
    einsum : Einsum
    frontend_compatible : bool
        Put ranks of factor 1 that a spatial permutation does not list first, as Timeloop's front end does, so that they
        take up positions before ``split``.
    """

    def __init__(self, source: ArchitectureSource, einsum: Einsum, frontend_compatible: bool = False) -> None:
        self.source, self.einsum, self.frontend_compatible = source, einsum, frontend_compatible
        self.tensors = tuple(tensor.name for tensor in einsum.tensors)
        self.notes = {level.name: LevelNotes(level) for level in source.architecture.levels}
        self.warnings: list[str] = []

    def read_nodes(self) -> None:
        """Take up the constraints inside the nodes of a v0.4 tree, and what ``!Parallel`` implies for bypassing."""
        for node in self.source.constraints:
            written = node.written
            if isinstance(written.value, list):
                for item in written.items():
                    self._node_part(item.need("type").text(), item, node)
                continue
            written.known((*TYPES, "version", "dataspaces"))
            for kind, part in written.entries():
                if kind != "version" and part.value not in ({}, []):
                    self._node_part("dataspace" if kind == "dataspaces" else kind, part, node)
        for group in reversed(self.source.parallel):
            self._split_tensors(group)

    def read_section(self, section: Field) -> None:
        """Take up a section with a list of targets (``architecture_constraints``, ``mapspace_constraints``, ...)."""
        listed = section
        if isinstance(section.value, Mapping):
            section.known(("version", "targets", "constraints", "template", "template_options"))
            found = section.first("targets", "constraints")
            if found is None:
                return
            listed = found
        if isinstance(listed.value, Mapping) and not listed.value:
            return
        for item in listed.items():
            nested = item.get("constraints")
            if nested is None:
                self._target(item, item)
                continue
            for constraint in nested.items():
                self._target(constraint, item)

    def constraints(self) -> Constraints:
        """Everything gathered, with spatial permutations read as asked for."""
        if not self.source.is_transpiled:
            for name in self.notes:
                self._spatial_reading(self.notes[name])
        return Constraints(tuple(self.notes[name].frozen() for name in self.source.architecture.names))

    # One constraint

    def _node_part(self, kind: str, part: Field, node: NodeConstraints) -> None:
        if kind not in TYPES:
            part.fail(f"constraint type '{kind[:60]}'", nearest(kind, TYPES, "types are"))
        target = node.spatial_level if kind == "spatial" else node.level
        if target is None:
            what = "no fan-out" if kind == "spatial" else "no level of its own"
            self.warnings.append(f"{part.place}: '{node.node}' has {what}, so that this {kind} constraint changes nothing")
            return
        self._read(kind, part, self.notes[target])

    def _target(self, item: Field, holder: Field) -> None:
        kind = item.need("type", "give a type: " + ", ".join(TYPES)).text()
        if kind not in TYPES:
            item.need("type").fail(f"constraint type '{kind}'", nearest(kind, TYPES, "types are"))
        target = holder.first("target", "name") or item.first("target", "name")
        if target is None:
            item.fail("a constraint without a target", "name a level under 'target'")
        level = find_level(target, self.source, is_spatial=kind == "spatial")
        attributes = item.get("attributes")
        self._read(kind, item if attributes is None else attributes, self.notes[level.name])

    def _read(self, kind: str, part: Field, notes: LevelNotes) -> None:
        part.mapping()
        notes.place = part.place if notes.place == Place() else notes.place
        if kind in ("temporal", "spatial"):
            part.known((*COMMON_KEYS, *LOOP_KEYS, *UNMODELLED_LOOP_KEYS))
            self._read_loops(part, notes.temporal if kind == "temporal" else notes.spatial, notes, kind == "spatial")
        elif kind in DATASPACE_TYPES:
            part.known((*COMMON_KEYS, *DATASPACE_KEYS))
            self._read_tensors(part, notes)
        elif kind in PARALLELISM_TYPES:
            part.known((*COMMON_KEYS, "min", "max"))
            least, most = part.get("min"), part.get("max")
            if least is None and most is None:
                part.fail("no 'min'", "add 'min' or 'max', a share of the instances")
            if least is not None:
                notes.min_parallelism = max(notes.min_parallelism, least.number(least=0, most=1))
            if most is not None:
                notes.max_parallelism = min(notes.max_parallelism, most.number(above=0, most=1))
        else:
            part.known((*COMMON_KEYS, "proportion"))
            notes.max_overbooked = part.need("proportion").number(least=0, most=1)
            if notes.max_overbooked:
                self.warnings.append(f"{part.place}: overbooking is not modelled; tiles have to fit")

    def _read_tensors(self, part: Field, notes: LevelNotes) -> None:
        def given(key: str) -> frozenset[str]:
            return read_tensors(part.get(key), self.tensors)

        keep, bypass = given("keep") | given("must_keep"), given("bypass")
        if part.get("keep_only") is not None:
            keep, bypass = keep | given("keep_only"), bypass | (frozenset(self.tensors) - given("keep_only"))
        if part.get("bypass_only") is not None:
            keep, bypass = keep | (frozenset(self.tensors) - given("bypass_only")), bypass | given("bypass_only")
        notes.add_tensors(self._ordered(keep), self._ordered(bypass), part.place)
        notes.no_coalesce |= given("no_coalesce")

    def _ordered(self, names: Iterable[str]) -> list[str]:
        chosen = set(names)
        return [name for name in self.tensors if name in chosen]

    # Loops

    def _read_loops(self, part: Field, loops: LoopNotes, notes: LevelNotes, is_spatial: bool) -> None:
        if loops.place == Place():
            loops.place = part.place
        self._read_factors(part, loops, notes)
        found = part.get("permutation")
        if found is not None:
            self._set_permutation(read_permutation(found, self.einsum.ranks), found.place, loops)
        split = part.get("split")
        if split is not None and not is_spatial:
            self.warnings.append(f"{split.place}: 'split' has a meaning for spatial loops only and changes nothing")
        elif split is not None:
            value = split.integer(least=0)
            if loops.split is not None and loops.split != value:
                split.fail(f"split {value} against split {loops.split} (there: {loops.split_place})", "keep one of them")
            loops.split, loops.split_place = value, split.place
        self._read_maximize(part, loops, is_spatial)
        sequential = part.get("remove_sequential_factors")
        if sequential is not None:
            loops.remove_sequential_factors = sequential.boolean()
        for key in UNMODELLED_LOOP_KEYS:
            if part.get(key) is not None and part.value[key]:
                self.warnings.append(f"{part.place}: '{key}' is not modelled and changes nothing")

    def _set_permutation(self, permutation: Permutation, place: Place, loops: LoopNotes) -> None:
        if loops.permutation_place is not None and loops.permutation != permutation and permutation != Permutation():
            found = f"a second permutation for the same loops (the first: {loops.permutation_place})"
            raise InputError(place, found, "keep one of them")
        if permutation != Permutation():
            loops.permutation, loops.permutation_place = permutation, place

    def _read_factors(self, part: Field, loops: LoopNotes, notes: LevelNotes) -> None:
        ranks, sizes = self.einsum.ranks, self.einsum.sizes
        for key in ("factors", "factors_only"):
            found = part.get(key)
            if found is None:
                continue
            for factor in read_factors(found, ranks):
                if factor.relation != "=" and factor.value < 1:
                    found.fail(f"{factor.rank}{factor.relation}{factor.value}", "bounds on factors are at least 1")
                value = factor.value if factor.value or factor.relation != "=" else sizes[factor.rank]
                if factor.relation == "=" and value > sizes[factor.rank]:
                    self.warnings.append(
                        f"{factor.place}: {factor.rank}={value} at {notes.level.name} exceeds the rank's size "
                        f"{sizes[factor.rank]} and is ignored, as Timeloop does"
                    )
                    continue
                loops.add_factor(FactorConstraint(factor.rank, factor.relation, value, factor.place))
            if key == "factors_only":
                self._fix(loops, found.place, lambda rank: (rank, "=") not in loops.factors)
        over = part.get("no_iteration_over_dataspaces")
        if over is not None:
            indexing = self._ranks_of(read_tensors(over, self.tensors))
            self._fix(loops, over.place, lambda rank: rank in indexing)
        over = part.get("no_iteration_over_dims")
        if over is not None:
            listed = read_ranks(over, ranks)
            self._fix(loops, over.place, lambda rank: rank in listed)
        over = part.get("must_iterate_over_dataspaces")
        if over is not None:
            iterated = self._ranks_of(read_tensors(over, self.tensors))
            self._fix(loops, over.place, lambda rank: rank not in iterated)
        for key, relation in (("default_max_factor", "<="), ("default_min_factor", ">=")):
            default = part.get(key)
            for rank in ranks if default is not None else ():
                if (rank, relation) not in loops.factors and (rank, "=") not in loops.factors:
                    assert default is not None
                    loops.add_factor(FactorConstraint(rank, relation, default.integer(), default.place))  # type: ignore[arg-type]

    def _fix(self, loops: LoopNotes, place: Place, chosen: Callable[[str], bool]) -> None:
        """Factor 1 for every rank that ``chosen`` picks."""
        for rank in self.einsum.ranks:
            if chosen(rank):
                loops.add_factor(FactorConstraint(rank, "=", 1, place))

    def _ranks_of(self, tensors: Iterable[str]) -> frozenset[str]:
        return frozenset(rank for name in tensors for rank in self.einsum.tensor(name).ranks)

    def _read_maximize(self, part: Field, loops: LoopNotes, is_spatial: bool) -> None:
        found, capacity = part.get("maximize_dims"), part.get("maximize_dims_capacity")
        if capacity is not None:
            loops.maximize_capacity = capacity.integer()
        if found is None or not found.value:
            return
        items = found.items() if isinstance(found.value, list | tuple) else [found]
        groups = [read_ranks(item, self.einsum.ranks) for item in items if isinstance(item.value, list | tuple)]
        loops.maximize = tuple(groups) if groups else (read_ranks(found, self.einsum.ranks),)
        if groups and len(groups) != len(items):
            found.fail("a mix of ranks and lists of ranks", "write [[R, S], [C, M]] or [C, M]")
        if not is_spatial and loops.maximize_capacity is None:
            found.fail("maximize_dims for temporal loops without a capacity", "add maximize_dims_capacity")

    # !Parallel and the front end's permutations

    def _split_tensors(self, group: ParallelNode) -> None:
        """A tensor that one branch of ``!Parallel`` keeps bypasses the other branches."""
        kept = [set().union(*(self.notes[name].keep for name in branch)) for branch in group.branches]
        for index, names in enumerate(kept):
            for other in kept[index + 1 :]:
                if names & other:
                    found = f"'{min(names & other)}' kept in two branches of !Parallel"
                    group.written.fail(found, "keep each tensor in one branch")
        inside = {name for branch in group.branches for name in branch}
        is_nested = any(other is not group and any(inside <= set(b) for b in other.branches) for other in self.source.parallel)
        missing = [name for name in self.tensors if not any(name in names for names in kept)]
        if missing and not is_nested:
            mend = "keep it in one branch, or add a !Container with 'constraints: {dataspace: {keep: [...]}}' to bypass all"
            group.written.fail(f"tensor '{missing[0]}' kept in no branch of !Parallel", mend)
        for names, branch in zip(kept, group.branches, strict=True):
            for level in branch:
                self.notes[level].add_tensors((), [name for name in self.tensors if name not in names], group.written.place)

    def _spatial_reading(self, notes: LevelNotes) -> None:
        loops = notes.spatial
        if loops.split is None or notes.level.fanout_x * notes.level.fanout_y == 1:
            return
        listed = list(loops.permutation.inner)
        trivial = [rank for (rank, _), factor in loops.factors.items() if factor.value == 1]
        trivial += [rank for rank, size in self.einsum.sizes.items() if size == 1]
        inserted: list[str] = []
        for rank in trivial:
            if rank not in listed and rank not in loops.permutation.outer and rank not in inserted:
                inserted.insert(0, rank)

        def on_x(permutation: list[str]) -> list[str]:
            return [rank for rank in permutation[: loops.split] if rank not in trivial]

        if not inserted or on_x(listed) == on_x(inserted + listed):
            return
        if self.frontend_compatible:
            loops.permutation = Permutation((*inserted, *listed), loops.permutation.outer)
            return
        mine, theirs = on_x(listed), on_x(inserted + listed)
        self.warnings.append(
            f"{loops.permutation_place or loops.place}: at {notes.level.name} split {loops.split} puts {_listing(mine)} "
            f"on X, as written; Timeloop's front end would insert {_listing(inserted)} first and put {_listing(theirs)} "
            "there (--frontend-compatible reads it so)"
        )


def _listing(names: list[str]) -> str:
    return ", ".join(names) if names else "nothing"


def find_level(target: Field, source: ArchitectureSource, *, is_spatial: bool) -> Level:
    """The level that a constraint or a mapping directive targets: by name, by a container's name, or by number.

    Raises
    ------
    InputError
        When there is no such level; the nearest name is suggested.
    """
    levels = source.architecture.levels
    if isinstance(target.value, int) and not isinstance(target.value, bool):
        return levels[target.integer(least=0, most=len(levels) - 1)]
    name = target.text()
    by_name = {level.name: level for level in levels}
    level = by_name.get(name)
    fanout = by_name.get(source.fanouts.get(name, ""))
    if is_spatial and fanout is not None and (level is None or level.fanout_x * level.fanout_y == 1):
        return fanout
    if level is not None:
        return level
    if fanout is not None and name != source.architecture.compute.name:
        return fanout
    if name in source.containers:
        target.fail(f"container '{name}', which has no fan-out and so no level", unknown_target(name, source))
    if name == source.architecture.compute.name:
        target.fail(f"compute unit '{name}', which holds no loops of this kind", "target a storage level")
    target.fail(f"no level '{name[:60]}'", unknown_target(name, source))
