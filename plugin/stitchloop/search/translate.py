"""From kernels to machine code, by numba."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import config, njit, types
from numba.core import cgutils
from numba.np.arrayobj import populate_array

from stitchloop.errors import InputError
from stitchloop.search.compiled import ENTRY_NAME, REFUSED, Kind

HEAD = object.__basicsize__ // 8
"""Words that every Python object begins with; the last is the address of its class."""
ITEMS = tuple.__basicsize__ // 8
"""Words before those of a tuple's items; the first after the head is their number."""
DATA, DIMENSIONS, SHAPE, DTYPE, FLAGS = (HEAD + k for k in (0, 1, 2, 5, 6))
"""Words of a NumPy array."""
NUMBER = HEAD + 1
"""Word of a dtype; its upper half is the number of the type, the sign of the byte order stands in the third byte."""
NUMBER_AND_ORDER = 0xFFFFFFFF00FF0000
ORDERED = 0x101
"""Flags of an array: C-contiguous, and aligned."""

WORD = ir.IntType(64)


@cache
def dispatcher(function: Callable[..., Any]) -> Any:
    """What numba calls a function by. No reference is counted, so it must not make arrays."""
    return njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)(function)


def translate(function: Callable[..., Any], kinds: Sequence[Kind]) -> list[bytes]:
    """Object files with the machine code of a function of such arguments, and with its entry.

    The entry takes a block of words: the addresses of the tuple of arguments and of NumPy's class of arrays, then the numbers
    among the arguments. It returns what the function does, or 0; or ``REFUSED``.

    Raises
    ------
    InputError
        When numba is told not to translate.
    """
    if config.DISABLE_JIT:
        raise InputError("NUMBA_DISABLE_JIT", "the search runs as machine code, which numba may not make now", "unset it")
    own, types_ = dispatcher(function), tuple(_type_of(kind) for kind in kinds)
    own.compile(types_)
    compiled, context = own.overloads[types_], own.targetctx
    module = context.create_module(ENTRY_NAME)
    entry = ir.Function(module, ir.FunctionType(WORD, [WORD.as_pointer()]), ENTRY_NAME)
    builder = ir.IRBuilder(entry.append_basic_block())
    (block,) = entry.args
    arguments, ndarray = _words_at(builder, block, 0), _load(builder, block, 1)
    _check(builder, _load(builder, arguments, HEAD), WORD(len(kinds)))
    values, numbers = [], count(2)
    for k, (kind, type_) in enumerate(zip(kinds, types_)):
        if kind.dimensions:
            values.append(_array(context, builder, _words_at(builder, arguments, ITEMS + k), ndarray, kind, type_))
        else:
            values.append(_number(context, builder, _load(builder, block, next(numbers)), type_))
    callee, returned = context.declare_function(module, compiled.fndesc), compiled.signature.return_type
    _, result = context.call_conv.call_function(builder, callee, returned, types_, values)
    builder.ret(result if returned == types.int64 else WORD(0))
    target = binding.Target.from_default_triple().create_target_machine(opt=1, codemodel="jitdefault", jit=True)
    return [compiled.library._get_compiled_object(), target.emit_object(binding.parse_assembly(str(module)))]


def _type_of(kind: Kind) -> Any:
    number = types.boolean if kind.dtype == "bool" else getattr(types, kind.dtype)
    return types.Array(number, kind.dimensions, "C") if kind.dimensions else number


def _load(builder: Any, words: Any, k: int) -> Any:
    return builder.load(cgutils.gep_inbounds(builder, words, k))


def _words_at(builder: Any, words: Any, k: int) -> Any:
    """The words at the address that stands in word ``k``."""
    return builder.inttoptr(_load(builder, words, k), WORD.as_pointer())


def _check(builder: Any, found: Any, right: Any) -> None:
    """End the entry unless the two are equal."""
    with builder.if_then(builder.icmp_unsigned("!=", found, right), likely=False):
        builder.ret(WORD(REFUSED))


def _number(context: Any, builder: Any, word: Any, type_: Any) -> Any:
    """A number from its word."""
    if type_ == types.float64:
        return builder.bitcast(word, context.get_value_type(type_))
    return builder.trunc(word, context.get_value_type(type_)) if type_ == types.boolean else word


def _array(context: Any, builder: Any, words: Any, ndarray: Any, kind: Kind, type_: Any) -> Any:
    """The array whose object consists of ``words``, after checks that it is one of its kind."""
    dtype = np.dtype(kind.dtype)
    _check(builder, _load(builder, words, HEAD - 1), ndarray)
    _check(builder, builder.and_(_load(builder, words, DIMENSIONS), WORD(0xFFFFFFFF)), WORD(kind.dimensions))
    _check(builder, builder.and_(_load(builder, words, FLAGS), WORD(ORDERED)), WORD(ORDERED))
    number = builder.and_(_load(builder, _words_at(builder, words, DTYPE), NUMBER), WORD(NUMBER_AND_ORDER))
    _check(builder, number, WORD(dtype.num << 32 | ord(dtype.byteorder) << 16))
    array, sizes = context.make_array(type_)(context, builder), _words_at(builder, words, SHAPE)
    shape, strides = [_load(builder, sizes, d) for d in range(kind.dimensions)], [WORD(dtype.itemsize)]
    for size in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], size))
    data = builder.inttoptr(_load(builder, words, DATA), array.data.type)
    populate_array(array, data, shape, strides, strides[-1], None)
    return array._getvalue()
