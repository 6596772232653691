"""What crosses DRAM for a fusion group, tensor by tensor: activations, weights and carried state, each word once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stitchloop.cascade.cascade import Cascade

Kind = Literal["inter", "weight", "state"]


@dataclass(frozen=True)
class Transfer:
    """One tensor that crosses DRAM, whole and once.

    Attributes
    ----------
    tensor : str
    einsums : tuple of str
        The group's Einsums that read it or, for a write, the one that produces it.
    words : int
    is_write : bool
    kind : 'inter', 'weight' or 'state'
        Between Einsums, inside one Einsum (its weights), or carried along an iterative rank into and out of the cascade.
    """

    tensor: str
    einsums: tuple[str, ...]
    words: int
    is_write: bool
    kind: Kind


def transfers(cascade: Cascade, group: Sequence[str], spilled: Iterable[str] = ()) -> tuple[Transfer, ...]:
    """Everything that one group must move over DRAM, reads before writes.

    A tensor that the group produces and uses up stays inside, but for the ``spilled`` ones, which go out and come back. A carried state
    whose producer and readers are all in the group crosses once in (its initial value) and once out (its final one), where the cascade
    names those tensors; else it crosses like any other tensor.
    """
    inside = set(group)
    out_of = {tensor for name in group for tensor in cascade.einsum(name).output_tensors}
    spilled_here = set(spilled) & out_of
    reads = [t for tensor, readers in _readers(cascade, group).items() for t in _read(cascade, tensor, readers, out_of, spilled_here)]
    writes: list[Transfer] = []
    for name in group:
        for tensor in cascade.einsum(name).output_tensors:
            leaves = cascade.tensor(tensor).is_output or any(reader not in inside for reader in cascade.consumers[tensor])
            if leaves or tensor in spilled_here:
                writes.append(Transfer(tensor, (name,), cascade.words(tensor), True, "inter"))
            else:
                state = cascade.state(tensor)
                if state and state.final:
                    writes.append(Transfer(state.final, (name,), cascade.state_words(state), True, "state"))
    return (*reads, *writes)


def _readers(cascade: Cascade, group: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in group:
        for tensor in cascade.einsum(name).input_tensors:
            found.setdefault(tensor, []).append(name)
    return found


def _read(cascade: Cascade, tensor: str, readers: list[str], produced: set[str], spilled: set[str]) -> list[Transfer]:
    names = tuple(readers)
    state = cascade.state(tensor)
    found = []
    if tensor not in produced or tensor in spilled:
        kind: Kind = "weight" if cascade.tensor(tensor).is_weight else "inter"
        found.append(Transfer(tensor, names, cascade.words(tensor), False, kind))
    only_earlier = state is not None and all(
        cascade.is_carried(access) for name in names for access in cascade.einsum(name).inputs if access.tensor == tensor
    )
    if state and isinstance(state.initial, str) and not (found and only_earlier):
        reads_earlier = tuple(name for name in names if _reads_earlier(cascade, name, tensor))
        if reads_earlier:
            found.append(Transfer(state.initial, reads_earlier, cascade.state_words(state), False, "state"))
    return found


def _reads_earlier(cascade: Cascade, name: str, tensor: str) -> bool:
    """Whether the Einsum reads some step of the tensor that lies before the current one."""
    state = cascade.state(tensor)
    if state is None:
        return False
    position = cascade.state_dimension(state)
    now = {**cascade.sizes, state.rank: 1}
    return any(a.indices[position].bounds(now)[0] < 0 for a in cascade.einsum(name).inputs if a.tensor == tensor)


@dataclass(frozen=True)
class Volume:
    """Words over DRAM by cause; ``+`` adds them up."""

    inter: float = 0.0
    weight: float = 0.0
    state: float = 0.0

    def __add__(self, other: Volume) -> Volume:
        return Volume(self.inter + other.inter, self.weight + other.weight, self.state + other.state)

    @property
    def total(self) -> float:
        return self.inter + self.weight + self.state

    @property
    def between_einsums(self) -> float:
        """All but the weights: what fusion can save."""
        return self.inter + self.state


def volume(moves: Iterable[Transfer]) -> Volume:
    """The sum of some transfers."""
    words: dict[str, float] = {"inter": 0.0, "weight": 0.0, "state": 0.0}
    for move in moves:
        words[move.kind] += move.words
    return Volume(**words)


def grouping_volume(cascade: Cascade, groups: Iterable[Sequence[str]], spilled: Iterable[str] = ()) -> Volume:
    """The sum over all groups."""
    total = Volume()
    for group in groups:
        total = total + volume(transfers(cascade, group, spilled))
    return total


def table(cascade: Cascade, groups: Iterable[Sequence[str]], spilled: Iterable[str] = ()) -> tuple[Mapping[str, tuple[str, ...]], ...]:
    """Per group the names that it reads, writes and reads as weights: ``{"reads": ..., "writes": ..., "weights": ...}``."""
    rows = []
    for group in groups:
        moves = transfers(cascade, group, spilled)
        rows.append(
            {
                "reads": tuple(m.tensor for m in moves if not m.is_write and m.kind != "weight"),
                "writes": tuple(m.tensor for m in moves if m.is_write),
                "weights": tuple(m.tensor for m in moves if m.kind == "weight"),
            }
        )
    return tuple(rows)
