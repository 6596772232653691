"""Whole networks: many problems mapped on one architecture, each distinct one once, in parallel and resumable.

Every layer gets a folder of its own in the output folder, with the files of ``stitchloop map`` and, written last,
``layer.json``: what was mapped (a key over problem, architecture, constraints and options) and its row of the table. A
layer whose ``layer.json`` carries the key is finished; it is not mapped again. All files are replaced as a whole, so that a
killed run leaves no half-written one.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stitchloop.errors import InputError, StitchloopError
from stitchloop.layers import Layer, layer_key, read_layers
from stitchloop.options import MapperOptions
from stitchloop.write.files import signals_held, to_json, write_atomically, write_files

if TYPE_CHECKING:
    from stitchloop.read import Input
    from stitchloop.result import Result
    from stitchloop.spec import Spec

RECORD = "layer.json"

MapLayer = Callable[["Spec", int], "Result"]
"""Maps one spec on a number of threads."""


@dataclass(frozen=True)
class LayerRow:
    """One row of the result table. ``mapspace_size`` is text: it may exceed 64 bits."""

    layer: str
    status: str
    """``mapped``, ``failed`` or ``interrupted``."""
    same_as: str | None = None
    """The layer whose mapping this one shares, being identical."""
    einsum: str | None = None
    computes: int | None = None
    cycles: int | None = None
    energy_pJ: float | None = None
    edp_J_cycle: float | None = None
    utilization: float | None = None
    binding: str | None = None
    optimal: bool | None = None
    gap: float | None = None
    mapspace_size: str | None = None
    evaluated: int | None = None
    seconds: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class NetworkReport:
    """Outcome of :func:`map_layers`: the table, in the order of the layers, and how much of it is new.

    ``searched`` layers were mapped in this run, ``resumed`` ones were finished before; the others are identical to one of
    these, or failed.
    """

    rows: tuple[LayerRow, ...]
    table: Path
    searched: int
    resumed: int
    interrupted: bool = False

    @property
    def failed(self) -> tuple[LayerRow, ...]:
        return tuple(row for row in self.rows if row.status == "failed")

    @property
    def totals(self) -> dict[str, float]:
        """Sums over the mapped layers, repeated layers counted each time."""
        mapped = [row for row in self.rows if row.status == "mapped"]
        return {
            "layers": len(self.rows),
            "mapped": len(mapped),
            "computes": sum(row.computes or 0 for row in mapped),
            "cycles": sum(row.cycles or 0 for row in mapped),
            "energy_pJ": sum(row.energy_pJ or 0.0 for row in mapped),
        }


def map_layers(
    layers: Sequence[Path],
    shared_inputs: Sequence[Input],
    output_dir: Path,
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    threads: int | None = None,
    variables: Mapping[str, str] | None = None,
    frontend_compatible: bool = False,
    override: Callable[[MapperOptions], MapperOptions] | None = None,
    progress: Callable[[int, int, LayerRow], None] | None = None,
    map_layer: MapLayer | None = None,
) -> NetworkReport:
    """Map every layer on the architecture of the shared inputs; write each one's files, and the table as CSV and Parquet.

    Parameters
    ----------
    layers : sequence of Path
        One problem each; :func:`stitchloop.layers.find_layers` lists a folder or a list file.
    shared_inputs : sequence
        What all layers share (architecture, constraints, options), as for :func:`stitchloop.read.load_spec`. Where these
        hold a problem of their own, it has to give way to the variable ``problem``.
    output_dir : Path
        Gets ``layers.csv``, ``layers.parquet``, ``network.json`` with the totals, and a folder per layer.
    jobs : int, optional
        Processes; all cores when not given. With ``scheduler`` the cluster's workers take their place.
    scheduler : str, optional
        Address of a Dask scheduler. Workers need Stitchloop installed, but no access to the files.
    threads : int, optional
        Threads of each search; the cores divided by ``jobs`` when not given.
    variables, frontend_compatible
        As for :func:`stitchloop.read.load_spec`.
    override : callable, optional
        Changes the options read, as the command line does.
    progress : callable, optional
        Called with (layers done, layers, row) whenever a layer is done.
    map_layer : callable, optional
        Maps one spec; :func:`stitchloop.search.map_einsum` when not given.

    Returns
    -------
    NetworkReport
        A layer that fails is a row with the reason; the others go on. On Ctrl-C what is finished is kept and reported.

    Raises
    ------
    InputError
        No layers, an output folder that cannot be written, or a scheduler that cannot be reached.
    """
    if not layers:
        raise InputError(str(output_dir), "no layers to map", "name a folder or a list with problem files")
    jobs = jobs or os.cpu_count() or 1
    run = _Run(output_dir, progress, len(layers))
    for layer in read_layers(layers, shared_inputs, variables, frontend_compatible):
        run.take_up(layer if override is None or layer.spec is None else _changed(layer, override))
    work = run.unfinished()
    threads = threads or max(1, (os.cpu_count() or 1) // max(1, min(jobs, len(work))))
    if scheduler is None:
        outcomes = _on_cores(work, jobs, threads, map_layer)
    else:
        outcomes = _on_cluster(work, scheduler, threads, map_layer)
    try:
        for key, outcome in outcomes:
            run.settle(key, outcome)
    except KeyboardInterrupt:
        run.interrupted = True
    return run.report()


def _changed(layer: Layer, override: Callable[[MapperOptions], MapperOptions]) -> Layer:
    assert layer.spec is not None
    spec = replace(layer.spec, options=override(layer.spec.options))
    return replace(layer, spec=spec, key=layer_key(spec))


@dataclass
class _Run:
    """The state of one call: which layers share a key, and the rows known so far."""

    directory: Path
    progress: Callable[[int, int, LayerRow], None] | None
    count: int
    order: list[str] = field(default_factory=list)
    rows: dict[str, LayerRow] = field(default_factory=dict)
    groups: dict[str, list[Layer]] = field(default_factory=dict)
    searched: int = 0
    resumed: int = 0
    interrupted: bool = False

    def take_up(self, layer: Layer) -> None:
        """Note one layer: failed already, finished before, or to be mapped."""
        self.order.append(layer.name)
        if layer.error is not None:
            self._add(LayerRow(layer.name, "failed", error=layer.error))
        else:
            self.groups.setdefault(layer.key, []).append(layer)

    def unfinished(self) -> list[tuple[str, Spec]]:
        """The distinct problems left to map; rows of finished layers, and of those identical to them, are taken over."""
        work = []
        for key, group in self.groups.items():
            finished = {layer.name: row for layer in group if (row := self._finished(layer)) is not None}
            for name, row in finished.items():
                self._add(replace(row, same_as=None if name == next(iter(finished)) else next(iter(finished))))
            self.resumed += len(finished)
            if not finished:
                assert group[0].spec is not None
                work.append((key, group[0].spec))
                continue
            source = next(iter(finished))
            for layer in group:
                if layer.name not in finished:
                    self._copy(source, layer)
        return work

    def settle(self, key: str, outcome: Result | str) -> None:
        """Write what a search gave for all layers that share the key; a string says why it failed."""
        from stitchloop.write.outputs import write_mapping_outputs

        group = self.groups[key]
        self.searched += not isinstance(outcome, str)
        for layer in group:
            assert layer.spec is not None
            twin = None if layer is group[0] else group[0].name
            if isinstance(outcome, str):
                self._add(LayerRow(layer.name, "failed", twin, error=outcome))
                continue
            row = _row(layer, outcome, twin)
            try:
                files = write_mapping_outputs(layer.spec, outcome, self.directory / layer.name)
                self._record(layer, row, [path.name for path in files])
            except StitchloopError as error:
                row = LayerRow(layer.name, "failed", twin, error=str(error))
            self._add(row)

    def report(self) -> NetworkReport:
        """Write the tables."""
        rows = tuple(self.rows.get(name, LayerRow(name, "interrupted")) for name in self.order)
        with signals_held():
            table = _write_tables(rows, self.directory)
            report = NetworkReport(rows, table, self.searched, self.resumed, self.interrupted)
            write_files(self.directory, {"network.json": to_json(report.totals)})
        return report

    def _add(self, row: LayerRow) -> None:
        self.rows[row.layer] = row
        if self.progress is not None:
            self.progress(len(self.rows), self.count, row)

    def _record(self, layer: Layer, row: LayerRow, files: list[str]) -> None:
        record = {"key": layer.key, "files": files, "row": asdict(row)}
        write_atomically(self.directory / layer.name / RECORD, to_json(record))

    def _finished(self, layer: Layer) -> LayerRow | None:
        """The row of a layer that an earlier run finished with the same key, its files all there."""
        folder = self.directory / layer.name
        try:
            record = json.loads((folder / RECORD).read_text())
            if record["key"] != layer.key or not all((folder / name).is_file() for name in record["files"]):
                return None
            return LayerRow(**record["row"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _copy(self, source: str, layer: Layer) -> None:
        """Give a layer the files of an identical, finished one."""
        folder = self.directory / source
        names = json.loads((folder / RECORD).read_text())["files"]
        write_files(self.directory / layer.name, {name: (folder / name).read_bytes() for name in names})
        row = replace(self.rows[source], layer=layer.name, same_as=source)
        self._record(layer, row, names)
        self._add(row)


def _row(layer: Layer, result: Result, same_as: str | None) -> LayerRow:
    assert layer.spec is not None
    assert layer.spec.workload is not None
    stats, certificate = result.stats, result.certificate
    return LayerRow(
        layer.name, "mapped", same_as, layer.spec.workload.einsum.name, stats.computes, stats.cycles, stats.energy_pJ, stats.edp,
        stats.utilization, stats.binding, certificate.optimal, certificate.gap(result.values[0]), str(certificate.mapspace_size),
        certificate.evaluated, certificate.seconds,
    )  # fmt: skip


def _write_tables(rows: Iterable[LayerRow], directory: Path) -> Path:
    """``layers.csv`` and ``layers.parquet``, each replaced as a whole."""
    import io

    import polars as pl

    types = {"str": pl.Utf8, "int": pl.Int64, "float": pl.Float64, "bool": pl.Boolean}
    schema = {name: types[str(kind).split(" ")[0]] for name, kind in LayerRow.__annotations__.items()}
    frame = pl.DataFrame([asdict(row) for row in rows], schema=schema)
    parquet = io.BytesIO()
    frame.write_parquet(parquet)
    paths = write_files(directory, {"layers.csv": frame.write_csv(), "layers.parquet": parquet.getvalue()})
    return paths[0]


def _map_layer(spec: Spec, threads: int) -> Result:
    from stitchloop.read.energy import require_energy
    from stitchloop.search import map_einsum

    assert spec.architecture is not None
    require_energy(spec.architecture)
    return map_einsum(spec, threads=threads)


def _attempt(key: str, spec: Spec, threads: int, map_layer: MapLayer | None) -> tuple[str, Result | str]:
    """One task of a worker: the result, or why there is none. Never raises, so that no layer takes others with it."""
    try:
        return key, (map_layer or _map_layer)(spec, threads)
    except StitchloopError as error:
        return key, str(error)
    except MemoryError:
        return key, "out of memory"
    except Exception as error:
        return key, f"{type(error).__name__}: {error}"


Outcomes = Iterator[tuple[str, "Result | str"]]


def _on_cores(work: list[tuple[str, Spec]], jobs: int, threads: int, map_layer: MapLayer | None) -> Outcomes:
    """Map on this machine, results as they come. After a worker died, the layers left are tried one by one, each apart."""
    from joblib import Parallel, delayed

    jobs = max(1, min(jobs, len(work)))
    left = dict(work)
    if not left:
        return
    pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    results = pool(delayed(_attempt)(key, spec, threads, map_layer) for key, spec in work)
    while left:
        try:
            key, outcome = next(results)
        except StopIteration:
            return
        except Exception:
            break
        del left[key]
        yield key, outcome
    for key, spec in left.items():
        yield key, _apart(key, spec, threads, map_layer)


def _apart(key: str, spec: Spec, threads: int, map_layer: MapLayer | None) -> Result | str:
    """Map one layer in a process of its own."""
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(_attempt, key, spec, threads, map_layer).result()[1]
        except BrokenProcessPool:
            return "the process was killed, perhaps for want of memory; try a lower --memory-limit or fewer --jobs"


def _on_cluster(work: list[tuple[str, Spec]], scheduler: str, threads: int, map_layer: MapLayer | None) -> Outcomes:
    """Map on a Dask cluster, results as they come."""
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise InputError(
            "--scheduler", "dask.distributed is needed, which is not installed", "pip install 'stitchloop[cluster]'"
        ) from None
    _find_scheduler(scheduler)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        client = Client(scheduler, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise _no_scheduler(scheduler, str(error)) from None
    with client:
        futures = {client.submit(_attempt, key, spec, threads, map_layer, pure=False): key for key, spec in work}
        for future in as_completed(futures, loop=client.loop):
            yield futures[future], _fetched(future)


def _fetched(future: Any) -> Result | str:
    """The outcome of a task of the cluster, or what became of its worker or of the scheduler."""
    from asyncio import CancelledError

    try:
        outcome: tuple[str, Result | str] = future.result()
    except (CancelledError, Exception) as error:
        return f"the cluster gave no answer: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return outcome[1]


def _find_scheduler(address: str) -> None:
    """Raise :class:`InputError` when nothing listens there: Dask itself takes half a minute, and prints a traceback."""
    import socket

    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        raise InputError("--scheduler", f"'{address}'", "give an address as HOST:PORT, such as tcp://127.0.0.1:8786")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise _no_scheduler(address, getattr(error, "strerror", None) or str(error)) from None


def _no_scheduler(address: str, why: str) -> InputError:
    return InputError(
        "--scheduler", f"no Dask scheduler answers at {address} ({why})", "start one with `dask scheduler`, or give its address"
    )
