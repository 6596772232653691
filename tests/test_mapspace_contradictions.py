"""Constraints that contradict each other, the Einsum or the architecture are errors that name both sides and their places."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from mapspace_cases import gemm, tiny
from stitchloop.constraints import Constraints, FactorConstraint, LevelConstraints, LoopConstraint, Relation
from stitchloop.errors import InputError, Place
from stitchloop.mapspace import Mapspace, build_mapspace
from stitchloop.options import MapperOptions

EINSUM, ARCH = gemm(4, 6, 8), tiny(4, 2)
RF, PE, GLB, DRAM = range(4)


def at(line: int) -> Place:
    return Place("arch.yaml", ("architecture", "nodes", line), line)


def factor(rank: str, relation: Relation, value: int, line: int = 1) -> FactorConstraint:
    return FactorConstraint(rank, relation, value, at(line))


def temporal(*factors: FactorConstraint, line: int = 1, **more: Any) -> LevelConstraints:
    return LevelConstraints(temporal=LoopConstraint(factors, place=at(line), **more), place=at(line))


def spatial(*factors: FactorConstraint, line: int = 1, **more: Any) -> LevelConstraints:
    return LevelConstraints(spatial=LoopConstraint(factors, place=at(line), **more), place=at(line))


def build(levels: dict[int, LevelConstraints], imperfect: bool = False) -> Mapspace:
    given = Constraints(tuple(levels.get(index, LevelConstraints()) for index in range(len(ARCH.levels))))
    return build_mapspace(EINSUM, ARCH, given, MapperOptions(imperfect=imperfect))


CASES: dict[str, tuple[dict[int, LevelConstraints], tuple[str, ...]]] = {
    "two exact factors in one slot": (
        {GLB: temporal(factor("M", "=", 2, 3), factor("M", "=", 4, 9))},
        ("M=2", "M=4", "GLB", "arch.yaml:3", "arch.yaml:9"),
    ),
    "a lower above an upper bound": (
        {GLB: temporal(factor("K", ">=", 4, 3), factor("K", "<=", 2, 9))},
        ("K>=4", "K<=2", "arch.yaml:3", "arch.yaml:9"),
    ),
    "a product beyond the rank": (
        {GLB: temporal(factor("M", "=", 4, 3)), DRAM: temporal(factor("M", "=", 2, 9))},
        ("M=4 at GLB", "M=2 at DRAM", "product of 8", "rank M, 4", "arch.yaml:3", "arch.yaml:9"),
    ),
    "a product that does not divide": (
        {RF: temporal(factor("N", "=", 2, 3)), DRAM: temporal(factor("N", "=", 2, 9))},
        ("N=2 at RF", "N=2 at DRAM", "product of 4", "rank N, 6", "arch.yaml:3", "arch.yaml:9"),
    ),
    "a factor beyond the rank": ({GLB: temporal(factor("M", "=", 5, 3))}, ("M=5 at GLB", "size of rank M, 4", "arch.yaml:3")),
    "upper bounds that leave the rank uncovered": (
        {
            RF: temporal(factor("K", "<=", 2, 3)),
            PE: spatial(factor("K", "=", 1, 5)),
            GLB: temporal(factor("K", "<=", 1, 7)),
            DRAM: temporal(factor("K", "=", 2, 9)),
        },
        ("K<=2 at RF", "K=2 at DRAM", "no factors", "rank K = 8"),
    ),
    "everything fixed to less than the rank": (
        {
            RF: temporal(factor("M", "=", 1)),
            PE: spatial(factor("M", "=", 2, 5)),
            GLB: temporal(factor("M", "=", 1)),
            DRAM: temporal(factor("M", "=", 1, 9)),
        },
        ("M=2 at inter_PE_spatial", "product of 2", "rank M is 4"),
    ),
    "the rest claimed twice": (
        {RF: temporal(factor("M", "=", 0, 3)), DRAM: temporal(factor("M", "=", 0, 9))},
        ("M=0 at RF", "M=0 at DRAM", "both claim all", "arch.yaml:3", "arch.yaml:9"),
    ),
    "the rest against a lower bound elsewhere": (
        {RF: temporal(factor("M", "=", 0, 3)), DRAM: temporal(factor("M", ">=", 2, 9))},
        ("M=0 at RF", "M>=2 at DRAM", "arch.yaml:3", "arch.yaml:9"),
    ),
    "the rest against a factor in the same slot": (
        {RF: temporal(factor("M", "=", 0, 3), factor("M", "=", 2, 9))},
        ("M=0", "M=2", "arch.yaml:3", "arch.yaml:9"),
    ),
    "keep and bypass": (
        {GLB: LevelConstraints(keep=frozenset("A"), bypass=frozenset("AB"), place=at(3))},
        ("keep: A", "bypass: A", "GLB", "arch.yaml:3"),
    ),
    "a tensor that no level keeps": (
        {level: LevelConstraints(bypass=frozenset("A"), place=at(level)) for level in (RF, GLB, DRAM)},
        ("tensor A is bypassed in all storage levels", "RF", "GLB", "DRAM", "arch.yaml:2"),
    ),
    "keep at a fan-out": (
        {PE: LevelConstraints(keep=frozenset("A"), place=at(3))},
        ("keep", "inter_PE_spatial", "stores nothing"),
    ),
    "an unknown tensor": ({GLB: LevelConstraints(keep=frozenset({"Weights"}), place=at(3))}, ("Weights", "A, B, Z")),
    "an unknown rank in a factor": ({GLB: temporal(factor("Q", "=", 1, 3))}, ("Q=1 at GLB", "M=4, N=6, K=8", "arch.yaml:3")),
    "an unknown rank in a permutation": ({GLB: temporal(permutation=("M", "Q"), line=3)}, ("rank Q", "arch.yaml:3")),
    "an unknown rank in no_iteration_over": ({GLB: temporal(no_iteration_over=("W",), line=3)}, ("rank W", "arch.yaml:3")),
    "a rank twice in a permutation": (
        {GLB: temporal(permutation=("M", "K", "M"), line=3)},
        ("lists rank M twice", "arch.yaml:3"),
    ),
    "a rank inside and outside": (
        {GLB: temporal(permutation=("M", "K"), outer=("K",), line=3)},
        ("['M', 'K']", "['K']", "rank K twice", "arch.yaml:3"),
    ),
    "a negative split": ({PE: spatial(split=-1, line=3)}, ("split: -1", "arch.yaml:3")),
    "spatial factors beyond the fan-out": (
        {PE: spatial(factor("M", "=", 4, 3), factor("K", "=", 4, 9))},
        ("M=4", "K=4", "need 16 instances", "mesh 4 x 2", "arch.yaml:3", "arch.yaml:9"),
    ),
    "spatial factors that fit on no side": (
        {PE: spatial(factor("M", "=", 4, 3), factor("K", "=", 2, 9), permutation=("K", "M"), split=1)},
        ("M=4", "K=2", "mesh 4 x 2", "split 1"),
    ),
    "spatial factors beyond the parallelism": (
        {
            PE: LevelConstraints(
                spatial=LoopConstraint((factor("M", "=", 4, 3), factor("K", "=", 2, 9))), max_parallelism=0.5, place=at(4)
            )
        },
        ("M=4", "K=2", "max parallelism 4"),
    ),
    "parallelism bounds": (
        {PE: LevelConstraints(min_parallelism=0.8, max_parallelism=0.5, place=at(3))},
        ("0.8", "0.5", "arch.yaml:3"),
    ),
    "temporal loops at a fan-out": (
        {PE: temporal(factor("M", "=", 2, 3))},
        ("M=2 at inter_PE_spatial (temporal)", "no temporal loops", "arch.yaml:3"),
    ),
    "spatial loops below one instance": (
        {GLB: spatial(factor("M", "=", 2, 3))},
        ("M=2 at GLB (spatial)", "no fan-out", "arch.yaml:3"),
    ),
    "no iteration over a tensor whose rank is fixed": (
        {GLB: temporal(factor("M", "=", 2, 3), no_iteration_over=("A",), line=9)},
        ("M=2", "no iteration over A", "arch.yaml:3", "arch.yaml:9"),
    ),
    "maximize a rank that is fixed": (
        {PE: spatial(factor("M", "=", 2, 3), maximize=(("M", "K"),), line=9)},
        ("maximize_dims ['M', 'K']", "M=2", "arch.yaml:3", "arch.yaml:9"),
    ),
    "maximize temporal loops without a capacity": (
        {GLB: temporal(maximize=(("M",),), line=3)},
        ("maximize_dims_capacity", "arch.yaml:3"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_names_both_sides(name: str) -> None:
    levels, words = CASES[name]
    with pytest.raises(InputError) as caught:
        build(levels)
    assert caught.value.exit_status == 2
    assert caught.value.mend
    for word in words:
        assert word in str(caught.value)


def test_number_of_levels() -> None:
    with pytest.raises(InputError, match="constraints for 1 levels, while the architecture has 4"):
        build_mapspace(EINSUM, ARCH, Constraints((LevelConstraints(),)))


def test_imperfect_bounds_need_not_divide_but_have_to_cover() -> None:
    fixed = {GLB: temporal(factor("N", "=", 4, 3))}
    with pytest.raises(InputError, match="does not divide"):
        build(fixed)
    assert build(fixed, imperfect=True).size > 0
    short = {
        RF: temporal(factor("N", "=", 1)), PE: spatial(factor("N", "=", 1)),
        GLB: temporal(factor("N", "=", 2, 3)), DRAM: temporal(factor("N", "=", 2, 9)),
    }  # fmt: skip
    with pytest.raises(InputError, match=r"N=2 at GLB .* and N=2 at DRAM"):
        build(short, imperfect=True)


def test_the_rest_of_a_rank() -> None:
    mapspace = build({PE: spatial(factor("M", "=", 2)), GLB: temporal(factor("M", "=", 0))})
    exact = {slot: mapspace.loops(slot).factors["M"].exact for slot in mapspace.slots}
    assert exact == {slot: {(PE, True): 2, (GLB, False): 2}.get(slot, 1) for slot in mapspace.slots}


@pytest.mark.parametrize(
    ("group", "others", "expected"),
    [
        ((("M", "K"),), (), {"M": 4, "K": 2}),
        ((("K",),), (), {"K": 4}),
        ((("N", "M"),), (), {"N": 2, "M": 4}),
        ((("K",), ("M",)), (), {"K": 4, "M": 2}),
        ((("K",),), (factor("M", "=", 4),), {"K": 2}),
    ],
)
def test_maximize_fills_the_fan_out(
    group: tuple[tuple[str, ...], ...], others: tuple[FactorConstraint, ...], expected: dict[str, int]
) -> None:
    """On 4 x 2 PEs: the largest product in which each rank lies wholly on X or wholly on Y."""
    factors = build({PE: spatial(*others, maximize=group)}).levels[PE].spatial.factors
    assert {rank: factors[rank].exact for rank in expected} == expected


def test_maximize_temporal_up_to_its_capacity() -> None:
    factors = build({RF: temporal(maximize=(("K", "M"),), maximize_capacity=6)}).levels[RF].temporal.factors
    assert (factors["K"].exact, factors["M"].exact) == (4, 1)


def test_defaults_are_timeloops() -> None:
    """Nothing said: the outermost level keeps all, other storage levels try both, fan-outs keep nothing."""
    levels = build({}).levels
    assert levels[DRAM].tensors.keep == frozenset("ABZ")
    assert levels[GLB].tensors.free == levels[RF].tensors.free == ("A", "B", "Z")
    assert levels[PE].tensors.bypass == frozenset("ABZ")
    assert all(limits.is_free for limits in levels[GLB].temporal.factors.values())
    assert all(limits.exact == 1 for limits in levels[PE].temporal.factors.values())
    assert all(limits.exact == 1 for limits in levels[GLB].spatial.factors.values())


def test_parallelism_of_the_innermost_storage_level_is_the_machines() -> None:
    mapspace = build({RF: LevelConstraints(min_parallelism=0.5), PE: LevelConstraints(min_parallelism=0.3)})
    assert mapspace.min_parallelism == 0.5
    assert mapspace.levels[PE].spatial.min_used == 3


def test_a_huge_fan_out_is_no_work() -> None:
    """A fan-out was gone through instance by instance to find what parallelism leaves of it."""
    levels = [replace(level, fanout_x=10**7, fanout_y=10**7) if i == PE else level for i, level in enumerate(ARCH.levels)]
    given = Constraints(tuple(LevelConstraints(max_parallelism=0.5) if i == PE else LevelConstraints() for i in range(4)))
    space = build_mapspace(EINSUM, replace(ARCH, levels=tuple(levels)), given).levels[PE].spatial
    assert (space.min_used, space.max_used) == (1, 10**14 // 2)


def test_violations_are_named() -> None:
    mapspace = build(
        {
            PE: spatial(permutation=("K", "M"), split=1, line=3),
            GLB: replace(
                temporal(factor("M", "<=", 2, 5), permutation=("K", "N"), line=5), keep=frozenset("A"), min_utilization=0.9
            ),
        }
    )
    sentences = {mapspace.contains(mapping) for mapping in islice(build({}).sample_mappings(), 500)}
    said = " | ".join(sentence or "" for sentence in sentences)
    for words in ("M<=2 at GLB", "against the permutation ['K', 'N']", "split 1", "GLB bypasses A", "arch.yaml:5"):
        assert words in said


def test_parallelism_without_a_fan_out_is_refused() -> None:
    """It was dropped without a word at a level that has no fan-out."""
    with pytest.raises(InputError, match="GLB, which has no fan-out, would change nothing"):
        build({GLB: LevelConstraints(min_parallelism=0.5, place=at(3))})


def test_the_way_out_of_a_narrow_fan_out_is_a_number() -> None:
    with pytest.raises(InputError, match=r"K=8 .* needs 8 instances; .* or widen the fan-out to 8 x 2"):
        build({PE: spatial(factor("K", "=", 8, 3))})


def test_one_factor_that_does_not_divide_stands_alone() -> None:
    """Levels that admit no loop of the rank by nature were listed with it."""
    with pytest.raises(InputError) as caught:
        build({GLB: temporal(factor("M", "=", 3, 3))})
    assert "no fan-out" not in str(caught.value)
    assert "fixes a product of 3, which does not divide the size of rank M, 4" in str(caught.value)
