"""What tests of the commands share: a small set of inputs, and a way to run a command in this process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stitchloop.cli.app import main

SMALL = Path(__file__).parent / "data" / "small"
ARCH, GEMM, MAPPING = (str(SMALL / name) for name in ("arch.yaml", "gemm.yaml", "mapping.yaml"))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit status of ``stitchloop ARGUMENTS`` in this process."""
    monkeypatch.setattr(sys, "argv", ["stitchloop", *arguments])
    try:
        main()
    except SystemExit as exit:
        return int(exit.code or 0)
    return 0
