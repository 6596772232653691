"""How users write factors and permutations: lists and strings, in mappings and in constraints alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

from stitchloop.constraints import Relation
from stitchloop.errors import Place
from stitchloop.read.fields import LARGEST, Field, nearest


@dataclass(frozen=True)
class Factor:
    """``rank relation value``; ``last`` is the bound of the last pass of an imperfect loop, 0 where none is given."""

    rank: str
    relation: Relation
    value: int
    last: int
    place: Place


@dataclass(frozen=True)
class Permutation:
    """Ranks innermost first; ``outer`` are those fixed as the outermost (after ``*`` or ``_``)."""

    inner: tuple[str, ...] = ()
    outer: tuple[str, ...] = ()


@lru_cache(maxsize=256)
def _factor_pattern(ranks: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(re.escape(rank) for rank in sorted(ranks, key=len, reverse=True))
    relation, last = r"(?P<relation><=|>=|==?|)", r"(\s*,\s*(?P<last>\d+))?"
    return re.compile(rf"\s*(?P<rank>{names})\s*{relation}\s*(?P<value>\d+){last}\s*(,|(?=\s)|$|(?=[A-Za-z_]))")


@lru_cache(maxsize=256)
def _rank_pattern(ranks: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(rank) for rank in sorted(ranks, key=len, reverse=True)))


def read_factors(field: Field, ranks: tuple[str, ...]) -> tuple[Factor, ...]:
    """Factors as ``[M=4, K<=2]``, ``M=4,K=2``, ``M4 K2`` or ``{M: 4}``; ``M=4,3`` has a last pass of 3.

    Raises
    ------
    InputError
        For a rank that the problem does not have, a rank given twice in the same relation, or text that is no factor.
    """
    if isinstance(field.value, str):
        factors = _parse_factors(field.value, field, ranks)
    elif isinstance(field.value, dict):
        factors = [Factor(_rank(key, item, ranks), "=", item.integer(least=0), 0, item.place) for key, item in field.entries()]
    else:
        factors = _listed_factors(field, ranks)
    seen: set[tuple[str, str]] = set()
    for factor in factors:
        if (factor.rank, factor.relation) in seen:
            field.fail(f"two factors '{factor.rank}{factor.relation}...'", "keep one factor for each rank")
        seen.add((factor.rank, factor.relation))
    return tuple(factors)


def _listed_factors(field: Field, ranks: tuple[str, ...]) -> list[Factor]:
    factors: list[Factor] = []
    for item in field.items():
        if isinstance(item.value, int) and not isinstance(item.value, bool) and factors and not factors[-1].last:
            # YAML takes the comma of [M=4,3] for its own.
            before = factors[-1]
            factors[-1] = Factor(before.rank, before.relation, before.value, item.integer(), before.place)
        elif isinstance(item.value, list | tuple):
            factors += _parse_factors("".join(part.text() for part in item.items()), item, ranks)
        else:
            factors += _parse_factors(item.text(), item, ranks)
    return factors


def _parse_factors(text: str, field: Field, ranks: tuple[str, ...]) -> list[Factor]:
    text = text.split("#", 1)[0].strip()
    pattern, position, factors = _factor_pattern(ranks), 0, []
    place = field.place
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            word = re.match(r"\s*([A-Za-z_]\w*?)\s*(<=|>=|=|\d|$)", text[position : position + 200])
            if word and word[1] not in ranks and not _rank_pattern(ranks).match(word[1]):
                field.fail(f"factor of '{word[1]}', which is no rank of the problem", nearest(word[1], ranks, "ranks are"))
            field.fail(f"'{text[position : position + 40].strip()}' where a factor is needed", "write RANK=4, RANK<=4 or RANK>=4")
        factors.append(
            Factor(
                match["rank"],
                cast(Relation, match["relation"] if match["relation"] in ("<=", ">=") else "="),
                _digits(match["value"], field),
                _digits(match["last"], field) if match["last"] else 0,
                place,
            )
        )
        position = match.end()
    return factors


def _digits(text: str, field: Field) -> int:
    if len(text) > 30 or int(text) > LARGEST:
        field.fail(f"a factor of {len(text)} digits", f"at most {LARGEST} is possible")
    return int(text)


def read_permutation(field: Field, ranks: tuple[str, ...]) -> Permutation:
    """A permutation as ``[K, M]``, ``K,M``, ``K M`` or ``KM``; after ``*`` or ``_`` stand the outermost ranks.

    Raises
    ------
    InputError
        For a rank that the problem does not have, or one that appears twice.
    """
    words = field.value.split("#", 1)[0].replace(",", " ").split() if isinstance(field.value, str) else field.words()
    parts: dict[Literal["inner", "outer"], list[str]] = {"inner": [], "outer": []}
    side: Literal["inner", "outer"] = "inner"
    for word in words:
        for rank in _ranks_of(word, field, ranks):
            if rank in ("*", "_"):
                side = "outer"
            elif rank in parts["inner"] or rank in parts["outer"]:
                field.fail(f"rank '{rank}' twice in a permutation", "list each rank once")
            else:
                parts[side].append(rank)
    return Permutation(tuple(parts["inner"]), tuple(parts["outer"]))


def _ranks_of(word: str, field: Field, ranks: tuple[str, ...]) -> list[str]:
    if word in ranks or word in ("*", "_"):
        return [word]
    found, position, pattern = [], 0, _rank_pattern(ranks)
    while position < len(word):
        if word[position] in "*_":
            found.append(word[position])
            position += 1
            continue
        match = pattern.match(word, position)
        if match is None:
            found_here = f"'{word[position : position + 20]}' in a permutation, which is no rank of the problem"
            field.fail(found_here, nearest(word, ranks, "ranks are"))
        found.append(match[0])
        position = match.end()
    return found


def _rank(name: str, field: Field, ranks: tuple[str, ...]) -> str:
    if name not in ranks:
        field.fail(f"'{name}', which is no rank of the problem", nearest(name, ranks, "ranks are"))
    return name


def read_tensors(field: Field | None, tensors: tuple[str, ...]) -> frozenset[str]:
    """Names of tensors; ``*`` means all of them."""
    if field is None:
        return frozenset()
    names = field.words()
    if "*" in names:
        return frozenset(tensors)
    for name in names:
        if name not in tensors:
            field.fail(f"'{name}', which is no tensor of the problem", nearest(name, tensors, "tensors are"))
    return frozenset(names)


def read_ranks(field: Field, ranks: tuple[str, ...]) -> tuple[str, ...]:
    """Names of ranks."""
    return tuple(_rank(name, field, ranks) for name in field.words())
