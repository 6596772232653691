"""Attributes of one component to a :class:`Level` or :class:`Compute`, with Timeloop's names and defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from stitchloop.architecture import Architecture, Compute, Energy, Level
from stitchloop.errors import InputError, Place
from stitchloop.read.expressions import Scope
from stitchloop.read.fields import LARGEST, Field, PlacedField

BUFFER_CLASSES = ("DRAM", "SRAM", "regfile", "smartbuffer", "storage")
COMPUTE_CLASSES = ("mac", "intmac", "fpmac", "compute")
NETWORK_CLASSES = ("XY_NoC", "Legacy", "ReductionTree", "SimpleMulticast")
DEFAULT_WORD_BITS = 16

WORD_BITS = ("word_bits", "word_width", "datawidth")
BLOCK_SIZE = ("block_size", "n_words")
WIDTH = ("width", "memory_width", "data_storage_width")
DEPTH = ("depth", "memory_depth", "data_storage_depth")
ATTRIBUTES = (
    *(*WORD_BITS, *BLOCK_SIZE, *WIDTH, *DEPTH, "entries", "sizeKB", "cluster_size", "multiple_buffering", "min_utilization"),
    *("bandwidth", "read_bandwidth", "write_bandwidth", "shared_bandwidth", "global_cycle_seconds"),
)
"""What the model reads; all other attributes are for estimators of energy."""


@dataclass(frozen=True)
class Mesh:
    """How many instances stand in the whole machine, and how they are laid out."""

    x: int = 1
    y: int = 1

    def times(self, x: int, y: int, field: Field) -> Mesh:
        if self.x * self.y * x * y > LARGEST:
            field.fail(f"{self.x * self.y * x * y} instances", f"at most {LARGEST} are possible")
        return Mesh(self.x * x, self.y * y)


@dataclass(frozen=True)
class Component:
    """A component of either architecture format, ready to become a level."""

    name: str
    component_class: str
    mesh: Mesh
    attributes: Mapping[str, Any]
    """Its own attributes, then inherited ones, evaluated."""
    field: Field
    scope: Scope | None = None
    inherited: Mapping[str, Place] | None = None
    """Where inherited attributes are written."""

    @property
    def is_compute(self) -> bool:
        """Its class names a compute unit (as in Timeloop, any class that holds one of the words)."""
        return any(word in self.component_class for word in COMPUTE_CLASSES) and not self.is_storage

    @property
    def is_storage(self) -> bool:
        return any(word in self.component_class for word in BUFFER_CLASSES)

    @property
    def is_ignored(self) -> bool:
        return any(word in self.component_class for word in (*NETWORK_CLASSES, "nothing"))

    @property
    def is_fanout(self) -> bool:
        return self.component_class == "dummy_storage"

    def place(self, name: str) -> Place:
        """Where an attribute is written; the component itself where that is not known."""
        if self.scope is not None and name in self.scope.fields:
            return self.scope.place(name)
        return (self.inherited or {}).get(name, self.field.place)

    def misspelt(self) -> Iterator[str]:
        """Sentences on attributes of its own whose names are nearly, but not quite, what the model reads."""
        for name in self.scope.fields if self.scope is not None else ():
            close = [] if name in ATTRIBUTES else get_close_matches(name, ATTRIBUTES, n=1, cutoff=0.8)
            if close and close[0] not in self.attributes:
                found = f"'{name}' of '{self.name}' means nothing to the model"
                yield f"{self.place(name)}: {found}; did you mean '{close[0]}'?"

    def given(self, names: Sequence[str]) -> str | None:
        """The first of several names of an attribute that has a value."""
        return next((name for name in names if self.attributes.get(name) is not None), None)

    def number(self, *names: str, **bounds: float) -> float | None:
        """The first given of several names of an attribute, as a number within bounds (see :meth:`Field.number`)."""
        name = self.given(names)
        return None if name is None else self._field(name).number(**bounds)

    def integer(self, *names: str, least: int = 1) -> int | None:
        name = self.given(names)
        return None if name is None else self._field(name).integer(least=least)

    def _field(self, name: str) -> Field:
        return PlacedField(self.attributes[name], self.place(name))


def level_of(component: Component, warnings: list[str]) -> Level:
    """The storage or fan-out level of a component (see Timeloop's buffer attributes for names and defaults).

    Raises
    ------
    InputError
        For a width that is no multiple of the word, or attributes out of range.
    """
    c = component
    if c.is_fanout:
        return fanout_level(c.name, c.mesh)
    datawidth = c.integer(*WORD_BITS) or DEFAULT_WORD_BITS
    block_size, width = _block(c, datawidth, warnings)
    depth, entries = _size(c, datawidth, block_size)
    read_bandwidth, write_bandwidth = _bandwidths(c)
    return Level(
        name=c.name,
        instances=c.mesh.x * c.mesh.y,
        mesh_x=c.mesh.x,
        mesh_y=c.mesh.y,
        depth=depth,
        entries=entries,
        width=width,
        datawidth=datawidth,
        block_size=block_size,
        multiple_buffering=c.number("multiple_buffering", above=0) or 1.0,
        min_utilization=c.number("min_utilization", least=0, most=1) or 0.0,
        read_bandwidth=read_bandwidth,
        write_bandwidth=write_bandwidth,
        shared_bandwidth=c.number("shared_bandwidth", above=0),
        component_class=c.component_class,
        technology="DRAM" if "DRAM" in c.component_class or c.attributes.get("technology") == "DRAM" else "SRAM",
        attributes=dict(c.attributes),
    )


def fanout_level(name: str, mesh: Mesh) -> Level:
    """The dummy level above a container or component with ``spatial``."""
    return Level(
        name=name,
        is_fanout=True,
        instances=mesh.x * mesh.y,
        mesh_x=mesh.x,
        mesh_y=mesh.y,
        depth=1,
        component_class="dummy_storage",
        attributes={"width": 1, "depth": 1, "datawidth": 1},
    )


def compute_of(component: Component) -> Compute:
    """The compute units."""
    c = component
    return Compute(
        name=c.name,
        instances=c.mesh.x * c.mesh.y,
        mesh_x=c.mesh.x,
        mesh_y=c.mesh.y,
        word_bits=c.integer("word_bits", "datawidth") or DEFAULT_WORD_BITS,
        component_class=c.component_class,
        attributes=dict(c.attributes),
    )


def assemble(
    name: str, components: Sequence[Component], place: Place, variables: Mapping[str, Any], warnings: list[str]
) -> Architecture:
    """Join components, outermost first, to an architecture. Remarks go to ``warnings``.

    Raises
    ------
    InputError
        When there is no storage, no compute unit at the end, or a mesh that its parent's does not divide.
    """
    kept = [component for component in components if not component.is_ignored]
    if not kept:
        raise InputError(place, "an architecture without components", "add a DRAM, buffers and a compute unit")
    last, storage = kept[-1], kept[:-1]
    if last.is_storage:
        mend = "end with a component whose class names one of: " + ", ".join(COMPUTE_CLASSES)
        raise InputError(last.field.place, f"'{last.name}' of class '{last.component_class}' as the last component", mend)
    for component in storage:
        if component.is_compute:
            found = f"compute unit '{component.name}' above '{last.name}'"
            raise InputError(component.field.place, found, "keep one, as the last component")
    if not any(not component.is_fanout for component in storage):
        raise InputError(place, "an architecture without storage", "add a DRAM above the compute unit")
    _unique(kept)
    warnings += [sentence for component in kept for sentence in component.misspelt()]
    levels = [level_of(component, warnings) for component in reversed(storage)]
    compute = compute_of(last)
    below: Level | Compute = compute
    fields = [last.field, *(component.field for component in reversed(storage))]
    for index, level in enumerate(levels):
        x, y = below.mesh_x, below.mesh_y
        if x % level.mesh_x or y % level.mesh_y:
            found = f"{x}x{y} instances of '{below.name}' below {level.mesh_x}x{level.mesh_y} of '{level.name}'"
            raise InputError(fields[index].place, found, "make meshX and meshY multiples of those of the level above")
        levels[index] = replace(level, fanout_x=x // level.mesh_x, fanout_y=y // level.mesh_y)
        below = level
    clock = next((component for component in kept if component.given(["global_cycle_seconds"])), None)
    seconds = clock.number("global_cycle_seconds", above=0) if clock is not None else None
    return Architecture(name, tuple(levels), compute, seconds or 1e-9, dict(variables))


def with_tables(architecture: Architecture, energies: Mapping[str, Energy], areas: Mapping[str, float]) -> Architecture:
    """The architecture with energies and areas filled in by component name."""
    if not energies and not areas:
        return architecture

    def filled(part: Any) -> Any:
        energy = energies.get(part.name, part.energy)
        return replace(part, energy=energy, area_um2=areas.get(part.name, part.area_um2))

    levels = tuple(filled(level) for level in architecture.levels)
    return replace(architecture, levels=levels, compute=filled(architecture.compute))


def _unique(components: Sequence[Component]) -> None:
    seen: dict[str, Component] = {}
    for component in components:
        if component.name in seen:
            first = seen[component.name].field.place
            found = f"a second component '{component.name}' (the first: {first})"
            raise InputError(component.field.place, found, "rename one of them")
        seen[component.name] = component


def _block(c: Component, datawidth: int, warnings: list[str]) -> tuple[int, int]:
    """Words of one vector access, and bits of one row."""
    block, cluster, width = c.integer(*BLOCK_SIZE), c.integer("cluster_size"), c.integer(*WIDTH)
    if width is None:
        words = block or 1
        return words, words * (cluster or 1) * datawidth
    name = c.given(WIDTH) or "width"
    if width % datawidth:
        raise InputError(c.place(name), f"{name} {width} of '{c.name}'", f"a multiple of the word of {datawidth} bits is needed")
    if block is None:
        block = max(1, width // datawidth // (cluster or 1))
    if width % (block * datawidth * (cluster or 1)) or (cluster and block * datawidth * cluster != width):
        given = f"{block} words of {datawidth} bits" + (f" and cluster_size {cluster}" if cluster else "")
        warnings.append(f"{c.place(name)}: {name} {width} of '{c.name}' does not agree with {given}, which count")
    return block, width


def _size(c: Component, datawidth: int, block_size: int) -> tuple[int | None, int | None]:
    """Rows, and words where they are given apart from rows."""
    given = [name for name in ("entries", c.given(DEPTH), "sizeKB") if name and c.attributes.get(name) is not None]
    if len(given) > 1 and given[-1] == "sizeKB":
        raise InputError(c.place("sizeKB"), f"'{given[0]}' and 'sizeKB' of '{c.name}'", "give the size once")
    if not given:
        return None, None
    if given[0] in DEPTH:
        return c.integer(given[0], least=0), None
    if given[0] == "entries":
        words = c.integer("entries", least=0) or 0
    else:
        words = int((c.number("sizeKB", above=0) or 0) * 1024 * 8) // datawidth
    return -(-words // block_size), words


def _bandwidths(c: Component) -> tuple[float | None, float | None]:
    """Words per cycle for reads and for writes; the older ``bandwidth`` is shared out in halves, as in Timeloop."""
    both = c.number("bandwidth", above=0)
    read, write = c.number("read_bandwidth", above=0), c.number("write_bandwidth", above=0)
    if both is not None:
        read, write = read or both / 2, write or both / 2
    return read, write
