"""Compares the models with what the reference tools gave, case by case."""

from __future__ import annotations

from stitchloop.validate.result import CaseResult, Difference, compare

__all__ = ["CaseResult", "Difference", "compare"]
