"""Slides: transfers of a tile that moves by less than its extent, so that some of its words stay."""

from __future__ import annotations

from typing import Any

import numpy as np

from stitchloop.search.arrays import Tiles, inner, kernel
from stitchloop.search.prices import priced, rate_of

EXACT, NEAREST, ENDLESS = range(3)
"""How slides are priced: each bound apart, or as if the bound were all that is left of the rank, or without end."""


@inner
def fill_staying(tiles: Tiles, t: int, child: int, share: Any, level: int, rank: int, nodes: int, out: Any) -> None:
    """``out[node]``: words of ``share`` of tensor ``t`` that stay in ``child`` over a whole loop over ``rank`` at ``level``."""
    for p in range(nodes):
        out[p] = share[p]
    for e in range(tiles.tensor_expression[t], tiles.tensor_expression[t + 1]):
        first, last = tiles.expression_term[e], tiles.expression_term[e + 1]
        coefficient = 0.0
        for k in range(first, last):
            if tiles.term_rank[k] == rank:
                coefficient = tiles.term_coefficient[k] * tiles.inner[level + 1, rank]
        if coefficient == 0.0:
            continue
        if last == first + 2:
            a, b = tiles.term_rank[first], tiles.term_rank[first + 1]
            by_a = tiles.term_coefficient[first] * tiles.inner[child + 1, a]
            by_b = tiles.term_coefficient[first + 1] * tiles.inner[child + 1, b]
            base = 1.0 - tiles.term_coefficient[first] - tiles.term_coefficient[first + 1]
            extent_a, extent_b, moved = tiles.extent[a], tiles.extent[b], tiles.extent[rank]
            for p in range(nodes):
                length = base + by_a * extent_a[p] + by_b * extent_b[p]
                out[p] *= max(0.0, length - coefficient * moved[p]) / length
            continue
        for p in range(nodes):
            length = 1.0
            for k in range(first, last):
                r = tiles.term_rank[k]
                length += tiles.term_coefficient[k] * (tiles.extent[r, p] * tiles.inner[child + 1, r] - 1.0)
            out[p] *= max(0.0, length - coefficient * tiles.extent[rank, p]) / length


@inner
def slid_words(
    tiles: Tiles, t: int, child: int, share: float, reads: float, trips: float, level: int, rank: int, node: int, bound: int
) -> tuple[float, float]:
    """What is left of ``share`` words of tensor ``t`` to ``child``, and of ``reads`` words of its parent, if their run ends at
    ``node`` in a loop over ``rank`` at ``level`` that slides the tile ``bound - 1`` times per pass. ``trips`` are the node's.
    """
    stays = trips
    moved = tiles.extent[rank, node] * tiles.inner[level + 1, rank]
    for e in range(tiles.tensor_expression[t], tiles.tensor_expression[t + 1]):
        length = 1.0
        distance = 0.0
        for k in range(tiles.expression_term[e], tiles.expression_term[e + 1]):
            r = tiles.term_rank[k]
            length += tiles.term_coefficient[k] * (tiles.extent[r, node] * tiles.inner[child + 1, r] - 1.0)
            if r == rank:
                distance += tiles.term_coefficient[k] * moved
        stays *= max(0.0, length - distance)
    saved = stays * (1.0 - 1.0 / bound)
    return np.rint(share - saved), np.rint(reads - saved * (reads / share))


@kernel
def value_slides(
    slides: Any, pay_first: Any, pay_last: Any, tensors: Any, children: Any, tiles: Tiles, axes: Any, rates: Any,
    shares: Any, all_reads: Any, nodes: int, pricing: int, staying: Any, starts: Any, out: Any,
) -> None:  # fmt: skip
    """``out``: what the transfers of every slide cost at every node and bound (EXACT), or a lower bound over all bounds.

    A slide's exact values stand together, ordered by the axes outside its rank, then by pairs (from, to) along the rank's
    axis, ``to`` a proper multiple of ``from``, then by the axes inside. Lower bounds are those of the greatest ``to`` or of a
    loop without end; a slide has one per node, in the order of nodes. ``axes`` are ``Tables.count``, ``stride`` and ``value``;
    ``starts`` gets where each slide begins, ``staying`` is work space.
    """
    counts, strides, values = axes
    at = 0
    for slide in range(slides.shape[0]):
        starts[slide] = at
        payment, level, rank = slides[slide, 0], slides[slide, 1], slides[slide, 2]
        count, step, value = counts[rank], strides[rank], values[rank]
        first, end = pay_first[payment], at
        for q in range(first, pay_last[payment]):
            share, reads = shares[q], all_reads[q]
            fill_staying(tiles, tensors[q], children[q], share, level, rank, nodes, staying)
            rate = rate_of(rates[q])
            end = at
            for start in range(0, nodes, count * step):
                for i in range(count):
                    for j in range(i + 1 if pricing == EXACT else count - 1, count):
                        if value[j] % value[i]:
                            continue
                        part = 1.0 + 1e-12 if pricing == ENDLESS else 1.0 - float(value[i]) / float(value[j])
                        for k in range(step):
                            p = start + i * step + k
                            saved = staying[p] * part
                            delivered, sent = share[p] - saved, reads[p] - saved * (reads[p] / share[p])
                            if pricing != ENDLESS:
                                delivered, sent = np.rint(delivered), np.rint(sent)
                            price = priced(rate, delivered, sent)
                            out[end + k] = price if q == first else out[end + k] + price
                        end += step
        at = end
