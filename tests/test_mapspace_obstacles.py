"""Why no mapping is valid: what is said to be impossible is, and the relaxation that is named suffices and is the smallest."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from mapspace_cases import conv, gemm, matvec, tiny, two_levels
from stitchloop.architecture import Architecture
from stitchloop.constraints import Constraints, FactorConstraint, LevelConstraints, LoopConstraint, Relation
from stitchloop.errors import InputError, Obstacle, Place
from stitchloop.mapspace import Mapspace, build_mapspace
from stitchloop.mapspace.diagnostics import diagnose
from stitchloop.mapspace.feasibility import Walk
from stitchloop.mapspace.membership import tile_at
from stitchloop.mapspace.obstacles import obstacles
from stitchloop.options import MapperOptions
from stitchloop.search.exhaustive import valid_mappings
from stitchloop.workload import Einsum

ABZ = frozenset("ABZ")


def at(line: int) -> Place:
    return Place("arch.yaml", (), line)


def loops(*factors: tuple[str, Relation, int], line: int = 1) -> LoopConstraint:
    return LoopConstraint(tuple(FactorConstraint(*factor, at(line)) for factor in factors), place=at(line))


def has_valid(mapspace: Mapspace) -> bool:
    return any(stats is not None for _, stats in valid_mappings(mapspace))


def with_capacity(architecture: Architecture, name: str, words: int) -> Architecture:
    levels = tuple(replace(level, depth=words) if level.name == name else level for level in architecture.levels)
    return replace(architecture, levels=levels)


def random_tight(seed: int, count: int) -> Iterator[tuple[Einsum, Architecture, Constraints]]:
    """Constraints and capacities tight enough that about half of the mapspaces hold nothing valid."""
    rng = random.Random(seed)
    while count:
        einsum = rng.choice([gemm(2, 3, 2), matvec(4, 3), matvec(2, 6), conv(2, 1, 3, 2)])
        names = frozenset(tensor.name for tensor in einsum.tensors)
        architecture = rng.choice([tiny(2, 2, rf=rng.randint(2, 6), glb=rng.randint(4, 14)), two_levels(rng.randint(2, 9))])
        levels = []
        for level in architecture.levels:
            factors = [
                (rank, rng.choice(["=", ">=", "<="]), rng.choice([1, 2, 3])) for rank in einsum.ranks if rng.random() < 0.3
            ]
            spatial = loops(*factors) if level.is_fanout else LoopConstraint()
            temporal = LoopConstraint() if level.is_fanout else loops(*factors)
            keep = names if rng.random() < 0.8 else frozenset(rng.sample(sorted(names), 2))
            levels.append(
                LevelConstraints(
                    temporal,
                    spatial,
                    keep=frozenset() if level.is_fanout else keep,
                    min_parallelism=rng.choice([0.0, 0.0, 0.5, 0.7]),
                    min_utilization=rng.choice([0.0, 0.0, 0.0, 0.6, 0.9]) if level.depth else 0.0,
                )
            )
        constraints = Constraints(tuple(levels))
        try:
            mapspace = build_mapspace(einsum, architecture, constraints)
        except InputError:
            continue
        if mapspace.size <= 1500:
            count -= 1
            yield einsum, architecture, constraints


def test_feasibility_equals_brute_force() -> None:
    verdicts = []
    for einsum, architecture, constraints in random_tight(1, 120):
        mapspace = build_mapspace(einsum, architecture, constraints)
        verdicts.append(has_valid(mapspace))
        assert Walk(mapspace).is_feasible == verdicts[-1]
        assert bool(obstacles(mapspace)) != verdicts[-1]
    assert 20 < sum(verdicts) < 100


def test_capacities_named_are_the_least_that_do() -> None:
    """Where a capacity alone forbids all, the words named let a mapping in, and one word less does not."""
    checked = 0
    for einsum, architecture, constraints in random_tight(2, 120):
        for obstacle in obstacles(build_mapspace(einsum, architecture, constraints)):
            if obstacle.kind != "capacity" or "have to be lifted" in obstacle.sentence:
                continue
            assert obstacle.needed is not None
            assert obstacle.level is not None
            checked += 1
            for words, expected in ((int(obstacle.needed), True), (int(obstacle.needed) - 1, False)):
                larger = with_capacity(architecture, obstacle.level, words)
                plain = Constraints(tuple(replace(level, min_utilization=0.0) for level in constraints.levels))
                if plain == constraints:
                    assert has_valid(build_mapspace(einsum, larger, constraints)) == expected
    assert checked > 10


def relaxed(architecture: Architecture, constraints: Constraints, words: str) -> tuple[Architecture, Constraints]:
    """The inputs changed as a relaxation says, by hand: architecture, bypasses, shares and factors."""
    levels, entries = list(architecture.levels), list(constraints.levels)
    names = [level.name for level in levels]
    if found := re.match(r"raise the capacity of (\w+) to (\d+) words", words):
        architecture = with_capacity(architecture, found[1], int(found[2]))
    elif found := re.match(r"lower the least utilization of (\w+) to (\S+) or less", words):
        entries[names.index(found[1])] = replace(entries[names.index(found[1])], min_utilization=float(found[2]))
    elif found := re.match(r"drop the least utilization of (\w+)$", words):
        entries[names.index(found[1])] = replace(entries[names.index(found[1])], min_utilization=0.0)
    elif found := re.match(r"set min parallelism of (\w+) to (\S+)", words):
        entries[names.index(found[1])] = replace(entries[names.index(found[1])], min_parallelism=float(found[2]))
    elif found := re.match(r"set min parallelism to (\S+) or less", words):
        entries[0] = replace(entries[0], min_parallelism=float(found[1]))
    elif found := re.match(r"widen inter_PE_spatial to (\d+) x (\d+)", words):
        architecture = tiny(int(found[1]), int(found[2]), rf=levels[0].depth or 0, glb=levels[2].depth or 0)
    elif found := re.match(r"drop (\w+)(=|<=|>=)(\d+) at (\w+) \((temporal|spatial)\)", words):
        entry = entries[names.index(found[4])]
        mine = getattr(entry, found[5])
        left = tuple(f for f in mine.factors if (f.rank, f.relation, f.value) != (found[1], found[2], int(found[3])))
        assert len(left) < len(mine.factors)
        entries[names.index(found[4])] = replace(entry, **{found[5]: replace(mine, factors=left)})
    else:
        raise AssertionError(words)
    return architecture, Constraints(tuple(entries))


def test_every_relaxation_that_is_named_suffices() -> None:
    """Some did not: shares were rounded up, and least utilization and parallelism move with what is raised."""
    kinds = set()
    for einsum, architecture, constraints in random_tight(3, 160):
        found = obstacles(build_mapspace(einsum, architecture, constraints))
        together = [obstacle for obstacle in found if "have to be lifted" in obstacle.sentence]
        for obstacle in found:
            for words in obstacle.relaxation.split(", or "):
                kinds.add(words.split()[0] + " " + obstacle.kind)
                if together:
                    architecture, constraints = relaxed(architecture, constraints, words)
                elif bypass := re.match(r"let it bypass (\w+)", words):
                    at = [level.name for level in architecture.levels].index(obstacle.level or "")
                    entries = list(constraints.levels)
                    gone = frozenset({bypass[1]})
                    entries[at] = replace(entries[at], keep=entries[at].keep - gone, bypass=entries[at].bypass | gone)
                    assert has_valid(build_mapspace(einsum, architecture, Constraints(tuple(entries)))), (found, words)
                else:
                    assert has_valid(build_mapspace(einsum, *relaxed(architecture, constraints, words))), (found, words)
        if together:
            assert has_valid(build_mapspace(einsum, architecture, constraints)), found
    assert {"raise capacity", "let capacity", "lower min_utilization", "set parallelism", "drop capacity"} <= kinds


def only(mapspace: Mapspace) -> Obstacle:
    (found,) = obstacles(mapspace)
    return found


def test_a_register_file_that_is_too_small() -> None:
    given = Constraints((LevelConstraints(keep=ABZ), LevelConstraints(), LevelConstraints(), LevelConstraints()))
    found = only(build_mapspace(gemm(4, 4, 4), tiny(rf=2), given))
    assert (found.kind, found.level, found.needed, found.limit) == ("capacity", "RF", 3, 2)
    assert "a single point" in found.sentence
    assert "1 more than its capacity of 2" in found.sentence
    assert "depth 3" in found.relaxation
    assert "bypass A" in found.relaxation


def test_a_factor_that_overflows_is_named_as_the_way_out() -> None:
    rf = LevelConstraints(loops(("M", "=", 4), line=7), keep=ABZ)
    found = obstacles(build_mapspace(gemm(4, 4, 4), tiny(rf=6), Constraints((rf,) + (LevelConstraints(),) * 3)))[0]
    assert (found.kind, found.level, found.needed, found.limit) == ("capacity", "RF", 9, 6)
    assert "M=4" in found.sentence
    assert "A 4, B 1, Z 4" in found.sentence
    assert "drop M=4 at RF (temporal) (arch.yaml:7)" in found.relaxation


def test_a_fan_out_that_is_too_narrow() -> None:
    """Only the fan-out may loop over K, and it has two columns and two rows."""
    one = loops(("K", "=", 1), line=5)
    given = Constraints((LevelConstraints(one), LevelConstraints(), LevelConstraints(one), LevelConstraints(one)))
    found = obstacles(build_mapspace(gemm(2, 2, 8), tiny(2, 2), given))[0]
    assert (found.kind, found.level, found.needed, found.limit) == ("mesh", "inter_PE_spatial", 8, 4)
    assert "K=8" in found.sentence
    assert "2 x 2" in found.sentence
    assert "drop K=1 at RF (temporal) (arch.yaml:5)" in found.relaxation


def test_parallelism_that_no_factor_reaches() -> None:
    given = Constraints((LevelConstraints(), LevelConstraints(min_parallelism=0.9), LevelConstraints(), LevelConstraints()))
    found = only(build_mapspace(matvec(3, 5), tiny(2, 2), given))
    assert (found.kind, found.needed, found.limit) == ("parallelism", 4, 1)
    assert "1 instance of 4" in found.sentence
    assert "0.25" in found.relaxation


def test_utilization_that_no_tile_reaches() -> None:
    given = Constraints((LevelConstraints(keep=frozenset("AXZ"), min_utilization=0.9), LevelConstraints()))
    found = only(build_mapspace(matvec(2, 3), two_levels(40), given))
    assert (found.kind, found.level, found.limit) == ("min_utilization", "Buffer", 11)
    assert "0.275" in found.relaxation


def test_two_limits_at_once() -> None:
    given = Constraints((LevelConstraints(keep=ABZ), LevelConstraints(), LevelConstraints(keep=ABZ), LevelConstraints()))
    found = obstacles(build_mapspace(gemm(2, 2, 2), tiny(rf=2, glb=1), given))
    assert [(o.kind, o.level, o.needed) for o in found] == [("capacity", "RF", 3), ("capacity", "GLB", 3)]
    assert all("other limits have to be lifted with this one" in o.sentence for o in found)


@pytest.mark.parametrize(("buffer", "feasible"), [(3, True), (2, False)])
def test_imperfect_bounds(buffer: int, feasible: bool) -> None:
    given = Constraints((LevelConstraints(keep=frozenset("AXZ")), LevelConstraints()))
    mapspace = build_mapspace(matvec(7, 13), two_levels(buffer), given, MapperOptions(imperfect=True))
    assert (not obstacles(mapspace)) == feasible


def test_diagnostics_equal_brute_force() -> None:
    """Least and most words and instances of every level, over all mappings, fitting or not."""
    for einsum, architecture, constraints in random_tight(3, 25):
        mapspace = build_mapspace(einsum, architecture, constraints)
        listed = list(mapspace.enumerate_mappings())
        for row in diagnose(mapspace):
            index = architecture.index(row.level)
            space = mapspace.levels[index]
            tiles = [tile_at(mapping, index) for mapping in listed]
            keep, free = space.tensors.keep, space.tensors.keep | frozenset(space.tensors.free)
            assert row.least_words == min(sum(einsum.tensor(name).volume(tile) for name in keep) for tile in tiles)
            assert row.most_words == max(sum(einsum.tensor(name).volume(tile) for name in free) for tile in tiles)
            assert row.least_instances == min(mapping.levels[index].fanout for mapping in listed)
            fitting = [mapping.levels[index].fanout for mapping in mapspace.enumerate_mappings(fitting=True)]
            assert row.most_instances == max(fitting, default=0)
            assert row.verdict in ("ok", "tight", "impossible")
            if row.verdict == "impossible":
                assert not has_valid(mapspace)


def test_shares_in_relaxations_are_rounded_to_the_side_that_does() -> None:
    """2 of 3 columns were called a min parallelism of 0.6667, which 2 of 3 do not reach."""
    fixed = loops(("M", "<=", 2))
    given = Constraints((LevelConstraints(), LevelConstraints(spatial=fixed, min_parallelism=0.9), *(LevelConstraints(),) * 2))
    found = obstacles(build_mapspace(matvec(2, 1), tiny(3, 1), given))[0]
    assert "min parallelism of inter_PE_spatial to 0.6666" in found.relaxation


def test_a_max_parallelism_below_the_spatial_factors() -> None:
    """No reason was given."""
    spatial = LevelConstraints(spatial=loops(("M", "=", 2)))
    given = Constraints((LevelConstraints(max_parallelism=0.3), spatial, *(LevelConstraints(),) * 2))
    found = only(build_mapspace(matvec(4, 2), tiny(3, 2), given))
    assert "at least 2 of 6 compute units in use, above the max parallelism of 0.3" in found.sentence
    assert "0.3334 or more" in found.relaxation


def test_large_problems_are_looked_at_level_by_level() -> None:
    """Two million tiles times thousands of spatial factors took minutes to say that a register file is too small."""
    given = Constraints((LevelConstraints(keep=ABZ), *(LevelConstraints(),) * 3))
    found = only(build_mapspace(gemm(720720, 1441440, 720720), tiny(rf=2), given))
    assert (found.kind, found.level, found.needed, found.limit) == ("capacity", "RF", 3, 2)
    assert "1 more than its capacity of 2" in found.sentence
