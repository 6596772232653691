"""Words of messages."""

from __future__ import annotations


def counted(count: int, thing: str) -> str:
    """A number with what it counts: ``1 group``, ``12,000 groups``."""
    return f"{count:,} {thing}{'s' if count != 1 else ''}"


def printable(sentence: str) -> str:
    """The sentence without what would steer a terminal; lines stay."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in sentence)
