"""The parts of a layer's step against float64, each with its own bound."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from equivalence.compare import compare
from equivalence.dtypes import Array, format_of
from equivalence.latent.bounds import latent_allowance
from equivalence.latent.inputs import LatentInputs
from equivalence.latent.reference import latent_attention
from equivalence.mixture import gamma
from equivalence.profiles import profile_for
from equivalence.timing.verifying import Judged, judged, vacuous


def judged_attention(
    truth: Mapping[str, Array], output: Array, dtype: str, profile: str | None
) -> Judged:
    """Attention over key/value heads, under the bound of its profile."""
    return judged({"it": (output, profile)}, truth, dtype, causal=False)["it"]


def judged_latent(
    truth: Mapping[str, Array], output: Array, dtype: str, profile_name: str | None
) -> Judged:
    """Latent attention ``[B, H, 1, d]``, one sequence and one head at a time."""
    expected = (*truth["query_content"].shape[:3], truth["w_uv"].shape[1])
    if output.shape != expected:
        return Judged(held=False, why=f"returned shape {list(output.shape)}, not {list(expected)}")
    profile = profile_for(dtype, profile_name)
    worst, outside, blind = 0.0, 0, 0
    for batch in range(expected[0]):
        for head in range(expected[1]):
            row, one = slice(batch, batch + 1), slice(head, head + 1)
            inputs = LatentInputs(
                query_content=truth["query_content"][row, one],
                query_rotary=truth["query_rotary"][row, one],
                latent=truth["latent"][row],
                key_rotary=truth["key_rotary"][row],
                w_uk=truth["w_uk"][one],
                w_uv=truth["w_uv"][one],
                dtype=dtype,
            )
            exact = latent_attention(inputs)
            bound = latent_allowance(inputs, exact, profile)
            facts = compare(output[row, one], exact.output, bound, dtype=dtype)
            worst, outside = max(worst, facts.used), outside + facts.outside
            blind += facts.vacuous
    if not outside and 2 * blind > expected[0] * expected[1]:
        return Judged(held=None, why=vacuous(profile))
    why = f"wrong answer: {outside:,} of {output.size:,} elements are outside the bound of profile "
    return Judged(held=not outside, used=worst, why=f"{why}{profile.name}" if outside else "")


def judged_product(left: Array, right: Array, output: Array, dtype: str) -> Judged:
    """A matrix product: |error| <= (gamma_n(u_a) + u) |left| |right|, rounded once at the end.

    Higham, Accuracy and Stability of Numerical Algorithms (2002), eq. 3.13; accumulated in float32,
    or in float64 for it.
    """
    accumulator = format_of("float64" if dtype == "float64" else "float32").unit_roundoff
    own = format_of(dtype)
    relative = gamma(left.shape[-1], accumulator) + own.unit_roundoff
    allowed = relative * (1 + relative) * (np.abs(left) @ np.abs(right)) + own.half_subnormal
    error = np.abs(output - left @ right)
    if output.shape != error.shape or not np.isfinite(output).all():
        return Judged(held=False, why="returned another shape, or no finite numbers")
    used = float((error / allowed).max())
    return Judged(held=used <= 1, used=used, why="" if used <= 1 else "outside its bound")
