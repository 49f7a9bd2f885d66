"""Wrong scores: scale, softcap, sinks, ALiBi, and operands that take each other's place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from equivalence.diagnosis.imagining import (
    Sight,
    Suspect,
    World,
    from_scores,
    full,
    transposed_fold,
    with_bias,
)
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.reference import attention

LOG2_E = float(np.log2(np.e))
Factor = Callable[[AttentionInputs], float]


def _rescaled(inputs: AttentionInputs, *, factor: Factor) -> AttentionInputs:
    return inputs.but(scale=factor(inputs))


def scales(sight: Sight) -> Iterator[Suspect]:
    """Every usual way to get the scale wrong."""
    inputs = sight.inputs
    head_dim = inputs.query.shape[-1]
    given = inputs.scale
    expected = f"{given:g}" if given is not None else f"1/sqrt({head_dim})"
    named: list[tuple[str, Factor]] = []
    if given is not None:
        if given == 0:
            sentence = "a scale of 0 is read as none given: scores are scaled by 1/sqrt(head_dim)"
            named.append((sentence, _default))
        elif given < 0:
            sentence = (
                "a scale below 0 is read as none given: scores are scaled by 1/sqrt(head_dim)"
            )
            named.append((sentence, _default))
            named.append(("the sign of the given scale is lost", lambda i: abs(i.scale_value)))
        named += [
            ("the given scale is ignored: scores are scaled by 1/sqrt(head_dim)", _default),
            ("the given scale is multiplied by 1/sqrt(head_dim)",
             lambda i: i.scale_value * _default(i)),
        ]  # fmt: skip
    named += [
        ("scores are not scaled (by 1)", lambda i: 1.0),
        ("the scale is applied twice", lambda i: i.scale_value**2),
        ("scores are scaled by 1/sqrt(num_heads * head_dim), the model dim",
         lambda i: (i.query.shape[1] * i.query.shape[-1]) ** -0.5),
        ("scores are scaled by 1/head_dim", lambda i: 1 / i.query.shape[-1]),
        ("scores are scaled by 1/sqrt(num_kv_heads * head_dim)",
         lambda i: (i.key.shape[1] * i.query.shape[-1]) ** -0.5),
        ("scores are scaled by 1/sqrt(value_head_dim)", lambda i: i.value.shape[-1] ** -0.5),
        ("scores are scaled by 1/sqrt(kv_len)", lambda i: i.key.shape[2] ** -0.5),
        ("scores carry a factor log2(e): exp2 was meant, exp is taken",
         lambda i: i.scale_value * LOG2_E),
        ("scores lack a factor log2(e): exp2 is taken of unconverted scores",
         lambda i: i.scale_value / LOG2_E),
        ("the square root of the scale is applied", lambda i: abs(i.scale_value) ** 0.5),
        ("scores are divided by the scale", lambda i: 1 / i.scale_value),
        ("scores are negated", lambda i: -i.scale_value),
        ("scores are scaled by sqrt(head_dim)", lambda i: i.query.shape[-1] ** 0.5),
        ("scores are scaled by 1/sqrt(head_dim + 1)", lambda i: (i.query.shape[-1] + 1) ** -0.5),
        ("scores are scaled by the padded head_dim (next power of two)",
         lambda i: (2 ** (i.query.shape[-1] - 1).bit_length()) ** -0.5),
    ]  # fmt: skip
    for step in (8, 16, 32, 64, 128):
        named.append(
            (f"scores are scaled by the padded head_dim (next multiple of {step})",
             partial(_padded_scale, step=step))
        )  # fmt: skip
    for cost, (sentence, factor) in enumerate(named):
        yield Suspect(
            kind="scale",
            sentence=f"{sentence}, expected {expected}",
            imagine=partial(_rescaled, factor=factor),
            cost=3 + cost // 2,
        )


def _default(inputs: AttentionInputs) -> float:
    return float(float(inputs.query.shape[-1]) ** -0.5)


def _padded_scale(inputs: AttentionInputs, *, step: int) -> float:
    return float(float(-(-inputs.query.shape[-1] // step) * step) ** -0.5)


def softcaps(sight: Sight) -> Iterator[Suspect]:
    """The cap dropped, in the wrong place, or of another form."""
    cap = sight.inputs.softcap
    if cap is None:
        return

    def suspect(sentence: str, imagine: Callable[..., object], cost: int) -> Suspect:
        return Suspect(kind="softcap", sentence=sentence, imagine=imagine, cost=cost)  # type: ignore[arg-type]

    def reshaped(curve: Callable[[Array, float, AttentionInputs], Array]) -> Callable[..., object]:
        return partial(_recapped, curve=curve)

    yield suspect(f"the softcap of {cap:g} is ignored", lambda i: i.but(softcap=None), 2)
    yield suspect(
        "the softcap is applied after the bias, expected before it",
        partial(_cap_late, hide=False), 4,
    )  # fmt: skip
    yield suspect(
        "the softcap is applied after the mask, so hidden keys score -softcap",
        partial(_cap_late, hide=True), 4,
    )  # fmt: skip
    yield suspect(
        "tanh is not multiplied by the softcap", reshaped(lambda s, c, i: np.tanh(s / c)), 5
    )
    yield suspect("scores are clipped at the softcap, expected c * tanh(s / c)",
                  reshaped(lambda s, c, i: np.clip(s, -c, c)), 6)  # fmt: skip
    yield suspect(
        "the softcap is applied before the scale",
        reshaped(lambda s, c, i: i.scale_value * c * np.tanh(s / i.scale_value / c)), 5,
    )  # fmt: skip
    yield suspect("the softcap is applied twice",
                  reshaped(lambda s, c, i: c * np.tanh(np.tanh(s / c))), 8)  # fmt: skip
    yield suspect(
        "scores are not divided by the softcap", reshaped(lambda s, c, i: c * np.tanh(s)), 6
    )
    yield suspect(
        "the softcap replaces the scale",
        reshaped(lambda s, c, i: c * np.tanh(s / i.scale_value / c)), 7,
    )  # fmt: skip


def _recapped(
    inputs: AttentionInputs, *, curve: Callable[[Array, float, AttentionInputs], Array]
) -> World | None:
    if inputs.softcap is None:
        return None
    capped = curve(inputs.scale_value * attention(inputs).dots, inputs.softcap, inputs)
    scores = capped if inputs.bias is None else capped + inputs.bias
    return from_scores(inputs, scores, capped=capped)


def _cap_late(inputs: AttentionInputs, *, hide: bool) -> World | None:
    if inputs.softcap is None:
        return None
    cap = inputs.softcap
    raw = inputs.scale_value * attention(inputs).dots
    scores = raw if inputs.bias is None else raw + inputs.bias
    visible = full(inputs, inputs.visible)
    if hide:
        scores = np.where(visible, scores, -np.inf)
        visible = np.ones_like(visible)
    elif inputs.bias is None:
        return None
    return from_scores(inputs, cap * np.tanh(scores / cap), visible)


def sinks(sight: Sight) -> Iterator[Suspect]:
    """Sinks dropped, scaled, capped, of other heads, or outside the running maximum."""
    if sight.inputs.sinks is None:
        for words, sink in (("0", _zero_sink), ("the maximum of its row", _top_sink)):
            yield Suspect(
                kind="sinks",
                sentence=f"a sink with the logit {words} counts though none is given: the sum of "
                "the softmax is one too large",
                imagine=sink,
                cost=9,
            )
        return
    heads = sight.inputs.query.shape[1]
    moves: list[tuple[str, Callable[[AttentionInputs, Array], Array]]] = [
        ("the sinks are multiplied by the scale", lambda i, s: s * i.scale_value),
        ("the sinks are negated", lambda i, s: -s),
        ("every head uses the sink of head 0", lambda i, s: np.full_like(s, s[0])),
        ("the sinks are taken in (group, kv head) order", _transposed_sinks),
        ("the sinks are those of head h // group_size", lambda i, s: s[i.kv_head_of]),
        ("the sinks are those of head h % num_kv_heads",
         lambda i, s: s[np.arange(len(s)) % i.key.shape[1]]),
        ("the sinks are taken in reverse order of the heads", lambda i, s: s[::-1]),
        ("each head uses the sink of the head before it", lambda i, s: np.roll(s, 1)),
        ("each head uses the sink of the head after it", lambda i, s: np.roll(s, -1)),
        ("the sinks count twice", lambda i, s: s + np.log(2.0)),
        ("the sinks are read as log2", lambda i, s: s / LOG2_E),
        ("the sinks are multiplied by log2(e)", lambda i, s: s * LOG2_E),
    ]  # fmt: skip
    yield Suspect(
        kind="sinks",
        sentence=f"the sinks of {heads} heads are ignored",
        imagine=lambda i: i.but(sinks=None),
        cost=2,
    )
    for cost, (sentence, move) in enumerate(moves):
        yield Suspect(
            kind="sinks", sentence=sentence, imagine=partial(_resunk, move=move), cost=4 + cost
        )
    yield Suspect(
        kind="sinks",
        sentence="the sink is added as exp(sink), not relative to the maximum of the row",
        imagine=_absolute_sink,
        cost=8,
    )


def _zero_sink(inputs: AttentionInputs) -> AttentionInputs | None:
    heads = inputs.query.shape[1]
    return None if inputs.sinks is not None else inputs.but(sinks=np.zeros(heads))


def _top_sink(inputs: AttentionInputs) -> World | None:
    if inputs.sinks is not None:
        return None
    scores = attention(inputs).scores
    top = scores.max(axis=-1, initial=-np.inf)
    return from_scores(inputs.but(sinks=np.zeros(inputs.query.shape[1])), scores, sinks=top)


def _resunk(
    inputs: AttentionInputs, *, move: Callable[[AttentionInputs, Array], Array]
) -> AttentionInputs | None:
    if inputs.sinks is None:
        return None
    return inputs.but(sinks=move(inputs, inputs.sinks))


def _transposed_sinks(inputs: AttentionInputs, given: Array) -> Array:
    return given.reshape(-1, inputs.key.shape[1]).T.ravel()


def _absolute_sink(inputs: AttentionInputs) -> World | None:
    if inputs.sinks is None:
        return None
    scores = attention(inputs.but(sinks=None)).scores
    top = scores.max(axis=-1, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    return from_scores(inputs, scores, sinks=inputs.sinks[None, :, None] + top)


def alibis(sight: Sight) -> Iterator[Suspect]:
    """Slopes dropped, of other heads, with the wrong sign, or measured from another corner."""
    slopes = sight.inputs.alibi_slopes
    if slopes is None:
        return
    yield Suspect(
        kind="ignored-option",
        sentence="alibi_slopes is ignored",
        imagine=lambda i: i.but(alibi_slopes=None),
        cost=2,
    )
    moves: list[tuple[str, Callable[[AttentionInputs, Array], Array]]] = [
        ("ALiBi is added with the wrong sign", lambda i, s: -s),
        ("every head uses the slope of head 0", lambda i, s: np.full_like(s, s[0])),
        ("the slopes are those of head h // group_size", lambda i, s: s[i.kv_head_of]),
        ("the slopes are those of head h % num_kv_heads", lambda i, s: s[_kv_first(i)]),
        (
            "the slopes are folded as (group, kv head), expected (kv head, group)",
            lambda i, s: s[transposed_fold(i, by_group=True)],
        ),
        (
            "the slopes are read back as (kv head, group) of a (group, kv head) fold",
            lambda i, s: s[transposed_fold(i, by_group=False)],
        ),
        ("the slopes are reversed", lambda i, s: s[::-1]),
        ("ALiBi is multiplied by the scale", lambda i, s: s * i.scale_value),
    ]
    for sentence, move in moves:
        yield Suspect(
            kind="mask-semantics", sentence=sentence, imagine=partial(_resloped, move=move), cost=5
        )
    yield Suspect(
        kind="causal-alignment",
        sentence="ALiBi distances are anchored upper-left, expected lower-right",
        imagine=_upper_left_slopes,
        cost=6,
    )


def _kv_first(inputs: AttentionInputs) -> Array:
    first: Array = np.arange(inputs.query.shape[1]) % inputs.key.shape[1]
    return first


def _resloped(
    inputs: AttentionInputs, *, move: Callable[[AttentionInputs, Array], Array]
) -> AttentionInputs | None:
    slopes = inputs.alibi_slopes
    return None if slopes is None else inputs.but(alibi_slopes=move(inputs, slopes))


def _upper_left_slopes(inputs: AttentionInputs) -> AttentionInputs | None:
    if inputs.alibi_slopes is None:
        return None
    row, key = np.arange(inputs.query.shape[2])[:, None], np.arange(inputs.key.shape[2])[None, :]
    bias = -inputs.alibi_slopes[None, :, None, None] * np.abs(row - key)
    plain = inputs.but(alibi_slopes=None).bias
    return with_bias(inputs, bias if plain is None else bias + plain)
