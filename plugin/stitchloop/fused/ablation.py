"""Smaller mapspaces to compare with: what each freedom is worth, and single templates that others use, with free tile sizes."""

from __future__ import annotations

from stitchloop.errors import InputError, Place
from stitchloop.fused.options import ABLATIONS
from stitchloop.fused.prune import Mapspace
from stitchloop.fused.shape import Operand, Structure
from stitchloop.fused.template import Choice, Walk, choices


class WithoutRecomputation:
    """Loop orders and retention levels; no shared loop over a rank that an Einsum does not have."""

    def admits(self, structure: Structure, walks: tuple[Walk, ...]) -> bool:
        shared = frozenset(walks[0].loops[: walks[0].shared])
        return all(shared <= op.ranks for op in structure.ops)

    def levels(self, walk: Walk, operand: Operand) -> tuple[Choice, ...]:
        return choices(walk, operand)


class OrderingOnly(WithoutRecomputation):
    """Loop orders alone: the buffer holds one tile of each tensor, as far out as the order alone lets it rest in its phase."""

    def levels(self, walk: Walk, operand: Operand) -> tuple[Choice, ...]:
        return (_one_tile(walk, operand),)


def _one_tile(walk: Walk, operand: Operand) -> Choice:
    options = [c for c in choices(walk, operand) if c.level != walk.shared or not c.held or operand.kind == "intermediate"]
    level = max(c.level for c in options)
    while level > walk.shared and walk.loops[level - 1] not in operand.ranks:
        level -= 1
    return next(c for c in options if c.level == level)


def _roles(structure: Structure) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ranks of the intermediate tensor that the head keeps, and those that it reduces."""
    made = structure.ops[-2].output.ranks & structure.looped & structure.head.ranks
    kept = tuple(sorted(made & structure.head.output.ranks))
    return kept, tuple(sorted(made - structure.head.output.ranks))


class TileFlow(OrderingOnly):
    """Blocks of the intermediate tensor in one fixed order, kept ranks outside reduced ones; one tile of everything else."""

    def admits(self, structure: Structure, walks: tuple[Walk, ...]) -> bool:
        kept, reduced = _roles(structure)
        return walks[0].loops[: walks[0].shared] == kept + reduced


class FlashAttention(TileFlow):
    """The order of FlashAttention-2: the query block and the output block rest while keys and values stream by."""

    def levels(self, walk: Walk, operand: Operand) -> tuple[Choice, ...]:
        kept, _ = _roles(walk.structure)
        resting = [c for c in choices(walk, operand) if c.level == len(kept) and c.held]
        reads_reduced = operand.ranks & frozenset(walk.loops[len(kept) : walk.shared])
        if operand.kind != "intermediate" and not reads_reduced and resting:
            return (resting[0],)
        return (_one_tile(walk, operand),)


class Flat(OrderingOnly):
    """Whole rows of the intermediate tensor at a time, as FLAT does: only kept ranks are shared."""

    def admits(self, structure: Structure, walks: tuple[Walk, ...]) -> bool:
        kept, _ = _roles(structure)
        return walks[0].loops[: walks[0].shared] == kept

    def levels(self, walk: Walk, operand: Operand) -> tuple[Choice, ...]:
        _, reduced = _roles(walk.structure)
        if operand.kind != "intermediate" and not operand.ranks & frozenset(reduced):
            return tuple(c for c in choices(walk, operand) if c.level == walk.shared and not c.held)
        return (_one_tile(walk, operand),)


MAPSPACES: dict[str, Mapspace | None] = {
    "ordering": OrderingOnly(),
    "buffer": WithoutRecomputation(),
    "full": None,
    "flash-attention-2": FlashAttention(),
    "flat": Flat(),
    "tileflow": TileFlow(),
}


def mapspace(name: str) -> Mapspace | None:
    """The mapspace of that name; None is the whole."""
    try:
        return MAPSPACES[name]
    except KeyError:
        raise InputError(Place("--ablation"), f"'{name}'", f"one of {', '.join(ABLATIONS)}") from None
