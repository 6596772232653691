"""Loop bounds of one rank over the slots of a mapping: ranges, factorisations, and how many there are.

A *slot* is a place where a rank may have one loop: the spatial or the temporal loops of one level. Slots stand inner to
outer, the spatial one of a level before its temporal one. Perfect bounds multiply to the rank's size. Imperfect ones
(Timeloop's ``ruby``) follow the chain ``n -> ceil(n / bound)`` from the rank's size down to 1, inner to outer; the last
pass of each loop then has ``n % bound`` steps where that is not 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from stitchloop.errors import Place


@dataclass(frozen=True)
class FactorRange:
    """Admissible bounds of one rank's loop in one slot: ``low <= bound <= high``; ``high`` None is unlimited.

    ``sources`` says which constraints set the limits, as pairs of a place and a clause such as ``'M<=4'``.
    """

    low: int = 1
    high: int | None = None
    sources: tuple[tuple[Place, str], ...] = field(default=(), compare=False)

    @property
    def exact(self) -> int | None:
        """The only admissible bound, or None when there are several."""
        return self.low if self.low == self.high else None

    @property
    def is_free(self) -> bool:
        return self.low == 1 and self.high is None

    def admits(self, bound: int) -> bool:
        return self.low <= bound and (self.high is None or bound <= self.high)


ONE = FactorRange(1, 1)
ANY = FactorRange()


@lru_cache(maxsize=4096)
def prime_powers(number: int) -> tuple[tuple[int, int], ...]:
    """(prime, exponent) of a positive integer, by trial division: made for rank sizes, not for cryptography."""
    powers, prime = [], 2
    while prime * prime <= number:
        exponent = 0
        while number % prime == 0:
            number, exponent = number // prime, exponent + 1
        if exponent:
            powers.append((prime, exponent))
        prime += 1 + prime % 2
    return tuple(powers) + (((number, 1),) if number > 1 else ())


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors of a positive integer, ascending."""
    found = [1]
    for prime, exponent in prime_powers(number):
        found = [divisor * prime**power for power in range(exponent + 1) for divisor in found]
    return tuple(sorted(found))


def bounds_of(left: int, limits: FactorRange, imperfect: bool) -> Iterator[int]:
    """Bounds that a slot may take when ``left`` is still to be covered by it and the slots outside it."""
    if imperfect:
        yield from range(limits.low, min(left, limits.high or left) + 1)
    else:
        yield from (bound for bound in divisors(left) if limits.admits(bound))


def covered(left: int, bound: int) -> int:
    """What is left for the outer slots after a loop of ``bound``; exact for perfect bounds, too."""
    return -(-left // bound)


def residual_of(left: int, bound: int) -> int:
    """Steps of the last pass of a loop of ``bound`` that covers ``left`` together with the loops outside it."""
    return left % bound or bound


def factorizations(size: int, limits: Sequence[FactorRange], imperfect: bool = False) -> Iterator[tuple[int, ...]]:
    """All admissible bounds of a rank of ``size``, one per slot, inner to outer, in ascending order of the inner ones."""
    if not limits:
        if size == 1:
            yield ()
        return
    for bound in bounds_of(size, limits[0], imperfect):
        for outer in factorizations(covered(size, bound), limits[1:], imperfect):
            yield bound, *outer


def reachable(size: int, limits: Sequence[FactorRange], imperfect: bool = False) -> bool:
    """Whether any admissible factorisation exists."""
    lefts = {size}
    for limit in limits:
        lefts = {covered(left, bound) for left in lefts for bound in bounds_of(left, limit, imperfect)}
    return 1 in lefts
