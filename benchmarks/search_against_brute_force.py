"""The search against brute force over the reference model on many random small mapspaces; longer than the test suite's.

python benchmarks/search_against_brute_force.py [FIRST [LAST [MOST]]]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from search_spaces import least, random_mapspace, valid_stats
from stitchloop.errors import NoMapping
from stitchloop.model import TIMELOOP
from stitchloop.search import search
from stitchloop.search.objectives import completed, value_of

OBJECTIVES = (
    ("energy",),
    ("delay",),
    ("edp",),
    ("last-level-accesses",),
    ("accesses-S1", "energy"),
    ("delay", "last-level-accesses"),
)


def main(first: int, last: int, most: int) -> None:
    spaces = mappings = wrong = 0
    brute = ours = 0.0
    for seed in range(first, last):
        for sliding in (False, True):
            space = random_mapspace(seed, sliding, most)
            if space is None:
                continue
            start = time.perf_counter()
            stats = valid_stats(space, TIMELOOP)
            brute += time.perf_counter() - start
            spaces, mappings = spaces + 1, mappings + space.size
            for objectives in OBJECTIVES[:1] if sliding else OBJECTIVES:
                want = least(stats, objectives)
                start = time.perf_counter()
                try:
                    result = search(space, objectives)
                    got = tuple(value_of(name, result.stats) for name in completed(objectives))
                except NoMapping:
                    got = None
                ours += time.perf_counter() - start
                same = (got is None) == (want is None) and (
                    got is None or all(abs(a - b) <= 1e-9 * abs(b) + 1e-12 for a, b in zip(got, want))
                )
                if not same:
                    wrong += 1
                    print(f"seed {seed} sliding {sliding} {objectives}: got {got}, brute force {want}")
    print(f"{spaces} mapspaces, {mappings} mappings, {wrong} wrong; brute force {brute:.1f} s, search {ours:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, nargs="?", default=0, help="first seed")
    parser.add_argument("last", type=int, nargs="?", default=100, help="past the last seed")
    parser.add_argument("most", type=int, nargs="?", default=3000, help="largest mapspace")
    given = parser.parse_args()
    main(given.first, given.last, given.most)
