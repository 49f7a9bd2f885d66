"""The tensors that are timed: normal numbers in the table's format, in any library's arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from equivalence.arrays import to_native
from equivalence.dtypes import Array, numpy_dtype


def normal(shape: tuple[int, ...], dtype: str, seed: tuple[int, ...], scale: float = 1.0) -> Array:
    """Normal numbers rounded to ``dtype``; the same seed gives the same ones anywhere."""
    drawn = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return np.asarray((scale * drawn).astype(numpy_dtype(dtype)))


def signs(array: Array) -> Array:
    """127/128 with the signs of ``array``: a symmetric 8-bit cache keeps them exactly.

    Whatever numbers share a step, the largest of them is 127/128, so the step is 2^-7. What is
    kept can so be judged by the same bound as a cache that rounds nothing.
    """
    return np.copysign(np.float32(127 / 128), array.astype(np.float32)).astype(array.dtype)


def narrowed(operands: Mapping[str, Array], num_kv_heads: int) -> dict[str, Array]:
    """The same query, with the first ``num_kv_heads`` heads of key and value."""
    return {
        name: array if name == "query" else np.ascontiguousarray(array[:, :num_kv_heads])
        for name, array in operands.items()
    }


def native(array: Array, *, arrays: str, device: str) -> Any:
    """``array`` for a callable that takes ``arrays`` on ``device``."""
    return to_native(array, arrays=arrays, device=device)


def settled(result: Any) -> Any:
    """``result`` once it is computed: jax answers early, and mlx only when it is asked."""
    first = result[0] if isinstance(result, tuple | list) and result else result
    module = type(first).__module__.partition(".")[0]
    if module == "mlx":
        import mlx.core as mx

        mx.eval(first)
    elif hasattr(first, "block_until_ready"):
        first.block_until_ready()
    return result
