"""The published tables and targets, to the printed digits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fused_chains import MACHINE, gemm_pair
from stitchloop.fused.machine import Machine
from stitchloop.fused.map import map_shape
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.pair import shape_of

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

TABLES = {
    "GPT-3-6.7B": {
        13: (40.25, 40.25), 14: (24.25, 24.25), 15: (16.25, 12.5), 16: (8.5, 6.5),
        17: (4.5, 3.5), 18: (2.5, 2.0), 19: (1.5, 1.25), 20: (1.0, 1.0),
    },
    "BERT-Base": {13: (8.25, 6.5), 14: (4.5, 3.5), 15: (2.5, 2.0), 16: (1.5, 1.25), 17: (1.0, 1.0)},
    "BERT-4096": {
        13: (64.25, 48.5), 14: (32.5, 24.5), 15: (16.5, 12.5), 16: (8.5, 6.5), 17: (4.5, 3.5), 18: (2.5, 2.0), 19: (1.5, 1.25),
    },
    "PaLM-62B": {
        13: (68.25, 68.25), 14: (36.25, 36.25), 15: (20.25, 20.25), 16: (12.25, 12.25),
        17: (8.25, 6.5), 18: (4.5, 3.5), 19: (2.5, 2.0), 20: (1.5, 1.25), 21: (1.0, 1.0),
    },
    "MLP": {13: (6.0, 6.0), 14: (3.333, 3.333), 15: (2.0, 2.0), 16: (1.0, 1.0)},
}  # fmt: skip


def test_dram_tables():
    run = subprocess.run(
        [sys.executable, str(BENCHMARKS / "dram_tables.py"), "--json"], capture_output=True, text=True, check=True
    )
    found = json.loads(run.stdout)
    for name, rows in TABLES.items():
        for exponent, expected in rows.items():
            row = found[name][str(1 << exponent)]
            assert (round(row["without_recomputation"], 3), round(row["with_recomputation"], 3)) == expected, (name, exponent)


@pytest.mark.parametrize(("perfect", "megabytes"), [(True, 6.82), (False, 5.25)])
def test_one_gpt3_head_in_64_kilobytes(perfect, megabytes):
    options = FusedOptions(("dram",), perfect=perfect, unfused=False)
    result = map_shape(shape_of(gemm_pair(2048, 128, 2048, 128)), Machine(1 << 16, 1, 1), options)
    assert result.best.figures.dram / 1e6 < megabytes + 0.005


def test_prime_sizes_come_close_to_the_compute_bound():
    result = map_shape(shape_of(gemm_pair(1021, 61, 1021, 61)), MACHINE, FusedOptions(("latency",), unfused=False))
    ideal = 2 * 1021 * 1021 * 61 / MACHINE.units
    assert result.best.figures.cycles < 1.04 * ideal
    assert result.certificate.optimal
    assert result.certificate.seconds < 3


def test_mapspace_is_larger_than_published():
    """More than the published 7.6e8 mappings, all certified."""
    options = FusedOptions(perfect=True, unfused=False)
    result = map_shape(shape_of(gemm_pair(2048, 128, 2048, 128)), MACHINE, options)
    assert result.certificate.mapspace_size == 23125 * (12 * 8) ** 2 * 9 > 7.6e8
    assert result.certificate.evaluated < 1e5
