"""What crosses DRAM at the edges of fusion groups, tensor by tensor, each word moved once.

A group reads what others wrote and the cascade's inputs, and writes what others read and the cascade's outputs. State
that an iterative rank carries is read before the first step and written after the last one; inside a group the steps in
between stay on chip. A tensor that is written whole includes its last state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from stitchloop.cascade.cascade import Cascade, State

Kind = Literal["activation", "weight", "state"]


@dataclass(frozen=True)
class Transfer:
    """``words`` of ``tensor`` moved once between DRAM and the chip."""

    tensor: str
    words: int
    kind: Kind = "activation"


@dataclass(frozen=True)
class Crossing:
    """What one group reads from DRAM and writes to it."""

    reads: tuple[Transfer, ...]
    writes: tuple[Transfer, ...]

    @cached_property
    def read_tensors(self) -> tuple[str, ...]:
        """Activations and states that are read; the weights stand apart."""
        return tuple(transfer.tensor for transfer in self.reads if transfer.kind != "weight")

    @cached_property
    def written_tensors(self) -> tuple[str, ...]:
        return tuple(transfer.tensor for transfer in self.writes)

    def words(self, *kinds: Kind) -> int:
        """Words read and written, of all kinds or of those named."""
        return sum(transfer.words for transfer in (*self.reads, *self.writes) if not kinds or transfer.kind in kinds)


def crossing(cascade: Cascade, groups: Iterable[Sequence[str]], spilled: Collection[str] = ()) -> tuple[Crossing, ...]:
    """Reads and writes of each group.

    Parameters
    ----------
    cascade : Cascade
    groups : iterable of sequences of str
        Einsum names; each Einsum in exactly one group.
    spilled : collection of str
        Tensors that are written out and read back even where one group both makes and uses them.
    """
    return tuple(group_crossing(cascade, tuple(group), spilled) for group in groups)


def group_crossing(cascade: Cascade, group: Sequence[str], spilled: Collection[str] = ()) -> Crossing:
    """Reads and writes of one group; all other Einsums are outside it, whatever groups they are in."""
    return Crossing(tuple(_reads(cascade, group, spilled)), tuple(_writes(cascade, group, spilled)))


def _reads(cascade: Cascade, group: Sequence[str], spilled: Collection[str]) -> list[Transfer]:
    transfers, members = [], set(group)
    tensors = dict.fromkeys(tensor for name in group for tensor in cascade.einsum(name).input_tensors)
    for name in tensors:
        tensor, state = cascade.tensor(name), cascade.state(name)
        if tensor.producer not in members or name in spilled:
            words = _words_read(cascade, group, name, state)
            if words:
                transfers.append(Transfer(name, words, "weight" if tensor.is_weight else "activation"))
        if state is not None and isinstance(state.initial, str) and _reads_state(cascade, group, state):
            transfers.append(Transfer(state.initial, cascade.state_words(state), "state"))
    return transfers


def _words_read(cascade: Cascade, group: Sequence[str], tensor: str, state: State | None) -> int:
    """Words of a tensor that come from DRAM: without the last steps when only earlier ones are read."""
    words = cascade.words(tensor)
    if state is None:
        return words
    size, dimension = cascade.sizes[state.rank], cascade.state_dimension(state)
    accesses = (access for name in group for access in cascade.einsum(name).inputs if access.tensor == tensor)
    steps = max(access.indices[dimension].bounds(cascade.sizes)[1] + 1 for access in accesses)
    return words // size * max(0, min(steps, size))


def _reads_state(cascade: Cascade, group: Sequence[str], state: State) -> bool:
    dimension = cascade.state_dimension(state)
    return any(
        access.tensor == state.tensor and access.indices[dimension].bounds(cascade.sizes)[0] < 0
        for name in group
        for access in cascade.einsum(name).inputs
    )


def _writes(cascade: Cascade, group: Sequence[str], spilled: Collection[str]) -> list[Transfer]:
    transfers, members = [], set(group)
    for name in (tensor for einsum in group for tensor in cascade.einsum(einsum).output_tensors):
        read_elsewhere = any(consumer not in members for consumer in cascade.consumers[name])
        state = cascade.state(name)
        if read_elsewhere or cascade.tensor(name).is_output or name in spilled:
            transfers.append(Transfer(name, cascade.words(name)))
        elif state is not None and state.final is not None:
            transfers.append(Transfer(state.final, cascade.state_words(state), "state"))
    return transfers
