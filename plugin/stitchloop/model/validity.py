"""Which mappings the hardware and the workload forbid: section "Validity" of the counting rules, in the tool's order."""

from __future__ import annotations

from collections.abc import Sequence

from stitchloop.architecture import Architecture
from stitchloop.errors import InvalidMapping
from stitchloop.mapping import Mapping
from stitchloop.model.tiles import Form, Nest
from stitchloop.workload import Einsum


def check_factors(einsum: Einsum, mapping: Mapping, architecture: Architecture) -> None:
    """Each rank's loops must spell its size: the product of the bounds, or the mixed-radix number of the last bounds."""
    if len(mapping.levels) != len(architecture.levels):
        raise InvalidMapping(
            f"parsing mapping: {len(mapping.levels)} levels for the {len(architecture.levels)} of the architecture",
            kind="factors",
            size=len(mapping.levels),
            limit=len(architecture.levels),
        )
    spelt = dict.fromkeys(einsum.ranks, 0)
    for level in reversed(mapping.levels):
        for loop in (level.spatial + level.temporal)[::-1]:
            if loop.rank not in spelt:
                raise InvalidMapping(f"parsing mapping: {einsum.name} has no rank {loop.rank}", kind="factors")
            if not 1 <= loop.residual <= loop.bound:
                raise InvalidMapping(
                    f"parsing mapping: {loop.rank}={loop.bound},{loop.last}: the last pass has 1 to {loop.bound} iterations",
                    kind="factors",
                    size=loop.last,
                    limit=loop.bound,
                )
            spelt[loop.rank] = spelt[loop.rank] * loop.bound + loop.residual - 1
    for rank, size in zip(einsum.ranks, einsum.rank_sizes, strict=True):
        if spelt[rank] + 1 != size:
            raise InvalidMapping(
                f"parsing mapping: product of all factors of dimension {rank} is {spelt[rank] + 1}, "
                f"which is not equal to the dimension size of the workload {size}.",
                kind="factors",
                size=spelt[rank] + 1,
                limit=size,
            )


def check_kept(keeps: Sequence[Sequence[bool]], compute: str) -> None:
    """Every tensor needs a level that keeps it."""
    if not all(any(kept) for kept in keeps):
        raise InvalidMapping(
            f"couldn't map level {compute}: one of the tensors is bypassed in all storage levels", kind="unkept", level=compute
        )


def check_hardware(architecture: Architecture, nest: Nest, forms: Sequence[Form], keeps: Sequence[Sequence[bool]]) -> None:
    """Compute units and their mesh, then level by level, inner to outer: capacity, instances, X and Y."""
    compute = architecture.compute
    for what, used, there in (
        ("instances", nest.instances[0], compute.instances),
        ("X expansion", nest.used_x[0], compute.mesh_x),
        ("Y expansion", nest.used_y[0], compute.mesh_y),
    ):
        if used > there:
            raise InvalidMapping(
                f"couldn't map level {compute.name}: mapped max Arithmetic {what} {used} exceeds hardware instances {there}",
                kind=_kind(what),
                level=compute.name,
                size=used,
                limit=there,
            )
    for i, level in enumerate(architecture.levels):
        if not level.is_fanout:
            _check_capacity(architecture, i, [form.volume(nest.tiles[i]) for form, kept in zip(forms, keeps) if kept[i]])
        for what, used, there in (
            ("instances", nest.instances[i + 1], level.instances),
            ("X expansion", nest.used_x[i + 1], level.mesh_x),
            ("Y expansion", nest.used_y[i + 1], level.mesh_y),
        ):
            if used > there:
                raise InvalidMapping(
                    f"couldn't map level {level.name}: mapped {what} {used} exceeds available hardware instances {there}",
                    kind=_kind(what),
                    level=level.name,
                    size=used,
                    limit=there,
                )


def _check_capacity(architecture: Architecture, i: int, tiles: list[int]) -> None:
    level = architecture.levels[i]
    if level.capacity is None:
        return
    size, least = sum(tiles), level.capacity * level.min_utilization
    if size > level.capacity:
        raise InvalidMapping(
            f"couldn't map level {level.name}: mapped tile size {size} exceeds buffer capacity {level.capacity}",
            kind="capacity",
            level=level.name,
            size=size,
            limit=level.capacity,
        )
    if size < least:
        raise InvalidMapping(
            f"couldn't map level {level.name}: mapped tile size {size} is less than constrained minimum utilization {least:g}",
            kind="min_utilization",
            level=level.name,
            size=size,
            limit=least,
        )


def _kind(what: str) -> str:
    return {"instances": "instances", "X expansion": "mesh_x", "Y expansion": "mesh_y"}[what]
