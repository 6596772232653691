"""A group's DRAM traffic counted twice: by the cascade and by LoopTree's rules for the exported problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stitchloop.cascade.crossing import Crossing
from stitchloop.cascade.export_mapping import DRAM, MappedGroup
from stitchloop.cascade.group_export import SINK, GroupExport
from stitchloop.fused.stats import FusedStats


@dataclass(frozen=True)
class Row:
    """One tensor in one direction, in words.

    ``exported`` is the tensor's name in the fused problem, ``tensors`` what the cascade calls it (several where weights or
    outputs stand side by side, none where LoopTree does not see it), ``cascade_words`` what must cross once, ``words`` what
    the default mapping moves by the count that was asked.
    """

    exported: str
    tensors: tuple[str, ...]
    is_write: bool
    cascade_words: int
    words: int

    @property
    def agrees(self) -> bool:
        return self.words == self.cascade_words


def agreement(mapped: MappedGroup, moved: Crossing, stats: FusedStats) -> tuple[Row, ...]:
    """Compare the cascade's crossing of a group with LoopTree's figures for its default mapping, tensor by tensor.

    Rows where ``words`` is larger are operands that the mapping reads more than once, or padding; rows without a count are
    final states, which LoopTree does not see.
    """
    export = mapped.export
    rows: list[Row] = []
    for is_write, transfers, counts in ((False, moved.reads, stats.reads), (True, moved.writes, stats.writes)):
        left = {transfer.tensor: transfer.words for transfer in transfers}
        for exported, words in dram_words(counts).items():
            names = tuple(name for name in _parts(export, exported) if name in left)
            rows.append(Row(exported, names, is_write, sum(left.pop(name) for name in names), words))
        rows += [Row(name, (), is_write, words, 0) for name, words in left.items()]
    return tuple(row for row in rows if row.words or row.cascade_words)


def dram_words(counts: Mapping[tuple[int, str, str], int]) -> dict[str, int]:
    """Words by tensor at DRAM, without what the sink moves."""
    found: dict[str, int] = {}
    for (target, tensor, einsum), words in counts.items():
        if target == DRAM and einsum != SINK and words:
            found[tensor] = found.get(tensor, 0) + words
    return found


def _parts(export: GroupExport, exported: str) -> tuple[str, ...]:
    parts = export.parts.get(exported, (exported,))
    states = [state for tensor in parts if (state := export.cascade.state(tensor)) is not None]
    return (*parts, *(state.initial for state in states if isinstance(state.initial, str)))
