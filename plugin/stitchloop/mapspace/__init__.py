"""The mapspace: which mappings Timeloop's mapper would consider, and why none may be valid."""

from stitchloop.mapspace.mapspace import build_mapspace
from stitchloop.mapspace.space import KeepSpace, LevelSpace, Mapspace

__all__ = ["KeepSpace", "LevelSpace", "Mapspace", "build_mapspace"]
