"""The output folder of a cascade's run: what it writes, and what an earlier run left there that would be mistaken for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stitchloop.write.files import to_json, write_files

MANIFEST = "groups.json"
"""Lists under ``files`` what else its run wrote."""

_GROUP = r"group-\d{2,6}/(fused-problem\.yaml|fused-mapping\.yaml|fused\.json)"
_FIGURES = r"(cascade|speedups|traffic|roofline|utilization|end-to-end)\.png"
_OURS = re.compile(rf"{_GROUP}|{_FIGURES}|(result|stats)\.json")
_LARGEST_MANIFEST = 2**28


def write_run(
    output: Path, document: Mapping[str, Any], files: Mapping[str, str | bytes], inputs: Iterable[str | Path] = ()
) -> list[Path]:
    """Write ``groups.json`` (the document and the names of ``files``) and the files; remove what only an earlier run wrote.

    Removed is a file that the folder's own ``groups.json`` lists, that has a name such runs give, that this run does not
    write and that is no input; then its folder when nothing else is in it.

    Raises
    ------
    InputError
        As :func:`stitchloop.write.files.write_files`.
    """
    given = [Path(name) for name in inputs]
    earlier = _listed(output / MANIFEST)
    manifest = to_json({**document, "files": list(files)})
    written = write_files(output, {MANIFEST: manifest, **files}, given)
    kept = {path.resolve() for path in (*given, *written)}
    for name in earlier:
        path = output / name
        inside = path.parent.resolve() == (output.resolve() / name).parent
        if name not in files and inside and path.resolve() not in kept:
            with suppress(OSError):
                path.unlink()
                if path.parent != output:
                    path.parent.rmdir()
    return written


def _listed(manifest: Path) -> list[str]:
    """Names that a run's manifest lists; none where it cannot be read as one."""
    try:
        if manifest.stat().st_size > _LARGEST_MANIFEST:
            return []
        document = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    names = document.get("files") if isinstance(document, dict) else None
    return [name for name in names if isinstance(name, str) and _OURS.fullmatch(name)] if isinstance(names, list) else []
