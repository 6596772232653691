"""What one fusion group moves over DRAM, with the Einsums that it is moved for, and sums of it by cause."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.crossing import group_crossing

Kind = Literal["inter", "weight", "state"]
_KINDS: dict[str, Kind] = {"activation": "inter", "weight": "weight", "state": "state"}


@dataclass(frozen=True)
class Move:
    """One tensor that crosses DRAM, whole and once.

    Attributes
    ----------
    tensor : str
    einsums : tuple of str
        The group's Einsums that read it or, for a write, the one that makes it; for a state's initial and final value those
        of the tensor that carries it.
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


def moves_of(cascade: Cascade, group: Sequence[str], spilled: Collection[str] = ()) -> tuple[Move, ...]:
    """Everything that one group must move over DRAM, reads before writes (see :mod:`stitchloop.cascade.crossing`)."""
    carrier = {name: state.tensor for state in cascade.states for name in (state.initial, state.final) if isinstance(name, str)}
    found = group_crossing(cascade, group, spilled)
    moves = []
    for is_write, transfers in ((False, found.reads), (True, found.writes)):
        for transfer in transfers:
            tensor = carrier.get(transfer.tensor, transfer.tensor)
            sides = {
                name: cascade.einsum(name).output_tensors if is_write else cascade.einsum(name).input_tensors for name in group
            }
            users = tuple(name for name, tensors in sides.items() if tensor in tensors)
            moves.append(Move(transfer.tensor, users, transfer.words, is_write, _KINDS[transfer.kind]))
    return tuple(moves)


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


def volume(moves: Iterable[Move]) -> Volume:
    """The sum of some moves."""
    words: dict[str, float] = {"inter": 0.0, "weight": 0.0, "state": 0.0}
    for move in moves:
        words[move.kind] += move.words
    return Volume(**words)


def grouping_volume(cascade: Cascade, groups: Iterable[Sequence[str]], spilled: Collection[str] = ()) -> Volume:
    """The sum over all groups."""
    return sum((volume(moves_of(cascade, group, spilled)) for group in groups), Volume())
