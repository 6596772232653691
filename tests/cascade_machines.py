"""Shipped machines and Mamba layers that the cascade tests share."""

from __future__ import annotations

from functools import cache

from stitchloop.cascade.cascade import Cascade
from stitchloop.cascade.machine import Machine, machine_of
from stitchloop.cascade.read import load_cascade
from stitchloop.content import content_root
from stitchloop.read import load_spec


@cache
def machine(name: str = "mambalaya") -> Machine:
    architecture = load_spec([content_root() / "arch" / f"{name}.yaml"]).architecture
    assert architecture is not None
    return machine_of(architecture, name)


@cache
def mamba(model: str, steps: int) -> Cascade:
    return load_cascade(content_root() / "problems" / "mamba" / f"mamba-{model}.yaml").with_sizes({"I": steps})


@cache
def shipped(name: str) -> Cascade:
    return load_cascade(content_root() / "problems" / "cascades" / f"{name}.yaml")
