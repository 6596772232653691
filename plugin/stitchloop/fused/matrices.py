"""The matrices: monomials by variables, sums by monomials, and values of monomials computed when first asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from stitchloop.fused.tilings import Variable

if TYPE_CHECKING:
    from stitchloop.fused.evaluate import Evaluator

Factors = tuple[tuple[Variable, int], ...]


class Table:
    """Variables and monomials in order of first use, and the matrices made of them."""

    def __init__(self) -> None:
        self.variables: dict[Variable, int] = {}
        self.monomials: dict[frozenset[tuple[Variable, int]], int] = {}

    def add(self, factors: Iterable[tuple[Variable, int]]) -> int:
        """Row number of a monomial."""
        given = tuple(factors)
        for variable, _ in given:
            self.variables.setdefault(variable, len(self.variables))
        return self.monomials.setdefault(frozenset(given), len(self.monomials))

    @property
    def exponents(self) -> np.ndarray:
        """``Q``: monomials by variables."""
        q = np.zeros((len(self.monomials), len(self.variables)))
        for monomial, row in self.monomials.items():
            for variable, exponent in monomial:
                q[row, self.variables[variable]] = exponent
        return q

    def incidence(self, sums: Sequence[Sequence[tuple[int, float]]]) -> np.ndarray:
        """Weights of the monomials in each sum: sums by monomials."""
        weights = np.zeros((len(sums), len(self.monomials)))
        for at, terms in enumerate(sums):
            for monomial, weight in terms:
                weights[at, monomial] += weight
        return weights


class Sums:
    """Weights of monomials in a set of sums, over the monomials ``used`` in any of them."""

    def __init__(self, weights: np.ndarray) -> None:
        self.used = np.flatnonzero(weights.any(axis=0))
        self.weights = np.ascontiguousarray(weights[:, self.used])

    def at(self, monomials: Monomials, rows: np.ndarray | None = None) -> np.ndarray:
        """The sums' values (or those of some of them): sums by columns."""
        weights = self.weights if rows is None else self.weights[rows]
        return weights @ monomials.rows(self.used)


class Monomials:
    """Values of the monomials at some columns, computed when first asked for."""

    def __init__(self, ev: Evaluator, index: Sequence[np.ndarray]) -> None:
        self.ev, self.index = ev, index
        self.place = np.full(len(ev.table.monomials), -1)
        self.values = np.empty((0, len(index[0]) if index else 1))

    def rows(self, which: np.ndarray) -> np.ndarray:
        missing = which[self.place[which] < 0]
        if len(missing):
            self.place[missing] = len(self.values) + np.arange(len(missing))
            self.values = np.concatenate([self.values, self.ev.monomials(self.index, missing)])
        return self.values[self.place[which]]

    def keep(self, columns: np.ndarray) -> Monomials:
        """The same at some of the columns."""
        part = Monomials(self.ev, [i[columns] for i in self.index])
        part.place, part.values = self.place.copy(), self.values[:, columns]
        return part
