"""What ``stitchloop model`` does with a fused problem and mapping: evaluate, write ``stats.json``, sum up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stitchloop.architecture import Architecture, Level
from stitchloop.errors import InputError, InvalidMapping, Place
from stitchloop.fused.check import checked
from stitchloop.fused.reference import FusedStats, evaluate_fused
from stitchloop.fused.reference.shapes import shapes
from stitchloop.fused.rules import CONVENTIONS, Convention
from stitchloop.fused.structure import Structure
from stitchloop.fused.tree import Branch, Compute, FusedMapping, Node, Spatial
from stitchloop.spec import Spec
from stitchloop.text import counted
from stitchloop.workload import Workload
from stitchloop.write.files import to_json, write_files
from stitchloop.write.fused import unfaithful
from stitchloop.write.fused_nest import format_loop_nest
from stitchloop.write.summary import Summary, wrote

if TYPE_CHECKING:
    from rich.console import RenderableType

UNPLACED = (
    "The mapping has no spatial loops: taken is an array that is always full and takes in each block once. `stitchloop map` "
    "counts what it places on the array, and a softmax, too: its energy and cycles are higher."
)


def run(spec: Spec, directory: Path, convention: str = "sound") -> Summary:
    """Evaluate the fused mapping of ``spec`` and write ``stats.json`` into ``directory``.

    Where the input holds an architecture, target 0 is its outermost storage level, target 1 the next one inside, and so on;
    then the capacities are checked (by the sound convention) and energy and cycles are given.

    Raises
    ------
    InputError
        For a missing problem or mapping, an unknown convention, or more targets than storage levels.
    InvalidMapping
        When a level is too small.
    """
    if convention not in CONVENTIONS:
        raise InputError("--convention", f"'{convention}'", f"use one of {', '.join(CONVENTIONS)}")
    chosen: Convention = "looptree" if convention == "looptree" else "sound"
    mapping = spec.fused_mapping
    if spec.workload is None or not isinstance(mapping, FusedMapping):
        files = ", ".join(spec.files) or "the input"
        raise InputError(files, "a list of Einsums or a fused mapping is missing", "give the file that holds it")
    place = Place(", ".join(spec.files) or None, ("mapping",))
    levels = _levels(spec.architecture, mapping, place)
    stats = evaluate_fused(spec.workload, mapping, chosen)
    if chosen == "sound":
        _check_capacity(stats, levels)
    document = stats_document(spec.workload, mapping, stats, spec.architecture)
    written = write_files(directory, {"stats.json": to_json(document)}, spec.files)
    return Summary((*_shown(spec.workload, mapping, stats, levels, document), wrote(written)))


def stats_document(
    workload: Workload, mapping: FusedMapping, stats: FusedStats, architecture: Architecture | None = None
) -> dict[str, Any]:
    """The document of ``stats.json``: the counts, and with an architecture energy (pJ), cycles and counts by level.

    Energy is reads and writes times the ERT's energy per word, plus the operations; draining a buffer is no read of it, as
    LoopTree counts. Cycles are those of the slowest of compute (every spatial loop side by side, sequential branches one
    after the other, pipelined ones at once) and the levels' bandwidths. A mapping without spatial loops says nothing of the
    array: its compute cycles are those of an array that is always full, its reads those of one that takes in each block once,
    so that cycles (``cycles_are_a_bound``) and energy are lower bounds. A softmax is in no mapping.
    """
    document: dict[str, Any] = {"computes": sum(stats.operations.values()), **stats.as_json()}
    levels = _levels(architecture, mapping)
    if architecture is None or not levels:
        return document
    structure = checked(workload, mapping)
    energy = sum(stats.operations.values()) * architecture.compute.energy.compute
    placed = any(isinstance(node, Spatial) for _, node in mapping.walk)
    compute = _compute_cycles(structure, shapes(structure).points, 1 if placed else architecture.compute.instances)
    cycles = {architecture.compute.name: compute} if compute is not None else {}
    parts = {architecture.compute.name: energy}
    for target, level in levels.items():
        reads, writes = (_words(counts, target) for counts in (stats.reads, stats.writes))
        parts[level.name] = (reads * level.energy.read + writes * level.energy.write) / level.block_size
        cycles[level.name] = _transfer_cycles(level, reads, writes)
    slowest = max(cycles, key=lambda name: cycles[name])
    return {
        "cycles": cycles[slowest],
        "cycles_are_a_bound": not placed,
        "energy_pJ": sum(parts.values()),
        **document,
        "binding": slowest,
        "energy_by_part_pJ": parts,
        "cycles_by_part": cycles,
        "levels": {level.name: _by_tensor(stats, target, level) for target, level in levels.items()},
    }


def _levels(architecture: Architecture | None, mapping: FusedMapping, place: Place | None = None) -> dict[int, Level]:
    """The storage level of each target; none without an architecture."""
    if architecture is None:
        return {}
    storage = tuple(reversed(architecture.storage))
    if max(mapping.targets, default=0) >= len(storage):
        found = f"target {max(mapping.targets)} and {counted(len(storage), 'storage level')} in the architecture"
        raise InputError(place or Place(None, ("mapping",)), found, f"use targets 0 to {len(storage) - 1}")
    return {target: storage[target] for target in mapping.targets}


def _check_capacity(stats: FusedStats, levels: dict[int, Level]) -> None:
    for target, level in levels.items():
        limit = level.capacity
        if target and limit is not None and stats.capacity[target] > limit:
            raise InvalidMapping(
                f"{level.name} (target {target}) needs {stats.capacity[target]} words and holds {limit}",
                kind="capacity",
                level=level.name,
                size=stats.capacity[target],
                limit=limit,
            )


def _compute_cycles(structure: Structure, points: dict[str, int], units: int) -> int | None:
    """Cycles of all Einsums at one point per unit and cycle; None where that is no product over axes.

    ``points`` are those of one unit under the mapping's spatial loops; ``units`` more share them evenly.
    """
    if not points:
        return None

    def cycles(nodes: tuple[Node, ...]) -> int:
        last = nodes[-1]
        if isinstance(last, Compute):
            return -(-points[last.einsum] // units)
        assert isinstance(last, Branch)
        inside = [cycles(branch) for branch in last.branches]
        return sum(inside) if last.kind == "sequential" else max(inside)

    return cycles(structure.mapping.nodes)


def _transfer_cycles(level: Level, reads: int, writes: int) -> int:
    needed = [0.0]
    for words, width in (
        (reads, level.read_bandwidth),
        (writes, level.write_bandwidth),
        (reads + writes, level.shared_bandwidth),
    ):
        if width:
            needed.append(words / width / level.instances)
    return int(-(-max(needed) // 1))


def _words(counts: Any, target: int) -> int:
    return sum(words for (at, _, _), words in counts.items() if at == target)


def _by_tensor(stats: FusedStats, target: int, level: Level) -> dict[str, dict[str, Any]]:
    tensors: dict[str, dict[str, Any]] = {}
    for name, counts in (("reads", stats.reads), ("writes", stats.writes)):
        for (at, tensor, _), words in counts.items():
            if at == target:
                entry = tensors.setdefault(tensor, {"reads": 0, "writes": 0})
                entry[name] += words
    for entry in tensors.values():
        entry["energy_pJ"] = (entry["reads"] * level.energy.read + entry["writes"] * level.energy.write) / level.block_size
    return tensors


def _shown(
    workload: Workload, mapping: FusedMapping, stats: FusedStats, levels: dict[int, Level], document: dict[str, Any]
) -> tuple[RenderableType, ...]:
    from rich.table import Table

    names = {target: level.name for target, level in levels.items()}
    table = Table(title=f"Words by the {stats.convention} convention", title_justify="left")
    table.add_column("memory")
    table.add_column("needs", justify="right")
    table.add_column("reads", justify="right")
    table.add_column("writes", justify="right")
    for target, words in stats.capacity.items():
        reads, writes = _words(stats.reads, target), _words(stats.writes, target)
        table.add_row(names.get(target, "DRAM" if target == 0 else f"buffer {target}"), f"{words:,}", f"{reads:,}", f"{writes:,}")
    lines = [f"operations: {', '.join(f'{name} {count:,}' for name, count in stats.operations.items())}"]
    if "energy_pJ" in document:
        least = "at least " if document["cycles_are_a_bound"] else ""
        energy, cycles = f"{document['energy_pJ'] / 1e6:.6g} uJ", f"{document['cycles']:,} (bound by {document['binding']})"
        lines.append(f"energy: {least}{energy}; cycles: {least}{cycles}")
        if least:
            lines.append(UNPLACED)
    if stats.differences:
        lines.append("figures that differ between the sound convention and LoopTree's, and why:")
        for reason in dict.fromkeys(difference.reason for difference in stats.differences):
            alike = [difference for difference in stats.differences if difference.reason == reason]
            lines.append("  " + ", ".join(f"{d.figure} {d.sound:,} (LoopTree {d.looptree:,})" for d in alike[:8]))
            lines[-1] += f" and {len(alike) - 8} more" if len(alike) > 8 else ""
            lines.append(f"    {reason}")
    lines += stats.notes
    lines += [f"LoopTree: {remark}" for remark in unfaithful(workload, mapping)]
    return format_loop_nest(workload, mapping, names), table, "\n".join(lines)
