"""Evaluating one fused mapping by either convention, with what tells the two apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from stitchloop.errors import InputError
from stitchloop.fused.check import checked
from stitchloop.fused.reference.counts import Counts, counts
from stitchloop.fused.reference.sets import NotSeparable
from stitchloop.fused.rules import CONVENTIONS, REASONS, Convention, Rules, with_one, without_one
from stitchloop.fused.simulate import simulate
from stitchloop.fused.stats import Difference, FusedStats, Quantity
from stitchloop.fused.structure import Structure
from stitchloop.fused.tree import FusedMapping
from stitchloop.workload import Workload


def evaluate_fused(
    workload: Workload, mapping: FusedMapping, convention: Convention = "sound", *, compare: bool = True
) -> FusedStats:
    """Count what a fused mapping needs and moves.

    Parameters
    ----------
    workload : Workload
        One or more Einsums.
    mapping : FusedMapping
        A LoopTree tree that maps each of them.
    convention : {'sound', 'looptree'}
        ``sound`` counts what a machine with buffers of the reported capacity really moves; ``looptree`` reproduces the
        tool of that name.
    compare : bool
        Also evaluate the other convention and list the differences with their reasons.

    Raises
    ------
    InputError
        When the tree does not fit the workload.
    """
    structure = checked(workload, mapping)
    found = _counts(structure, CONVENTIONS[convention])
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    if compare:
        other: Convention = "looptree" if convention == "sound" else "sound"
        try:
            counted = _counts(structure, CONVENTIONS[other])
        except InputError as error:
            notes = (f"not compared with the {other} convention: {error.found}",)
        else:
            sound, looptree = (found, counted) if convention == "sound" else (counted, found)
            differences = _differences(structure, sound, looptree)
    return FusedStats(convention, found.capacity, found.reads, found.writes, found.operations, found.varies, differences, notes)


def _counts(structure: Structure, rules: Rules) -> Counts:
    """From products over axes, or, where the tree does not allow that, by stepping through it."""
    try:
        return counts(structure, rules)
    except NotSeparable:
        found = simulate(structure, rules)
        return Counts(found.capacity, found.varies, found.reads, found.writes, found.operations)


_QUANTITIES: tuple[Quantity, ...] = ("capacity", "reads", "writes", "operations")


def _differences(structure: Structure, sound: Counts, looptree: Counts) -> tuple[Difference, ...]:
    """Every figure that differs, with the rules that change it: one alone, or else those without which it stays the same."""
    if sound == looptree:
        return ()
    alone = _Switched(structure, looptree, with_one)
    needed = _Switched(structure, sound, without_one)
    found = []
    for quantity in _QUANTITIES:
        ours: Mapping[Any, int] = getattr(sound, quantity)
        theirs: Mapping[Any, int] = getattr(looptree, quantity)
        for key in ours:
            if ours[key] != theirs[key]:
                causes = alone.causes(quantity, key) or needed.causes(quantity, key) or list(REASONS)
                found.append(Difference(quantity, key, ours[key], theirs[key], "; ".join(REASONS[rule] for rule in causes)))
    return tuple(found)


class _Switched:
    """The counts after each rule is switched, made when first asked for."""

    def __init__(self, structure: Structure, base: Counts, switch: Callable[[str], Rules]) -> None:
        self.structure, self.base, self.switch = structure, base, switch

    @cached_property
    def counts(self) -> dict[str, Counts]:
        found = {}
        for rule in REASONS:
            with suppress(InputError):
                found[rule] = _counts(self.structure, self.switch(rule))
        return found

    def causes(self, quantity: Quantity, key: Any) -> list[str]:
        """The rules that change a figure."""
        before = getattr(self.base, quantity)[key]
        return [rule for rule, counted in self.counts.items() if getattr(counted, quantity)[key] != before]
