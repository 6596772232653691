"""The shipped architectures, problems and mapper options: where they lie, and how a command finds them by name."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
FOLDERS = ("arch", "problems", "mappers")


def content_root() -> Path:
    """Folder that holds ``arch/``, ``problems/`` and ``mappers/``: inside an installed package, or the checkout."""
    installed = _PACKAGE / "content"
    return installed if installed.is_dir() else _PACKAGE.parent.parent


def resolve(name: str | Path, folders: tuple[str, ...] = FOLDERS) -> Path:
    """A user's file, or the shipped one that ``name`` means.

    A path that exists is taken as it is. ``arch/nvdla_like.yaml`` (with or without the ending) and a bare
    ``nvdla_like`` mean shipped files when no such path exists. Anything else comes back unchanged, for the reader to report.
    """
    path = Path(name)
    if path.exists() or path.is_absolute() or ".." in path.parts:
        return path
    root = content_root()
    for candidate in (root / path, root / f"{path}.yaml"):
        if path.parts[:1] and path.parts[0] in folders and candidate.exists():
            return candidate
    if len(path.parts) == 1 and not path.suffix.removeprefix(".").isalpha():
        found = [match for folder in folders for match in sorted((root / folder).rglob(f"{path}.yaml"))]
        if len(found) == 1:
            return found[0]
    return path


def shipped_names(folder: str) -> list[str]:
    """Names of the shipped files of one folder, without endings, sorted; tables beside an architecture are left out."""
    base = content_root() / folder
    return [str(path.relative_to(base).with_suffix("")) for path in sorted(base.rglob("*.yaml")) if "." not in path.stem]
