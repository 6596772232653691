"""The search: from a mapspace to the best mapping, with a certificate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stitchloop.mapspace.space import Mapspace
    from stitchloop.result import Result
    from stitchloop.spec import Spec

__all__ = ["map_einsum", "search"]


def map_einsum(
    spec: Spec,
    *,
    time_limit: float | None = None,
    memory_limit_mb: float | None = None,
    threads: int | None = None,
    progress: Callable[[float, float, float], None] | None = None,
) -> Result:
    """The best mapping of the spec's one Einsum on its architecture, under its constraints and options.

    Parameters
    ----------
    time_limit : float, optional
        Seconds after which the best so far is returned, with its gap; the spec's option when not given.
    memory_limit_mb : float, optional
        MiB for the work space of the search; the spec's option when not given.
    threads : int, optional
        The answer is the same on any number of them.
    progress : callable, optional
        Called with (share done, best, lower bound) of the first objective.

    Raises
    ------
    NoMapping
        No mapping of the mapspace is valid; its obstacles say why.
    InputError
        The spec lacks an architecture or a workload, or its constraints contradict each other.
    """
    from stitchloop.search.certify import map_spec

    return map_spec(spec, time_limit, memory_limit_mb, threads, progress)


def search(
    mapspace: Mapspace,
    objectives: Sequence[str],
    *,
    pareto: Sequence[str] = (),
    time_limit: float | None = None,
    memory_limit_mb: float | None = None,
    threads: int | None = None,
    progress: Callable[[float, float, float], None] | None = None,
) -> Result:
    """The best mapping of a mapspace for a lexicographic list of objectives; arguments as for :func:`map_einsum`.

    With ``pareto``, two or three objectives, the result also holds their Pareto front.
    """
    from stitchloop.search.certify import search_mapspace

    return search_mapspace(mapspace, objectives, pareto, time_limit, memory_limit_mb, threads, progress)
