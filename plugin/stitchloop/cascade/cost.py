"""From the chosen partitioning of a group to its figures: time, traffic, energy, and each Einsum's share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from stitchloop.cascade.compute import Numbers, Work
from stitchloop.cascade.performance import EinsumCost, GroupCost, Plan
from stitchloop.cascade.traffic import Volume, volume

if TYPE_CHECKING:
    from stitchloop.cascade.candidates import Candidates

REGISTER_ACCESSES = 3
"""Words that one operation reads and writes in the registers: two operands, one result."""


def cost_of(candidates: Candidates, chosen: tuple[int, float] | None = None) -> GroupCost:
    """One partitioning of a group, in full: the ``chosen`` candidate with its cycles, or the fastest."""
    index, cycles = chosen or candidates.best
    model, pipeline = candidates.model, candidates.pipeline
    machine = model.machine
    tiling, n = int(candidates.tiling[index]), float(candidates.n[index])
    works = [[_pick(model.work(node, candidates.tiles), tiling) for node in segment.nodes] for segment in pipeline.segments]
    operations = n * sum(work["operations"] for segment in works for work in segment)
    moved = _volume(candidates, index)
    near_words, energy = _on_chip(candidates, index)
    energy = {
        "DRAM": moved.total * machine.dram_pj,
        **energy,
        "registers": operations * REGISTER_ACCESSES * machine.register_pj,
        "operations": operations * machine.operation_pj,
        "leakage": cycles * machine.leak_pj,
    }
    return GroupCost(
        nodes=tuple(node for segment in pipeline.segments for node in segment.nodes),
        seconds=cycles / machine.clock_hz,
        compute_seconds=float(candidates.compute_cycles[tiling]) / machine.clock_hz,
        dram_seconds=moved.total / machine.dram_words / machine.clock_hz,
        volume=moved,
        spill_words=float(candidates.spilled_words[candidates.depth[index]]),
        reread_words=float(candidates.reread[index] + candidates.state_moves[index]),
        partial_sum_words=n * sum(w["partial_sums"] for segment in works for w in segment),
        buffer_words=near_words,
        energy_pj={component: value for component, value in energy.items() if value},
        plan=_plan(candidates, index),
        einsums=tuple(_shares(candidates, works, index, cycles)),
        shortfall_words=candidates.shortfall,
    )


def _volume(candidates: Candidates, index: int) -> Volume:
    """Words over DRAM by cause, with spills and re-reads."""
    moved = volume(candidates.moves) + Volume(
        inter=float(candidates.spilled_words[candidates.depth[index]]), state=float(candidates.state_moves[index])
    )
    kinds = {move.tensor: move.kind for move in candidates.moves if not move.is_write}
    for operands, fetches in zip(candidates.refetched, candidates.fetches):
        again = operands.volume * (float(fetches[index]) - 1)
        weights = sum(
            move.words for move in candidates.moves if move.tensor in operands.tensors and kinds[move.tensor] == "weight"
        )
        share = weights / operands.volume
        moved = moved + Volume(inter=again * (1 - share), weight=again * share)
    return moved


def _pick(work: Work, tiling: int) -> dict[str, float]:
    """One candidate's figures of a node."""

    def at(value: np.ndarray | float) -> float:
        array = np.asarray(value, dtype=float).ravel()
        return float(array[tiling if array.size > 1 else 0])

    names = ("points", "operations", "cycles", "partial_sums", "dataflow")
    return {name: at(getattr(work, name)) for name in names}


def _on_chip(candidates: Candidates, index: int) -> tuple[float, dict[str, float]]:
    """Words between the PEs' registers and the level next to them, and the energy of all on-chip levels.

    A word from DRAM is written to the buffer, one to DRAM is read from it. Where a nearer level feeds the PEs, each tile's
    operands go from the buffer to it once, and the PEs' accesses are its own.
    """
    machine, tiling, n = candidates.model.machine, int(candidates.tiling[index]), float(candidates.n[index])

    def words(pairs: list[tuple[Numbers, Numbers]], side: int) -> float:
        arrays = (np.asarray(pair[side], dtype=float).ravel() for pair in pairs)
        return n * float(sum(array[tiling if array.size > 1 else 0] for array in arrays))

    segments = range(len(candidates.pipeline.segments))
    accesses = [candidates.array_accesses(s) for s in segments]
    reads, writes = words(accesses, 0), words(accesses, 1)
    written = float(sum(move.words for move in candidates.moves if move.is_write))
    written += float(candidates.spill_writes[candidates.depth[index]]) + float(candidates.state_moves[index]) / 2
    filled = float(candidates.dram_words[index]) - written
    energy = {}
    out_of_buffer, into_buffer = reads, writes
    if machine.near_name != machine.buffer_name:
        operands = [candidates.operand_words(s) for s in segments]
        out_of_buffer, into_buffer = words(operands, 0), words(operands, 1)
        near_reads, near_writes = reads + into_buffer, writes + out_of_buffer
        energy[machine.near_name] = near_reads * machine.near_read_pj + near_writes * machine.near_write_pj
    buffer_reads, buffer_writes = out_of_buffer + written, into_buffer + filled
    return reads + writes, {
        machine.buffer_name: buffer_reads * machine.buffer_read_pj + buffer_writes * machine.buffer_write_pj,
        **energy,
    }


def _plan(candidates: Candidates, index: int) -> Plan:
    pipeline, tiles, tiling = candidates.pipeline, candidates.tiles, int(candidates.tiling[index])
    tile = {rank: int(np.asarray(tiles.sizes[rank])[tiling]) for rank in tiles.blocks}
    spilled = tuple(dict.fromkeys(i.tensor for i in pipeline.intervals[: int(candidates.depth[index])]))
    model = candidates.model
    return Plan(
        kind=candidates.kind(tiling),
        tile=tile,
        tiles=int(candidates.n[index]),
        spilled=spilled if model.settings.capacity else tuple(t for t in model.settings.spilled if _made_here(candidates, t)),
        state_kept=bool(candidates.is_kept[index]),
        pinned_words=float(candidates.pinned[index]),
        footprint_words=float(model.machine.buffer_words - candidates.spare[index]) if model.settings.capacity else 0.0,
        window_words=float(candidates.window[index]) if model.settings.capacity else 0.0,
    )


def _made_here(candidates: Candidates, tensor: str) -> bool:
    return any(move.tensor == tensor for move in candidates.moves)


def _shares(candidates: Candidates, works: list[list[dict[str, float]]], index: int, cycles: float) -> list[EinsumCost]:
    """Each node's part of the group's time: its computing, filling and draining included, and the waiting for its words."""
    machine, pipeline, n = candidates.model.machine, candidates.pipeline, float(candidates.n[index])
    moved = _node_words(candidates, index)
    nodes, computing = [], []
    for s, (segment, row) in enumerate(zip(pipeline.segments, works)):
        around = float(candidates.cycles[s, candidates.tiling[index]]) - sum(work["cycles"] for work in row)
        for node, work in zip(segment.nodes, row):
            nodes.append((node, work, segment.is_array))
            computing.append(n * (work["cycles"] + around / len(row)))
    moving = np.array([moved[node] / machine.dram_words for node, _, _ in nodes])
    busy = np.array(computing)
    waiting = cycles - busy.sum()
    longer = np.maximum(moving - busy, 0.0)
    spent = busy + longer * (waiting / longer.sum()) if waiting >= 0 and longer.any() else busy * (cycles / busy.sum())
    return [
        EinsumCost(
            node=node,
            mode="2D" if is_array else "1D",
            dataflow=machine.dataflows[int(work["dataflow"])] if work["dataflow"] >= 0 else "",
            points=work["points"] * n,
            operations=work["operations"] * n,
            cycles=work["cycles"] * n,
            dram_words=moved[node],
            seconds=float(time) / machine.clock_hz,
            utilization=work["operations"] / (work["cycles"] * (machine.array_pes if is_array else machine.lanes)),
        )
        for (node, work, is_array), time in zip(nodes, spent)
    ]


def _node_words(candidates: Candidates, index: int) -> dict[tuple[str, ...], float]:
    """Words over DRAM on each node's account: what it is the first to read, what it writes, its re-reads and spills."""
    pipeline = candidates.pipeline
    owner = {name: node for segment in pipeline.segments for node in segment.nodes for name in node}
    words = dict.fromkeys(owner.values(), 0.0)
    again = [move for move in candidates.moves if not move.is_write and move.tensor in pipeline.refetched]
    volume_again = float(sum(move.words for move in again))
    for move in candidates.moves:
        words[owner[move.einsums[0]]] += move.words
        if move in again:
            words[owner[move.einsums[0]]] += candidates.reread[index] * move.words / volume_again
    if candidates.model.settings.capacity:
        _add_spills(candidates, index, owner, words)
    chain = max(pipeline.chain_segment, 0)
    words[pipeline.segments[chain].nodes[0]] += candidates.state_moves[index]
    return words


def _add_spills(
    candidates: Candidates, index: int, owner: Mapping[str, tuple[str, ...]], words: dict[tuple[str, ...], float]
) -> None:
    cascade, pipeline = candidates.model.cascade, candidates.pipeline
    for position, interval in enumerate(pipeline.intervals[: int(candidates.depth[index])]):
        size = candidates.model.words[interval.tensor]
        reader = next(n for n in pipeline.segments[interval.stop].names if interval.tensor in cascade.einsum(n).input_tensors)
        words[owner[reader]] += size
        earlier = any(i.tensor == interval.tensor for i in pipeline.intervals[:position])
        producer = cascade.tensor(interval.tensor).producer
        if interval.cost == 2 and not earlier and producer is not None:
            words[owner[producer]] += size
    if int(candidates.depth[index]) > len(pipeline.intervals):
        for tensor, s, extra in candidates.restreamed:
            words[owner[next(n for n in pipeline.segments[s].names if tensor in cascade.einsum(n).input_tensors)]] += extra
