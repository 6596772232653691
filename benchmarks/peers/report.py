"""Command line, time table and verdicts that the two benchmarks share."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from peers.environment import Peer, Unavailable, cache_folder, python_of
from peers.process import Measured, PeerFailed, measure

TIMES = f"{'':<40}{'whole process s':>16}{'cpu s':>9}{'in process s':>14}{'peak MB':>9}"


def arguments(title: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--python", help="a Python 3.12 to make the peers' environments with")
    parser.add_argument("--peers", type=Path, default=cache_folder(), help="folder of the environments (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="processes of ours, of which the fastest counts")
    parser.add_argument("--long", action="store_true", help="also the peers' searches with imperfect factors (minutes each)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file too")
    return parser.parse_args()


def interpreter(peer: Peer, given: argparse.Namespace) -> Path | None:
    """The peer's interpreter, or None with a line that says why there is none."""
    try:
        return python_of(peer, given.peers, given.python)
    except Unavailable as error:
        print(f"not compared: {error}")
        return None


def attempt(python: Path | None, script: str, job: dict[str, Any], limit_s: float = 900.0) -> Measured | None:
    """One process of a peer, or None with a line that says what it said."""
    if python is None:
        return None
    try:
        return measure(python, script, job, limit_s)
    except PeerFailed as error:
        print(f"no answer: {error}")
        return None


def time_line(name: str, run: Measured) -> str:
    return f"{name:<40}{run.whole_s:16.2f}{run.cpu_s:9.2f}{run.warm_s:14.4f}{run.peak_mb:9.0f}"


def time_ratio(name: str, ours: Measured, peer: Measured) -> str:
    """How many times faster ours is."""
    return f"{name:<40}{peer.whole_s / ours.whole_s:15.1f}x{peer.cpu_s / ours.cpu_s:8.1f}x{peer.warm_s / ours.warm_s:13.0f}x"


def verdict(text: str, holds: bool) -> None:
    print(f"  [{'met' if holds else 'MISSED'}] {text}")


def load() -> str:
    """A line on what else the machine does; times of a busy machine say little, ratios of one run more."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at the start"


def save(given: argparse.Namespace, found: dict[str, Any]) -> None:
    if given.json:
        given.json.write_text(json.dumps(found, indent=2))
