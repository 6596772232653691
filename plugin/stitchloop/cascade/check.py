"""Faults of a cascade that its notation allows: what is undefined, cyclic, of conflicting size, or unused."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from stitchloop.cascade.cascade import Cascade, ExtendedEinsum
from stitchloop.cascade.expression import Access, Name, walk
from stitchloop.cascade.order import find_cycle
from stitchloop.cascade.places import KeyPath, Places
from stitchloop.errors import InputError


def close_to(name: str, known: Iterable[str]) -> str:
    """`` (did you mean X?)`` when a known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def check_cascade(cascade: Cascade, places: Places, problem: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` at the first fault of a cascade that was just read from ``problem``."""
    _check_names(cascade, places, problem)
    for einsum in cascade.einsums:
        for access in einsum.inputs:
            _check_access(cascade, einsum, access, places, problem)
        _check_scalars(cascade, einsum, places, problem)
    _check_order(cascade, places, problem)
    _check_states(cascade, places, problem)
    _check_recurrences(cascade, places, problem)
    _check_outputs(cascade, places, problem)


def _einsum_error(places: Places, problem: Mapping[str, Any], einsum: str, found: str, mend: str) -> InputError:
    return places.error(einsum_path(problem, einsum), f"Einsum {einsum}: {found}", mend)


def einsum_path(problem: Mapping[str, Any], einsum: str) -> KeyPath:
    """Key path of an Einsum in the document that it was read from."""
    entry = problem["einsums"]
    if isinstance(entry, Mapping):
        return ("einsums", einsum)
    for position, item in enumerate(entry):
        name = item.get("name") if isinstance(item, Mapping) else None
        text = item if isinstance(item, str) else item.get("equation") or (item.get("equations") or [""])[0]
        if (name or str(text).split("[")[0].strip()) == einsum:
            return ("einsums", position)
    return ("einsums",)


def _check_names(cascade: Cascade, places: Places, problem: Mapping[str, Any]) -> None:
    """Names in the document's lists and sections that no equation uses, and inputs that no list holds."""
    known = [tensor.name for tensor in cascade.tensors]
    states: dict[str, set[object]] = {
        "inputs": {state.initial for state in cascade.states},
        "outputs": {state.final for state in cascade.states},
    }
    for key in ("inputs", "weights", "outputs", "tensors"):
        for name in problem.get(key) or ():
            if name not in known and name not in states.get(key, set()):
                path = (key, name) if key == "tensors" else (key,)
                raise places.error(path, f"no equation uses the tensor {name}", f"remove or rename it{close_to(name, known)}")
    for key in ("inputs", "weights", "outputs"):
        for tensor in (cascade.tensor(name) for name in problem.get(key) or () if name in known):
            if key != "outputs" and tensor.producer is not None:
                found = f"{tensor.name} is listed here, but Einsum {tensor.producer} writes it"
                raise places.error((key,), found, "remove it from the list")
            if key == "outputs" and tensor.producer is None:
                raise places.error(
                    (key,), f"{tensor.name} is listed as an output, but no Einsum writes it", "remove it or write it"
                )
    for name in set(problem.get("inputs") or ()) & set(problem.get("weights") or ()):
        raise places.error(("weights",), f"{name} is listed under inputs too", "leave it in one of the two lists")
    if "inputs" not in problem or "weights" not in problem:
        return
    listed = {*(problem["inputs"] or ()), *(problem["weights"] or ())}
    for einsum in cascade.einsums:
        for access in einsum.inputs:
            if cascade.tensor(access.tensor).producer is None and access.tensor not in listed:
                near = [name for name in known if name != access.tensor]
                mend = f"write it in an Einsum, or list it under inputs or weights{close_to(access.tensor, near)}"
                raise _einsum_error(places, problem, einsum.name, f"undefined tensor {access.tensor}", mend)


def _check_access(cascade: Cascade, einsum: ExtendedEinsum, access: Access, places: Places, problem: Mapping[str, Any]) -> None:
    tensor = cascade.tensor(access.tensor)
    if len(access.indices) != len(tensor.dimensions):
        found = f"{access} has {len(access.indices)} indices, but {tensor.name} has {len(tensor.dimensions)} dimensions"
        raise _einsum_error(places, problem, einsum.name, found, f"index it as {Access(tensor.name, tensor.dimensions)}")
    state = cascade.state(access.tensor)
    for position, (index, extent) in enumerate(zip(access.indices, cascade.shape(tensor.name), strict=True)):
        low, high = index.bounds(cascade.sizes)
        if tensor.padding is not None:
            continue
        own = tensor.dimensions[position].plain_rank
        plain = index.plain_rank
        if plain and own and plain != own and cascade.sizes[plain] != extent:
            runs = f"{access} runs over {plain} = {cascade.sizes[plain]}"
            found = f"size conflict: {runs}, but {tensor.name} has {own} = {extent} there"
            raise _einsum_error(places, problem, einsum.name, found, f"make the sizes of {own} and {plain} equal")
        if high >= extent:
            found = f"size conflict: index {index} of {access} reaches {high}, but {tensor.name} ends at {extent - 1}"
            raise _einsum_error(places, problem, einsum.name, found, "change the sizes, or give the tensor a 'padding'")
        if low < 0 and not (state and state.rank == own):
            found = f"index {index} of {access} reaches {low}"
            mend = f"declare rank {own} 'iterative: true'" if own and tensor.producer else "give the tensor a 'padding'"
            raise _einsum_error(places, problem, einsum.name, found, f"{mend}, or change the index")


def _check_scalars(cascade: Cascade, einsum: ExtendedEinsum, places: Places, problem: Mapping[str, Any]) -> None:
    known = {**cascade.sizes, **dict(cascade.constants)}
    for equation in einsum.equations:
        for node in walk(equation.expression):
            if isinstance(node, Name) and node.name not in known:
                mend = f"define it under constants, or write a tensor with its indices: {node.name}[]{close_to(node.name, known)}"
                raise _einsum_error(places, problem, einsum.name, f"undefined constant {node.name}", mend)


def _check_states(cascade: Cascade, places: Places, problem: Mapping[str, Any]) -> None:
    tensors = {tensor.name for tensor in cascade.tensors}
    for name, entry in (problem.get("tensors") or {}).items():
        if isinstance(entry, Mapping) and {"initial", "final"} & set(entry) and cascade.state(name) is None:
            found = f"{name} has a state, but no Einsum reads it at an earlier step of an iterative rank"
            raise places.error(("tensors", name), found, "remove the state, or read it at 'i-1' with I iterative")
    taken = set(tensors)
    for state in cascade.states:
        for key, name in (("initial", state.initial), ("final", state.final)):
            if isinstance(name, str) and name in taken:
                raise places.error(("tensors", state.tensor, key), f"{name} names another tensor already", "choose another name")
            if isinstance(name, str):
                taken.add(name)


def _check_order(cascade: Cascade, places: Places, problem: Mapping[str, Any]) -> None:
    for einsum in cascade.einsums:
        for access in einsum.inputs:
            if access.tensor in einsum.output_tensors and not cascade.is_carried(access):
                found = f"cyclic dependence: it reads {access}, which it writes itself"
                raise _einsum_error(places, problem, einsum.name, found, "read an earlier step of an iterative rank, such as i-1")
    cycle = find_cycle(tuple(einsum.name for einsum in cascade.einsums), cascade.predecessors)
    if cycle:
        found = f"cyclic dependence {' -> '.join(cycle)} that passes through no iterative rank"
        raise _einsum_error(places, problem, cycle[0], found, "read one of its tensors at an earlier step of an iterative rank")


def _check_recurrences(cascade: Cascade, places: Places, problem: Mapping[str, Any]) -> None:
    """Einsums in a recurrence run step by step: all write at the step, and read one another at it or before it."""
    for members in cascade.recurrences:
        written = {tensor for name in members for tensor in cascade.einsum(name).output_tensors}
        for rank in {state.rank for state in cascade.states if state.tensor in written}:
            for einsum in (einsum for einsum in cascade.einsums if einsum.name in members):
                accesses = (*einsum.outputs, *(access for access in einsum.inputs if access.tensor in written))
                for access in accesses:
                    dimensions = [index.plain_rank for index in cascade.tensor(access.tensor).dimensions]
                    if rank not in dimensions or rank not in access.indices[dimensions.index(rank)].ranks:
                        found = f"cyclic dependence through {rank}, but {access} is not indexed by {rank.lower()}"
                        raise _einsum_error(
                            places, problem, einsum.name, found, f"every Einsum of the recurrence runs along {rank}"
                        )


def _check_outputs(cascade: Cascade, places: Places, problem: Mapping[str, Any]) -> None:
    for tensor in cascade.tensors:
        state = cascade.state(tensor.name)
        if tensor.producer is None or tensor.is_output or (state is not None and state.final):
            continue
        if not set(cascade.consumers[tensor.name]) - {tensor.producer}:
            found = f"unused output {tensor.name}: no other Einsum reads it and it is not listed under outputs"
            raise _einsum_error(places, problem, tensor.producer, found, "list it under outputs, read it, or remove the Einsum")
