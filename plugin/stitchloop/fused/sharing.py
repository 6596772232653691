"""How heads share the buffer, the arrays and the softmax unit."""

from __future__ import annotations

import math

from stitchloop.fused.machine import Machine
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.shape import Shape


def shares_of(shape: Shape, machine: Machine, options: FusedOptions) -> int:
    """Heads that lie in the buffer together: one, or one for each array that takes a head of its own."""
    return min(machine.arrays, shape.copies) if options.arrays == "heads" else 1


def rounds_of(shape: Shape, machine: Machine, options: FusedOptions) -> int:
    """How many times one head's cycles pass until all heads are done."""
    return -(-shape.copies // machine.arrays) if options.arrays == "heads" else shape.copies


def softmax_of(shape: Shape, machine: Machine, options: FusedOptions) -> tuple[int, int]:
    """Elements that the softmax works on, and its cycles on the lanes that one head has: both for one head."""
    if options.softmax == "none":
        return 0, 0
    elements = shape.words(0, len(shape.structure.ops[0].operands) - 1)
    lanes = options.softmax_lanes or machine.columns * machine.arrays
    lanes = max(1, lanes // (machine.arrays if options.arrays == "heads" else 1))
    return elements, math.ceil(options.softmax_ops * elements / lanes)
