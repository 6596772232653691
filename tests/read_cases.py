"""Inputs that the tests of the readers share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stitchloop.errors import InputError
from stitchloop.read import Source, load_spec
from stitchloop.spec import Spec

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT.parent / "shared" / "reference"

ARCHITECTURE = """
architecture:
  version: 0.4
  nodes:
  - !Container
    name: system
    attributes: {technology: "45nm", global_cycle_seconds: 2e-9}
  - !Component
    name: DRAM
    class: DRAM
    attributes: {type: "LPDDR4", width: 64, datawidth: 16, shared_bandwidth: 2.5}
  - !Component
    name: GLB
    class: SRAM
    attributes: {depth: 1024, width: 64, datawidth: 16, read_bandwidth: 16, write_bandwidth: 8}
  - !Container
    name: PE
    spatial: {meshX: 4, meshY: 2}
  - !Component
    name: RF
    class: regfile
    attributes: {depth: 64, width: 16, datawidth: 16}
  - !Component
    name: MAC
    class: intmac
    spatial: {meshX: 2}
"""
PROBLEM = """
problem:
  version: 0.4
  shape:
    name: gemm
    dimensions: [M, N, K]
    data_spaces:
    - {name: A, projection: [[[M]], [[K]]]}
    - {name: B, projection: [[[K]], [[N]]]}
    - {name: Z, projection: [[[M]], [[N]]], read_write: true}
  instance: {M: 8, N: 4, K: 6}
"""


def spec_of(*texts: str | dict[str, Any], **options: Any) -> Spec:
    """The specification of several YAML texts or documents."""
    inputs = [Source(f"input{number}.yaml", text) if isinstance(text, str) else text for number, text in enumerate(texts)]
    return load_spec(inputs, **options)


def complaint(*texts: str | dict[str, Any], **options: Any) -> InputError:
    """The error that inputs raise."""
    with pytest.raises(InputError) as caught:
        spec_of(*texts, **options)
    return caught.value


def architecture_of(*nodes: str) -> str:
    """A v0.4 architecture of flow-style nodes between a DRAM and a MAC."""
    lines = ["!Component {name: DRAM, class: DRAM, attributes: {width: 64, datawidth: 16}}", *nodes]
    lines += ["!Component {name: MAC, class: intmac}"]
    return "architecture:\n  version: 0.4\n  nodes:\n" + "".join(f"  - {line}\n" for line in lines)
