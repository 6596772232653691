"""Kernels: machine code on disk that is linked into the process and called without numba.

To import numba, and to load what it keeps on disk, takes longer than most searches. So numba only translates kernels
(:mod:`stitchloop.search.translate`); the machine code of each is kept in a file, which LLVM's linker loads. It takes a block
of words: the address of the tuple of arguments, where it finds NumPy's arrays and checks their types, and the numbers.

The name of a file holds a digest of all that its machine code depends on: the kernel and what it calls, constants included,
processor, Python, libraries and what the environment tells numba.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, update_wrapper
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, get_args, get_type_hints

import numpy as np

from stitchloop.cache import fetch, keep

P = ParamSpec("P")
R = TypeVar("R")

LOCK = RLock()
"""Held while a kernel is made or linked."""

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)
ENTRY_NAME = "entry"
"""What is called of a kernel's machine code; see :func:`stitchloop.search.translate.translate`."""
REFUSED = -(2**63)
"""What it returns when an argument is not the array that it should be."""


@dataclass(frozen=True)
class Kind:
    """What an argument of a kernel is: a number, or a C-ordered array of so many dimensions."""

    dtype: str
    dimensions: int = 0


WORDS = {"int64": "q", "float64": "d", "bool": "?7x"}
"""How :mod:`struct` packs numbers."""

NDARRAY = id(np.ndarray)
"""What machine code knows arrays by."""

SETTINGS = ("OPT", "CPU_NAME", "CPU_FEATURES", "ENABLE_AVX", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO")
"""Variables ``NUMBA_...`` of the environment that machine code depends on."""

NUMBERS = {int: Kind("int64"), float: Kind("float64"), bool: Kind("bool")}

Flags2 = Annotated[Any, Kind("bool", 2)]
Flags1 = Annotated[Any, Kind("bool", 1)]
Shorts2 = Annotated[Any, Kind("int32", 2)]
Shorts1 = Annotated[Any, Kind("int32", 1)]
Ints3 = Annotated[Any, Kind("int64", 3)]
Ints2 = Annotated[Any, Kind("int64", 2)]
Ints1 = Annotated[Any, Kind("int64", 1)]
Floats3 = Annotated[Any, Kind("float64", 3)]
Floats2 = Annotated[Any, Kind("float64", 2)]
Floats1 = Annotated[Any, Kind("float64", 1)]


class inner(Generic[P, R]):
    """Decorates what kernels call. It is part of their machine code; called from Python it runs as it stands."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def _numba_type_(self) -> Any:
        from stitchloop.search.translate import dispatcher

        return dispatcher(self.function)._numba_type_


class kernel(Generic[P, R]):
    """Decorates what runs as machine code, side by side with other threads.

    Arrays are annotated with their types, and a kernel makes none. It returns an integer, or nothing.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self._entry: Any = None
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._entry is None:
            self._link()
        result = self._entry(self._pack(id(args), NDARRAY, *[args[k] for k in self._numbers]))
        if result == REFUSED:
            wrong = "an argument is not an array of the type, dimensions and order that its annotation names"
            raise TypeError(f"{self.function.__name__}: {wrong}")
        return result

    def _link(self) -> None:
        """Load the kernel's machine code, which is made and kept if there is none yet."""
        with LOCK:
            if self._entry is None:
                hints = get_type_hints(self.function, include_extras=True)
                kinds = [_kind(hint) for key, hint in hints.items() if key != "return"]
                self._numbers = [k for k, kind in enumerate(kinds) if not kind.dimensions]
                self._pack = struct.Struct("=qq" + "".join(WORDS[kinds[k].dtype] for k in self._numbers)).pack
                name = f"{self.function.__name__}-{_digest(self.function, kinds)}"
                self._entry = ENTRY(_linked(name, _kept(name) or _made(self.function, kinds, name)))


def _kind(hint: Any) -> Kind:
    """What an annotation of a kernel's argument says."""
    known = NUMBERS.get(hint) or next((own for own in get_args(hint) if isinstance(own, Kind)), None)
    if known is None:
        raise TypeError(f"an argument of a kernel is annotated {hint}, which is no number and none of the arrays of this module")
    return known


def _digest(function: Callable[..., Any], kinds: list[Kind]) -> str:
    """What the machine code of a function depends on, in 32 digits."""
    return sha256(repr((_host(), kinds, *_parts(function))).encode()).hexdigest()[:32]


@cache
def _host() -> tuple[str, ...]:
    """Processor, numba's settings, and versions of Python, NumPy's objects, LLVM and :mod:`stitchloop.search.translate`."""
    import llvmlite
    from llvmlite import binding

    processor = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    settings = (os.environ.get(f"NUMBA_{name}", "") for name in SETTINGS)
    own = Path(__file__).with_name("translate.py").read_text()
    return (*processor, *settings, sys.implementation.cache_tag, np.__version__.split(".")[0], llvmlite.__version__, own)


def _parts(function: Callable[..., Any]) -> Iterator[Any]:
    """The code of a function and of all that it calls, and the constants that they name."""
    code = function.__code__
    yield code.co_code, [value for value in code.co_consts if not isinstance(value, str)], code.co_names, code.co_varnames
    for name in code.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, inner):
            yield from _parts(value.function)
        elif isinstance(value, (int, float)):
            yield name, value
        else:
            yield name, getattr(value, "_fields", None)


def _kept(name: str) -> list[bytes] | None:
    """What :func:`_made` has kept, if it is whole."""
    content = fetch(f"{name}.bin") or b""
    return list(marshal.loads(content[32:])) if content[:32] == sha256(content[32:]).digest() else None


def _made(function: Callable[..., Any], kinds: list[Kind], name: str) -> list[bytes]:
    """Object files with the machine code of a function. Signals wait until it is there: LLVM's callbacks would swallow them."""
    from stitchloop.search.translate import translate
    from stitchloop.write.files import signals_held

    with signals_held():
        objects = translate(function, kinds)
        content = marshal.dumps(objects)
        keep(f"{name}.bin", sha256(content).digest() + content)
    return objects


def _linked(name: str, objects: list[bytes]) -> int:
    """The address of the entry; machine code stays there until the process ends."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    linker = binding.create_lljit_compiler(binding.Target.from_default_triple().create_target_machine())
    builder = binding.JITLibraryBuilder().add_current_process().export_symbol(ENTRY_NAME)
    for code in objects:
        builder.add_object_img(code)
    library = builder.link(linker, name)
    library.detach()
    linker.detach()
    return int(library[ENTRY_NAME])
