"""What a quantised cache made of its numbers: its answers beside those of imagined images.

A number x is kept as round(x / step), within -127 to 127, where the step is the largest |x| of its
token or of its head, over 127. Each mistake is another step, or another way to a whole number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from equivalence.caches.case import CacheCase
from equivalence.caches.domain import CacheDomain
from equivalence.caches.program import Program
from equivalence.caches.quantised import LEVELS
from equivalence.caches.subject import CacheSubject
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.packed.diagnosis import fits
from equivalence.results import Diagnosis

KIND: Final = "quantised-kv"
SMALLEST: Final = 1e-12
LONGER: Final[Program] = (("append", 1), ("append", 2), ("attend", 1), ("append", 1), ("attend", 1))
# (numbers ``[B, Hkv, S, D]``, those of the other operand, the axes that share a step) -> images
Image = Callable[[Array, Array, tuple[int, ...]], Array]
Rounding = Callable[[Array], Array]
# What may share a step: the channels of one token, or all that a head has of a row.
SHARED: Final[tuple[tuple[int, ...], ...]] = ((3,), (2, 3))


def mistaken_image(subject: CacheSubject, case: CacheCase) -> Diagnosis | None:
    """The first mistake of quantisation that explains every answer, or else every wrong one.

    Answers within the bound are asked as well: a mistake of half a step often is.
    """
    if subject.declared.quantised is None or case.latent_dim is not None:
        return None
    wrong, answers = [], []
    for inputs in map(subject.inputs, (case, *_telling(case, subject.domain))):
        outcome = subject.call(inputs)
        if subject.unusable(inputs, outcome) is None:
            answers.append((inputs, outcome.output))
            if not subject.sound(inputs, outcome):
                wrong.append(answers[-1])
    for asked in (answers, wrong) if wrong else ():
        for text, imagined in _suspects():
            if all(
                fits(subject, piece, output, imagined(piece.inputs))
                for inputs, output in asked
                for piece in inputs.pieces
            ):
                return Diagnosis(kind=KIND, text=text)
    return None


def _telling(case: CacheCase, domain: CacheDomain) -> Iterator[CacheCase]:
    """Numbers that all differ, of several heads and channels where the target takes them."""
    sizes: dict[str, Any] = {"values": "normal", "magnitude": 1.0, "seed": 1}
    yield case.but(**sizes)
    if domain.head_layouts is None:
        sizes["num_kv_heads"] = max(case.num_kv_heads, min(2, domain.num_kv_heads[1]))
        dims = domain.head_dims or (5,)
        sizes["head_dim"] = min((d for d in dims if d >= 5), default=case.head_dim)
    if domain.max_lens is None:
        sizes |= {"max_len": 4, "evicts": False}
    longer = case.running(LONGER, **sizes)
    if longer is not None:
        yield longer


def _rounded(
    x: Array,
    other: Array,
    shared: tuple[int, ...],
    *,
    levels: int = LEVELS,
    to_whole: Rounding = np.round,
    of_other: bool = False,
) -> Array:
    """The images that a cache keeps; of_other: by the steps of the other operand."""
    step = _step(other if of_other else x, shared, levels)
    return np.clip(to_whole(_narrow(x) / step), -levels, levels) * step


def _step(x: Array, shared: tuple[int, ...], levels: int = LEVELS) -> Array:
    largest = _narrow(np.abs(x)).max(axis=shared, keepdims=True, initial=0.0)
    return np.asarray(np.maximum(largest, np.float32(SMALLEST)) / np.float32(levels))


def _narrow(x: Array) -> Array:
    """As caches compute: whether the largest number is 127 steps, or less, is a matter of bits."""
    return x.astype(np.float32)


def _over_heads(x: Array, other: Array, shared: tuple[int, ...]) -> Array:
    return _rounded(x, other, (1, *shared))


def _over_rows(x: Array, other: Array, shared: tuple[int, ...]) -> Array:
    return _rounded(x, other, (0, *shared))


def _of_first_token(x: Array, other: Array, shared: tuple[int, ...]) -> Array:
    step = _step(x[:, :, :1], shared)
    return np.clip(np.round(_narrow(x) / step), -LEVELS, LEVELS) * step


def _wrapped(x: Array, other: Array, shared: tuple[int, ...]) -> Array:
    """A largest number of 128 steps, which 8 bits hold as -128."""
    step = _step(x, shared, LEVELS + 1)
    whole = np.round(_narrow(x) / step)
    return np.where(whole > LEVELS, whole - 2 * (LEVELS + 1), whole) * step


IMAGES: Final[dict[str, Image]] = {
    "are truncated to whole steps, expected rounded": partial(_rounded, to_whole=np.trunc),
    "are rounded down to whole steps, expected to the nearest": partial(
        _rounded, to_whole=np.floor
    ),
    "keep 4 bits, expected 8": partial(_rounded, levels=7),
    "share one step over all heads": _over_heads,
    "share one step over all batch rows": _over_rows,
    "keep the step of the first token, which later ones exceed": _of_first_token,
    "use 128 steps, and the largest wraps to its negative": _wrapped,
}


def _suspects() -> Iterator[tuple[str, Callable[[AttentionInputs], AttentionInputs]]]:
    """A sentence, and the change of a call that it amounts to."""
    for words, image in IMAGES.items():
        for who, keys, values in (
            ("keys and values", image, image),
            ("values", _rounded, image),
            ("keys", image, _rounded),
        ):
            for shared in SHARED:
                yield f"{who} {words}", partial(_kept, keys=keys, values=values, shared=shared)
    by_other = partial(_rounded, of_other=True)
    for shared in SHARED:
        yield (
            "values use the steps of the keys",
            partial(_kept, keys=_rounded, values=by_other, shared=shared),
        )
        yield (
            "keys use the steps of the values",
            partial(_kept, keys=by_other, values=_rounded, shared=shared),
        )


def _kept(
    inputs: AttentionInputs, *, keys: Image, values: Image, shared: tuple[int, ...]
) -> AttentionInputs:
    key, value = inputs.key, inputs.value
    images = keys(key, value, shared), values(value, key, shared)
    key, value = (image.astype(np.float64) for image in images)
    return inputs.but(key=key, value=value)
