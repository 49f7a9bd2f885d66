"""Latent attention whose up-projections are weights of the layer, which a converter compresses.

As in ``projected``: float64 on the weights as they are *after* compression. The two forms hold
W_UK transposed to each other: a table that is made of its least and greatest number is the same in
both; scales and blocks go with the channels of a product, and differ.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from equivalence.converters.case import DEFAULT_TARGET, ConverterCase
from equivalence.converters.formulations import LATENT_ROLES
from equivalence.dtypes import Array, rounded
from equivalence.errors import Unsupported
from equivalence.latent.case import MlaCase
from equivalence.latent.inputs import LatentInputs, latent_inputs

# Compressions under which both forms hold the same numbers: W_UK by a table, W_UV at one place.
ALIKE: Final = (None, "palettised4", "palettised6", "mixed", "mixed_in_two")


def raw_latent_weights(case: ConverterCase) -> dict[str, Array]:
    """w_uk ``[H, d, dc]`` and w_uv ``[H, dv, dc]`` before compression, whatever is drawn."""
    asked = case.asked
    assert isinstance(asked, MlaCase)
    rng = np.random.default_rng(7)
    made = {}
    for role, out in zip(LATENT_ROLES, (asked.head_dim, asked.v_dim), strict=True):
        sizes = 2.0 ** -(np.arange(out) % 3)[:, None] * asked.latent_dim**-0.5
        drawn = rng.normal(size=(asked.num_heads, out, asked.latent_dim))
        made[role] = rounded(drawn * sizes, case.dtype)
    return made


def stored_latent_weights(case: ConverterCase) -> dict[str, Array]:
    """The weights that the compression of ``case`` leaves. Raises Unsupported if there are none."""
    from equivalence.coreml.compressing import stored_weight

    assert case.compression is not None
    made = {}
    for role, raw in raw_latent_weights(case).items():
        # Held ``[H, in, out]``, as what is multiplied by on the right.
        turned = role == "w_uv" or case.formulation == "mla_expanded"
        held = stored_weight(
            raw.swapaxes(1, 2) if turned else raw,
            case.compression,
            role=role,
            dtype=case.dtype,
            target=case.target or DEFAULT_TARGET,
        )
        made[role] = held.swapaxes(1, 2) if turned else held
    return made


@lru_cache(maxsize=64)
def weighed_inputs(case: ConverterCase) -> LatentInputs:
    """The numbers of ``case``; where Core ML has no such compression, of the plain weights."""
    asked = case.asked
    assert isinstance(asked, MlaCase)
    try:
        weights = stored_latent_weights(case)
    except Unsupported:  # Core ML has no such weights: no converter is called for them
        weights = raw_latent_weights(case)
    return latent_inputs(asked).but(**weights)
