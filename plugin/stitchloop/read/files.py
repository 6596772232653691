"""Bytes on disk to text, with a clear error for everything that is no text file."""

from __future__ import annotations

from pathlib import Path

from stitchloop.errors import InputError
from stitchloop.read.document import MAX_TEXT


def is_template(text: str) -> bool:
    """Whether a text holds anything for Jinja2 to do."""
    return "{{" in text or "{%" in text or "{#" in text


def read_text(path: Path, shown: str) -> str:
    """The text of a file, or a clear :class:`InputError`: missing, a folder, too large, or no UTF-8."""
    try:
        with open(path, "rb") as file:
            content = file.read(4 * MAX_TEXT + 1)
    except FileNotFoundError:
        raise InputError(shown, "no such file", "check the path") from None
    except IsADirectoryError:
        raise InputError(shown, "a folder where a file is needed", "name the YAML file in it") from None
    except (OSError, ValueError) as error:
        raise InputError(shown, f"a file that cannot be read ({sentence(error)})", "check its permissions") from None
    if len(content) > 4 * MAX_TEXT:
        raise InputError(shown, f"more than {4 * MAX_TEXT} bytes", "give a smaller file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(shown, f"bytes that are no UTF-8 text (at {error.start})", "save the file as UTF-8") from None


def sentence(error: BaseException) -> str:
    """What an error says, in one line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]
