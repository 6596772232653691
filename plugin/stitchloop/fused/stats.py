"""What evaluating a fused mapping gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from stitchloop.fused.rules import Convention

Access: TypeAlias = tuple[int, str, str]
"""(target, tensor, Einsum)."""
Quantity: TypeAlias = Literal["capacity", "reads", "writes", "operations"]


@dataclass(frozen=True)
class Difference:
    """One figure that the two conventions count differently, and why."""

    quantity: Quantity
    key: int | str | Access
    sound: int
    looptree: int
    reason: str

    @property
    def figure(self) -> str:
        """The figure's name: ``reads 1/S/Producer``."""
        return f"{self.quantity} {_joined(self.key) if isinstance(self.key, tuple) else self.key}"

    def __str__(self) -> str:
        return f"{self.figure}: sound {self.sound}, LoopTree {self.looptree}: {self.reason}"


@dataclass(frozen=True)
class FusedStats:
    """Counts of one fused mapping, in words, over the whole workload.

    Attributes
    ----------
    capacity : mapping
        Words that each target needs (per unit, where spatial loops make several); 0 is DRAM.
    reads, writes : mapping
        Words by (target, tensor, Einsum), added up over the units.
    operations : mapping
        Points of the iteration space that each Einsum computes, recomputation included.
    capacity_varies : frozenset of int
        Targets in which a block is not of one size throughout; ``capacity`` is the maximum.
    differences : tuple of Difference
        Where the other convention counts otherwise.
    """

    convention: Convention
    capacity: Mapping[int, int]
    reads: Mapping[Access, int]
    writes: Mapping[Access, int]
    operations: Mapping[str, int]
    capacity_varies: frozenset[int] = frozenset()
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences for the user, such as why the other convention could not be compared."""

    def accesses(self, target: int) -> int:
        """Reads and writes of one memory."""
        return sum(n for counts in (self.reads, self.writes) for (at, _, _), n in counts.items() if at == target)

    def as_json(self) -> dict[str, Any]:
        """The document of ``stats.json`` for a fused mapping."""
        return {
            "convention": self.convention,
            "capacity": {str(target): words for target, words in self.capacity.items()},
            "reads": {_joined(access): words for access, words in self.reads.items()},
            "writes": {_joined(access): words for access, words in self.writes.items()},
            "operations": dict(self.operations),
            "differences": [
                {
                    "quantity": d.quantity,
                    "key": _joined(d.key) if isinstance(d.key, tuple) else str(d.key),
                    "sound": d.sound,
                    "looptree": d.looptree,
                    "reason": d.reason,
                }
                for d in self.differences
            ],
            "notes": list(self.notes),
        }


def _joined(access: Access) -> str:
    return "/".join(map(str, access))
