"""JAX's ``dot_product_attention`` (its XLA implementation), compiled by ``jax.jit``.

float16 runs eagerly: on a CPU, ``jit`` of it raises in 0.10 (`F16_F16_F32 is not supported`).
"""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from equivalence.backends.head_folding import group_size_of
from equivalence.backends.jax_faults import FUTURE_KEYS, LOWEST_FLOAT64
from equivalence.case import AttentionCase
from equivalence.declaration import attention as declare
from equivalence.dtypes import Array
from equivalence.errors import Unsupported

# jax 0.10.2, jit on a CPU: "Algorithm not supported by the ElementalIrEmitter".
SINGLE: Final = "jit of one bfloat16 query with one key or one channel is an error of XLA"


def supports(case: AttentionCase) -> bool | str:
    """True, or why not: its windows and its causality count from the upper left."""
    if case.v_dim != case.head_dim:
        return f"value_head_dim={case.v_dim} differs from head_dim={case.head_dim}"
    if case.kv_len == 0:
        return "there is no key"
    if case.dtype == "bfloat16" and case.q_len == 1 in (case.kv_len, case.head_dim):
        return SINGLE
    if case.window is None:
        return True
    if case.kv_lengths is not None:
        return "a window with kv_lengths does not count from each row's length"
    if case.q_len > case.kv_len or (case.causal is not None and case.q_len != case.kv_len):
        return f"a window at q_len={case.q_len}, kv_len={case.kv_len} counts from the upper left"
    if isinstance(case.window, tuple) and -1 in case.window:
        return f"window={case.window} has no limit on one side"
    return True


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="upper_left",
    head_order="grouped",
    layout="BSHD",
    profile="single",  # the softmax of float64 runs in float32
    masked_rows="uniform_or_nan",
    hidden_nan="leaks",
    deterministic=True,
    mask_and_causal=True,
    grouped=True,
    supports=supports,
    known_faults=(FUTURE_KEYS, LOWEST_FLOAT64),
    arrays="numpy",
    costly=True,
)
def attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    window_size: tuple[int, int] | None = None,
    kv_lengths: Array | None = None,
) -> Array:
    """query ``[B, Sq, H, D]``, key and value ``[B, Skv, Hkv, D]`` -> ``[B, Sq, H, D]``.

    A window counts from the upper left in JAX, so rows are put in front of the queries until
    both lengths are equal. Raises Unsupported for what :func:`supports` names.
    """
    q_len, kv_len, head_dim = query.shape[1], key.shape[1], query.shape[-1]
    group_size_of(query.shape[2], key.shape[2])
    if value.shape[-1] != head_dim:
        raise Unsupported(f"value_head_dim={value.shape[-1]} differs from head_dim={head_dim}")
    if kv_len == 0:
        raise Unsupported("there is no key")
    if query.dtype.name == "bfloat16" and q_len == 1 in (kv_len, head_dim):
        raise Unsupported(SINGLE)
    sides = (window - 1, 0) if window is not None else window_size
    front = 0
    if sides is not None:
        if q_len > kv_len or (is_causal and q_len != kv_len) or -1 in sides:
            raise Unsupported("its windows count from the upper left, and have two limits")
        front = kv_len - q_len
    given: dict[str, Any] = {}
    if attn_mask is not None:
        given["mask" if attn_mask.dtype == bool else "bias"] = _in_front(attn_mask, 2, front, 1)
    with jax.enable_x64(query.dtype.name == "float64"):
        if kv_lengths is not None:
            given["key_value_seq_lengths"] = kv_lengths.astype(np.int32)
        call: Any = jax.nn.dot_product_attention if query.dtype == np.float16 else _compiled
        found = call(
            jnp.asarray(_in_front(query, 1, front, 0)),
            jnp.asarray(key),
            jnp.asarray(value),
            scale=scale,
            is_causal=is_causal,
            local_window_size=sides,
            **{name: jnp.asarray(array) for name, array in given.items()},
        )
        return np.asarray(found)[:, front:]


_compiled: Any = jax.jit(
    jax.nn.dot_product_attention, static_argnames=("scale", "is_causal", "local_window_size")
)


def _in_front(array: Array, axis: int, count: int, fill: Any) -> Array:
    """``count`` rows of ``fill`` before ``array`` along ``axis``; nothing where it broadcasts."""
    if not count or (axis == 2 and array.shape[axis] == 1):
        return array
    sizes = [(count if place == axis else 0, 0) for place in range(array.ndim)]
    return np.pad(array, sizes, constant_values=array.dtype.type(fill))
