"""Cut, permute, turn and refill the tensors of a call, so that the exact result follows."""

from __future__ import annotations

import numpy as np

from equivalence.dtypes import Array, rounded
from equivalence.latent.inputs import LatentInputs


def take_queries(inputs: LatentInputs, index: Array) -> LatentInputs:
    """Keep the query rows ``index``."""
    return inputs.but(
        query_content=inputs.query_content[:, :, index],
        query_rotary=inputs.query_rotary[:, :, index],
    )


def take_tokens(inputs: LatentInputs, index: Array) -> LatentInputs:
    """Keep the cached tokens ``index``, in that order."""
    return inputs.but(latent=inputs.latent[:, index], key_rotary=inputs.key_rotary[:, index])


def take_batch(inputs: LatentInputs, index: Array) -> LatentInputs:
    """Keep the batch rows ``index``."""
    return inputs.but(
        query_content=inputs.query_content[index],
        query_rotary=inputs.query_rotary[index],
        latent=inputs.latent[index],
        key_rotary=inputs.key_rotary[index],
    )


def take_heads(inputs: LatentInputs, index: Array) -> LatentInputs:
    """Keep the heads ``index``, in that order; the latent and the rotary key have none."""
    return inputs.but(
        query_content=inputs.query_content[:, index],
        query_rotary=inputs.query_rotary[:, index],
        w_uk=inputs.w_uk[index],
        w_uv=inputs.w_uv[index],
    )


def refill_tokens(
    inputs: LatentInputs, tokens: Array, *, seed: int, number: float | None = None
) -> LatentInputs:
    """Overwrite the cached tokens where ``tokens`` ``[S]`` is True with noise, or ``number``."""
    rng = np.random.default_rng([seed, 31])
    refilled = []
    for array in (inputs.latent, inputs.key_rotary):
        noise = rounded(3.0 * rng.normal(size=array.shape), inputs.dtype)
        if number is not None:
            noise = np.full(array.shape, number)
        refilled.append(np.where(tokens[None, :, None], noise, array))
    return inputs.but(latent=refilled[0], key_rotary=refilled[1])


def change_latent_basis(inputs: LatentInputs, *, seed: int) -> LatentInputs:
    """Permute the latent coordinates and flip some signs, in the cache and in both projections."""
    rng = np.random.default_rng([seed, 37])
    width = inputs.latent.shape[-1]
    order, signs = rng.permutation(width), rng.choice((-1.0, 1.0), size=width)
    return inputs.but(
        latent=inputs.latent[..., order] * signs,
        w_uk=inputs.w_uk[..., order] * signs,
        w_uv=inputs.w_uv[..., order] * signs,
    )


def quarter_turn(inputs: LatentInputs) -> LatentInputs:
    """Turn every rotary pair (x, y) of queries and keys by 90 degrees, to (-y, x); exact."""

    def turned(array: Array) -> Array:
        pairs = array.reshape(*array.shape[:-1], -1, 2)
        return np.stack([-pairs[..., 1], pairs[..., 0]], axis=-1).reshape(array.shape)

    return inputs.but(
        query_rotary=turned(inputs.query_rotary), key_rotary=turned(inputs.key_rotary)
    )
