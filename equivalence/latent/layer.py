"""The whole layer of DeepSeek-V2 (arXiv:2405.04434, section 2.1) in float64, from hidden states.

c^Q_t = norm(W^DQ h_t), q_t = W^UQ c^Q_t, q^R_t = RoPE_t(W^QR c^Q_t)        (eq. 12, 13, 14)
c_t = norm(W^DKV h_t), k^R_t = RoPE_t(W^KR h_t)                            (eq. 9, 15)
u_t = W^O [o_{t,1}; ...; o_{t,H}]                                          (eq. 19)

Without query compression, W^UQ and W^QR apply to h_t. Three ways to one row are spelled out: the
full causal sequence, an absorbed step over the cache, and the paper's folded matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from equivalence.dtypes import Array
from equivalence.latent.case import MlaCase
from equivalence.latent.inputs import LatentInputs, normed, up_projections

BASE: Final = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Weights and hidden states of one layer; the names are the paper's.

    hidden ``[B, S, m]``; w_dq ``[r, m]`` or None; w_uq ``[H, d, r or m]``, w_qr ``[H, dR, r or
    m]``; w_dkv ``[dc, m]``, w_kr ``[dR, m]``; w_uk ``[H, d, dc]``, w_uv ``[H, dv, dc]``; w_o ``[m,
    H, dv]``. latent_norm: whether the latent (and the compressed query) is RMS-normed.
    """

    hidden: Array
    w_dq: Array | None
    w_uq: Array
    w_qr: Array
    w_dkv: Array
    w_kr: Array
    w_uk: Array
    w_uv: Array
    w_o: Array
    latent_norm: bool

    @property
    def scale(self) -> float:
        """(d + dR) ** -0.5."""
        width: int = self.w_uk.shape[1] + self.w_kr.shape[0]
        return 1.0 / float(np.sqrt(width))

    def cache(self) -> tuple[Array, Array]:
        """What is kept of the tokens: latents ``[B, S, dc]``, rotary keys ``[B, S, dR]``."""
        latent = self.hidden @ self.w_dkv.T
        latent = normed(latent) if self.latent_norm else latent
        return latent, rotated(self.hidden @ self.w_kr.T)

    def query_input(self) -> Array:
        """What the query projections apply to: c^Q ``[B, S, r]``, or the hidden states."""
        if self.w_dq is None:
            return self.hidden
        compressed = self.hidden @ self.w_dq.T
        return normed(compressed) if self.latent_norm else compressed

    def queries(self) -> tuple[Array, Array]:
        """Content ``[B, H, S, d]`` and rotated part ``[B, H, S, dR]``."""
        source = self.query_input()[:, None]
        content = source @ self.w_uq.swapaxes(-1, -2)
        return content, rotated(source @ self.w_qr.swapaxes(-1, -2))

    def full_sequence(self) -> Array:
        """u ``[B, S, m]``, all positions at once, every key and value built from hidden states."""
        latent, key_rotary = self.cache()
        content, rotary = self.queries()
        keys = np.einsum("hdc,bsc->bhsd", self.w_uk, latent)
        values = np.einsum("hec,bsc->bhse", self.w_uv, latent)
        dots = np.einsum("bhtd,bhsd->bhts", content, keys)
        dots += np.einsum("bhtr,bsr->bhts", rotary, key_rotary)
        length = self.hidden.shape[1]
        probabilities = softmax(np.where(np.tri(length, dtype=bool), self.scale * dots, -np.inf))
        heads = np.einsum("bhts,bhse->bhte", probabilities, values)
        return np.asarray(np.einsum("mhe,bhte->btm", self.w_o, heads))

    def absorbed_step(self, position: int) -> Array:
        """u ``[B, m]`` of one position, over the cache alone."""
        latent, key_rotary = (kept[:, : position + 1] for kept in self.cache())
        content, rotary = (part[:, :, position] for part in self.queries())
        absorbed = np.einsum("bhd,hdc->bhc", content, self.w_uk)
        dots = np.einsum("bhc,bsc->bhs", absorbed, latent)
        dots += np.einsum("bhr,bsr->bhs", rotary, key_rotary)
        sums = np.einsum("bhs,bsc->bhc", softmax(self.scale * dots), latent)
        return np.asarray(np.einsum("mhe,hec,bhc->bm", self.w_o, self.w_uv, sums))

    def folded_step(self, position: int) -> Array:
        """The same, with W^UK folded into W^UQ and W^UV into W^O once and for all."""
        into_latent = np.einsum("hdc,hdr->hcr", self.w_uk, self.w_uq)
        out_of_latent = np.einsum("mhe,hec->mhc", self.w_o, self.w_uv)
        latent, key_rotary = (kept[:, : position + 1] for kept in self.cache())
        absorbed = np.einsum("hcr,br->bhc", into_latent, self.query_input()[:, position])
        rotary = self.queries()[1][:, :, position]
        dots = np.einsum("bhc,bsc->bhs", absorbed, latent)
        dots += np.einsum("bhr,bsr->bhs", rotary, key_rotary)
        sums = np.einsum("bhs,bsc->bhc", softmax(self.scale * dots), latent)
        return np.asarray(np.einsum("mhc,bhc->bm", out_of_latent, sums))

    def inputs(self, position: int | None = None) -> LatentInputs:
        """What a kernel is given: for one decode step, or for the full sequence (None)."""
        latent, key_rotary = self.cache()
        content, rotary = self.queries()
        if position is not None:
            latent, key_rotary = latent[:, : position + 1], key_rotary[:, : position + 1]
            content, rotary = content[:, :, [position]], rotary[:, :, [position]]
        return LatentInputs(
            query_content=content,
            query_rotary=rotary,
            latent=latent,
            key_rotary=key_rotary,
            w_uk=self.w_uk,
            w_uv=self.w_uv,
            dtype="float64",
        )


def layer_of(case: MlaCase) -> Layer:
    """A layer of the sizes of ``case``, with kv_len tokens; float64, nothing is rounded."""
    rng = np.random.default_rng([case.seed, 13])
    width = case.num_heads * case.head_dim + 3

    def matrix(*shape: int) -> Array:
        return np.asarray(rng.normal(size=shape) * shape[-1] ** -0.5)

    # Drawn first, so that query compression changes nothing else.
    hidden = rng.normal(size=(case.batch_size, case.kv_len, width))
    w_dkv, w_kr = matrix(case.latent_dim, width), matrix(case.rope_dim, width)
    w_o = matrix(width, case.num_heads, case.v_dim)
    source = width if case.query_rank is None else case.query_rank
    w_uk, w_uv = up_projections(case)
    return Layer(
        hidden=hidden,
        w_dq=None if case.query_rank is None else matrix(case.query_rank, width),
        w_uq=matrix(case.num_heads, case.head_dim, source),
        w_qr=matrix(case.num_heads, case.rope_dim, source),
        w_dkv=w_dkv,
        w_kr=w_kr,
        w_uk=w_uk,
        w_uv=w_uv,
        w_o=w_o,
        latent_norm=case.latent_norm,
    )


def softmax(scores: Array) -> Array:
    """Over the last axis."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def rotated(x: Array, positions: Array | None = None) -> Array:
    """RoPE over the last axis, neighbours paired, position = index of the axis before."""
    width = x.shape[-1]
    position = np.arange(x.shape[-2]) if positions is None else positions
    angle = position[:, None] * BASE ** (-np.arange(0, width, 2) / width)
    cos, sin, even, odd = np.cos(angle), np.sin(angle), x[..., 0::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)
