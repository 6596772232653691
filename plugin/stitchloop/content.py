"""Where the shipped architectures, problems and mapper options lie."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def content_root() -> Path:
    """Folder that holds ``arch/``, ``problems/`` and ``mappers/``: inside an installed package, or the checkout."""
    installed = _PACKAGE / "content"
    return installed if installed.is_dir() else _PACKAGE.parent.parent
