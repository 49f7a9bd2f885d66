"""The questions: the smallest case that tells two meanings apart, and the name of each meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from equivalence.case import AttentionCase
from equivalence.dtypes import DTYPES, Array
from equivalence.inputs import AttentionInputs
from equivalence.masks import Mask
from equivalence.reference import attention
from equivalence.rope.case import RotaryCase
from equivalence.rope.inputs import RotaryInputs
from equivalence.rope.reference import rotary

NAN: Final = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One point on which runtimes may differ.

    axis, asks: which point, in words. case: the call. needs: contract options without which it
    cannot be asked. corner: the corner of causality is the target's own. rows: from which and up
    to which query row is looked at. meanings: from the inputs, the output of each meaning by name.
    """

    axis: str
    asks: str
    case: Any
    needs: tuple[str, ...] = ()
    kind: str = "attention"
    corner: bool = False
    rows: tuple[int | None, int | None] = (None, None)
    meanings: Callable[[Any], Mapping[str, Array]]


def _exact(inputs: AttentionInputs) -> Array:
    """The definition; a row that sees no key is 0 / 0."""
    found = attention(inputs)
    return np.where((found.seen > 0)[..., None], found.output, np.nan)


def _heads(inputs: AttentionInputs) -> Mapping[str, Array]:
    kv_heads, count = inputs.key.shape[1], inputs.query.shape[1]
    order = np.arange(count)
    maps = {"grouped": order // (count // kv_heads), "interleaved": order % kv_heads}
    return {name: _exact(inputs.but(kv_head_of=each)) for name, each in maps.items()}


def _corners(inputs: AttentionInputs) -> Mapping[str, Array]:
    names = {"lower-right": "lower_right", "upper-left": "upper_left", "ignored": None}
    return {name: _exact(inputs.but(causal=corner)) for name, corner in names.items()}


def _empty(inputs: AttentionInputs) -> Mapping[str, Array]:
    value = inputs.value[:, inputs.kv_head_of]
    shape = (*inputs.query.shape[:3], value.shape[3])
    plain = inputs.but(mask=None, causal=None, kv_lengths=None)
    found = {"zeros": np.zeros(shape), "NaN": np.full(shape, np.nan)}
    if value.shape[2]:
        found["mean of the values"] = np.broadcast_to(value.mean(axis=2, keepdims=True), shape)
        found["as if nothing were hidden"] = _exact(plain)
    return found


def _both(inputs: AttentionInputs) -> Mapping[str, Array]:
    return {
        "both": _exact(inputs),
        "only the mask": _exact(inputs.but(causal=None)),
        "only causal": _exact(inputs.but(mask=None)),
    }


def _softcap(inputs: AttentionInputs) -> Mapping[str, Array]:
    assert inputs.softcap is not None
    assert inputs.mask is not None
    query = inputs.query[..., None, :] * inputs.key[:, inputs.kv_head_of][:, :, None]
    scores = query.sum(axis=-1) * inputs.scale_value + inputs.mask
    weights = np.exp(inputs.softcap * np.tanh(scores / inputs.softcap))
    after = weights @ inputs.value[:, inputs.kv_head_of]
    return {
        "before the bias": _exact(inputs),
        "after the bias": after / weights.sum(axis=-1, keepdims=True),
        "ignored": _exact(inputs.but(softcap=None)),
    }


def _leak(inputs: AttentionInputs) -> Mapping[str, Array]:
    clean = inputs.but(key=np.nan_to_num(inputs.key), value=np.nan_to_num(inputs.value))
    exact = _exact(clean)
    return {"ignored": exact, "reaches the output": np.full(exact.shape, np.nan)}


def _scale(inputs: AttentionInputs) -> Mapping[str, Array]:
    shape = _exact(inputs).shape
    return {
        "taken as zero": _exact(inputs),
        "taken as not given": _exact(inputs.but(scale=None)),
        "NaN": np.full(shape, np.nan),
    }


def _window(inputs: AttentionInputs) -> Mapping[str, Array]:
    names = {
        "2 keys with itself": (1, 0), "2 keys and itself": (2, 0), "1 key": (0, 0),
        "on both sides": (1, 1), "ignored": None,
    }  # fmt: skip
    return {name: _exact(inputs.but(band=band)) for name, band in names.items()}


def _large(inputs: AttentionInputs) -> Mapping[str, Array]:
    return {"right": _exact(inputs), "NaN": np.full(_exact(inputs).shape, np.nan)}


def _pairing(inputs: RotaryInputs) -> Mapping[str, Array]:
    from dataclasses import replace

    return {
        name: np.asarray(rotary(replace(inputs, pairing=name)).output)
        for name in ("half", "interleaved")
    }


def questions() -> Iterator[Question]:
    """All of them, axis by axis."""
    yield Question(
        axis="head order",
        asks="which key/value head a query head reads",
        case=AttentionCase(num_kv_heads=2, group_size=2),
        meanings=_heads,
    )
    for q_len, kv_len, first in ((2, 3, None), (4, 3, 1)):  # the row before sees no key
        yield Question(
            axis="causal corner",
            asks=f"where the diagonal of q_len {q_len}, kv_len {kv_len} stands",
            case=AttentionCase(q_len=q_len, kv_len=kv_len, causal="lower_right", values="steps"),
            needs=("causal",),
            corner=True,
            rows=(first, None),
            meanings=_corners,
        )
    empty = {
        "a bool mask": (AttentionCase(mask=Mask(empty_rows=1)), ("mask",)),
        "causality, where q_len > kv_len": (
            AttentionCase(q_len=3, causal="lower_right"),
            ("causal",),
        ),
        "kv_lengths": (AttentionCase(kv_lengths=(0,)), ("kv_lengths",)),
    }
    for way, (case, needs) in empty.items():
        yield Question(
            axis="masked rows",
            asks=f"what a row holds that sees no key by {way}",
            case=case.but(kv_len=2, values="normal", magnitude=4.0, seed=3),
            needs=needs,
            rows=(0, 1),
            meanings=_empty,
        )
    for dtype in DTYPES:
        for hidden in ("-inf", "finfo.min", "-1e4"):
            yield Question(
                axis="minus infinity",
                asks=f"what a row holds that is masked with {hidden} throughout, in {dtype}",
                case=AttentionCase(
                    kv_len=3,
                    head_dim=8,
                    dtype=dtype,
                    values="normal",
                    magnitude=4.0,
                    seed=3,
                    mask=Mask(form="float", hidden=hidden, empty_rows=1),
                ),
                needs=("mask",),
                meanings=_empty,
            )
    yield Question(
        axis="mask with causal",
        asks="what hides where both are given",
        case=AttentionCase(
            q_len=3,
            kv_len=3,
            causal="lower_right",
            values="steps",
            mask=Mask(pattern="padding", size=2),
        ),
        needs=("mask", "causal"),
        corner=True,
        meanings=_both,
    )
    yield Question(
        axis="softcap order",
        asks="whether a bias is capped",
        case=AttentionCase(
            kv_len=3,
            head_dim=2,
            values="normal",
            magnitude=4.0,
            softcap=0.5,
            mask=Mask(form="float", bias=3.0),
        ),
        needs=("softcap", "mask"),
        meanings=_softcap,
    )
    for operand in ("key", "value"):
        yield Question(
            axis="NaN in hidden slots",
            asks=f"where NaN in a {operand} goes that a bool mask hides",
            case=AttentionCase(
                kv_len=2,
                values="steps",
                mask=Mask(pattern="padding"),
                plants=((operand, 0, 1, NAN),),
            ),
            needs=("mask",),
            meanings=_leak,
        )
    yield Question(
        axis="kv_len 0",
        asks="what comes out where there is no key",
        case=AttentionCase(kv_len=0),
        meanings=_empty,
    )
    for causal in (None, "lower_right"):
        yield Question(
            axis="scale 0",
            asks="what a scale of 0 means" + (" with causality" if causal else ""),
            case=AttentionCase(
                q_len=3, kv_len=3, head_dim=2, values="normal", scale=0.0, causal=causal
            ),
            needs=("scale", "causal") if causal else ("scale",),
            corner=causal is not None,
            meanings=_scale,
        )
    for option, window in (("window", 2), ("window_size", (1, 0))):
        yield Question(
            axis="window counting",
            asks=f"what {option}={window} leaves of 3 keys",
            case=AttentionCase(q_len=3, kv_len=3, values="steps", window=window),
            needs=(option,),
            meanings=_window,
        )
    yield Question(
        axis="large logits in float16",
        asks="whether q.k beyond 65504 survives where its scaled score is in range",
        case=AttentionCase(
            kv_len=2,
            head_dim=2,
            dtype="float16",
            values="steps",
            scale=2.0**-8,
            plants=(("query", 0, 0, 256.0), ("key", 0, 0, 256.0)),
        ),
        needs=("scale",),
        meanings=_large,
    )
    yield Question(
        axis="rotary pairing",
        asks="which channels turn together",
        case=RotaryCase(head_dim=4, start=1),
        kind="rotary",
        meanings=_pairing,
    )
