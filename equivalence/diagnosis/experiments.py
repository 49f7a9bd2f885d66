"""Experiments where no suspect explains what was seen: leave an option out, read the weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from equivalence.diagnosis.evidence import look
from equivalence.diagnosis.imagining import Sight
from equivalence.diagnosis.troubles import OPTION_KINDS
from equivalence.dtypes import Array, format_of, rounded
from equivalence.inputs import AttentionInputs
from equivalence.outcome import Target
from equivalence.results import Diagnosis

LENGTHS: Final = 40  # of the keys that are tried
WITHOUT: dict[str, dict[str, Any]] = {
    "softcap": {"softcap": None},
    "sinks": {"sinks": None},
    "alibi_slopes": {"alibi_slopes": None},
    "window": {"window": None, "band": None},
    "kv_lengths": {"kv_lengths": None},
    "mask": {"mask": None},
    "scale": {"scale": None},
    "causal": {"causal": None},
}


def guilty_option(target: Target, seen: list[Sight]) -> Diagnosis | None:
    """The one option without which every failing call is right."""
    for option, change in WITHOUT.items():
        if all(getattr(seen[0].inputs, field) is None for field in change):
            continue
        rights = [look(target, s.case, s.inputs.but(**change)) for s in seen]
        if all(right is not None and not right.wrong.any() for right in rights):
            text = f"right without {option}, wrong with it: {_given(seen[0].inputs, option)}"
            return Diagnosis(kind=OPTION_KINDS[option], text=text)
    return None


def _given(inputs: AttentionInputs, option: str) -> str:
    value = getattr(inputs, option)
    if isinstance(value, np.ndarray):
        return f"{option} of shape {list(value.shape)}"
    return f"{option}={value!r}"


def actual_weights(target: Target, inputs: AttentionInputs) -> Array | None:
    """The weight that each value really gets, ``[B, H, Sq, Skv]``, by one-hot values."""
    kv_len, width = inputs.value.shape[2:]
    chunks = []
    for start in range(0, kv_len, width):
        part = min(width, kv_len - start)
        value = np.zeros_like(inputs.value)
        value[:, :, range(start, start + part), range(part)] = 1.0
        outcome = target.call(inputs.but(value=value))
        if outcome.stored is None or outcome.stored.shape[:3] != inputs.query.shape[:3]:
            return None
        chunks.append(outcome.output[..., :part])
    return np.concatenate(chunks, axis=3) if chunks else None


def by_weights(target: Target, seen: list[Sight]) -> Diagnosis | None:
    """What the weights of one failing call say, if its numbers tell keys apart."""
    sight = max(seen, key=lambda s: s.inputs.key.shape[2] * s.inputs.query.shape[2])
    if sight.inputs.key.shape[2] > 4 * max(8, sight.inputs.value.shape[3]):
        return None
    weights = actual_weights(target, sight.inputs)
    if weights is None or not np.isfinite(weights).all():
        return None
    return next(_readings(sight, weights), None)


def _readings(sight: Sight, weights: Array) -> Iterator[Diagnosis]:
    exact = sight.exact.probabilities
    noise = 8 * format_of(sight.inputs.dtype).unit_roundoff
    close = noise * (1.0 + np.abs(sight.exact.scores[sight.exact.visible]).max(initial=0.0))
    value = sight.inputs.value[:, sight.inputs.kv_head_of]
    by_the_weights = np.abs(np.matmul(weights - exact, value))[sight.wrong].max(initial=0.0)
    error = np.abs(sight.actual - sight.exact.output)[sight.wrong].max(initial=0.0)
    if np.allclose(weights, exact, rtol=close, atol=close) and by_the_weights < 0.1 * error:
        # Each key is one more rounding of a sum that is kept in the dtype.
        dtype, size = sight.inputs.dtype, float(np.abs(sight.inputs.value).max(initial=0.0))
        keys = sight.inputs.key.shape[2]
        if error <= keys * format_of(dtype).unit_roundoff * size:
            text = (
                f"the weights of the keys are right, and the error is within one rounding to "
                f"{dtype} for each of the {keys} keys: their values are summed in it"
            )
            yield Diagnosis(kind="precision", text=text)
            return
        text = "the weights of the keys are right, so it is the values that are read wrong"
        yield Diagnosis(kind="wrong-operand", text=text)
        return
    if np.abs(np.matmul(weights, value) - sight.actual).max(initial=0.0) > 0.1 * error:
        return  # the output is no sum of these weights, so they say nothing of it
    swapped = _another_head(weights, exact, close)
    if swapped is not None:
        head, other = swapped
        text = f"query head {head} has the weights of query head {other}"
        yield Diagnosis(kind="head-mapping", text=text)
    unseen = (weights > max(noise, 1e-3)) & ~sight.exact.visible
    unread = (np.abs(weights) < exact / 50) & (exact > 1e-3)
    if unseen.any() or unread.any():
        yield _wrongly_seen(sight, unseen, unread)
    moved = _moved_columns(weights, exact, close)
    if moved is not None:
        key, source = moved
        text = f"the value of key {key} gets the weight of key {source}"
        yield Diagnosis(kind="wrong-operand", text=text)
    total = weights.sum(axis=-1)
    if (np.abs(total - 1) > 4 * close).any() and sight.inputs.sinks is None:
        text = f"the weights of a row add up to {total.ravel()[np.abs(total - 1).argmax()]:.4g}"
        yield Diagnosis(kind="wrong-operand", text=f"{text}: the softmax is not normalised")


def _another_head(weights: Array, exact: Array, close: float) -> tuple[int, int] | None:
    """The first head whose weights are those of another one, and not its own."""
    for head in range(weights.shape[1]):
        if np.allclose(weights[:, head], exact[:, head], atol=4 * close):
            continue
        for other in range(weights.shape[1]):
            if np.allclose(weights[:, head], exact[:, other], atol=2 * close):
                return head, other
    return None


def _wrongly_seen(sight: Sight, unseen: Array, unread: Array) -> Diagnosis:
    """Keys on the wrong side of what hides them."""
    which, words = (unseen, "is seen") if unseen.any() else (unread, "is not seen")
    _, head, row, key = (int(i) for i in np.argwhere(which)[0])
    hiders = {
        "window": sight.inputs.band is not None,
        "causal": sight.inputs.causal is not None,
        "kv_lengths": sight.inputs.kv_lengths is not None,
        "mask": sight.inputs.mask is not None,
    }
    used = [name for name, present in hiders.items() if present]
    kind = OPTION_KINDS[used[0]] if len(used) == 1 else "mask-semantics"
    if not used:
        kind = "head-dim-tail"
    expected = "hidden" if unseen.any() else "visible"
    text = f"key {key} {words} by query {row} of head {head}, expected {expected}"
    return Diagnosis(kind=kind, text=text + (f" ({', '.join(used)})" if used else ""))


def _moved_columns(weights: Array, exact: Array, close: float) -> tuple[int, int] | None:
    """The first (key, other key) where a value has the weight of the other key in every row."""
    flat, right = (x.reshape(-1, x.shape[-1]) for x in (weights, exact))
    if flat.shape[0] < 3:
        return None
    for key in range(flat.shape[1]):
        if np.allclose(flat[:, key], right[:, key], atol=4 * close):
            continue
        for other in range(flat.shape[1]):
            if np.allclose(flat[:, key], right[:, other], atol=2 * close):
                return key, other
    return None


def noisy(target: Target, inputs: AttentionInputs, calls: int = 6) -> bool:
    """Whether repeated calls differ by more than a hundredth of the values."""
    first: Array | None = None
    size = 0.01 * float(np.abs(rounded(inputs.value, inputs.dtype)).max(initial=0.0))
    for _ in range(calls):
        outcome = target.call(inputs)
        if outcome.stored is None:
            return False
        if first is None:
            first = outcome.output
        elif first.shape != outcome.output.shape or not np.allclose(
            first, outcome.output, rtol=0.0, atol=size, equal_nan=True
        ):
            return True
    return False


def by_length(target: Target, sight: Sight) -> Diagnosis | None:
    """Lengths of the keys that are all wrong and leave the same rest beyond tiles; others right."""
    case = sight.case
    if case.kv_lengths is not None or case.mask is not None:
        return None
    wrong: dict[int, bool] = {}
    for kv_len in range(1, LENGTHS + 1):
        one = case.but(kv_len=kv_len)
        if target.supports(one) is not True:
            continue
        seen = look(target, one)
        if seen is not None:
            wrong[kv_len] = bool(seen.wrong.any())
    for tile in (2, 4, 8, 16):
        partial = {n for n in wrong if n > tile and n % tile}
        for rest in (None, *range(tile)):
            told = partial if rest is None else {n for n in wrong if n > tile and n % tile == rest}
            others = {n for n in wrong if n > tile} - told
            if len(told) < 2 or not others or not all(wrong[n] for n in told):
                continue
            if any(wrong[n] for n in others):
                continue
            beyond = "no multiple" if rest is None else f"{rest} beyond a multiple"
            text = f"wrong where the number of keys is {beyond} of {tile}, right at other lengths"
            return Diagnosis(kind="head-dim-tail", text=f"{text}: the tail of a tile")
    return None
