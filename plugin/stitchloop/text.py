"""Words of messages."""

from __future__ import annotations


def counted(count: int, thing: str) -> str:
    """A number with what it counts: ``1 group``, ``12,000 groups``."""
    return f"{count:,} {thing}{'s' if count != 1 else ''}"
