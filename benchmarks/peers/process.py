"""A measured process: wall time, processor time and peak memory, with the JSON document that it prints."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class PeerFailed(Exception):
    """A process that ended without an answer."""


@dataclass(frozen=True)
class Measured:
    """One process from start to exit, interpreter and imports included.

    ``whole_s`` leaves out the warm runs that followed the first. ``cpu_s``, which other work on the machine changes less, is of
    the process and the helpers it waited for, shared out between the first and the warm runs by wall time. ``peak_mb`` is that of
    the process or of the largest helper.
    """

    whole_s: float
    cpu_s: float
    peak_mb: float
    answer: dict[str, Any]

    @property
    def warm_s(self) -> float:
        """The fastest run in the same process."""
        return min(self.answer["warm_s"] or [self.answer["cold_s"]])


def measure(python: Path | str, script: str, job: dict[str, Any], limit_s: float = 600.0) -> Measured:
    """Run ``script`` of this folder with a job on its command line, in an empty folder of its own.

    Raises
    ------
    PeerFailed
        When it exits with an error or passes the limit.
    """
    with tempfile.TemporaryDirectory() as scratch, open(Path(scratch) / "log", "w+") as log:
        answer = Path(scratch) / "answer.json"
        command = [str(python), str(HERE / script), json.dumps(job), str(answer)]
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=scratch, stdout=log, stderr=log)
        deadline = start + limit_s
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.perf_counter() > deadline:
                process.kill()
                os.wait4(process.pid, 0)
                process.returncode = -9
                raise PeerFailed(f"{script}: nothing after {limit_s:.0f} s")
            time.sleep(0.005)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode or not answer.exists():
            log.seek(0)
            raise PeerFailed(f"{script}: {(log.read().strip().splitlines() or ['no message'])[-1]}")
        document = json.loads(answer.read_text())
    whole = wall - sum(document["warm_s"])
    return Measured(whole, (usage.ru_utime + usage.ru_stime) * whole / wall, usage.ru_maxrss / 1024, document)


def fastest(python: Path | str, script: str, job: dict[str, Any], repeats: int, limit_s: float = 600.0) -> Measured:
    """The fastest of several processes with the same job: what the machine's other work slowed least."""
    runs = [measure(python, script, job, limit_s) for _ in range(repeats)]
    first = min(runs, key=lambda run: run.whole_s)
    warm = [seconds for run in runs for seconds in run.answer["warm_s"]]
    return Measured(first.whole_s, min(run.cpu_s for run in runs), first.peak_mb, {**first.answer, "warm_s": warm})
