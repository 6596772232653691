"""YAML text to plain values that remember where they stood, within bounds that no input can exceed.

The scalars follow YAML 1.2 (``1e-9`` is a number, ``no`` and ``N`` are words), as Timeloop's own readers have it; tags
are those of Timeloop's v0.4 architectures; ``<<`` merges a mapping's missing keys and ``<<<`` merges deeply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from stitchloop.errors import InputError, Place

MAX_TEXT = 16 * 1024 * 1024
"""Characters of one file, template output included."""
MAX_DEPTH = 100
"""Mappings and lists inside one another."""
MAX_VALUES = 1_000_000
"""Values of one document with every alias written out."""
MAX_DIGITS = 400

NODE_TAGS = ("Container", "Component", "Hierarchical", "Parallel", "Pipelined", "Nothing")
"""Tags of Timeloop's v0.4 architecture nodes."""
INCLUDE_TAG = "!include_loaded"
"""Marks a document that a template has included; its scalar is the document's number."""
NO_MERGE_TAG = "!nomerge"

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]+\Z|0x[0-9a-fA-F]+\Z|0o[0-7]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}

HYPHENATED = {
    name.replace("_", "-"): name
    for name in (
        *("architecture_constraints", "arch_constraints", "mapspace_constraints", "compound_components", "sparse_optimizations"),
        *("data_spaces", "read_write", "optimization_metric", "optimization_metrics", "num_threads", "search_size"),
        *("victory_condition", "sync_interval", "log_interval", "log_stats", "log_suboptimal", "live_status", "filter_revisits"),
        *("max_permutations_per_if_visit", "penalize_consecutive_bypass_fails", "emit_whoop_nest", "out_prefix"),
        *("word_bits", "word_width", "block_size", "n_words", "cluster_size", "num_banks", "num_ports", "multiple_buffering"),
        *("min_utilization", "read_bandwidth", "write_bandwidth", "shared_bandwidth", "network_word_bits", "memory_width"),
        *("memory_depth", "no_link_transfer", "no_multicast_no_reduction", "no_temporal_reuse"),
    )
}
"""Keys of older files, in which Timeloop writes hyphens, and the names that they have now."""

Origin = tuple[str | None, int | None]


class Quoted(str):
    """A string that stands in quotes: a word even where an expression could stand, which Accelergy minds."""

    __slots__ = ()


class YamlMap(dict[str, Any]):
    """A mapping with the origin (file, line) of each key and its Timeloop tag, if any."""

    __slots__ = ("lines", "no_merge", "origin", "tag")

    def __init__(self, origin: Origin, tag: str = "") -> None:
        super().__init__()
        self.origin = origin
        self.tag = tag
        self.lines: dict[str, Origin] = {}
        self.no_merge = False


class YamlList(list[Any]):
    """A list with the origin (file, line) of each item."""

    __slots__ = ("lines", "no_merge", "origin")

    def __init__(self, origin: Origin) -> None:
        super().__init__()
        self.origin = origin
        self.lines: list[Origin] = []
        self.no_merge = False


@dataclass
class _Frame:
    """A mapping or list that is being read. ``key`` is the mapping key whose value comes next, ``serial`` its number."""

    container: Any
    anchor: str | None
    serial: int = 0
    key: str | None = None
    size: int = 1
    merges: dict[str, Any] = field(default_factory=dict)


def scalar(text: str, place: Place) -> Any:
    """The value of a plain YAML 1.2 scalar.

    Raises
    ------
    InputError
        For an integer of more digits than any size could need.
    """
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first not in "-+.0123456789":
        return text
    if _INTEGER.match(text):
        if len(text) > MAX_DIGITS:
            raise InputError(place, f"a number of {len(text)} digits", f"give at most {MAX_DIGITS}")
        base = 16 if text.startswith("0x") else 8 if text.startswith("0o") else 10
        return int(text, base)
    return float(text) if _FLOAT.match(text) else text


def parse(text: str, file: str | None, *, includes: Sequence[Any] = (), lines_known: bool = True) -> Any:
    """Read one YAML document.

    Parameters
    ----------
    text : str
    file : str or None
        Name for error messages.
    includes : sequence
        Documents that the text refers to by number with ``!include_loaded``.
    lines_known : bool
        False where a template has moved the lines, so that none are reported.

    Returns
    -------
    YamlMap, YamlList, a scalar or None
        None for an empty document. Values are shared between aliases: treat them as constants.

    Raises
    ------
    InputError
        With file and line, for anything that is not one well-formed document within the bounds of this module.
    """
    if len(text) > MAX_TEXT:
        raise InputError(file, f"{len(text)} characters of YAML", f"files of at most {MAX_TEXT} characters are read")
    return _Reader(file, includes, lines_known).read(text)


class _Reader:
    """Builds values from libyaml's stream of events, without recursion."""

    def __init__(self, file: str | None, includes: Sequence[Any], lines_known: bool) -> None:
        self.file, self.includes, self.lines_known = file, includes, lines_known
        self.frames: list[_Frame] = []
        self.anchors: dict[str, tuple[Any, int, int]] = {}
        self.serial = 0
        self.merged = 0
        self.root: Any = None
        self.documents = 0

    def read(self, text: str) -> Any:
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                self._take(event)
        except yaml.YAMLError as error:
            raise InputError(*self._syntax(error)) from None
        except UnicodeError:
            raise InputError(self.file, "characters that are no text", "save the file as UTF-8") from None
        return self.root

    def _syntax(self, error: yaml.YAMLError) -> tuple[Place, str, str]:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = " ".join(str(part) for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part)
        line = mark.line + 1 if mark is not None and self.lines_known else None
        problem = problem or str(error).splitlines()[0]
        return Place(self.file, (), line), f"text that is no YAML ({problem})", "check indentation, brackets and quotes there"

    def _origin(self, event: Any) -> Origin:
        return (self.file, event.start_mark.line + 1 if self.lines_known else None)

    def _place(self, event: Any) -> Place:
        path: list[str | int] = []
        for frame in self.frames:
            if isinstance(frame.container, YamlList):
                path.append(len(frame.container))
            elif frame.key is not None:
                path.append(frame.key)
        return Place(self.file, tuple(path), self._origin(event)[1])

    def _take(self, event: Any) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._take_scalar(event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._open(event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close(event)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                found = f"alias '*{_short(event.anchor or '')}' without a finished anchor before it"
                raise InputError(self._place(event), found, "define the anchor first")
            value, size, _ = self.anchors[event.anchor]
            self._add(value, size, event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise InputError(self._place(event), "a second YAML document ('---')", "give each document as a file of its own")

    def _take_scalar(self, event: Any) -> None:
        frame = self.frames[-1] if self.frames else None
        if frame is not None and isinstance(frame.container, YamlMap) and frame.key is None:
            self._take_key(frame, event)
            return
        tag, text = event.tag, event.value
        value: Any
        size = 1
        if tag is None or tag == "!":
            value = scalar(text, self._place(event)) if event.implicit[0] else Quoted(text)
        elif tag == INCLUDE_TAG and text.isdigit() and int(text) < len(self.includes):
            value = self.includes[int(text)]
            size = expanded_size(value)
        elif tag.startswith("!") and tag[1:] in NODE_TAGS and text == "":
            value = YamlMap(self._origin(event), tag[1:])
        elif tag == _CORE_TAG + "str":
            value = text
        elif tag in (_CORE_TAG + "int", _CORE_TAG + "float", _CORE_TAG + "bool", _CORE_TAG + "null"):
            value = scalar(text, self._place(event))
        else:
            raise InputError(self._place(event), f"tag '{_short(tag)}' on a value", _tags_that_do())
        self._anchor(event.anchor, value, size, self._next())
        self._add(value, size, event)

    def _take_key(self, frame: _Frame, event: Any) -> None:
        key = HYPHENATED.get(event.value, event.value)
        if key in frame.container or key in frame.merges:
            line = (frame.container.lines.get(key) or (None, None))[1]
            before = f" (first on line {line})" if line else ""
            raise InputError(self._place(event), f"key '{_short(key)}' twice in one mapping{before}", "keep one of them")
        frame.key = key
        if key not in ("<<", "<<<"):
            frame.container.lines[key] = self._origin(event)

    def _open(self, event: Any) -> None:
        if len(self.frames) >= MAX_DEPTH:
            raise InputError(self._place(event), f"values nested more than {MAX_DEPTH} deep", "flatten the file")
        frame = self.frames[-1] if self.frames else None
        if frame is not None and isinstance(frame.container, YamlMap) and frame.key is None:
            raise InputError(self._place(event), "a mapping or list as a key", "use a word as the key")
        tag = event.tag
        container: YamlMap | YamlList
        if isinstance(event, yaml.MappingStartEvent):
            is_node = bool(tag) and tag.startswith("!") and tag[1:] in NODE_TAGS
            container = YamlMap(self._origin(event), tag[1:] if is_node else "")
            tag = None if is_node else tag
        else:
            container = YamlList(self._origin(event))
        if tag == NO_MERGE_TAG:
            container.no_merge, tag = True, None
        if tag not in (None, "!", _CORE_TAG + "map", _CORE_TAG + "seq"):
            raise InputError(self._place(event), f"tag '{_short(tag)}'", _tags_that_do())
        self.frames.append(_Frame(container, event.anchor, self._next()))

    def _close(self, event: Any) -> None:
        frame = self.frames.pop()
        value = frame.container
        for key, other in frame.merges.items():
            self._merge(value, other, event, deep=key == "<<<")
        self._anchor(frame.anchor, value, frame.size, frame.serial)
        self._add(value, frame.size, event, value.origin)

    def _next(self) -> int:
        self.serial += 1
        return self.serial

    def _anchor(self, name: str | None, value: Any, size: int, serial: int) -> None:
        """An anchor given twice means the value that begins last."""
        if name and (name not in self.anchors or self.anchors[name][2] < serial):
            self.anchors[name] = (value, size, serial)

    def _add(self, value: Any, size: int, event: Any, origin: Origin | None = None) -> None:
        """Put a finished value, which began at ``origin`` or at this event, into what encloses it."""
        if not self.frames:
            self.root = value
            return
        frame = self.frames[-1]
        frame.size += size
        if frame.size > MAX_VALUES:
            raise InputError(self._place(event), f"more than {MAX_VALUES} values once aliases are written out", "drop aliases")
        if isinstance(frame.container, YamlList):
            frame.container.append(value)
            frame.container.lines.append(origin or self._origin(event))
        elif frame.key is None:
            raise InputError(self._place(event), "an alias as a key", "use a word as the key")
        elif frame.key in ("<<", "<<<"):
            frame.merges[frame.key] = value
            frame.key = None
        else:
            frame.container[frame.key] = value
            frame.key = None

    def _merge(self, into: YamlMap, other: Any, event: Any, *, deep: bool) -> None:
        """Merge a mapping, or a list of them, into ``into``, whose own keys win; lists of a deep merge are joined."""
        parts = other if isinstance(other, YamlList) else [other]
        for part in parts:
            if not isinstance(part, YamlMap):
                found = f"'{'<<<' if deep else '<<'}' of something that is no mapping"
                raise InputError(self._place(event), found, "merge a mapping")
            self._merge_one(into, part, event, deep)

    def _merge_one(self, into: YamlMap, part: YamlMap, event: Any, deep: bool) -> None:
        for key, value in part.items():
            self.merged += 1
            if self.merged > MAX_VALUES:
                raise InputError(self._place(event), f"more than {MAX_VALUES} merged keys", "merge less")
            if key not in into:
                into[key] = value
                into.lines[key] = part.lines.get(key, part.origin)
                continue
            mine = into[key]
            if not deep or getattr(mine, "no_merge", False):
                continue
            if isinstance(mine, YamlMap) and isinstance(value, YamlMap):
                merged = copy_map(mine)
                self._merge_one(merged, value, event, deep)
                into[key] = merged
            elif isinstance(mine, YamlList) and isinstance(value, YamlList):
                self.merged += len(mine) + len(value)
                joined = YamlList(mine.origin)
                joined.extend([*mine, *value])
                joined.lines = mine.lines + value.lines
                into[key] = joined


def copy_map(value: YamlMap) -> YamlMap:
    """A shallow copy, with tag and origins."""
    copied = YamlMap(value.origin, value.tag)
    copied.update(value)
    copied.lines = dict(value.lines)
    return copied


def _tags_that_do() -> str:
    return "tags are " + ", ".join("!" + tag for tag in NODE_TAGS)


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def expanded_size(value: Any) -> int:
    """Values that a document holds with every alias written out."""
    sizes: dict[int, int] = {}

    def size(item: Any) -> int:
        if not isinstance(item, dict | list):
            return 1
        if id(item) not in sizes:
            sizes[id(item)] = 1 + sum(map(size, item.values() if isinstance(item, dict) else item))
        return sizes[id(item)]

    return size(value)
