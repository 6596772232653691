"""Slides: transfers of a tile that moves by less than its extent, so that some of its words stay."""

from __future__ import annotations

import numpy as np

from stitchloop.search.compiled import Floats1, Floats2, Floats3, Ints1, Ints2, inner, kernel
from stitchloop.search.prices import priced, rate_of

EXACT, NEAREST = range(2)
"""How slides are priced: each bound apart, or as if the bound were all that is left of the rank."""


@inner
def slid(share: float, reads: float, staying: float, part: float) -> tuple[float, float]:
    """What is left of ``share`` words to a child and ``reads`` words of its parent when a slide repeats in ``part`` of steps."""
    saved = share * staying * part
    return share - saved, reads - saved * (reads / share)


@kernel
def value_slides(
    slides: Ints2, spans: Ints2, counts: Ints1, strides: Ints1, values: Ints2, rates: Floats2, shares: Floats2,
    all_reads: Floats2, staying: Floats2, loose: Floats3, nodes: int, pricing: int, starts: Ints1, out: Floats1,
) -> None:  # fmt: skip
    """``out``: what the transfers of every slide cost at every node and bound (EXACT), or a lower bound over all bounds.

    A slide's exact values stand together, ordered by the axes outside its rank, then by pairs (from, to) along the rank's
    axis, ``to`` a proper multiple of ``from``, then by the axes inside. Lower bounds are those of the greatest ``to``;
    a slide has one per node, in the order of nodes. ``starts`` gets where each slide begins. With ``loose`` not empty, they
    are those of :mod:`stitchloop.search.wraps` instead.
    """
    at = 0
    loosened = loose.shape[1] > 0
    for slide in range(slides.shape[0]):
        starts[slide] = at
        first, last, row, rank = spans[slide, 0], spans[slide, 1], spans[slide, 2], slides[slide, 2]
        count, step, value = counts[rank], strides[rank], values[rank]
        end = at
        for q in range(first, last):
            own = row + q - first
            share, reads, stays = shares[q], all_reads[q], staying[own]
            rate = rate_of(rates[q])
            end = at
            for start in range(0, nodes, count * step):
                for i in range(count):
                    for j in range(i + 1 if pricing == EXACT else count - 1, count):
                        if value[j] % value[i]:
                            continue
                        part = 1.0 - float(value[i]) / float(value[j])
                        least = part if pricing == EXACT else 0.5
                        for k in range(step):
                            p = start + i * step + k
                            if loosened:
                                delivered = share[p] * (loose[0, own, p] + min(loose[1, own, p] * part, loose[1, own, p] * least))
                                sent = reads[p] * (loose[2, own, p] + min(loose[3, own, p] * part, loose[3, own, p] * least))
                                delivered = np.floor(delivered * (1.0 + 1e-12) + 1e-6)
                                sent = np.floor(sent * (1.0 + 1e-12) + 1e-6)
                            else:
                                delivered, sent = slid(share[p], reads[p], stays[p], part)
                                delivered, sent = np.rint(delivered), np.rint(sent)
                            price = priced(rate, delivered, sent)
                            out[end + k] = price if q == first else out[end + k] + price
                        end += step
        at = end
