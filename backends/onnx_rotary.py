"""The operators RotaryEmbedding, ONNX's own and com.microsoft's, with tables made beforehand."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from equivalence.backends.onnx_node import DTYPES, run_node
from equivalence.declaration import rotary as declare
from equivalence.dtypes import Array
from equivalence.rope.case import RotaryCase


def tables(length: int, theta: float, turning: int, dtype: Any) -> tuple[Array, Array]:
    """cos and sin ``[length, turning / 2]``; angles in float32, or float64 for float64."""
    wide = np.dtype("float64" if dtype == np.float64 else "float32")
    powers = np.arange(0, turning, 2).astype(wide) / np.array(turning, wide)
    angles = np.arange(length).astype(wide)[:, None] / np.array(theta, wide) ** powers
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def supports(case: RotaryCase) -> bool | str:
    """True, or why not: the operators take a row of a table for each position from zero on."""
    last = max(case.start, 0) + case.seq_len
    return True if last <= FURTHEST else f"a table of more than {FURTHEST} positions"


FURTHEST: Final = 100_000
FACTS: Final[dict[str, Any]] = {
    "arrays": "numpy",
    "profile": "eager",
    "deterministic": True,
    "options": ("interleaved",),
    "supports": supports,
}


def _turn(
    x: Array, positions: Array, theta: float, rotary_dim: int | None, interleaved: bool,
    *, domain: str, by: str,
) -> Array:  # fmt: skip
    turning = x.shape[-1] if rotary_dim is None else rotary_dim
    # ONNX Runtime refuses a table that is shorter than the sequence, whatever the positions.
    length = max(int(positions.max()) + 1, x.shape[2])
    cos, sin = tables(length, theta, turning, x.dtype)
    rows = np.broadcast_to(positions, (x.shape[0], x.shape[2]))
    inputs = {"X": x, "cos_cache": cos, "sin_cache": sin, "position_ids": rows}
    partial = turning != x.shape[-1]
    attributes: dict[str, Any] = {"rotary_embedding_dim": turning if partial else None}
    if domain:
        inputs = {name: inputs[name] for name in ("X", "position_ids", "cos_cache", "sin_cache")}
        attributes["num_heads"] = x.shape[1] if partial else None
    (output,) = run_node(
        "RotaryEmbedding", inputs, ("Y",), opset=23, domain=domain, by=by,
        interleaved=int(interleaved), **attributes,
    )  # fmt: skip
    return output


def _rotary(name: str, *, dtypes: tuple[str, ...], domain: str = "", by: str = "") -> Any:
    def made(
        x: Array,
        positions: Array,
        *,
        theta: float = 10_000.0,
        rotary_dim: int | None = None,
        interleaved: bool = False,
    ) -> Array:
        """x ``[B, H, S, D]``, positions ``[S]`` or ``[B, S]`` -> ``[B, H, S, D]``."""
        return _turn(
            x, positions, theta, rotary_dim, interleaved, domain=domain, by=by or "onnxruntime"
        )

    made.__name__ = made.__qualname__ = name
    return declare(dtypes=dtypes, **FACTS)(made)


onnx_domain = _rotary("onnx_domain", dtypes=("float32", "float16"))
microsoft = _rotary("microsoft", dtypes=("float32", "float16"), domain="com.microsoft")
reference = _rotary("reference", dtypes=(*DTYPES, "bfloat16"), by="reference")
