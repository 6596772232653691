"""For pairs of GEMMs the sound convention gives the closed forms of the fused mapspace."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

from stitchloop.fused.reference import evaluate_fused
from stitchloop.read.fields import Field
from stitchloop.read.looptree import read_fused_mapping, read_workload
from stitchloop.validate.cases import read_cases

PAIRS = [
    case
    for case in read_cases(Path(__file__).parent / "data" / "fused" / "looptree.jsonl.gz")
    if "template" in case and case["id"].startswith("pair")
]
RANKS = {"A": "ik", "B": "kl", "D": "lj", "E": "ij"}


def running(template: dict[str, Any], loops: int) -> list[str]:
    """The first loops of the order, without those of one trip."""
    return [rank for rank in template["order"][:loops] if template["tiles"][rank]["count"] > 1]


def buffer_demand(template: dict[str, Any]) -> int:
    order, shared, levels, tiles = (template[key] for key in ("order", "shared_loops", "levels", "tiles"))

    def block(ranks: str, level: int) -> int:
        return prod(tiles[r]["size"] * (tiles[r]["count"] if order.index(r) >= level else 1) for r in ranks)

    held = {name: block(ranks, levels[name]) for name, ranks in RANKS.items()}
    outside = {name for name, level in levels.items() if level < shared}
    phases = (sum(held[name] for name in {*inputs} | outside) for inputs in ("AB", "DE"))
    return block("il", shared) + max(phases)


def dram_access(template: dict[str, Any]) -> int:
    """Words over DRAM: a block inside its phase stays there, others move out past loops that do not index them."""
    shared, tiles = running(template, template["shared_loops"]), template["tiles"]
    trips = {rank: tile["count"] for rank, tile in tiles.items()}
    size = {rank: tile["count"] * tile["size"] for rank, tile in tiles.items()}

    def words(name: str) -> int:
        level = template["levels"][name]
        executed = "iklj" if name in "AB" and "j" in shared else "ikl" if name in "AB" else "ilj"
        above = [rank for rank in running(template, level) if rank in executed]
        floor = len(shared) if level >= template["shared_loops"] else 0
        while len(above) > floor and above[-1] not in RANKS[name]:
            above.pop()
        return prod(size[r] for r in RANKS[name]) * prod(trips[r] for r in above if r not in RANKS[name])

    return sum(words(name) for name in "ABD") + 2 * words("E") - size["i"] * size["j"]


def is_canonical(template: dict[str, Any]) -> bool:
    shared = running(template, template["shared_loops"])
    return not shared or shared[-1] in "il"


def test_buffer_demand_and_dram_access() -> None:
    compared = 0
    for case in PAIRS:
        template = case["template"]
        if not is_canonical(template):
            continue
        workload = read_workload(Field(case["problem"]))
        stats = evaluate_fused(workload, read_fused_mapping(Field(case["mapping"]), workload), compare=False)
        assert (stats.capacity[1], stats.accesses(0)) == (buffer_demand(template), dram_access(template)), case["id"]
        compared += 1
    assert compared > 80
