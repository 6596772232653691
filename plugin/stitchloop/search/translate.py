"""From kernels to machine code, by numba."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.np.arrayobj import populate_array

from stitchloop.search.compiled import ENTRY_NAME, Kind

CLASS, DATA, DIMENSIONS, SHAPE, DTYPE, FLAGS = -1, 0, 1, 2, 5, 6
"""Words of a NumPy array object, counted from the end of what every Python object has."""
NUMBER = 1
"""Likewise of its dtype; the number is the upper half of the word."""
ORDERED = 0x101
"""Flags of an array: C-contiguous, and aligned."""

WORD = ir.IntType(64)


@cache
def dispatcher(function: Callable[..., Any]) -> Any:
    """What numba calls a function by. No reference is counted, so it must not make arrays."""
    return njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)(function)


@global_compiler_lock
def translate(function: Callable[..., Any], kinds: Sequence[Kind]) -> list[bytes]:
    """Object files with the machine code of a function of such arguments, and with its entry.

    The entry takes a place for the result and a block of words: the address of NumPy's class of arrays, then the arguments.
    It returns 0, or 1 if an argument is not such an array.
    """
    own, arguments = dispatcher(function), tuple(_type_of(kind) for kind in kinds)
    own.compile(arguments)
    compiled, context = own.overloads[arguments], own.targetctx
    module = context.create_module(ENTRY_NAME)
    signature = ir.FunctionType(ir.IntType(32), [WORD.as_pointer(), WORD.as_pointer()])
    entry = ir.Function(module, signature, ENTRY_NAME)
    builder = ir.IRBuilder(entry.append_basic_block())
    result, block = entry.args
    values = [_value(context, builder, block, k, *each) for k, each in enumerate(zip(kinds, arguments), 1)]
    callee = context.declare_function(module, compiled.fndesc)
    status, returned = context.call_conv.call_function(builder, callee, compiled.signature.return_type, arguments, values)
    if compiled.signature.return_type == types.int64:
        builder.store(returned, result)
    builder.ret(status.code)
    library = context.codegen().create_library(ENTRY_NAME)
    library.enable_object_caching()
    library.add_ir_module(module)
    library.finalize()
    return [compiled.library._get_compiled_object(), library._get_compiled_object()]


def _type_of(kind: Kind) -> Any:
    number = types.boolean if kind.dtype == "bool" else getattr(types, kind.dtype)
    return types.Array(number, kind.dimensions, "C") if kind.dimensions else number


def _load(builder: Any, words: Any, k: int) -> Any:
    return builder.load(cgutils.gep_inbounds(builder, words, k))


def _value(context: Any, builder: Any, block: Any, k: int, kind: Kind, type_: Any) -> Any:
    """An argument from its word of the block."""
    word = _load(builder, block, k)
    if kind.dimensions:
        ndarray = _load(builder, block, 0)
        return _array(context, builder, builder.inttoptr(word, WORD.as_pointer()), ndarray, kind, type_)
    if kind.dtype == "float64":
        return builder.bitcast(word, context.get_value_type(type_))
    return builder.trunc(word, context.get_value_type(type_)) if kind.dtype == "bool" else word


def _array(context: Any, builder: Any, words: Any, ndarray: Any, kind: Kind, type_: Any) -> Any:
    """The array whose NumPy object consists of ``words``; the function ends if it is not of its kind."""
    head, dtype = object.__basicsize__ // 8, np.dtype(kind.dtype)

    def check(found: Any, right: Any) -> None:
        with builder.if_then(builder.icmp_unsigned("!=", found, right), likely=False):
            builder.ret(ir.IntType(32)(1))

    check(_load(builder, words, head + CLASS), ndarray)
    check(builder.and_(_load(builder, words, head + DIMENSIONS), WORD(0xFFFFFFFF)), WORD(kind.dimensions))
    check(builder.and_(_load(builder, words, head + FLAGS), WORD(ORDERED)), WORD(ORDERED))
    dtype_words = builder.inttoptr(_load(builder, words, head + DTYPE), WORD.as_pointer())
    check(builder.lshr(_load(builder, dtype_words, head + NUMBER), WORD(32)), WORD(dtype.num))
    array = context.make_array(type_)(context, builder)
    data = builder.inttoptr(_load(builder, words, head + DATA), array.data.type)
    sizes = builder.inttoptr(_load(builder, words, head + SHAPE), WORD.as_pointer())
    shape = [_load(builder, sizes, d) for d in range(kind.dimensions)]
    strides = [WORD(dtype.itemsize)]
    for size in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], size))
    populate_array(array, data, shape, strides, strides[-1], None)
    return array._getvalue()
