"""From a target and the tensors of a row to one call without arguments, ready to be timed.

Everything that is not the call (other arrays, another layout, pages, a filled cache) is made
beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from equivalence.arrays import from_native
from equivalence.caches.live import factory_arguments
from equivalence.calling import LocalTarget
from equivalence.dtypes import Array
from equivalence.timing.tensors import native, settled

PAGE_SIZE: Final = 16
KINDS: Final = ("attention", "varlen", "paged", "kv_cache")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """``call`` makes one call; ``cache`` are the arrays that hold what it must read.

    answer: from what ``call`` returns to ``[B, H, Sq, Dv]`` as float64, or None for no array.
    """

    call: Callable[[], Any]
    cache: tuple[Any, ...]
    answer: Callable[[Any], Array | None]


def prepare(target: LocalTarget, operands: Mapping[str, Array], *, causal: bool) -> Prepared:
    """query ``[B, H, Sq, D]``, key and value ``[B, Hkv, Skv, D]`` -> the call of ``target``."""
    kind = target.declaration.kind
    makers = {"attention": _attention, "varlen": _varlen, "paged": _paged, "kv_cache": _cache}
    return makers[kind](target, operands, causal)


def _attention(target: LocalTarget, operands: Mapping[str, Array], causal: bool) -> Prepared:
    swapped = target.declaration.layout == "BSHD"
    given = [
        np.ascontiguousarray(array.swapaxes(1, 2)) if swapped else array
        for array in operands.values()
    ]
    return _prepared(
        target,
        given,
        _options(target, causal),
        lambda array: array.swapaxes(1, 2) if swapped and array.ndim == 4 else array,
    )


def _varlen(target: LocalTarget, operands: Mapping[str, Array], causal: bool) -> Prepared:
    batch_size, num_heads, q_len, _ = operands["query"].shape
    kv_len = operands["key"].shape[2]
    packed = [
        np.ascontiguousarray(array.swapaxes(1, 2).reshape(-1, array.shape[1], array.shape[3]))
        for array in operands.values()
    ]
    keywords = _options(target, causal)
    for name, length in (("q", q_len), ("k", kv_len)):
        ends = np.arange(batch_size + 1, dtype=np.int32) * length
        keywords[_name(target, f"cu_seqlens_{name}")] = _native(target, ends)
        if f"max_seqlen_{name}" in target.options:
            keywords[_name(target, f"max_seqlen_{name}")] = length
    return _prepared(
        target,
        packed,
        keywords,
        lambda array: array.reshape(batch_size, q_len, num_heads, -1).swapaxes(1, 2),
    )


def _paged(target: LocalTarget, operands: Mapping[str, Array], causal: bool) -> Prepared:
    query, key, value = (operands[name] for name in ("query", "key", "value"))
    swapped = target.declaration.layout == "BSHD"
    batch_size, _, kv_len, _ = key.shape
    pages = math.ceil(kv_len / PAGE_SIZE)
    table = np.arange(batch_size * pages, dtype=np.int32).reshape(batch_size, pages)
    keywords = _options(target, causal)
    keywords[_name(target, "page_table")] = _native(target, table)
    lengths = np.full(batch_size, kv_len, np.int32)
    keywords[_name(target, "kv_lengths")] = _native(target, lengths)
    given = [np.ascontiguousarray(query.swapaxes(1, 2)) if swapped else query]
    given += [_in_pages(array, pages) for array in (key, value)]
    return _prepared(
        target, given, keywords, lambda array: array.swapaxes(1, 2) if swapped else array
    )


def _in_pages(array: Array, pages: int) -> Array:
    batch_size, heads, length, width = array.shape
    room = np.zeros((batch_size, pages * PAGE_SIZE, heads, width), array.dtype)
    room[:, :length] = array.swapaxes(1, 2)
    return room.reshape(batch_size * pages, PAGE_SIZE, heads, width)


def _cache(target: LocalTarget, operands: Mapping[str, Array], causal: bool) -> Prepared:
    """A cache that holds the keys and values already; ``attend`` alone is the call."""
    del causal  # over what is kept, the last query sees everything
    query, key, value = (operands[name] for name in ("query", "key", "value"))
    sizes = {
        "batch_size": key.shape[0],
        "num_kv_heads": key.shape[1],
        "head_dim": key.shape[3],
        "max_len": key.shape[2],
    }
    declared = target.declaration
    made = target.function(**factory_arguments(target.function, declared, sizes, key.dtype.name))
    made.append(_native(target, key), _native(target, value))
    asked = _native(target, query)
    return Prepared(
        call=lambda: settled(made.attend(asked)),
        cache=tuple(_held_by(made)),
        answer=lambda result: _array(result, lambda array: array),
    )


def _held_by(cache: object) -> list[Any]:
    """The large tensors that a cache keeps as attributes, or in lists of them."""
    found: list[Any] = []
    for value in vars(cache).values() if hasattr(cache, "__dict__") else ():
        for one in value if isinstance(value, list | tuple) else (value,):
            if getattr(one, "ndim", 0) >= 3:
                found.append(one)
    return found


def _prepared(
    target: LocalTarget,
    arrays: list[Array],
    keywords: Mapping[str, Any],
    back: Callable[[Array], Array],
) -> Prepared:
    trio = [_native(target, array) for array in arrays]
    function = target.function
    return Prepared(
        call=lambda: settled(function(*trio, **keywords)),
        cache=tuple(trio[1:]),
        answer=lambda result: _array(result, back),
    )


def _array(result: Any, back: Callable[[Array], Array]) -> Array | None:
    first = result[0] if isinstance(result, tuple | list) and result else result
    found = from_native(first)
    return None if found is None else back(found[0]).astype(np.float64)


def _options(target: LocalTarget, causal: bool) -> dict[str, Any]:
    """The contract options that a call of this kind gives, by the target's own keywords."""
    given: dict[str, Any] = {}
    if "causal" in target.options:
        given[_name(target, "causal")] = causal
    if "enable_gqa" in target.options:
        given[_name(target, "enable_gqa")] = True
    if "head_order" in target.options:
        given[_name(target, "head_order")] = "grouped"
    return given


def _name(target: LocalTarget, option: str) -> str:
    return target.options.get(option, option)


def _native(target: LocalTarget, array: Array) -> Any:
    declared = target.declaration
    return native(array, arrays=declared.arrays, device=declared.device)
