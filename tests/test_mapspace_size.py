"""The size of a mapspace, its listing and its membership test agree with each other and with Timeloop's construction."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import permutations, product
from math import comb

import pytest

from mapspace_cases import conv, gemm, matvec, tiny, two_levels
from stitchloop.architecture import Architecture
from stitchloop.constraints import Constraints, FactorConstraint, LevelConstraints, LoopConstraint
from stitchloop.errors import InputError
from stitchloop.mapping import LevelMapping, Loop, Mapping
from stitchloop.mapspace import Mapspace, build_mapspace
from stitchloop.mapspace.factors import ANY, FactorRange, divisors, factorizations
from stitchloop.options import MapperOptions
from stitchloop.workload import Einsum


def random_loop_constraint(rng: random.Random, einsum: Einsum, spatial: bool) -> LoopConstraint:
    ranks = list(einsum.ranks)
    rng.shuffle(ranks)
    listed = rng.randint(0, len(ranks)) if rng.random() < 0.6 else 0
    outer = rng.randint(0, len(ranks) - listed) if rng.random() < 0.3 else 0
    factors = []
    for rank in einsum.ranks:
        if rng.random() < 0.25:
            relation = rng.choice(["=", "<=", ">="])
            value = 1 if relation == ">=" else rng.choice([1, 1, 2, 3])
            if relation != "=" or einsum.sizes[rank] % max(value, 1) == 0:
                factors.append(FactorConstraint(rank, relation, value))
    split = rng.randint(0, len(ranks) + 1) if spatial and rng.random() < 0.6 else None
    return LoopConstraint(tuple(factors), tuple(ranks[:listed]), tuple(ranks[len(ranks) - outer :]), split)


def random_constraints(rng: random.Random, einsum: Einsum, architecture: Architecture) -> Constraints:
    names = [tensor.name for tensor in einsum.tensors]
    levels = []
    for level in architecture.levels:
        spatial = level.fanout_x * level.fanout_y > 1
        keep = {name for name in names if rng.random() < 0.6} if not level.is_fanout else set()
        bypass = {name for name in names if name not in keep and rng.random() < 0.6} if level.name not in ("DRAM",) else set()
        levels.append(
            LevelConstraints(
                LoopConstraint() if level.is_fanout else random_loop_constraint(rng, einsum, False),
                random_loop_constraint(rng, einsum, True) if spatial else LoopConstraint(),
                frozenset(keep),
                frozenset(bypass),
            )
        )
    return Constraints(tuple(levels))


def random_mapspaces(seed: int, count: int, imperfect: bool = False) -> Iterator[Mapspace]:
    rng = random.Random(seed)
    einsums = [gemm(2, 3, 2), gemm(4, 2, 1), matvec(4, 6), matvec(5, 3), conv(2, 1, 3, 2)]
    while count:
        einsum, architecture = rng.choice(einsums), rng.choice([tiny(2, 2), tiny(4, 1), two_levels()])
        try:
            mapspace = build_mapspace(
                einsum, architecture, random_constraints(rng, einsum, architecture), MapperOptions(imperfect=imperfect)
            )
        except InputError:
            continue
        if mapspace.size <= 4000:
            count -= 1
            yield mapspace


def as_timeloop_builds_it(mapspace: Mapspace, constraints: Constraints) -> set[Mapping]:
    """All mappings by Timeloop's construction: a full permutation of all ranks and a split per slot, unit loops dropped last."""
    ranks, found = mapspace.einsum.ranks, set()
    per_rank = [list(factorizations(size, [ANY] * len(mapspace.slots))) for size in mapspace.einsum.rank_sizes]
    for bounds in product(*per_rank):
        nests = []
        for (index, spatial), slot in zip(mapspace.slots, range(len(mapspace.slots))):
            given = constraints.levels[index].spatial if spatial else constraints.levels[index].temporal
            level = mapspace.architecture.levels[index]
            wide = level.fanout_x * level.fanout_y
            here = {rank: b[slot] for rank, b in zip(ranks, bounds)}
            loopless = wide == 1 if spatial else level.is_fanout
            if loopless and any(bound > 1 for bound in here.values()):
                break
            if not all(
                {"=": here[f.rank] == f.value, "<=": here[f.rank] <= f.value, ">=": here[f.rank] >= f.value}[f.relation]
                for f in given.factors
            ):
                break
            nests.append(slot_nests(ranks, here, given, spatial, unordered=index == 0 and wide == 1 and not spatial))
        else:
            keeps = []
            for level, entry in zip(mapspace.architecture.levels, constraints.levels):
                names = [t.name for t in mapspace.einsum.tensors]
                free = [] if level.is_fanout else [n for n in names if n not in entry.keep and n not in entry.bypass]
                forced = frozenset(() if level.is_fanout else entry.keep)
                if level.name == "DRAM":
                    keeps.append([forced | frozenset(free)])
                else:
                    keeps.append(
                        [forced | {n for n, bit in zip(free, bits) if bit} for bits in product((0, 1), repeat=len(free))]
                    )
            for chosen in product(*nests):
                for kept in product(*keeps):
                    found.add(
                        Mapping(
                            tuple(
                                LevelMapping(t, x, y, frozenset(keep))
                                for ((x, y), t, keep) in zip(chosen[::2], (c[0] for c in chosen[1::2]), kept)
                            )
                        )
                    )
    return found


def slot_nests(ranks: tuple[str, ...], bounds: dict[str, int], given: LoopConstraint, spatial: bool, unordered: bool) -> set:
    nests = set()
    free = [rank for rank in ranks if rank not in given.permutation + given.outer]
    for middle in permutations(free):
        order = given.permutation + (tuple(free) if unordered else middle) + given.outer
        splits = [len(ranks)] if not spatial else range(len(ranks) + 1) if given.split is None else [given.split]
        for split in splits:
            cut = tuple(Loop(r, bounds[r]) for r in order[:split] if bounds[r] > 1)
            rest = tuple(Loop(r, bounds[r]) for r in order[split:] if bounds[r] > 1)
            nests.add((cut, rest))
    return nests


def test_equals_timeloops_construction() -> None:
    for mapspace in random_mapspaces(1, 40):
        listed = list(mapspace.enumerate_mappings())
        assert len(listed) == mapspace.size
        assert mapspace.constraints is not None
        assert set(listed) == as_timeloop_builds_it(mapspace, mapspace.constraints)


@pytest.mark.parametrize("imperfect", [False, True])
def test_lists_each_mapping_once_and_contains_it(imperfect: bool) -> None:
    for mapspace in random_mapspaces(2 + imperfect, 40, imperfect):
        listed = list(mapspace.enumerate_mappings())
        assert len(listed) == len(set(listed)) == mapspace.size
        fitting = set(mapspace.enumerate_mappings(fitting=True))
        assert fitting == {mapping for mapping in listed if mapspace.contains(mapping) is None}


def test_rejects_what_it_does_not_list() -> None:
    """Mappings of the unconstrained mapspace are in a constrained one exactly when that lists them."""
    rng = random.Random(4)
    for mapspace in random_mapspaces(5, 15):
        everything = build_mapspace(mapspace.einsum, mapspace.architecture)
        listed = set(mapspace.enumerate_mappings(fitting=True))
        sample = [m for m in everything.enumerate_mappings(fitting=True) if rng.random() < 2000 / everything.size]
        for mapping in sample:
            canonical = mapping in listed
            assert (mapspace.contains(mapping) is None) == canonical or mapspace.levels[0].temporal.canonical
            if canonical:
                assert mapspace.contains(mapping) is None


def test_partitions_are_the_fitting_layouts() -> None:
    for mapspace in random_mapspaces(6, 30):
        for level in mapspace.levels:
            looped = dict.fromkeys(mapspace.einsum.ranks, 2)
            sides = {(frozenset(x), frozenset(y)) for x, y in level.spatial.layouts(looped)}
            mesh = level.spatial.fanout_x, level.spatial.fanout_y
            fits = {side for side in sides if all(2 ** len(ranks) <= there for ranks, there in zip(side, mesh))}
            found = list(level.spatial.partitions(looped))
            assert len(found) == len(set(found))
            assert set(found) == fits


def test_large_sizes_are_exact_integers() -> None:
    """One rank of 2**20 over four open slots, of which the spatial one has two layouts where it has a loop."""
    mapspace = build_mapspace(matvec(1 << 20, 1), tiny(4, 1))
    outer_slots = comb(20 + 2, 2)
    assert mapspace.size == (2 * comb(20 + 3, 3) - outer_slots) * 2**6
    for size in (2**40 * 3**20, 2**60):
        assert build_mapspace(matvec(size, 1), two_levels()).size == len(divisors(size)) * 2**3


def test_imperfect_chain_counts() -> None:
    """A rank of 7 in one slot of two: bounds (b, ceil(7 / b)) for every b from 1 to 7."""
    mapspace = build_mapspace(matvec(7, 1), two_levels(), None, MapperOptions(imperfect=True))
    assert mapspace.size == 7 * 2**3
    ranged = [FactorRange(2, 3), ANY]
    assert list(factorizations(7, ranged, imperfect=True)) == [(2, 4), (3, 3)]
