"""A cache object under test, driven operation by operation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from equivalence.arrays import from_native, to_native
from equivalence.caches.program import Operation
from equivalence.declaration import Declaration
from equivalence.dtypes import Array, numpy_dtype
from equivalence.errors import Unsupported


def factory_arguments(
    function: Callable[..., Any], declared: Declaration, sizes: dict[str, Any], dtype: str
) -> dict[str, Any]:
    """The arguments of the contract that a factory takes (all of them for ``**kwargs``).

    dtype is a dtype of the declared array library (a name for MLX); device is as declared.
    """
    given = {**sizes, "dtype": _native_dtype(dtype, declared.arrays), "device": declared.device}
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError):
        return given
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return given
    return {name: value for name, value in given.items() if name in parameters}


def _native_dtype(dtype: str, arrays: str) -> Any:
    match arrays:
        case "torch":
            import torch

            return getattr(torch, dtype)
        case "numpy" | "jax":
            return numpy_dtype(dtype)
    return dtype


@dataclass(slots=True, kw_only=True)
class LiveCache:
    """A cache, the one put aside, and whatever they were seen to do.

    ``mutated`` collects the operands that were written to. latent: it is given the latents
    ``[B, n, dc]`` (the values) and the rotary keys ``[B, n, dR]``, in this order.
    """

    cache: Any
    arrays: str
    device: str
    latent: bool = False
    aside: Any = None
    mutated: set[str] = field(default_factory=set)

    def append(self, key: Array, value: Array, lengths: tuple[int, ...] | None) -> None:
        """Append tokens ``[B, Hkv, n, D]``; row b keeps the first ``lengths[b]``."""
        more: dict[str, Any] = {}
        if lengths is not None:
            method = self._method("append")
            if not _takes(method, "lengths"):
                raise Unsupported("append takes no lengths")
            more["lengths"] = self._native(np.asarray(lengths, np.int64))
        operands = {"key": key, "value": value}
        if self.latent:
            operands = {"latent": value[:, 0], "key_rotary": key[:, 0]}
        with self._watched(**operands) as (first, second):
            self.cache.append(first, second, **more)

    def attend(self, query: Array) -> tuple[Array, str] | None:
        """The answer to ``query`` ``[B, H, q, D]`` and its dtype; None for no array."""
        with self._watched(query=query) as (native,):
            return from_native(self.cache.attend(native))

    def other(self, operation: Operation) -> None:
        """truncate, reorder, fork or switch."""
        word, *numbers = operation
        match word:
            case "truncate":
                self._changed(self._method("truncate")(numbers[0]))
            case "reorder":
                index = self._native(np.asarray(numbers, np.int64))
                self._changed(self._method("reorder")(index))
            case "fork":
                self.aside, self.cache = self.cache, self._method("fork")()
            case "switch":
                self.aside, self.cache = self.cache, self.aside

    def positions(self) -> Array | None:
        """The positions that it reports; None where it has none."""
        found = getattr(self.cache, "positions", None)
        found = found() if callable(found) else found
        if found is None:
            return None
        native = from_native(found)
        return np.asarray(found if native is None else native[0]).copy()

    def nbytes(self) -> int | None:
        """The bytes that it says it holds; None where it does not say."""
        found = getattr(self.cache, "nbytes", None)
        found = found() if callable(found) else found
        return None if found is None else int(found)

    def _changed(self, returned: Any) -> None:
        """An operation may work in place, or return the cache that results."""
        if hasattr(returned, "attend"):
            self.cache = returned

    def _method(self, name: str) -> Callable[..., Any]:
        method = getattr(self.cache, name, None)
        if not callable(method):
            raise Unsupported(f"{name} is not among its methods")
        found: Callable[..., Any] = method
        return found

    def _native(self, array: Array) -> Any:
        return to_native(array, arrays=self.arrays, device=self.device)

    def _watched(self, **operands: Array) -> _Watched:
        return _Watched(self, operands)


class _Watched:
    """Hands operands over as native arrays, and sees afterwards whether they were written to."""

    def __init__(self, live: LiveCache, operands: dict[str, Array]) -> None:
        self.live = live
        self.operands = {name: np.ascontiguousarray(a) for name, a in operands.items()}
        self.before = {name: a.tobytes() for name, a in self.operands.items()}

    def __enter__(self) -> list[Any]:
        return [self.live._native(array) for array in self.operands.values()]

    def __exit__(self, *_: object) -> None:
        for name, array in self.operands.items():
            if array.tobytes() != self.before[name]:
                self.live.mutated.add(name)


def _takes(method: Callable[..., Any], name: str) -> bool:
    try:
        parameters = inspect.signature(method).parameters.values()
    except (ValueError, TypeError):
        return True
    return any(p.name == name or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
