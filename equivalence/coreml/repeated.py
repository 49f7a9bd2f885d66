"""What coremltools works out again and again in a conversion, though it comes out the same.

Which kind of type a value has, asked thousands of times; the type and the value of a constant; the
four patterns of ``gelu`` and ``prelu`` that it looks for, built as programs each time; and the
whole program as text, for a log that is off. The graphs are the same
(``tests/coreml/test_sparing.py``).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from operator import is_
from types import CodeType
from typing import Any, Final

import numpy as np

# Of ``coremltools.converters.mil.mil.types``: what a type is, whoever asks.
QUESTIONS: Final = ("is_tensor", "is_list", "is_state", "is_scalar", "is_complex", "is_sub_byte")

# What cannot be changed in its place, and of these what is never a symbol.
PLAIN: Final = (str, bool, int, float, np.generic)
NO_SYMBOLS: Final = frozenset((str, bool, int, float, np.bool_, np.int32, np.float16, np.float32))
Replaced = tuple[Any, str, Any]  # where, its name, what stands in for it


@contextmanager
def worked_out_once() -> Iterator[None]:
    """Inside the block, coremltools gets what it has worked out before."""
    replaced = [*_types(), *_patterns(), *_constants(), *_texts()]
    originals = [vars(place)[name] for place, name, _ in replaced]
    for place, name, instead in replaced:
        setattr(place, name, instead)
    try:
        yield
    finally:
        for (place, name, _), original in zip(replaced, originals, strict=True):
            setattr(place, name, original)


def _types() -> Iterator[Replaced]:
    from coremltools.converters.mil.mil import types
    from coremltools.converters.mil.mil import var as variables
    from coremltools.converters.mil.mil.types import type_mapping

    for name in QUESTIONS:
        yield types, name, cache(getattr(types, name))
    yield type_mapping, "get_type_info", cache(type_mapping.get_type_info)
    named = type_mapping.numpy_type_to_builtin_type
    kept = lru_cache(maxsize=None, typed=True)(named)

    def numpy_type_to_builtin_type(kind: Any) -> Any:
        # Types that differ in their metadata only, as those of 4 bits do, are equal in Python.
        return named(kind) if getattr(kind, "metadata", None) else kept(kind)

    yield type_mapping, "numpy_type_to_builtin_type", numpy_type_to_builtin_type

    any_symbol = variables.any_symbolic

    def any_symbolic(value: Any) -> bool:
        numbers = type(value) is np.ndarray and value.dtype.kind != "O"
        return not (numbers or type(value) in NO_SYMBOLS) and any_symbol(value)

    yield variables, "any_symbolic", any_symbolic


@cache
def _patterns() -> list[Replaced]:
    from coremltools.converters.mil.mil.passes.defs import optimize_activation as place

    makers = [
        (place.fuse_gelu_tanh_approximation, "get_gelu_pattern1"),
        (place.fuse_gelu_tanh_approximation, "get_gelu_pattern2"),
        (place.FusePreluPattern1, "get_prelu_pattern"),
        (place.FusePreluPattern2, "get_prelu_pattern"),
    ]
    # A pattern is only read: what matches it is kept elsewhere.
    return [(owner, name, staticmethod(cache(getattr(owner, name)))) for owner, name in makers]


def _constants() -> Iterator[Replaced]:
    """A constant works out both its type and its value to say its type, and again to say its value.

    And a pass that looks for transposes has all operations infer both anew, constants too.
    """
    from coremltools.converters.mil.mil import Operation
    from coremltools.converters.mil.mil.ops.defs.iOS15.control_flow import Const

    work_out, infer = Const._get_type_val, Operation.type_value_inference
    last: list[Any] = [None, None, None]  # a constant, what it was given, its type and value
    settled: dict[Any, tuple[Any, Any, Any]] = {}  # by constant: what it was given, and the outcome

    def _get_type_val(constant: Any, value: Any) -> Any:
        if last[0] is constant and last[1] is value:
            found = last[2]
            last[:] = None, None, None
        else:
            found = work_out(constant, value)
            last[:] = constant, value, found
        return found

    def type_value_inference(op: Any, overwrite_output: bool = False) -> None:
        if not isinstance(op, Const):
            infer(op, overwrite_output)
            return
        if overwrite_output and op in settled and all(map(is_, settled[op], _outcome(op))):
            return
        infer(op, overwrite_output)
        value, _, held = outcome = _outcome(op)
        # Not where an array was copied, which may change without its copy.
        if isinstance(value, PLAIN) or (isinstance(value, np.ndarray) and held.val is value):
            settled[op] = outcome

    yield Const, "_get_type_val", _get_type_val
    yield Operation, "type_value_inference", type_value_inference


def _outcome(constant: Any) -> tuple[Any, Any, Any]:
    output = constant.outputs[0]
    return constant.val.sym_val, output._sym_type, output._sym_val


def _texts() -> Iterator[Replaced]:
    from coremltools.converters.mil.mil import Function, Program
    from coremltools.converters.mil.mil.passes.defs import optimize_normalization as norms
    from coremltools.converters.mil.mil.passes.defs import optimize_repeat_ops as repeats

    if logging.getLogger("coremltools").isEnabledFor(logging.DEBUG):
        return
    # A function is also shown where coremltools refuses one; these two show it to the log only.
    logging_only = {
        repeats._TransposeOptimization.apply_transform.__code__,
        norms.fuse_layernorm_or_instancenorm.apply.__code__,
    }
    yield Program, "__str__", lambda program: ""
    yield Function, "__str__", _shown(Function.__str__, logging_only)


def _shown(text: Callable[[Any], str], unless: set[CodeType]) -> Callable[[Any], str]:
    def shown(function: Any) -> str:
        return "" if sys._getframe(1).f_code in unless else text(function)

    return shown
