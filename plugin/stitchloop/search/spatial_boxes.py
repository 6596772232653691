"""Branch and bound over boxes of imperfect spatial bounds: a lower bound for the mapspace, and the vectors that promise most."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stitchloop.mapspace.orders import SpatialSpace
from stitchloop.mapspace.space import Mapspace

BATCH = 1024
"""Most boxes that are halved at a time."""

PAIRS = 65_536
"""Most pairs of a box and a keep set that are halved at a time."""

BOX = 16
"""What a box costs apart from its bounds."""

WORK = 3_000_000
"""Most bounds, of one box and one keep set, that are made; a count and not a time, so that the answer is always the same."""

Goals = Callable[[Any, Any, Any], Any]


class Boxes:
    """Open boxes of spatial bounds with their keys, lowest first.

    Parameters
    ----------
    space : Mapspace
    goals : callable
        ``goals(low, high, active)`` bounds every objective for every box and keep set: ``float64[boxes, keep sets, objectives]``;
        keep sets that are not ``active`` may count as infinite.
    count : callable
        How many bounds of one box and one keep set ``goals`` has made so far; making a box counts as :data:`BOX` of them.
    """

    def __init__(self, space: Mapspace, goals: Goals, count: Callable[[], int]) -> None:
        self.space, self.goals, self.count = space, goals, count
        self.layouts: dict[tuple[int, tuple[int, ...]], bool] = {}
        sizes = space.einsum.rank_sizes
        low = np.ones((len(space.levels), len(sizes)), dtype=np.int64)
        high = np.ones_like(low)
        for i, level in enumerate(space.levels):
            spatial = level.spatial
            widest = max(spatial.fanout_x, spatial.fanout_y)
            for r, rank in enumerate(spatial.ranks):
                limits = spatial.factors[rank]
                low[i, r] = limits.low
                high[i, r] = max(limits.low, min(sizes[r], widest, limits.high or sizes[r]))
        self.made, self.limit = 0, float("inf")
        self.low, self.high, self.values, _ = self._rated(low[None], high[None], np.zeros(1, dtype=np.int64))

    # -- making boxes -------------------------------------------------------------------------------------------------

    def _rated(self, low: Any, high: Any, number: Any, active: Any = None) -> tuple[Any, Any, Any, Any]:
        """The boxes that hold something, cut down to what they can hold, with their bounds and their numbers."""
        high = self._cut(low, high)
        kept = (high >= low).all(axis=(1, 2)) & self._admitted(low, high)
        low, high, number = low[kept], high[kept], number[kept]
        before = self.count()
        values = self.goals(low, high, active) if len(low) else np.zeros((0, 1, 1))
        self.made += self.count() - before + BOX * len(low)
        some = np.isfinite(values[:, :, 0]).any(axis=1)
        return low[some], high[some], values[some], number[some]

    def _cut(self, low: Any, high: Any) -> Any:
        """High ends that leave the other ranks their low ends."""
        high = high.copy()
        sizes = np.array(self.space.einsum.rank_sizes)
        for i, level in enumerate(self.space.levels):
            most = _most(level.spatial)
            for r in range(low.shape[2]):
                others = low[:, i].prod(axis=1) // low[:, i, r]
                along = low[:, :, r].prod(axis=1) // low[:, i, r]
                room = np.where(along > 1, (sizes[r] - 1) // np.maximum(along // 2, 1) + 1, sizes[r])
                high[:, i, r] = np.minimum(high[:, i, r], np.minimum(most // others, room))
        return high

    def _admitted(self, low: Any, high: Any) -> Any:
        """Whether the low ends fit the fan-outs and the high ends use enough of them."""
        right = np.ones(len(low), dtype=np.bool_)
        for i, level in enumerate(self.space.levels):
            spatial = level.spatial
            if spatial.fanout == 1:
                continue
            right &= low[:, i].prod(axis=1) <= _most(spatial)
            right &= high[:, i].prod(axis=1) >= spatial.min_used
            rows, back = np.unique(low[:, i], axis=0, return_inverse=True)
            fits = np.array([self._fits(i, tuple(map(int, row))) for row in rows], dtype=np.bool_)
            right &= fits[back.ravel()]
        total = self.space.architecture.compute.instances
        used, most = low.prod(axis=(1, 2)), high.astype(float).prod(axis=(1, 2))
        right &= used / total <= max(self.space.max_parallelism, 1 / total)
        return right & (most / total >= self.space.min_parallelism)

    def _fits(self, level: int, bounds: tuple[int, ...]) -> bool:
        if (level, bounds) not in self.layouts:
            spatial = self.space.levels[level].spatial
            self.layouts[level, bounds] = spatial.fits(dict(zip(spatial.ranks, bounds)))
        return self.layouts[level, bounds]

    def least(self) -> Any:
        """The key of every box: its least first objective over the keep sets."""
        return self.values[:, :, 0].min(axis=1)

    def single(self) -> Any:
        """Which boxes hold one vector."""
        return (self.low == self.high).all(axis=(1, 2))

    def split(self, chosen: Any) -> None:
        """Replace boxes by their halves along the side with the greatest ratio."""
        low, high, values, _ = self._halves(self.low[chosen], self.high[chosen], self.values[chosen])
        rest = ~chosen
        self.low = np.concatenate([self.low[rest], low])
        self.high = np.concatenate([self.high[rest], high])
        self.values = np.concatenate([self.values[rest], values]) if len(values) else self.values[rest]

    def _halves(self, low: Any, high: Any, values: Any) -> tuple[Any, Any, Any, Any]:
        """The halves that hold something, with their bounds and the number of the box that each is of."""
        side = (high / low).reshape(len(low), -1).argmax(axis=1)
        level, rank = np.unravel_index(side, low.shape[1:])
        at = np.arange(len(low))
        middle = np.sqrt(low[at, level, rank] * high[at, level, rank].astype(float)).astype(np.int64)
        middle = np.clip(middle, low[at, level, rank], high[at, level, rank] - 1)
        upper, lower = low.copy(), high.copy()
        lower[at, level, rank] = middle
        upper[at, level, rank] = middle + 1
        return self._rated(
            np.concatenate([low, upper]),
            np.concatenate([lower, high]),
            np.tile(at, 2),
            (values[:, :, 0] < self.limit).any(axis=0),
        )

    def vectors(self, count: int) -> list[tuple[Any, Any]]:
        """Vectors in the ``count`` lowest boxes, each with its bounds: down to the better half until one is left."""
        order = np.argsort(self.least(), kind="stable")[:count]
        low, high, values = self.low[order], self.high[order], self.values[order]
        number = np.arange(len(order))
        while True:
            single = (low == high).all(axis=(1, 2))
            if single.all():
                break
            new_low, new_high, new_values, of = self._halves(low[~single], high[~single], values[~single])
            kept, own = np.concatenate([low[single], new_low]), np.concatenate([number[single], number[~single][of]])
            ends = np.concatenate([high[single], new_high])
            values = np.concatenate([values[single], new_values]) if len(new_values) else values[single]
            least = values[:, :, 0].min(axis=1)
            first = np.lexsort((-kept.prod(axis=(1, 2)), least, own))
            best = first[np.unique(own[first], return_index=True)[1]]
            low, high, values, number = kept[best], ends[best], values[best], own[best]
        found = {tuple(map(int, row.ravel())): (row, value) for row, value in zip(low, values)}
        return sorted(found.values(), key=lambda item: float(item[1][:, 0].min()))

    def refine(self, value: float, deadline: float | None, work: int | None = None) -> float:
        """Halve boxes below ``value``, lowest first, until the lowest holds one vector; the bound over all boxes.

        ``work`` takes the place of :data:`WORK`.
        """
        self.limit = min(self.limit, value)
        while len(self.low):
            least, single = self.least(), self.single()
            lowest = least.argmin()
            if least[lowest] >= value:
                return value
            if single[lowest] or self._spent(deadline, work):
                return float(least[lowest])
            opened = np.flatnonzero(~single & (least < value))
            ratio = (self.high[opened] / self.low[opened]).prod(axis=(1, 2))
            self._split_some(opened[np.lexsort((ratio, least[opened]))])
        return value

    def settle(self, count: int, value: float, deadline: float | None, work: int | None = None) -> bool:
        """Halve boxes below ``value`` until the ``count`` lowest hold one vector each; whether that was reached."""
        self.drop(value)
        while len(self.low):
            single = self.single()
            lowest = np.argsort(self.least(), kind="stable")[:count]
            opened = lowest[~single[lowest]]
            if not len(opened):
                break
            if self._spent(deadline, work):
                return False
            self._split_some(opened)
            self.drop(value)
        return True

    def _spent(self, deadline: float | None, work: int | None = None) -> bool:
        late = deadline is not None and time.perf_counter() > deadline
        return late or self.made > (work or WORK)

    def _split_some(self, numbers: Any) -> None:
        chosen = np.zeros(len(self.low), dtype=np.bool_)
        chosen[numbers[: min(BATCH, max(16, PAIRS // self.values.shape[1]))]] = True
        self.split(chosen)

    def drop(self, value: float) -> None:
        """Forget boxes whose first objective does not go below ``value``."""
        self.limit = min(self.limit, value)
        kept = self.least() < value
        self.low, self.high, self.values = self.low[kept], self.high[kept], self.values[kept]


def _most(spatial: SpatialSpace) -> int:
    return spatial.fanout if spatial.max_used is None else min(spatial.fanout, spatial.max_used)
