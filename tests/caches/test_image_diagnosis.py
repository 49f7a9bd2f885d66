"""What an 8-bit cache makes of its numbers: the mistake is told, on real caches in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from equivalence.backends.cache_contiguous import ContiguousCache
from equivalence.caches.case import CacheCase
from equivalence.caches.domain import CacheDomain
from equivalence.caches.image_diagnosis import LONGER, mistaken_image
from equivalence.caches.subject import CacheSubject
from equivalence.declaration import kv_cache
from equivalence.engine import Request, check_target
from equivalence.kinds import kind_named

# (key, value, what the cache was given first) -> what it keeps
Quantise = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
CHANNELS = (-1,)
CASE = CacheCase(batch_size=2, num_kv_heads=2, group_size=2, head_dim=3, max_len=4, program=LONGER)


def step(x: Tensor, axes: tuple[int, ...] = CHANNELS, levels: int = 127) -> Tensor:
    return x.abs().amax(axes, keepdim=True).clamp(min=1e-12) / levels


def image(x: Tensor, steps: Tensor, whole: Any = torch.round, levels: int = 127) -> Tensor:
    return whole(x / steps).clamp(-levels, levels) * steps


def wrapped(x: Tensor) -> Tensor:
    steps = step(x, levels=128)
    whole = (x / steps).round()
    return torch.where(whole > 127, whole - 256, whole) * steps


def of_each(one: Callable[[Tensor], Tensor]) -> Quantise:
    return lambda key, value, first_key, first_value: (one(key), one(value))


def right(x: Tensor) -> Tensor:
    return image(x, step(x))


MISTAKES: dict[str, Quantise] = {
    "keys and values are truncated to whole steps, expected rounded": of_each(
        lambda x: image(x, step(x), torch.trunc)
    ),
    "values are rounded down to whole steps, expected to the nearest": (
        lambda key, value, *_: (right(key), image(value, step(value), torch.floor))
    ),
    "keys and values keep 4 bits, expected 8": of_each(
        lambda x: image(x, step(x, levels=7), levels=7)
    ),
    "keys and values share one step over all heads": of_each(
        lambda x: image(x, step(x, axes=(1, 3)))
    ),
    "keys and values share one step over all batch rows": of_each(
        lambda x: image(x, step(x, axes=(0, 3)))
    ),
    "keys and values keep the step of the first token, which later ones exceed": (
        lambda key, value, first_key, first_value: (
            image(key, step(first_key)),
            image(value, step(first_value)),
        )
    ),
    "keys and values use 128 steps, and the largest wraps to its negative": of_each(wrapped),
    "values use the steps of the keys": (
        lambda key, value, *_: (right(key), image(value, step(key)))
    ),
}


def cache_of(quantise: Quantise) -> Any:
    """A factory of caches that keep what ``quantise`` makes of keys and values."""

    class Quantised(ContiguousCache):
        first: tuple[Tensor, Tensor] | None = None

        def append(self, key: Tensor, value: Tensor) -> None:
            if self.first is None and key.shape[2]:
                self.first = key[:, :, :1].float(), value[:, :, :1].float()
            if self.first is not None:
                key, value = quantise(key.float(), value.float(), *self.first)
            dtype = self.key.dtype
            super().append(key.to(dtype), value.to(dtype))

    @kv_cache(quantised="int8", hidden_nan=None)
    def make(*, max_len: int, **sizes: Any) -> Quantised:
        return Quantised(max_len=max_len, **sizes)

    return make


def found(quantise: Quantise) -> str | None:
    """What is told of the first case on which the cache is wrong; None where it never is."""
    target = kind_named("kv_cache").open(cache_of(quantise), "cache", {})
    subject = CacheSubject(target, CacheDomain(dtypes=("float32",)))
    for seed in range(60):
        case = CASE.but(seed=seed, values=("normal", "heavy_tailed", "outliers")[seed % 3])
        inputs = subject.inputs(case)
        if not subject.sound(inputs, subject.call(inputs)):
            diagnosis = mistaken_image(subject, case)
            assert diagnosis is None or diagnosis.kind == "quantised-kv"
            return "wrong" if diagnosis is None else diagnosis.text
    return None


@pytest.mark.parametrize("text", MISTAKES)
def test_the_mistake_is_told(text: str) -> None:
    assert found(MISTAKES[text]) == text


def test_a_right_image_holds_and_another_mistake_has_no_name() -> None:
    assert found(of_each(right)) is None
    assert found(of_each(lambda x: right(x) * 1.25)) == "wrong"


def test_a_run_tells_it_of_the_smallest_case() -> None:
    text = "values use the steps of the keys"
    target = kind_named("kv_cache").open(cache_of(MISTAKES[text]), "cache", {})
    asked = Request(examples=20, dtypes=("float32",), laws=("cache-agrees-with-float64",))
    told = check_target(target, asked).failures
    assert [(one.diagnosis.kind, one.diagnosis.text) for one in told] == [("quantised-kv", text)]
    assert told[0].case == CacheCase()
