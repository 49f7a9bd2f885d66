"""How the six tensors of a call lie in memory, and the call itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from equivalence.dtypes import Array, stored
from equivalence.latent.inputs import OPERANDS, LatentInputs
from equivalence.memory import lay_out
from equivalence.outcome import Outcome

if TYPE_CHECKING:
    from equivalence.calling import LocalTarget

# What models keep in one buffer: a query with its rotary part, the cache of a layer (latent and
# rotary key), and kv_b_proj (both up-projections of a head). The axis is the joined one.
TOGETHER: Final = (
    ("query_content", "query_rotary", 3),
    ("latent", "key_rotary", 2),
    ("w_uk", "w_uv", 1),
)
SPARE_TOKENS: Final = 5
CACHE_ELEMENTS: Final = "cache_elements"


def call(target: LocalTarget, inputs: LatentInputs) -> Outcome:
    """Call ``target`` once on fresh tensors; its exceptions become outcomes.

    extras: "cache_elements", where the callable has an attribute of that name: how many elements
    the cache holds that the call has filled.
    """
    keywords: dict[str, Any] = {}
    if "scale" in target.options:
        keywords["scale"] = inputs.scale_value
    outcome = target.call_with(laid_out(inputs), keywords, inputs.dtype)
    held = getattr(target.function, CACHE_ELEMENTS, None)
    if outcome.status != "returned" or not isinstance(held, int):
        return outcome
    return replace(outcome, extras={**outcome.extras, CACHE_ELEMENTS: np.asarray(held)})


def laid_out(inputs: LatentInputs) -> dict[str, Array]:
    """The six tensors in the dtype of the case, in the order of the call.

    contiguous: C order. joined: pairs of tensors are halves of one buffer. cache: latent and
    rotary key are the first tokens of a longer buffer whose other tokens are NaN. bshd: queries
    are stored ``[B, Sq, H, d]``. sliced: windows of buffers whose other elements are NaN.
    transposed: the last axis has a stride above one.
    """
    held = {name: stored(getattr(inputs, name), inputs.dtype) for name in OPERANDS}
    match inputs.memory:
        case "joined":
            for first, second, axis in TOGETHER:
                held[first], held[second] = _joined(held[first], held[second], axis)
        case "cache":
            for name in ("latent", "key_rotary"):
                held[name] = _with_room(held[name])
        case "bshd":
            for name in ("query_content", "query_rotary"):
                held[name] = lay_out(held[name], "bshd")
        case "contiguous":
            held = {name: np.ascontiguousarray(array) for name, array in held.items()}
        case memory:
            for name, array in held.items():
                rank_4 = array if array.ndim == 4 else array[None]
                laid = lay_out(rank_4, memory)
                held[name] = laid if array.ndim == 4 else laid[0]
    return held


def _joined(first: Array, second: Array, axis: int) -> tuple[Array, Array]:
    buffer = np.concatenate([first, second], axis=axis)
    width = first.shape[axis]
    before = (slice(None),) * axis
    return buffer[(*before, slice(0, width))], buffer[(*before, slice(width, None))]


def _with_room(array: Array) -> Array:
    batch_size, kv_len, width = array.shape
    buffer = np.full((batch_size, kv_len + SPARE_TOKENS, width), np.nan, array.dtype)
    buffer[:, :kv_len] = array
    return buffer[:, :kv_len]
