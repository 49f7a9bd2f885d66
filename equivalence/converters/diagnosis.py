"""From a conversion that is wrong to the name of the mistake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from equivalence.converters.case import ConverterCase
from equivalence.converters.inputs import asked_inputs
from equivalence.converters.subject import ConverterSubject
from equivalence.converters.without import dropped_options
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.outcome import Outcome
from equivalence.results import Diagnosis
from equivalence.verdict import Trouble

DIRECT: Final = {
    "masked-rows": "fully-masked-row",
    "wrong-shape": "wrong-shape",
    "wrong-dtype": "wrong-dtype",
    "input-mutation": "input-mutation",
    "not-repeatable": "determinism",
    "crash": "crash",
    "hang": "crash",
    "memory": "crash",
}
FACTORS: Final = (np.log2(np.e), 1 / np.log2(np.e))


def diagnose(
    subject: ConverterSubject, law: str, case: ConverterCase, trouble: Trouble
) -> Diagnosis:
    """Name the mistake that makes what was converted break ``law`` on ``case``."""
    if trouble.kind in DIRECT:
        return Diagnosis(kind=DIRECT[trouble.kind], text=trouble.text)
    if case.about.family == "cache":
        return _of_a_cache(subject, case, trouble)
    outcome = subject.outcome(case)
    asked, judge = asked_inputs(case), subject.judge_of(case)
    if outcome.stored is None or judge.unusable(asked, outcome) is not None:
        return Diagnosis(kind="unknown", text=trouble.text)
    for what, other in dropped_options(case).items():
        if judge.judge(other, outcome).status == "held":
            kind = "scale" if what in ("scale", "scaling") else "dropped-op"
            text = f"{case.formulation}: the {what} is gone after conversion"
            return Diagnosis(kind=kind, text=text)
    if isinstance(asked, AttentionInputs):
        found = _heads(judge, asked, outcome.output)
        if found is not None:
            return Diagnosis(kind="head-mapping", text=f"{case.formulation}: {found}")
        for kind, text, other in _imagined(asked):
            if judge.judge(other, outcome).status == "held":
                return Diagnosis(kind=kind, text=f"{case.formulation}: {text}")
    for factor in FACTORS:
        if hasattr(asked, "scale_value"):
            other = asked.but(scale=asked.scale_value * factor)
            if judge.judge(other, outcome).status == "held":
                text = f"{case.formulation}: the scale is {factor:.6g} times what it should be"
                return Diagnosis(kind="scale", text=text)
    if trouble.kind == "non-finite":
        kind = "nan-propagation" if np.isnan(outcome.output).any() else "overflow"
        return Diagnosis(kind=kind, text=trouble.text)
    close = trouble.used is not None and trouble.used < 64
    return Diagnosis(kind="precision" if close else "unknown", text=trouble.text)


def _imagined(asked: AttentionInputs) -> Iterator[tuple[str, str, AttentionInputs]]:
    """What other mistakes would make of the same call, one at a time."""
    scale = asked.scale_value
    yield "scale", "the scores are not scaled", asked.but(scale=1.0)
    yield "scale", "the scale is applied twice", asked.but(scale=scale * scale)
    if asked.causal is not None:
        text = "the last query does not see the last key: the order in time is upper left"
        yield "causal-alignment", text, asked.but(causal="upper_left")
    if asked.mask is not None:
        yield from _other_masks(asked, asked.mask)


def _other_masks(asked: AttentionInputs, mask: Array) -> Iterator[tuple[str, str, AttentionInputs]]:
    if mask.dtype == bool:
        yield "mask-semantics", "True hides a key instead of showing it", asked.but(mask=~mask)
        text = "the boolean mask is added as the numbers 0 and 1"
        yield "mask-semantics", text, asked.but(mask=mask.astype(np.float64))
    for axis, name in enumerate(("batch row", "head", "query")):
        if mask.shape[axis] > 1:
            first = np.broadcast_to(mask.take([0], axis), mask.shape)
            yield "broadcasting", f"every {name} gets the mask of the first", asked.but(mask=first)


def _heads(judge: Any, asked: AttentionInputs, output: Array) -> str | None:
    """Which key/value head each query head reads, where that explains the whole output."""
    heads, kv_heads = asked.query.shape[1], asked.key.shape[1]
    if kv_heads == 1:
        return None
    maps = [asked.but(kv_head_of=np.full(heads, kv_head)) for kv_head in range(kv_heads)]
    read: list[int] = []
    for head in range(heads):
        near = []
        for other in maps:
            off = np.abs(output[:, head] - judge.exact(other).output[:, head])
            seen = (judge.exact(other).seen[:, head] > 0)[..., None]
            near.append(
                bool(
                    (off <= judge.allowance(other).allowed[:, head])[
                        np.broadcast_to(seen, off.shape)
                    ].all()
                )
            )
        own = int(asked.kv_head_of[head])
        if not any(near):
            return None
        read.append(own if near[own] else near.index(True))
    expected = [int(h) for h in asked.kv_head_of]
    if read == expected:
        return None
    head = next(h for h in range(heads) if read[h] != expected[h])
    interleaved = read == [h % kv_heads for h in range(heads)]
    order = "interleaved (h % num_kv_heads)" if interleaved else str(read)
    return (
        f"query head {head} reads kv head {read[head]}, expected {expected[head]}; "
        f"the map found is {order}"
    )


def _of_a_cache(subject: ConverterSubject, case: ConverterCase, trouble: Trouble) -> Diagnosis:
    """Whether a write is lost: later answers do not depend on what was appended before them."""
    first = subject.outcome(case)
    if first.stored is None:
        return Diagnosis(kind="unknown", text=trouble.text)
    asked = asked_inputs(case)
    judge = subject.judge_of(case)
    nothing = np.zeros_like(first.output)
    # What a cache that was never written holds are zeros, and attention over zeros is zero.
    if np.array_equal(first.output, nothing) and judge.exact(asked).output.any():
        text = f"{case.formulation}: no write reaches the state; the cache stays zero"
        return Diagnosis(kind="dropped-op", text=text)
    if not isinstance(asked, AttentionInputs):
        return Diagnosis(kind="cache-position", text=trouble.text)
    if all(_sees_itself_alone(judge, asked, first, token) for token in range(case.kv_len)):
        text = f"{case.formulation}: each call sees its own token alone; earlier writes are lost"
        return Diagnosis(kind="dropped-op", text=text)
    return Diagnosis(kind="cache-position", text=trouble.text)


def _sees_itself_alone(judge: Any, asked: AttentionInputs, outcome: Outcome, token: int) -> bool:
    """Whether one answer is that of a cache that holds zeros before ``token``."""
    rows, upto = slice(token, token + 1), slice(0, token + 1)
    key, value = asked.key[:, :, upto].copy(), asked.value[:, :, upto].copy()
    key[:, :, :token], value[:, :, :token] = 0.0, 0.0
    alone = asked.but(query=asked.query[:, :, rows], key=key, value=value)
    assert outcome.stored is not None
    answer = replace(outcome, stored=outcome.stored[:, :, rows])
    return bool(judge.judge(alone, answer).status in ("held", "vacuous"))
