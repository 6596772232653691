"""Stitchloop: a fusion-aware mapper for Timeloop users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "call_mapper", "call_model"]

if TYPE_CHECKING:
    from stitchloop.api import call_mapper, call_model


def __getattr__(name: str) -> Any:
    """Load the public functions when they are first asked for, so that importing the package stays cheap."""
    if name in ("call_mapper", "call_model"):
        from stitchloop import api

        return getattr(api, name)
    raise AttributeError(f"module 'stitchloop' has no attribute {name!r}")
