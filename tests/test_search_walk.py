"""What is counted of one nest, transfer by transfer, is what the passes over the lattice say of it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from search_spaces import random_mapspace
from stitchloop.mapspace.factors import divisors
from stitchloop.search.exact import Search
from stitchloop.search.nest import Incumbent, build_mapping

SPACES = [(seed, sliding) for seed in range(40) for sliding in (False, True) if random_mapspace(seed, sliding, 800) is not None]


def settlers(seed, sliding):
    """(search, keep sets, choice, settler) of a few choices of a random mapspace."""
    search = Search(random_mapspace(seed, sliding, 800), ("energy", "delay", "last-level-accesses"))
    for survey in search.surveyor.survey(search.sets[:3], search.choices):
        for c in range(0, len(search.choices), max(1, len(search.choices) // 4)):
            yield search, survey.keeps, c, search.settler(survey, c)


@pytest.mark.parametrize(("seed", "sliding"), SPACES)
def test_a_walked_nest_costs_what_the_passes_say(seed, sliding):
    for search, keeps, c, settler in settlers(seed, sliding):
        for metric, weights in enumerate(search.eye):
            table = len(settler.mixes)
            if table == len(settler.tables_of_mixes):
                break
            found = settler.mix(weights)
            root = settler.tables_of_mixes[table, settler.plan.root, 0]
            assert (found is None) == np.isinf(root)
            if found is not None:
                assert settler.sums[-1][metric] == pytest.approx(root, rel=1e-12, abs=1e-9)
                nest = Incumbent(found[0], search.index(0, c), keeps, search.choice(c), found[1])
                assert search.space.contains(build_mapping(search.space, nest)) is None


@pytest.mark.parametrize(("seed", "sliding"), SPACES[::4])
def test_the_lattice_holds_every_tile_shape_once(seed, sliding):
    for search, _, c, settler in settlers(seed, sliding):
        machine, tables, nodes = search.machine, settler.tables, settler.nodes
        left = machine.size // search.choices[c].prod(axis=0)
        shapes = set(product(*(divisors(int(rest)) for rest in left)))
        extents = tables.extent[:, :nodes].astype(int)
        assert nodes == len(shapes)
        assert set(map(tuple, extents.T.tolist())) == shapes
        assert (tables.trips[:nodes] * extents.prod(axis=0) == left.prod()).all()
        for r, prime in ((r, q) for r in range(len(left)) for q in range(machine.primes.shape[1]) if machine.primes[r, q]):
            values, after = tables.value[r, : tables.count[r]], tables.successor[r, prime, : tables.count[r]]
            times = values * machine.primes[r, prime]
            assert (np.where(after >= 0, values[after], 0) == np.where(np.isin(times, values), times, 0)).all()
