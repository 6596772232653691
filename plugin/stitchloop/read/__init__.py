"""Timeloop's YAML files to typed objects. ``load_spec`` is the way in."""

from stitchloop.read.energy import require_energy
from stitchloop.read.spec import Input, Source, load_spec

__all__ = ["Input", "Source", "load_spec", "require_energy"]
