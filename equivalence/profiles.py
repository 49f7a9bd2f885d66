"""Precision profiles: which roundings an implementation is allowed to make."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from equivalence.dtypes import format_of
from equivalence.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The roundings that one way of computing attention makes, counted for the error bound.

    score_roundings (n_s), probability_roundings (n_p), query_roundings (n_q, on q and k before
    their product) and bias_roundings (n_b) count roundings to the storage format;
    projection_roundings (n_w) those of what latent attention makes with its up-projections:
    absorbed queries and latent sums, or expanded keys and values.
    ``store`` and ``accumulate`` name the formats whose unit roundoffs are u and u_a; None is the
    dtype of the case. ``exp_ulps`` is the error of exp in units of u_a, ``tanh_error`` the extra
    relative error of a fast tanh, ``blocks`` the number of blocks of an online softmax.
    ``scores_overflow``: a score beyond half the largest number of the dtype is outside the
    domain, since the profile stores scores in the dtype. ``merges``: parts of the keys are weighed
    by exp(lse_i - lse), which does not add up to one where log-sum-exps are rounded.
    """

    name: str
    score_roundings: int = 0
    probability_roundings: int = 0
    query_roundings: int = 0
    bias_roundings: int = 0
    projection_roundings: int = 0
    store: str | None = None
    accumulate: str | None = "float32"
    exp_ulps: float = 4.0
    tanh_error: float = 0.0
    blocks: int = 8
    scores_overflow: bool = False
    merges: bool = False

    def store_unit(self, dtype: str) -> float:
        """u: unit roundoff of the format that intermediate values are rounded to."""
        return format_of(self.store or dtype).unit_roundoff

    def accumulate_unit(self, dtype: str) -> float:
        """u_a: unit roundoff of the accumulators."""
        return format_of(self.accumulate or dtype).unit_roundoff

    def flush(self, dtype: str) -> float:
        """tau: what two operations of an accumulator may lose where they underflow."""
        return 2 * format_of(self.accumulate or dtype).flushed

    @property
    def is_float64(self) -> bool:
        """Whether all is float64, so that the reference makes the same errors."""
        return self.accumulate == "float64"

    def growth_steps(self) -> float:
        """What an online softmax adds to the n roundings of a sum over n keys.

        Each block rescales the sum (an exponential and a product) and adds to it; 4 are for the
        row as a whole. Blocks of 7 keys or more never need more than 8 blocks (docs/bound.md).
        """
        return (self.exp_ulps + 2) * self.blocks + 4


def _stored(
    name: str, n_s: int, n_p: int, n_q: int, n_b: int, accumulate: str | None = "float32"
) -> Profile:
    return Profile(
        name=name,
        score_roundings=n_s,
        probability_roundings=n_p,
        query_roundings=n_q,
        bias_roundings=n_b,
        projection_roundings=int(name != "f32"),
        accumulate=accumulate,
        scores_overflow=n_s > 0,
    )


PROFILES: Final[dict[str, Profile]] = {
    p.name: p
    for p in (
        Profile(name="f64", accumulate="float64"),
        _stored("f32", 0, 0, 0, 0),
        _stored("flash", 0, 1, 0, 0),
        # Flash decoding: each part of the keys by itself, merged by the log-sum-exps of the parts.
        replace(_stored("split", 0, 1, 0, 0), merges=True),
        Profile(name="f64_split", accumulate="float64", merges=True),  # what split is in float64
        _stored("eager", 3, 1, 0, 1),
        _stored("math", 2, 1, 2, 1),
        _stored("full", 3, 2, 2, 1, accumulate=None),
        # What converters of graphs make of attention: the scale goes to the scores or to the
        # queries, as a constant that was rounded itself.
        _stored("graph", 3, 1, 2, 1),
        # Core AI's CPU runtime multiplies matrices in float16 all the way: the dot product of
        # 4,096 ones with ones is 2,048.
        _stored("core_ai", 3, 2, 2, 1, accumulate=None),
        Profile(
            name="single",
            score_roundings=3,
            probability_roundings=2,
            query_roundings=2,
            bias_roundings=2,  # of the bias itself, and of the sum
            projection_roundings=3,  # latent, up-projection, and their product
            store="float32",
        ),
        Profile(
            name="bf16_inside",
            score_roundings=3,
            probability_roundings=2,
            query_roundings=2,
            bias_roundings=2,  # of the bias itself, and of the sum
            projection_roundings=3,  # latent, up-projection, and their product
            store="bfloat16",
        ),
        Profile(
            name="fast_tanh",
            score_roundings=3,
            probability_roundings=1,
            bias_roundings=1,
            projection_roundings=1,
            tanh_error=2.0**-10,
            scores_overflow=True,
        ),
    )
}
LOOSENING: Final = ("f64", "f32", "flash", "eager", "math", "full")


def profile_named(name: str) -> Profile:
    """The preset called ``name``; refuses an unknown one, listing the known ones."""
    try:
        return PROFILES[name]
    except KeyError:
        raise InvalidRequest(f"profile={name!r} is not one of {', '.join(PROFILES)}") from None


def profile_for(dtype: str, declared: str | None) -> Profile:
    """The profile that judges ``dtype``: f64 and f32 in their formats, else declared or eager.

    A declaration of a 16-bit profile says nothing about float32 and float64 inputs, where every
    preset but ``single``, ``bf16_inside`` and ``split`` amounts to accurate arithmetic in that
    format.
    """
    if declared in ("single", "bf16_inside", "fast_tanh"):
        if declared == "single" and dtype != "float64":
            declared = None
        else:
            return profile_named(declared)
    if declared == "split":
        return PROFILES["f64_split" if dtype == "float64" else "split"]
    if dtype == "float64":
        return PROFILES["f64"]
    if dtype == "float32":
        return PROFILES["f32"]
    return profile_named(declared or "eager")
