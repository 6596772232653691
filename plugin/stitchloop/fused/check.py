"""Whether a list of Einsums and a LoopTree mapping of them make sense; the complaints name the node and the mend."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from stitchloop.errors import InputError, Place
from stitchloop.fused.structure import Address, Path, Structure, paths
from stitchloop.fused.tree import Branch, Compute, FusedMapping, Loop, Node, Storage
from stitchloop.text import counted
from stitchloop.workload import Einsum, Tensor, Workload


def check_workload(workload: Workload, places: Sequence[Place] = ()) -> None:
    """Check that the Einsums of a list fit together.

    Parameters
    ----------
    places : sequence of Place, optional
        Where each Einsum stands in the input.

    Raises
    ------
    InputError
        For two Einsums of one name, a tensor that two write, a tensor with different numbers of ranks or different rank
        names, a reader that reads beyond what is written, and a cycle.
    """
    places = places or [Place(None, ("problem", at)) for at in range(len(workload.einsums))]
    names = [einsum.name for einsum in workload.einsums]
    for name, place in zip(names, places, strict=True):
        if names.count(name) > 1:
            raise InputError(place, f"{names.count(name)} Einsums named '{name}'", "give each a name of its own")
    writers: dict[str, Einsum] = {}
    for einsum, place in zip(workload.einsums, places, strict=True):
        for tensor in einsum.outputs:
            if tensor.name in writers:
                found = f"'{tensor.name}' is written by '{writers[tensor.name].name}' too"
                raise InputError(place, found, "rename one of the outputs")
            writers[tensor.name] = einsum
    for einsum, place in zip(workload.einsums, places, strict=True):
        for tensor in einsum.inputs:
            _check_reader(einsum, tensor, writers.get(tensor.name), workload, place)
    _check_order(workload, writers, places)


def _check_reader(einsum: Einsum, tensor: Tensor, writer: Einsum | None, workload: Workload, place: Place) -> None:
    for other in workload.einsums:
        for twin in other.tensors:
            if twin.name == tensor.name and len(twin.projection) != len(tensor.projection):
                here = counted(len(tensor.projection), "rank")
                found = f"'{tensor.name}' has {here} here and {len(twin.projection)} in '{other.name}'"
                raise InputError(place, found, "project it onto the same ranks in every Einsum")
            if twin.name == tensor.name and twin.rank_names and tensor.rank_names and twin.rank_names != tensor.rank_names:
                here, there = ", ".join(tensor.rank_names), ", ".join(twin.rank_names)
                found = f"'{tensor.name}' has ranks {here} here and {there} in '{other.name}'"
                raise InputError(place, found, "use the same rank names in every Einsum")
    if writer is None:
        return
    written = writer.tensor(tensor.name).extents(writer.sizes)
    for at, (needs, makes) in enumerate(zip(tensor.extents(einsum.sizes), written, strict=True)):
        if needs > makes:
            rank = tensor.rank_names[at] if tensor.rank_names else f"number {at}"
            found = f"'{einsum.name}' reads {needs} along rank {rank} of '{tensor.name}' and '{writer.name}' writes {makes}"
            raise InputError(place, found, "make the rank sizes agree")


def _check_order(workload: Workload, writers: dict[str, Einsum], places: Sequence[Place]) -> None:
    before = {e.name: {writers[t.name].name for t in e.inputs if t.name in writers} for e in workload.einsums}
    done: set[str] = set()
    while len(done) < len(before):
        ready = {name for name, needed in before.items() if name not in done and needed <= done}
        if not ready:
            stuck = [name for name in before if name not in done]
            place = places[[e.name for e in workload.einsums].index(stuck[0])]
            raise InputError(place, f"the Einsums {', '.join(stuck)} need each other's outputs", "break the cycle")
        done |= ready


def checked(workload: Workload, mapping: FusedMapping, place: Place | None = None) -> Structure:
    """The structure of a tree that fits the workload.

    Parameters
    ----------
    place : Place, optional
        Where the mapping stands in the input.

    Raises
    ------
    InputError
        For a tree that does not map every Einsum once, names unknown tensors, ranks or Einsums, does not store a tensor
        that it uses, stores an intermediate inside one branch only, or cuts a rank of another Einsum than the head.
    """
    return _Checker(workload, mapping, place or Place(None, ("mapping",))).structure()


class _Checker:
    def __init__(self, workload: Workload, mapping: FusedMapping, place: Place) -> None:
        self.workload, self.mapping, self.place = workload, mapping, place
        self.einsums = {einsum.name: einsum for einsum in workload.einsums}
        self.tensors = {tensor.name for einsum in workload.einsums for tensor in einsum.tensors}

    def structure(self) -> Structure:
        self._check_sequence(self.mapping.nodes, ())
        mapped = [node.einsum for _, node in self.mapping.walk if isinstance(node, Compute)]
        for name in self.einsums:
            if mapped.count(name) != 1:
                found = f"{mapped.count(name)} compute nodes for Einsum '{name}'"
                self._fail((), found, f"add a leaf '- {{type: compute, einsum: {name}, target: ...}}' once")
        structure = Structure(self.workload, self.mapping, paths(self.workload, self.mapping))
        for path in structure.paths.values():
            self._check_storage(structure, path)
            self._check_joint(structure, path)
        self._check_loops(structure, self.mapping.nodes, (), tuple(structure.paths))
        for path in structure.paths.values():
            self._check_once(path)
        return structure

    def _fail(self, address: Address, found: str, mend: str) -> None:
        keys: list[str | int] = ["nodes"]
        for at, index in enumerate(address):
            if at and at % 2:
                keys.append("branches")
            keys.append(index)
        raise InputError(Place(self.place.file, (*self.place.path, *keys), self.place.line), found, mend)

    def _check_sequence(self, nodes: tuple[Node, ...], address: Address) -> None:
        if not nodes:
            self._fail(address, "no nodes", "end every branch with a compute node")
        for at, node in enumerate(nodes):
            here, is_last = (*address, at), at == len(nodes) - 1
            if isinstance(node, Branch | Compute) != is_last:
                kind = type(node).__name__.lower()
                found = f"a {kind} node at the end" if is_last else f"nodes after a {kind} node"
                self._fail(here, found, "end every branch with a compute node, or with a sequential or pipeline node")
            if isinstance(node, Branch):
                for index, branch in enumerate(node.branches):
                    self._check_sequence(branch, (*here, index))
            elif isinstance(node, Compute) and node.einsum not in self.einsums:
                self._fail(here, f"unknown Einsum '{node.einsum}'", f"Einsums are {', '.join(self.einsums)}")
            elif isinstance(node, Storage):
                for name in node.tensors:
                    if name not in self.tensors:
                        self._fail(here, f"unknown tensor '{name}'", f"tensors are {', '.join(sorted(self.tensors))}")

    def _check_storage(self, structure: Structure, path: Path) -> None:
        name = path.einsum.name
        for tensor in path.einsum.tensors:
            points = path.storages_of(tensor.name)
            if not points:
                self._fail((), f"no storage of '{tensor.name}' above Einsum '{name}'", "add a storage node that lists it")
            elif points[0].depth and not structure.is_intermediate(tensor.name):
                found = f"'{tensor.name}' is first stored below a loop, so that it is nowhere whole"
                self._fail(points[0].address, found, "store it above all loops too, in DRAM (target 0)")
            for outer, inner in pairwise(points):
                if inner.node.target < outer.node.target:
                    found = f"'{tensor.name}' in target {inner.node.target} inside target {outer.node.target}"
                    self._fail(inner.address, found, "order the targets from the outermost (0) inwards")
        for point in path.storages:
            users = [p for p in structure.paths.values() if point.address in [other.address for other in p.storages]]
            below = {tensor.name for p in users for tensor in p.einsum.tensors}
            unused = [name for name in point.node.tensors if name not in below]
            if unused:
                self._fail(point.address, f"'{unused[0]}' is stored above no Einsum that uses it", "drop it or move the node")

    def _check_once(self, path: Path) -> None:
        """A memory that held a tensor twice would need the space of both blocks and move nothing between them."""
        for tensor in path.einsum.tensors:
            for outer, inner in pairwise(path.storages_of(tensor.name)):
                if inner.node.target == outer.node.target:
                    self._fail(inner.address, f"'{tensor.name}' twice in target {inner.node.target}", "store it there once")

    def _check_joint(self, structure: Structure, path: Path) -> None:
        """An Einsum whose outputs are read must meet its readers at one branch, below the tensor's storage."""
        joint = structure.joint(path.einsum.name)
        for output in structure.intermediates(path.einsum.name):
            readers = structure.readers[output]
            if joint is None:
                continue
            outside = [name for name in readers if name not in joint.group]
            if outside:
                found = f"'{output}' of '{path.einsum.name}' is read by '{outside[0]}' beyond the branch where it is made"
                self._fail(joint.address, found, "put all its readers below that branch node")
            order = [any(name in members for name in readers) for members in joint.members]
            if any(order[: joint.index + 1]):
                found = f"'{path.einsum.name}' comes after a reader of '{output}'"
                self._fail(joint.address, found, "put producers before consumers")
            first = path.storages_of(output)[0].address
            if len(first) > len(joint.address):
                self._fail(
                    first, f"'{output}' is first stored inside one branch", "store it above the branch that its readers share"
                )

    def _check_loops(self, structure: Structure, nodes: tuple[Node, ...], address: Address, group: tuple[str, ...]) -> None:
        heads = structure.heads(group)
        for at, node in enumerate(nodes):
            here = (*address, at)
            if isinstance(node, Loop):
                self._check_loop(structure, node, here, heads)
            elif isinstance(node, Branch):
                members = structure.members(here)
                for index, branch in enumerate(node.branches):
                    self._check_loops(structure, branch, (*here, index), members[index])

    def _check_loop(self, structure: Structure, node: Loop, here: Address, heads: tuple[str, ...]) -> None:
        for head in heads:
            sizes = structure.paths[head].einsum.sizes
            if node.rank not in sizes:
                found = f"a loop over '{node.rank}', which is no rank of '{head}'"
                also = f"; all of {', '.join(heads)} end here, so that every loop above must be theirs" if len(heads) > 1 else ""
                self._fail(here, found + also, f"use one of {', '.join(sizes)}")
            if node.tile_shape > sizes[node.rank]:
                found = f"tile shape {node.tile_shape} of rank '{node.rank}' of size {sizes[node.rank]}"
                self._fail(here, found, f"use at most {sizes[node.rank]}")
