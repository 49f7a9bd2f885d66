"""Right kernels of three precisions, with one error of a chosen size planted in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from equivalence.calling import LocalTarget
from tests.broken.attention_base import Step, broken
from tests.broken.entry import PROMISES

PROFILES: Final = {"float32": ("f32",), "float16": ("f32", "flash", "eager")}
PROFILES["bfloat16"] = PROFILES["float16"]


def _stored(right: Any, at: Any) -> Any:
    """Rounded to the dtype of the operands, as a kernel does that stores it."""
    return right.to(at.query.dtype).to(at.wide)


ROUNDINGS: Final[dict[str, tuple[str, ...]]] = {
    "f32": (),
    "flash": ("probs",),
    "eager": ("dots", "scores", "capped", "biased", "probs"),
}


def _scale(size: float) -> dict[str, Step]:
    return {"factor": lambda right, at: right * (1 + size)}


def _softcap(size: float) -> dict[str, Step]:
    """tanh of the right argument, times a cap that is off."""
    return {"capped": lambda right, at: right * (1 + size)}


def _probability(size: float) -> dict[str, Step]:
    """The middle key weighs more than it should; the others stay as they are."""

    def heavier(right: Any, at: Any) -> Any:
        factors = torch.ones(at.kv_len, dtype=right.dtype)
        if at.kv_len > 1:
            factors[at.kv_len // 2] += size
        return right * factors

    return {"probs": heavier}


def _dropped(size: float) -> dict[str, Step]:
    """Of each row, one key is lost: the heaviest of those that weigh at most ``size``."""

    def without(right: Any, at: Any) -> Any:
        if not at.kv_len:
            return right
        light = torch.where((right <= size) & (right > 0), right, -1.0)
        weight, place = light.max(-1, keepdim=True)
        lost = torch.zeros_like(right).scatter(-1, place, (weight > 0).to(right.dtype))
        left = right * (1 - lost)
        total = left.sum(-1, keepdim=True)
        return left * torch.where(total > 0, right.sum(-1, keepdim=True) / total, 1.0)

    return {"probs": without}


ERRORS: Final[dict[str, Callable[[float], dict[str, Step]]]] = {
    "scale": _scale,
    "softcap": _softcap,
    "one probability": _probability,
    "one dropped key": _dropped,
}


def planted(error: str, size: float, profile: str) -> LocalTarget:
    """A kernel of ``profile`` that is right but for an ``error`` of relative ``size``; 0: right.

    Of a dropped key, ``size`` is the weight that it has at most.
    """
    steps = ERRORS[error](size) if size else {}
    for name in ROUNDINGS[profile]:
        steps[name] = _then_stored(steps.get(name))
    facts = {**PROMISES, "profile": profile}
    return LocalTarget.of(broken(**steps), name=f"{error} {size:g}", facts=facts)


def _then_stored(step: Step | None) -> Step:
    if step is None:
        return _stored
    return lambda right, at: _stored(step(right, at), at)
