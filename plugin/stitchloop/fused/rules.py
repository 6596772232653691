"""The two conventions as sets of rules, so that what tells them apart can be switched one by one."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal, TypeAlias

Convention: TypeAlias = Literal["sound", "looptree"]


@dataclass(frozen=True)
class Rules:
    """Each rule is True as a machine behaves and False as LoopTree counts."""

    refetch: bool
    """A block inside a ``sequential`` branch is lost when another branch runs in its space."""
    follow_needs: bool
    """Tiles follow what the consumers need, also where all Einsums of a group read one common tensor."""
    keep_unchanged: bool
    """An intermediate is kept, not recomputed, while its block stays the same or slides."""
    fresh_sums: bool
    """A partial sum is not read the first time after each (re)computation, in each unit."""
    heed_no_reuse: bool
    """``exploits_reuse: false`` drops every block, not that of an intermediate only."""
    same_units: bool
    """A memory above a branch has the same units for all Einsums below, whatever spatial loops the branches hold, and one
    word that it reads serves all units below it that take it at the same time."""
    unite_readers: bool
    """Several readers of one tensor need the union of what each needs, and a block that they share moves once."""


REASONS: dict[str, str] = {
    "refetch": "a block stored inside a sequential branch is fetched again after another branch took its space; "
    "LoopTree counts it as kept",
    "follow_needs": "an Einsum computes what its consumers need; where all Einsums below a branch read one common tensor, "
    "LoopTree has them follow that tensor's tiles",
    "keep_unchanged": "an intermediate is kept while its block does not change or slides along one dimension; LoopTree looks "
    "at the loop right above its storage only, and recomputes",
    "fresh_sums": "the first read of a partial sum is left out after each recomputation and in each unit; LoopTree subtracts "
    "it once",
    "heed_no_reuse": "`exploits_reuse: false` drops the block at every step; LoopTree heeds it for intermediates only, and then "
    "for what is computed",
    "same_units": "spatial loops inside a branch do not split a memory's blocks above the branch; LoopTree counts the units of "
    "each Einsum apart, and multicasts over spatial loops into the memory right below them only",
    "unite_readers": "several Einsums read one tensor: its block is what any of them needs, and moves once; LoopTree counts "
    "each apart",
}

SOUND = Rules(*(True for _ in fields(Rules)))
LOOPTREE = Rules(*(False for _ in fields(Rules)))
CONVENTIONS: dict[Convention, Rules] = {"sound": SOUND, "looptree": LOOPTREE}


def with_one(rule: str) -> Rules:
    """LoopTree's rules but for one."""
    return replace(LOOPTREE, **{rule: True})


def without_one(rule: str) -> Rules:
    """The sound rules but for one."""
    return replace(SOUND, **{rule: False})
