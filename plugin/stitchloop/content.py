"""The shipped architectures, problems and mapper options: where they lie, and how a command finds them by name."""

from __future__ import annotations

from pathlib import Path

from stitchloop.errors import InputError

_PACKAGE = Path(__file__).resolve().parent
FOLDERS = ("arch", "problems", "mappers")
_TABLES = (".ERT", ".ART")


def content_root() -> Path:
    """Folder that holds ``arch/``, ``problems/`` and ``mappers/``: inside an installed package, or the checkout."""
    installed = _PACKAGE / "content"
    return installed if installed.is_dir() else _PACKAGE.parent.parent


def resolve(name: str | Path, folders: tuple[str, ...] = FOLDERS) -> Path:
    """A user's file, or the shipped one that ``name`` means.

    A path that exists is taken as it is. ``arch/nvdla_like.yaml`` (with or without the ending) and a bare
    ``nvdla_like`` mean shipped files when no such path exists. Anything else comes back unchanged, for the reader to report.

    Raises
    ------
    InputError
        Nothing stands there, and a shipped file has nearly that name.
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
    near = _nearly(path, folders)
    if near:
        raise InputError(str(name), "no such file", f"did you mean the shipped '{near}'?")
    return path


def _nearly(path: Path, folders: tuple[str, ...]) -> str | None:
    """The shipped file or folder whose name, in full or the last part of it, a misspelt one is nearest to."""
    import difflib

    files = [Path(folder, name) for folder in folders for name in shipped_names(folder)]
    names = {str(known) for file in files for known in (file, *file.parents[:-2])} | {file.name for file in files}
    return next(iter(difflib.get_close_matches(str(path.with_suffix("")), sorted(names), n=1, cutoff=0.8)), None)


def shipped_file(name: str, folder: str, holding: str | None = None) -> Path:
    """A user's file, or the shipped one of a folder; the error names the shipped ones (that hold a key, where one is given).

    Raises
    ------
    InputError
        ``name`` is a bare name that no shipped file has. A path that does not exist is left for the reader to report.
    """
    path = resolve(name, (folder,))
    if path.exists() or len(path.parts) > 1 or path.suffix in (".yaml", ".yml"):
        return path
    names = [
        known
        for known in shipped_names(folder)
        if holding is None or f"\n  {holding}:" in (content_root() / folder / f"{known}.yaml").read_text(encoding="utf-8")
    ]
    found = f"no such file, and nothing of that name under {folder}/"
    raise InputError(name, found, f"give a file, or one of {', '.join(known.rpartition('/')[2] for known in names)}")


def shipped_names(folder: str) -> list[str]:
    """Names of the shipped files of one folder, without endings, sorted; tables beside an architecture are left out."""
    base = content_root() / folder
    files = (path for path in sorted(base.rglob("*.yaml")) if not path.stem.endswith(_TABLES))
    return [str(path.relative_to(base).with_suffix("")) for path in files]
