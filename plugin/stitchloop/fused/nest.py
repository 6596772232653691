"""A template with tile sizes as a tree of loops and storage nodes, and the other way round for figures.

Loops of one trip vanish; a block moves outwards past loops that do not index its tensor, because nothing changes there. It
does not move out of its own phase: the other Einsums run in between and take its place.
"""

from __future__ import annotations

from collections.abc import Mapping

from stitchloop.fused.shape import Operand, Shape
from stitchloop.fused.template import Template
from stitchloop.fused.tree import Branch, Compute, FusedMapping, Node, Storage, Temporal


def normalised(shape: Shape, template: Template, tiles: Mapping[int, int]) -> Template:
    """The same mapping without loops that do nothing, every block fixed as far out as it stays unchanged."""
    structure = shape.structure
    running = {rank for rank, tile in tiles.items() if tile < shape.sizes[rank]}
    shared = [rank for rank in template.shared if rank in running]
    inner = [[rank for rank in own if rank in running] for own in template.inner]
    levels = [[_levels_left(template.loops(e), level, running) for level in levels] for e, levels in enumerate(template.levels)]
    cut = [op.output.ranks for op in structure.ops[:-1]]
    while shared and not any(shared[-1] in ranks for ranks in cut):
        rank = shared.pop()
        for e, op in enumerate(structure.ops):
            if rank in op.ranks:
                inner[e].insert(0, rank)
            else:
                levels[e] = [level - 1 if level > len(shared) else level for level in levels[e]]
    held = tuple(
        tuple(h and 0 < len(shared) >= level for h, level in zip(template.held[e], levels[e])) for e in range(len(structure.ops))
    )

    def outwards(e: int, operand: Operand, at: int) -> int:
        if operand.kind == "intermediate":
            return len(shared)
        floor = 0 if held[e][at] else min(levels[e][at], len(shared))
        return _outwards(operand, [*shared, *inner[e]], levels[e][at], floor)

    return Template(
        tuple(shared),
        tuple(map(tuple, inner)),
        tuple(tuple(outwards(e, o, at) for at, o in enumerate(op.operands)) for e, op in enumerate(structure.ops)),
        held,
    )


def _levels_left(loops: tuple[int, ...], level: int, running: set[int]) -> int:
    return sum(rank in running for rank in loops[:level])


def _outwards(operand: Operand, loops: list[int], level: int, floor: int) -> int:
    while level > floor and loops[level - 1] not in operand.ranks:
        level -= 1
    return level


def tree_of(shape: Shape, template: Template, tiles: Mapping[int, int]) -> FusedMapping:
    """The LoopTree tree of a normalised template: target 0 DRAM, 1 the buffer, 2 the compute units."""
    structure = shape.structure
    head = len(structure.ops) - 1
    outside = [
        n for names, op in zip(shape.tensor_names, structure.ops) for n, o in zip(names, op.operands) if o.kind != "intermediate"
    ]
    nodes: list[Node] = [Storage(0, tuple(dict.fromkeys(outside)))]
    nodes += [Temporal(names[head], 1) for names, size in zip(shape.batch, shape.batch_sizes) if size > 1]
    count = len(template.shared)
    for level in range(count + 1):
        if level:
            rank = template.shared[level - 1]
            nodes.append(Temporal(shape.own_names[head][rank], tiles[rank]))
        nodes += _stored(_held(shape, template, level))
    if head == 0:
        return FusedMapping((*nodes, *_own_nodes(shape, template, tiles, 0)))
    nodes += _stored([shape.tensor_names[e][-1] for e in range(head)])
    branches = tuple(tuple(_own_nodes(shape, template, tiles, e)) for e in range(head + 1))
    return FusedMapping((*nodes, Branch("sequential", branches)))


def _stored(names: list[str]) -> list[Node]:
    return [Storage(1, tuple(dict.fromkeys(names)))] if names else []


def _held(shape: Shape, template: Template, level: int) -> list[str]:
    return [
        name
        for e, op in enumerate(shape.structure.ops)
        for name, operand, at, held in zip(shape.tensor_names[e], op.operands, template.levels[e], template.held[e])
        if operand.kind != "intermediate" and held and at == level
    ]


def _in_phase(shape: Shape, template: Template, e: int, level: int) -> list[str]:
    names = zip(shape.tensor_names[e], shape.structure.ops[e].operands, template.levels[e], template.held[e])
    return [name for name, o, at, held in names if o.kind != "intermediate" and not held and at == level]


def _own_nodes(shape: Shape, template: Template, tiles: Mapping[int, int], e: int) -> list[Node]:
    op, shared = shape.structure.ops[e], len(template.shared)
    nodes: list[Node] = []
    for level in range(shared, shared + len(template.inner[e]) + 1):
        if level > shared:
            rank = template.inner[e][level - shared - 1]
            index = op.range_of[rank]
            nodes.append(Temporal(shape.own_names[e][rank], index.stride * (tiles[rank] - 1) + index.window))
        nodes += _stored(_in_phase(shape, template, e, level))
    return [*nodes, Compute(shape.einsum_names[e], 2)]


def describe(shape: Shape, template: Template, tiles: Mapping[int, int], buffer: str, placed: tuple[str, ...] = ()) -> str:
    """The loop nest as text that a person can read."""
    structure, head = shape.structure, len(shape.structure.ops) - 1
    lines: list[str] = []
    depth = 0

    def put(text: str) -> None:
        lines.append("  " * depth + text)

    def stored(names: list[str]) -> None:
        if names:
            put(f"{buffer} keeps a block of {', '.join(dict.fromkeys(names))}")

    for names, size in zip(shape.batch, shape.batch_sizes):
        put(f"for {names[head]} in 0..{size}")
        depth += 1
    for level in range(len(template.shared) + 1):
        if level:
            rank = template.shared[level - 1]
            put(_loop(shape.own_names[head][rank], shape.sizes[rank], tiles[rank]))
            depth += 1
        stored(_held(shape, template, level))
    if head:
        stored([shape.tensor_names[e][-1] for e in range(head)])
    base = depth
    for e, op in enumerate(structure.ops):
        depth = base
        if head:
            put(f"{'first' if e == 0 else 'then'} {shape.einsum_names[e]}:")
            depth += 1
        for level in range(len(template.shared), len(template.loops(e)) + 1):
            if level > len(template.shared):
                rank = template.loops(e)[level - 1]
                index = op.range_of[rank]
                step = index.stride * (tiles[rank] - 1) + index.window
                put(_loop(shape.own_names[e][rank], shape.points(e, rank), step))
                depth += 1
            stored(_in_phase(shape, template, e, level))
        put(f"{shape.einsum_names[e]} on the array" + (f": {placed[e]}" if placed else ""))
    return "\n".join(lines)


def _loop(name: str, size: int, tile: int) -> str:
    trips = -(-size // tile)
    rest = size - (trips - 1) * tile
    tail = f", the last one of {rest}" if rest != tile else ""
    return f"for {name} in {trips} tiles of {tile}{tail}"
