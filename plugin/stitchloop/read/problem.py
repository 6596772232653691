"""The section ``problem``: one Einsum with projections as sums of products, and its instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stitchloop.read.fields import LARGEST, Field, nearest
from stitchloop.workload import Einsum, Tensor, Term

PROBLEM_KEYS = ("version", "shape", "instance", "name", "densities", "commonDensity", "layout")
SHAPE_KEYS = ("name", "dimensions", "data_spaces", "coefficients", "flatten", "version")
TENSOR_KEYS = ("name", "projection", "read_write", "ranks", "dimensions")
INSTANCE_KEYS = ("densities", "commonDensity", "name", "data_spaces", "version")
COEFFICIENT_KEYS = ("name", "default")
MOST = 256
"""Ranks, tensors and coefficients of one Einsum."""


def read_einsum(section: Field) -> tuple[Einsum, list[str]]:
    """Read a single-Einsum problem in Timeloop's form.

    Parameters
    ----------
    section : Field
        ``{shape: {...}, instance: {...}}``; the sizes may also stand beside ``shape``, as in older files, or the whole
        shape beside the sizes.

    Returns
    -------
    Einsum and warnings

    Raises
    ------
    InputError
        For an unknown rank or coefficient, a missing size, a size below 1, or a density below 1.
    """
    section.mapping()
    shape, instance = _parts(section)
    shape.known(SHAPE_KEYS if shape is not section else (*SHAPE_KEYS, *PROBLEM_KEYS, *section.mapping()))
    if shape.get("flatten") is not None:
        shape.need("flatten").fail("flattened ranks", "write the flattened rank as a rank of its own")
    ranks = _ranks(shape)
    coefficients = _coefficients(shape, instance)
    data_spaces = shape.need("data_spaces")
    _few(data_spaces, len(data_spaces.items()), "data spaces")
    tensors = tuple(_tensor(item, ranks, coefficients) for item in data_spaces.items())
    _check_tensors(shape, tensors)
    sizes = tuple(_size(instance, rank) for rank in ranks)
    _refuse_densities(section, instance)
    name_field = shape.get("name")
    name = name_field.text() if name_field is not None else "Einsum"
    return Einsum(name, ranks, sizes, tensors), _extra_keys(section, shape, instance, ranks, coefficients)


def _parts(section: Field) -> tuple[Field, Field]:
    shape, instance = section.get("shape"), section.get("instance")
    if shape is not None and isinstance(shape.value, str):
        # A flat problem: the shape's name, and dimensions, projections and sizes beside it.
        if section.get("data_spaces") is None:
            shape.fail(f"shape {shape.shown()} by name alone", "write dimensions and data_spaces out under 'shape'")
        shape = section
    elif shape is None:
        shape = section if section.get("data_spaces") is not None else section.need("shape")
    if instance is None:
        instance = section
        if shape is not section:
            section.known((*PROBLEM_KEYS, *_names(shape)))
    elif isinstance(instance.value, str):
        instance.fail("an instance in words", "a single Einsum gives sizes as 'M: 16'; conditions belong to a list of Einsums")
    else:
        section.known((*PROBLEM_KEYS, *SHAPE_KEYS) if shape is section else PROBLEM_KEYS)
    instance.mapping()
    return shape, instance


def _names(shape: Field) -> list[str]:
    names: list[str] = []
    dimensions, coefficients = shape.get("dimensions"), shape.get("coefficients")
    if dimensions is not None:
        names += dimensions.words()
    if coefficients is not None:
        names += [item.need("name").text() for item in coefficients.items()]
    return names


def _ranks(shape: Field) -> tuple[str, ...]:
    dimensions = shape.need("dimensions", "list the ranks: dimensions: [M, N, K]")
    ranks = dimensions.words()
    if not ranks:
        dimensions.fail("no ranks", "list the ranks: dimensions: [M, N, K]")
    _few(dimensions, len(ranks), "ranks")
    for rank in ranks:
        if not rank.isidentifier():
            dimensions.fail(f"rank name '{rank[:40]}'", "use letters, digits and '_', beginning with a letter")
        if ranks.count(rank) > 1:
            dimensions.fail(f"rank '{rank[:40]}' twice", "list each rank once")
    return tuple(ranks)


def _few(field: Field, count: int, what: str) -> None:
    if count > MOST:
        field.fail(f"{count} {what}", f"at most {MOST} are read")


def _coefficients(shape: Field, instance: Field) -> dict[str, int]:
    values: dict[str, int] = {}
    listed = shape.get("coefficients")
    items = listed.items() if listed is not None else []
    _few(shape, len(items), "coefficients")
    for item in items:
        item.known(COEFFICIENT_KEYS)
        name = item.need("name").text()
        given = instance.get(name) or item.get("default")
        if given is None:
            item.fail(f"coefficient '{name}' without a value", "give a default, or a value in the instance")
        values[name] = given.integer(least=-LARGEST)
    return values


def _tensor(item: Field, ranks: tuple[str, ...], coefficients: Mapping[str, int]) -> Tensor:
    item.known(TENSOR_KEYS)
    name = item.need("name").text()
    projection = item.need("projection")
    if isinstance(projection.value, str):
        projection.fail("a projection in words", "a single Einsum writes it as nested lists, [[[M]], [[K]]]")
    terms = tuple(_sum(part, ranks, coefficients) for part in projection.items())
    read_write = item.get("read_write")
    names = item.first("ranks", "dimensions")
    rank_names = tuple(names.words()) if names is not None else ()
    if rank_names and len(rank_names) != len(terms):
        item.fail(f"{len(rank_names)} rank names for {len(terms)} projections of '{name}'", "give one name for each")
    return Tensor(name, terms, read_write.boolean() if read_write is not None else False, rank_names)


def _sum(part: Field, ranks: tuple[str, ...], coefficients: Mapping[str, int]) -> tuple[Term, ...]:
    """One tensor rank: ``[[R, Wdilation], [P, Wstride]]`` is R*Wdilation + P*Wstride; a bare rank will do."""
    if isinstance(part.value, str):
        return (_term([part], ranks, coefficients),)
    terms = [([item] if isinstance(item.value, str) else item.items(), item) for item in part.items()]
    return tuple(_term(factors, ranks, coefficients, whole) for factors, whole in terms)


def _term(factors: list[Field], ranks: tuple[str, ...], coefficients: Mapping[str, int], whole: Field | None = None) -> Term:
    rank: str | None = None
    coefficient = 1
    for factor in factors:
        if isinstance(factor.value, str) and factor.value in ranks:
            if rank is not None:
                factor.fail(f"the product of ranks '{rank}' and '{factor.value}'", "a term is one rank times coefficients")
            rank = factor.value
        elif isinstance(factor.value, str) and factor.value in coefficients:
            coefficient *= coefficients[factor.value]
        elif isinstance(factor.value, int) and not isinstance(factor.value, bool):
            coefficient *= factor.integer(least=-LARGEST)
        else:
            known = [*ranks, *coefficients]
            factor.fail(f"{factor.shown()} in a projection", nearest(str(factor.value)[:80], known, "ranks and coefficients are"))
    if rank is None:
        (whole or factors[0]).fail("a term without a rank", "a term is one rank times coefficients, such as [P, Wstride]")
    return Term(rank, coefficient)


def _check_tensors(shape: Field, tensors: tuple[Tensor, ...]) -> None:
    place = shape.need("data_spaces")
    names = [tensor.name for tensor in tensors]
    for name in names:
        if names.count(name) > 1:
            place.fail(f"data space '{name}' twice", "rename one of them")
    if not any(tensor.is_output for tensor in tensors):
        place.fail("no data space that is written", "mark the output with 'read_write: true'")


def _size(instance: Field, rank: str) -> int:
    found = instance.get(rank)
    if found is None:
        instance.fail(f"no size for rank '{rank}'", f"add '{rank}: SIZE' to the instance")
    return found.integer(least=1)


def _refuse_densities(section: Field, instance: Field) -> None:
    """Dense tensors only: a density of 1 is read, anything sparser has no meaning in the model."""
    for holder in (instance, section):
        common, densities = holder.get("commonDensity"), holder.get("densities")
        if common is not None:
            _refuse_density(common)
        for _, density in densities.entries() if densities is not None else ():
            _refuse_density(density)


def _refuse_density(field: Field) -> None:
    value: Any = field.need("density") if isinstance(field.value, Mapping) else field
    if value.number() != 1.0:
        value.fail(f"density {value.shown()}", "only dense tensors (density 1.0) are modelled")


def _extra_keys(
    section: Field, shape: Field, instance: Field, ranks: tuple[str, ...], coefficients: Mapping[str, int]
) -> list[str]:
    """Sentences on instance keys that look like a misspelt coefficient or rank: Timeloop ignores them, and so do we."""
    known = {*ranks, *coefficients}
    passed = {*known, *INSTANCE_KEYS, *(PROBLEM_KEYS if instance is section else ()), *(SHAPE_KEYS if shape is section else ())}
    warnings = []
    for key, field in instance.entries():
        if key in passed:
            continue
        if any(key.lower() == name.lower() for name in known):
            mend = nearest(key, sorted(known))
            warnings.append(f"{field.place}: '{key}' is neither a rank nor a coefficient and changes nothing; {mend}")
    return warnings
