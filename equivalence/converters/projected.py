"""Attention between its projections, whose weights a converter compresses.

y = o W_O^T, o = attention(x_q W_Q^T, x W_K^T, x W_V^T), in float64, with the weights as they are
*after* compression: each is compressed alone, and decoded by ``equivalence.mil.compressed``. What
compression loses is meant; what a converter adds to that is a fault.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Self

import numpy as np

from equivalence.case import AttentionCase
from equivalence.converters.case import DEFAULT_TARGET, HIDDEN, ConverterCase
from equivalence.converters.formulations import ROLES
from equivalence.dtypes import Array, rounded
from equivalence.errors import Unsupported
from equivalence.inputs import AttentionInputs, attention_inputs
from equivalence.reference import attention

STEADY: Final = ("ramp", "zero", "steps")  # values whose queries and keys are all zero


@dataclass(frozen=True, kw_only=True, eq=False)  # hashed by identity
class ProjectedInputs:
    """query_hidden ``[B, Sq, M]``, hidden ``[B, Skv, M]``, weights by role ``[out, in]``.

    attention: what the exact projections give, as float64 numbers that no format stores.
    """

    query_hidden: Array
    hidden: Array
    weights: dict[str, Array]
    attention: AttentionInputs
    dtype: str

    def but(self, **changes: Any) -> Self:
        """The same inputs with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """output ``[B, 1, Sq, M]``, zero where a row sees no key; seen: by the blindest head."""

    output: Array
    seen: Array


def raw_weights(case: ConverterCase) -> dict[str, Array]:
    """The weights before compression: the same for every formulation, whatever is drawn.

    The rows of each are of very different sizes, so that one scale or table for all of them is
    another compression than one for each.
    """
    asked = case.asked
    assert isinstance(asked, AttentionCase)
    inner = asked.num_heads * asked.v_dim
    shapes = {
        "query_projection": (asked.num_heads * case.head_dim, HIDDEN),
        "key_projection": (asked.num_kv_heads * case.head_dim, HIDDEN),
        "value_projection": (asked.num_kv_heads * asked.v_dim, HIDDEN),
        "output_projection": (HIDDEN, inner),
    }
    rng = np.random.default_rng(5)
    made = {}
    for role in ROLES:
        out, width = shapes[role]
        sizes = 2.0 ** -(np.arange(out) % 5)[:, None] * width**-0.5
        made[role] = rounded(rng.normal(size=(out, width)) * sizes, case.dtype)
    return made


def stored_weights(case: ConverterCase) -> dict[str, Array]:
    """The weights that the compression of ``case`` leaves. Raises Unsupported if there are none."""
    from equivalence.coreml.compressing import stored_weight

    assert case.compression is not None
    return {
        role: stored_weight(
            weight,
            case.compression,
            role=role,
            dtype=case.dtype,
            target=case.target or DEFAULT_TARGET,
        )
        for role, weight in raw_weights(case).items()
    }


@lru_cache(maxsize=64)
def projected_inputs(case: ConverterCase) -> ProjectedInputs:
    """The numbers of ``case``; where Core ML has no such compression, of the plain weights."""
    asked = case.asked
    assert isinstance(asked, AttentionCase)
    values = "normal" if case.values in STEADY else case.values
    drawn = attention_inputs(
        AttentionCase(
            batch_size=case.batch_size, q_len=asked.q_len, kv_len=case.kv_len, head_dim=HIDDEN,
            dtype=case.dtype, values=values, magnitude=case.magnitude, seed=case.seed,
        )
    )  # fmt: skip
    try:
        weights = stored_weights(case)
    except Unsupported:  # Core ML has no such weights: no converter is called for them
        weights = raw_weights(case)
    query_hidden, hidden = drawn.query[:, 0], drawn.key[:, 0]

    def heads(x: Array, role: str, count: int) -> Array:
        made = x @ weights[role].T
        return made.reshape(*made.shape[:2], count, -1).swapaxes(1, 2)

    operands = {
        "query": heads(query_hidden, "query_projection", asked.num_heads),
        "key": heads(hidden, "key_projection", asked.num_kv_heads),
        "value": heads(hidden, "value_projection", asked.num_kv_heads),
    }
    return ProjectedInputs(
        query_hidden=query_hidden,
        hidden=hidden,
        weights=weights,
        attention=attention_inputs(asked).but(**operands),
        dtype=case.dtype,
    )


def layer(inputs: ProjectedInputs) -> Layer:
    """The layer in float64."""
    inner = attention(inputs.attention)
    joined = inner.output.swapaxes(1, 2)
    joined = joined.reshape(*joined.shape[:2], -1)
    return Layer(
        output=(joined @ inputs.weights["output_projection"].T)[:, None],
        seen=inner.seen.min(axis=1, keepdims=True),
    )
