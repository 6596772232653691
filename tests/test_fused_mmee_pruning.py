"""Symbolic pruning: the published counts, the rows themselves, and that nothing is lost."""

from __future__ import annotations

import csv
import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fused_chains import MACHINE, conv_pair, gemm_chain, gemm_pair, gemm_then_activation, scale_then_gemm
from stitchloop.fused.block import Block
from stitchloop.fused.cache import SHIPPED, decoded, digest, encoded, pruned_rows
from stitchloop.fused.evaluate import Evaluator
from stitchloop.fused.monomials import Extent, at_most, full_extent, tile_extent, times, trip_count
from stitchloop.fused.options import FusedOptions
from stitchloop.fused.pair import shape_of
from stitchloop.fused.prune import buffer_proof, dominates, extent_value, prune, routing
from stitchloop.fused.shipped import common_structures
from stitchloop.fused.template import Row, assemble, choices, skeletons

ROWS = Path(__file__).parent / "data" / "fused_mmee" / "gemm_pair_rows.csv"
NAMES = "iljk"


@pytest.fixture(scope="module")
def pair():
    return prune(shape_of(gemm_pair(64, 32, 64, 32)).structure)


def test_counts_of_the_gemm_pair(pair):
    by_recomputation = {any(repeats): count for repeats, count in pair.raw_by_repeats.items()}
    assert by_recomputation == {False: 20250, True: 2875}
    assert pair.raw == 23125
    assert sum(not row.recomputes for row in pair.rows) == 27
    assert sum(row.recomputes for row in pair.rows) == 31


def _term(monomial) -> tuple[str, ...]:
    letters = []
    for extent, _ in monomial:
        name = NAMES[extent.rank]
        letters += [name + "G"] if extent.tile else [name + "D", name + "G"] if extent.full else [name + "D"]
    return tuple(sorted(letters))


def _multiplier(monomial) -> tuple[str, ...]:
    return tuple(sorted(NAMES[extent.rank] + "D" for extent, _ in monomial if extent.trips))


def test_rows_are_the_published_ones(pair):
    def parsed(text: str) -> tuple:
        return tuple(sorted(tuple(sorted(term.strip().split("*"))) for term in text.split("+")))

    expected = set()
    with ROWS.open() as file:
        for row in csv.DictReader(file):
            given = [row[f"dram_multiplier_{name}"] for name in "ABDE"]
            multipliers = tuple(() if text == "1" else tuple(sorted(text.split("*"))) for text in given)
            phases = (parsed(row["buffer_producer_terms"]), parsed(row["buffer_consumer_terms"]))
            expected.add((row["recompute"] == "1", *phases, multipliers))
    found = set()
    for row in pair.rows:
        (a, b, _), (_, d, e) = row.dram
        phases = [tuple(sorted(map(_term, phase))) for phase in row.phases]
        found.add((row.recomputes, *phases, tuple(map(_multiplier, (a, b, d, e)))))
    assert found == expected


def test_only_28_monomials_occur_in_the_buffer_and_dram_terms(pair):
    assert len({m for row in pair.rows for terms in row.phases for m in terms}) <= 28


def _all_rows(structure) -> list[Row]:
    """Every template, compiled; equal ones once."""
    rows = {}
    for skeleton in skeletons(structure):
        for walks in product(*skeleton.orders):
            per_tensor = [[choices(walk, o) for o in walk.op.operands] for walk in walks]
            for picks in product(*(product(*tensors) for tensors in per_tensor)):
                row = assemble(structure, walks, picks)
                rows.setdefault((row.repeats, row.sweeps, row.phases, row.dram), row)
    return list(rows.values())


def _demand_and_traffic(shape, rows, perfect: bool):
    """Exact buffer demand and DRAM access of every row at every tiling: two arrays (rows, tilings)."""
    ev = Evaluator(shape, MACHINE, FusedOptions(perfect=perfect), rows, fold=False)
    grid = np.meshgrid(*(np.arange(len(axis)) for axis in ev.outer), indexing="ij")
    block = Block(ev, np.arange(len(rows)), [g.ravel() for g in grid])
    return block.demand, block.inputs + 2 * block.written - shape.output_words


def _front(demand, traffic) -> set[tuple[int, int]]:
    order = np.lexsort((traffic, demand))
    front, least = set(), np.inf
    for at in order:
        if traffic[at] < least:
            least = traffic[at]
            front.add((int(demand[at]), int(least)))
    return front


@pytest.mark.parametrize(
    ("workload", "perfect"),
    [
        (gemm_pair(8, 4, 8, 4), True),
        (gemm_pair(6, 4, 12, 2), True),
        (gemm_pair(5, 3, 7, 4), False),
        (gemm_then_activation(6, 4, 5), False),
        (scale_then_gemm(6, 4, 5), False),
        (gemm_chain(4, [2, 1, 4, 3]), True),
        (conv_pair(6, 2, 3, 2), False),
        (conv_pair(7, 3, 2, 2, 1, 2), False),
        (conv_pair(4, 2, 3, 2, 3, 3, stride=2), False),
    ],
    ids=["gemm", "gemm-uneven", "gemm-imperfect", "activation", "scale", "chain", "conv3x3", "conv1x1", "conv-stride"],
)
def test_nothing_is_lost(workload, perfect):
    """Best traffic at every capacity and the (buffer, DRAM access) front equal those of all rows, recomputing or not."""
    shape = shape_of(workload)
    raw, kept = _all_rows(shape.structure), prune(shape.structure).rows
    assert len(kept) < len(raw)
    for group in {row.repeats for row in raw}:
        fronts = []
        for rows in (raw, kept):
            mine = [row for row in rows if row.repeats == group]
            demand, traffic = _demand_and_traffic(shape, mine, perfect)
            fronts.append(_front(demand.ravel(), traffic.ravel()))
        assert fronts[0] == fronts[1]


def test_every_dropped_row_has_a_dominating_one_of_its_group():
    """The relation is checked at sample tilings, apart from the proof."""
    shape = shape_of(gemm_pair(12, 4, 6, 4))
    raw, kept = _all_rows(shape.structure), prune(shape.structure).rows
    demand, traffic = _demand_and_traffic(shape, raw, True)
    below_demand, below_traffic = _demand_and_traffic(shape, kept, True)
    for at in range(0, len(raw), 7):
        same = [n for n, row in enumerate(kept) if row.group == raw[at].group]
        assert any((below_demand[n] <= demand[at]).all() and (below_traffic[n] <= traffic[at]).all() for n in same)


def test_kept_rows_do_not_dominate_each_other(pair):
    rows = pair.rows
    assert not any(dominates(u, v) for u in rows for v in rows if u is not v)


def test_convex_combination_is_needed(pair):
    """Routing each sum onto one sum of the other row alone leaves 63 rows."""

    def by_one_phase(u: Row, v: Row) -> bool:
        moves = all(at_most(a, b) for us, vs in zip(u.dram, v.dram) for a, b in zip(us, vs))
        own = all(routing(a, b, b) is not None for a, b in zip(u.phases, v.phases))
        return moves and own and u.group == v.group

    structure = shape_of(gemm_pair(64, 32, 64, 32)).structure
    rows = _all_rows(structure)
    kept: list[Row] = []
    for row in sorted(rows, key=lambda r: (sum(map(len, r.phases)), sum(len(m) for terms in r.dram for m in terms))):
        if not any(by_one_phase(u, row) for u in kept):
            kept = [u for u in kept if not by_one_phase(row, u)] + [row]
    assert (sum(not r.recomputes for r in kept), sum(r.recomputes for r in kept)) == (27, 36)
    assert len(pair.rows) == 58


def test_routing_finds_the_share():
    """One term below 1 of 2 equal halves: x + x <= max(x + x + y, ...) needs no share; x <= max(y, x) needs the second sum."""
    x, y = times(((tile_extent(0), 1),)), times(((tile_extent(1), 1),))
    assert routing([x], [y], [x]) is not None
    assert routing([x], [y], [y]) is None
    assert routing([x, x], [x], [x]) is None
    assert routing([x, y], [x], [y]) is None
    assert routing([x, y], [x, y], [y]).share == 1


def test_order_of_extents_holds_at_all_small_tilings():
    """Whatever the symbolic order claims is true for every size and tile, imperfect ones included."""
    extents = [tile_extent(0), full_extent(0), trip_count(0), tile_extent(0, 1, 3), full_extent(0, 1, 3)]
    extents += [tile_extent(0, 2, 3), Extent(0, full=1, trips=2), Extent(0, full=2, trips=1)]
    extents += [Extent(0, own=1, stride=1, window=3), Extent(0, constant=1)]
    points = [(tile, -(-size // tile), size) for size in range(1, 12) for tile in range(1, size + 1)]
    claimed = 0
    for a in extents:
        for b in extents:
            if a.at_most(b):
                claimed += 1
                assert all(extent_value(a, *p) <= extent_value(b, *p) for p in points), (a, b)
    assert claimed > len(extents)
    assert all(extent_value(a, *p) >= 1 for a in extents for p in points)


def test_shipped_rows_equal_derived_ones():
    """All entries are there; those that are quick to derive are derived (the others by ``python -m
    stitchloop.fused.shipped``)."""
    shipped, structures = json.loads(SHIPPED.read_text()), common_structures()
    assert set(shipped) == {digest(structure) for structure in structures.values()}
    for name, structure in structures.items():
        if name.startswith(("GEMM", "elementwise", "convolutions 1x1, 1x1")):
            assert shipped[digest(structure)] == json.loads(json.dumps(encoded(prune(structure)))), name


def test_cache_is_written_read_and_never_trusted(tmp_path, monkeypatch):
    monkeypatch.setenv("STITCHLOOP_CACHE", str(tmp_path))
    structure = shape_of(conv_pair(9, 2, 2, 2, 2, 4)).structure
    first = pruned_rows(structure)
    (entry,) = tmp_path.iterdir()
    assert pruned_rows(structure) == first
    assert decoded(structure, encoded(first)) == first
    entry.write_text('{"raw": 1, "templates": [[[9]]]}')
    assert pruned_rows(structure) == first
    assert buffer_proof(first.rows[0], first.rows[0]) is not None
