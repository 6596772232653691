"""The reference model of fused mappings: one tree, exact integers.

:func:`evaluate_fused` counts what a LoopTree mapping needs and moves, by either of two conventions: ``sound``, as a machine
with that buffer behaves, and ``looptree``, as the tool counts.
"""

from __future__ import annotations

from stitchloop.fused.reference.evaluate import evaluate_fused
from stitchloop.fused.rules import Convention
from stitchloop.fused.stats import Access, Difference, FusedStats

__all__ = ["Access", "Convention", "Difference", "FusedStats", "evaluate_fused"]
