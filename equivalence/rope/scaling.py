"""Scaled rotary embeddings: the parameters of Hugging Face's ``rope_parameters``, as a value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from equivalence.errors import require
from equivalence.pasteable import defaults_omitted

ROPE_TYPES: Final = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")
# What each type reads, beside its name.
READ: Final[dict[str, tuple[str, ...]]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor", "original_max_position_embeddings"),
    "yarn": (
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ),
    "llama3": (
        "factor",
        "original_max_position_embeddings",
        "low_freq_factor",
        "high_freq_factor",
    ),
    "longrope": (
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "short_factor",
        "long_factor",
    ),
}
SWITCHING: Final = ("dynamic", "longrope")  # what they do depends on the length


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RopeScaling:
    """How the frequencies are scaled, in the words of Hugging Face's rope parameters.

    rope_type: "linear" (positions divided by factor), "dynamic" (NTK-aware, the base grows with
    the length), "yarn" (Peng et al. 2023), "llama3" (Llama 3.1), "longrope" (Ding et al. 2024).
    original_max_position_embeddings: the length before scaling; for "dynamic" too, where Hugging
    Face reads it from the config. attention_factor: None stands for what yarn and longrope infer.
    short_factor, long_factor: one divisor for each pair of channels; None stands for ones, and
    for numbers evenly spaced from 1 to factor. Refuses what its type does not read.
    """

    rope_type: str = "default"
    factor: float = 2.0
    original_max_position_embeddings: int = 8
    attention_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    short_factor: tuple[float, ...] | None = None
    long_factor: tuple[float, ...] | None = None

    __repr__ = defaults_omitted

    def __post_init__(self) -> None:
        require(
            self.rope_type in ROPE_TYPES,
            f"rope_type={self.rope_type!r} is not one of {ROPE_TYPES}",
        )
        for field in fields(self):
            value = getattr(self, field.name)
            require(
                field.name in ("rope_type", *READ[self.rope_type]) or value == field.default,
                f"rope_type={self.rope_type!r} does not read {field.name}={value!r}",
            )
        require(self.factor >= 1, f"factor={self.factor} must be at least 1")
        require(
            self.original_max_position_embeddings >= 2,
            "original_max_position_embeddings="
            f"{self.original_max_position_embeddings} must be at least 2",
        )
        require(
            self.low_freq_factor < self.high_freq_factor,
            f"low_freq_factor={self.low_freq_factor} must be below "
            f"high_freq_factor={self.high_freq_factor}",
        )
        for name in ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
            value = getattr(self, name)
            require(value is None or value > 0, f"{name}={value} must be positive")
        fast, slow = self.beta_fast or 32.0, self.beta_slow or 1.0
        require(fast >= slow, f"beta_fast={fast} must not be below beta_slow={slow}")
        require(
            self.rope_type != "yarn" or self.original_max_position_embeddings > math.tau * slow,
            "original_max_position_embeddings="
            f"{self.original_max_position_embeddings} must be above 2 pi beta_slow: shorter than "
            f"the wavelength at which yarn starts, beta_slow={slow}",
        )
        for name in ("short_factor", "long_factor"):
            value = getattr(self, name)
            require(
                value is None or all(number > 0 for number in value),
                f"{name}={value} must be positive numbers",
            )

    def factors(self, name: str, pairs: int) -> tuple[float, ...]:
        """``short_factor`` or ``long_factor``, one number for each pair of channels."""
        given: tuple[float, ...] | None = getattr(self, name)
        if given is not None:
            return given
        if name == "short_factor":
            return (1.0,) * pairs
        last = max(1, pairs - 1)
        return tuple(1.0 + (self.factor - 1.0) * pair / last for pair in range(pairs))

    def as_dict(self, *, theta: float, rotary_dim: int) -> dict[str, Any]:
        """The dict that a target is given: what its type reads, and ``rope_theta``."""
        given: dict[str, Any] = {"rope_type": self.rope_type, "rope_theta": theta}
        for name in READ[self.rope_type]:
            value = getattr(self, name)
            if name in ("short_factor", "long_factor"):
                value = list(self.factors(name, rotary_dim // 2))
            if value is not None and (name != "truncate" or not value):
                given[name] = value
        return given

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """From such a dict; keys that its type does not read are left out."""
        rope_type = str(parameters.get("rope_type", parameters.get("type", "default")))
        read = READ.get(rope_type, ())
        given = {name: parameters[name] for name in read if parameters.get(name) is not None}
        for name in ("short_factor", "long_factor"):
            if name in given:
                given[name] = tuple(float(number) for number in given[name])
        return cls(rope_type=rope_type, **given)

    def but(self, **changes: Any) -> Self:
        """The same scaling with some fields changed."""
        return replace(self, **changes)
