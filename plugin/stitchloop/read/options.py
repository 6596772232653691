"""The section ``mapper``: what to optimise, and switches of Timeloop's search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stitchloop.architecture import Architecture
from stitchloop.options import METRICS, MapperOptions
from stitchloop.read.fields import Field, nearest

ALGORITHMS = ("random", "exhaustive", "linear_pruned", "linear", "hybrid", "random_pruned")
TEMPLATES = ("uber", "ruby")
SEARCH_KEYS = (
    *("algorithm", "search_size", "timeout", "heartbeat", "victory_condition", "sync_interval", "filter_revisits"),
    *("max_permutations_per_if_visit", "max_temporal_loops_in_a_mapping", "penalize_consecutive_bypass_fails"),
    *("log_interval", "log_stats", "log_oaves", "log_oaves_mappings", "log_orojenesis_mappings", "log_mappings_yaml"),
    *("log_mappings_verbose", "log_all_mappings", "log_suboptimal", "log_all", "emit_whoop_nest"),
)
"""Keys that steer Timeloop's search or its logs; an exact search has no use for them."""
LONGEST_PREFIX = 100
"""Characters; a file system admits 255 bytes with the ending."""
OWN_KEYS = ("imperfect", "time_limit", "memory_limit_mb")
USED_KEYS = ("version", "optimization_metric", "optimization_metrics", "num_threads", "diagnostics", "live_status", "out_prefix")


def read_options(section: Field, architecture: Architecture | None) -> MapperOptions:
    """Read the section ``mapper``.

    Metrics are given Stitchloop's names: ``accesses-2`` becomes ``accesses-NAME`` of level 2, and ``ordered_accesses``
    the accesses of all levels, outermost first, when the architecture is known.

    Raises
    ------
    InputError
        For an unknown key or metric, or a value out of range.
    """
    section.known((*USED_KEYS, *SEARCH_KEYS, *OWN_KEYS))
    algorithm = section.get("algorithm")
    if algorithm is not None and algorithm.text().replace("-", "_") not in ALGORITHMS:
        algorithm.fail(f"algorithm {algorithm.shown()}", nearest(algorithm.text(), ALGORITHMS, "algorithms are"))
    given = section.get("optimization_metric") or section.get("optimization_metrics")
    if given is None or not given.value:
        given = section.get("optimization_metrics") or given
    metrics = _metrics(given, architecture) if given is not None and given.value else ()
    defaults = MapperOptions()

    def flag(key: str) -> bool:
        found = section.get(key)
        return found.boolean() if found is not None else False

    threads, prefix = section.get("num_threads"), section.get("out_prefix")
    time_limit, memory_limit = section.get("time_limit"), section.get("memory_limit_mb")
    return MapperOptions(
        metrics=metrics or defaults.metrics,
        num_threads=threads.integer(most=100_000) if threads is not None else None,
        diagnostics=flag("diagnostics"),
        live_status=flag("live_status"),
        imperfect=flag("imperfect"),
        perfect=section.get("imperfect") is not None and not flag("imperfect"),
        time_limit=time_limit.number(above=0) if time_limit is not None else None,
        memory_limit_mb=memory_limit.number(above=0) if memory_limit is not None else None,
        out_prefix=_prefix(prefix) if prefix is not None else defaults.out_prefix,
        ignored=tuple(key for key, _ in section.entries() if key in SEARCH_KEYS),
    )


def mapspace_template(mapspaces: Iterable[Field]) -> str | None:
    """Timeloop's template that a ``mapspace`` section names: ``ruby`` admits factors that do not divide, and wins over ``uber``.

    Raises
    ------
    InputError
        For a template that is neither ``uber`` (the default) nor ``ruby``.
    """
    named = None
    for section in mapspaces:
        template = section.get("template") if isinstance(section.value, Mapping) else None
        if template is not None and template.value is not None:
            if template.text() not in TEMPLATES:
                template.fail(f"mapspace template {template.shown()}", nearest(template.text(), TEMPLATES, "templates are"))
            named = "ruby" if named == "ruby" else template.text()
    return named


def parse_metrics(text: str, architecture: Architecture | None, origin: str) -> tuple[str, ...]:
    """Metrics written on a command line, by commas; ``origin`` names the option in errors.

    Raises
    ------
    InputError
        For an unknown metric, or none.
    """
    field = Field(text, file=origin)
    metrics = _metrics(field, architecture)
    if not metrics:
        field.fail("no metric", "name one, such as edp")
    return metrics


def _prefix(field: Field) -> str:
    """A file name without folders: outputs stay in the output folder."""
    text = field.text()
    if not text or "/" in text or "\\" in text or text.startswith(".") or not text.isprintable() or len(text) > LONGEST_PREFIX:
        field.fail(f"{field.shown()} as the beginning of file names", "use a plain name; folders are given with -o")
    return text


def _metrics(field: Field, architecture: Architecture | None) -> tuple[str, ...]:
    metrics: list[str] = []
    for item in _split(field):
        for metric in _metric(item, architecture):
            if metric not in metrics:
                metrics.append(metric)
    return tuple(metrics)


def _split(field: Field) -> list[Field]:
    if isinstance(field.value, str):
        return [Field(word, file=field.file, key=field.key, parent=field.parent) for word in field.words()]
    return field.items()


def _metric(field: Field, architecture: Architecture | None) -> list[str]:
    text = field.text().strip()
    known = METRICS.get(text.lower())
    if known is not None:
        return [known]
    if text.lower().replace("-", "_") == "ordered_accesses":
        return [f"accesses-{name}" for name in reversed(architecture.names)] if architecture is not None else ["ordered_accesses"]
    if text.lower().startswith("accesses-"):
        level = text[len("accesses-") :]
        if architecture is None:
            return ["accesses-" + level]
        if level.isdigit():
            if len(level) > 6 or int(level) >= len(architecture.levels):
                field.fail(f"metric {field.shown()}", f"levels are 0 to {len(architecture.levels) - 1}")
            return ["accesses-" + architecture.names[int(level)]]
        if level not in architecture.names:
            field.fail(f"metric {field.shown()}", nearest(level, architecture.names, "levels are"))
        return ["accesses-" + level]
    known_metrics = (*dict.fromkeys(METRICS.values()), "accesses-LEVEL", "ordered_accesses")
    field.fail(f"metric {field.shown()}", nearest(text, known_metrics, "metrics are"))
