"""``stitchloop model`` on a fused problem and mapping."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fused_trees import einsum, gemm_chain, gemm_pair, residual_conv, tensor
from stitchloop.architecture import Architecture, Compute, Energy, Level
from stitchloop.cli.commands import app
from stitchloop.errors import InputError, InvalidMapping
from stitchloop.fused.check import checked
from stitchloop.fused.model_command import run
from stitchloop.fused.reference import evaluate_fused
from stitchloop.fused.simulate import simulate
from stitchloop.fused.tree import Branch, FusedMapping, Node, Spatial, Storage, Temporal
from stitchloop.fused.tree import Compute as Leaf
from stitchloop.read import load_spec
from stitchloop.spec import Spec
from stitchloop.workload import Workload
from stitchloop.write.fused import fused_files

WORKLOAD = gemm_pair(8, 4, 8, 4)
MAPPING = FusedMapping(
    (
        Storage(0, ("A", "B", "D", "E")),
        Temporal("I2", 2),
        Storage(1, ("S",)),
        Branch(
            "sequential",
            (
                (Storage(1, ("A", "B")), Spatial("L1", 2), Leaf("Producer", 2)),
                (Storage(1, ("D", "E")), Leaf("Consumer", 2)),
            ),
        ),
    )
)
MACHINE = Architecture(
    "small",
    (
        Level("GLB", depth=56, energy=Energy(read=2.0, write=3.0)),
        Level("DRAM", technology="DRAM", block_size=4, read_bandwidth=0.5, energy=Energy(read=400.0, write=800.0)),
    ),
    Compute("MAC", instances=4, energy=Energy(compute=1.0)),
)


def machine(depth: int) -> Architecture:
    return replace(MACHINE, levels=(replace(MACHINE.levels[0], depth=depth), MACHINE.levels[1]))


def test_counts_energy_and_cycles(tmp_path: Path) -> None:
    summary = run(Spec(architecture=MACHINE, workload=WORKLOAD, fused_mapping=MAPPING), tmp_path)
    document = json.loads((tmp_path / "stats.json").read_text())
    stats = evaluate_fused(WORKLOAD, MAPPING)
    assert document["capacity"] == {"0": 128, "1": 56}
    assert document["computes"] == 8 * 4 * 8 + 8 * 8 * 4
    assert document["reads"]["0/B/Producer"] == stats.reads[0, "B", "Producer"] == 4 * 32
    dram_reads, dram_writes = (sum(n for (t, _, _), n in counts.items() if t == 0) for counts in (stats.reads, stats.writes))
    assert (dram_reads, dram_writes) == (32 + 128 + 128, 32)
    buffer_reads, buffer_writes = (sum(n for (t, _, _), n in counts.items() if t == 1) for counts in (stats.reads, stats.writes))
    parts = document["energy_by_part_pJ"]
    assert parts == {"MAC": 512, "DRAM": 100 * dram_reads + 200 * dram_writes, "GLB": 2 * buffer_reads + 3 * buffer_writes}
    assert document["energy_pJ"] == sum(parts.values())
    assert document["cycles_by_part"] == {"MAC": 256 // 4 + 256, "DRAM": 2 * dram_reads, "GLB": 0}
    assert (document["cycles"], document["binding"]) == (2 * dram_reads, "DRAM")
    assert document["levels"]["DRAM"]["B"] == {"reads": 128, "writes": 0, "energy_pJ": 12800}
    assert "GLB holds S[2, 8]" in summary.text
    assert "reads 0/B/Producer 128 (LoopTree 32)" in " ".join(summary.text.split())


def test_a_buffer_that_is_too_small_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidMapping, match=r"GLB \(target 1\) needs 56 words and holds 55") as caught:
        run(Spec(architecture=machine(55), workload=WORKLOAD, fused_mapping=MAPPING), tmp_path)
    assert (caught.value.level, caught.value.size, caught.value.limit) == ("GLB", 56, 55)
    assert not (tmp_path / "stats.json").exists()


def test_more_targets_than_levels(tmp_path: Path) -> None:
    deep = FusedMapping((*MAPPING.nodes[:2], Storage(5, ("S",)), MAPPING.nodes[3]))
    with pytest.raises(InputError, match="target 5 and 2 storage levels"):
        run(Spec(architecture=MACHINE, workload=WORKLOAD, fused_mapping=deep), tmp_path)


def test_the_command_line(tmp_path: Path) -> None:
    for name, text in fused_files(WORKLOAD, MAPPING).items():
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / "fused-problem.yaml"), str(tmp_path / "fused-mapping.yaml")]
    done = CliRunner().invoke(app, ["model", *files, "-o", str(tmp_path / "out"), "--convention", "looptree"])
    assert done.exit_code == 0, done.output
    document = json.loads((tmp_path / "out" / "stats.json").read_text())
    assert document["convention"] == "looptree"
    assert document["reads"]["0/B/Producer"] == 32
    (entry,) = (d for d in document["differences"] if d["quantity"] == "reads" and d["key"] == "0/B/Producer")
    assert (entry["sound"], entry["looptree"]) == (128, 32)
    assert "sequential branch" in entry["reason"]


def test_an_unknown_convention_and_a_bad_tree_exit_with_two(tmp_path: Path) -> None:
    for name, text in fused_files(WORKLOAD, MAPPING).items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match="use one of sound, looptree"):
        run(Spec(workload=WORKLOAD, fused_mapping=MAPPING), tmp_path, "exact")
    document = yaml.safe_load((tmp_path / "fused-mapping.yaml").read_text())
    document["mapping"]["nodes"][1]["rank"] = "Z9"
    (tmp_path / "fused-mapping.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(InputError, match=r"fused-mapping.yaml:\d+: mapping.nodes\[1\]: a loop over 'Z9'"):
        load_spec([tmp_path / "fused-problem.yaml", tmp_path / "fused-mapping.yaml"])


def both(workload: Workload, *nodes: Node) -> dict[str, int]:
    """DRAM reads by tensor and Einsum; the closed forms have to equal the simulation."""
    mapping = FusedMapping(tuple(nodes))
    stats = evaluate_fused(workload, mapping)
    stepped = simulate(checked(workload, mapping))
    assert (stats.capacity, stats.reads, stats.writes) == (stepped.capacity, stepped.reads, stepped.writes)
    return {f"{tensor}/{name}": words for (target, tensor, name), words in stats.reads.items() if target == 0}


def test_two_heads_with_common_rank_names() -> None:
    """Two layers read X tile by tile; both end below one branch, and X comes in once."""
    layers = [
        einsum(
            name,
            {"M": 6, "K": 4, "N": n},
            tensor("X", "M", "K"),
            tensor(f"W{n}", "K", "N"),
            tensor(f"Y{n}", "M", "N", output=True),
        )
        for name, n in (("Left", 3), ("Right", 5))
    ]
    reads = both(
        Workload(tuple(layers)),
        Storage(0, ("X", "W3", "W5", "Y3", "Y5")),
        Storage(1, ("W3", "W5")),
        Temporal("M", 2),
        Storage(1, ("X", "Y3", "Y5")),
        Branch("sequential", ((Leaf("Left", 2),), (Leaf("Right", 2),))),
    )
    assert reads == {"X/Left": 24, "X/Right": 0, "W3/Left": 12, "W5/Right": 20, "Y3/Left": 0, "Y5/Right": 0}


def test_a_residual_connection_needs_the_union_of_its_readers() -> None:
    workload = residual_conv(6, 3, 2, 2)
    nodes = (
        Storage(0, ("F0", "W1", "W2", "F3")),
        Storage(1, ("W1", "W2")),
        Temporal("P3", 2),
        Storage(1, ("F0", "F1", "F2", "F3")),
        Branch("sequential", tuple((Leaf(name, 2),) for name in ("First", "Conv", "Add"))),
    )
    reads = both(workload, *nodes)
    assert reads["F0/First"] == 8 * 2
    mapping = FusedMapping(nodes)
    assert evaluate_fused(workload, mapping).operations["First"] == 8 * 2 * 2
    assert any("several Einsums read one tensor" in d.reason for d in evaluate_fused(workload, mapping).differences)


def test_a_real_size_takes_no_longer_than_a_small_one() -> None:
    workload = gemm_chain(131072, 128, 131072, 128)
    mapping = FusedMapping(
        (
            Storage(0, ("X0", "W1", "W2", "X2")),
            Temporal("M2", 7),
            Storage(1, ("X0", "X2")),
            Temporal("R2", 3),
            Storage(1, ("X1",)),
            Branch(
                "sequential",
                (
                    (Storage(1, ("W1",)), Temporal("R1", 16), Leaf("Fc1", 2)),
                    (Storage(1, ("W2",)), Temporal("C2", 16), Leaf("Fc2", 2)),
                ),
            ),
        )
    )
    stats = evaluate_fused(workload, mapping, compare=False)
    rows, tiles = 131072, -(-131072 // 7)
    assert stats.operations == {"Fc1": rows * 128 * 131072, "Fc2": rows * 131072 * 128}
    assert stats.reads[0, "W1", "Fc1"] == tiles * 128 * 131072
    assert stats.reads[0, "X0", "Fc1"] == rows * 128
    assert stats.capacity[1] == 7 * 128 + 7 * 128 + 7 * 3 + max(128 * 3, 3 * 128)
