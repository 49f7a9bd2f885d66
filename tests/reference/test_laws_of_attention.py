"""What attention must obey whatever its numbers are, asked of the float64 reference itself."""

import numpy as np
import pytest

from equivalence.case import AttentionCase
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.reference import attention

PLAIN = AttentionCase(
    batch_size=2, num_kv_heads=2, group_size=3, q_len=5, kv_len=7, head_dim=4, value_head_dim=3,
    dtype="float64", values="normal",
)  # fmt: skip
RICH = {
    "plain": PLAIN,
    "causal": PLAIN.but(causal="lower_right"),
    "softcap": PLAIN.but(softcap=2.0, magnitude=3.0),
    "bias": PLAIN.but(mask=Mask(form="float", axes="bhq", bias=1.0, pattern="random", size=70)),
    "sinks": PLAIN.but(sinks=True),
    "alibi": PLAIN.but(alibi=True, window=3),
}
on_each = pytest.mark.parametrize("name", RICH)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


def given(name):
    return attention_inputs(RICH[name])


@pytest.mark.parametrize("name", ["plain", "causal", "bias", "alibi"])
def test_adding_one_number_to_all_scores_changes_nothing(name):
    inputs = given(name)
    mask = np.zeros((1, 1, 1, 7)) if inputs.mask is None else inputs.mask
    found, shifted = attention(inputs), attention(inputs.but(mask=mask + 3.25))
    close(shifted.output, found.output)
    close(shifted.lse, found.lse + 3.25)


@pytest.mark.parametrize("name", ["plain", "softcap", "sinks"])
def test_the_order_of_keys_does_not_matter(name):
    inputs, order = given(name), [3, 0, 6, 2, 5, 1, 4]
    moved = inputs.but(key=inputs.key[:, :, order], value=inputs.value[:, :, order])
    close(attention(moved).output, attention(inputs).output)


@pytest.mark.parametrize("name", ["plain", "softcap", "sinks"])
def test_queries_are_independent(name):
    inputs = given(name)
    order = [4, 2, 0]
    moved = inputs.but(query=inputs.query[:, :, order])
    close(attention(moved).output, attention(inputs).output[:, :, order])


@on_each
def test_batch_rows_are_independent(name):
    inputs = given(name)
    mask = inputs.mask
    row = inputs.but(
        query=inputs.query[1:], key=inputs.key[1:], value=inputs.value[1:],
        mask=mask if mask is None or len(mask) == 1 else mask[1:],
    )  # fmt: skip
    close(attention(row).output, attention(inputs).output[1:])


@on_each
def test_the_output_is_linear_in_the_values(name):
    inputs = given(name)
    other = np.random.default_rng(2).normal(size=inputs.value.shape)
    found = attention(inputs.but(value=2.0 * inputs.value - 3.0 * other)).output
    parts = 2.0 * attention(inputs).output - 3.0 * attention(inputs.but(value=other)).output
    close(found, parts)


@on_each
def test_probabilities_are_those_of_a_distribution(name):
    found = attention(given(name))
    total = found.probabilities.sum(-1)
    if found.sink_probability is not None:
        total = total + found.sink_probability
    close(total, np.ones_like(total))
    assert (found.probabilities[found.visible] >= 0).all()
    assert not found.probabilities[~found.visible].any()


@on_each
def test_shared_heads_are_copies(name):
    inputs = given(name)
    heads = inputs.kv_head_of
    copied = inputs.but(
        key=inputs.key[:, heads], value=inputs.value[:, heads], kv_head_of=np.arange(6)
    )
    close(attention(copied).output, attention(inputs).output)


@pytest.mark.parametrize(
    ("order", "reads"),
    [("grouped", [0, 0, 0, 1, 1, 1]), ("interleaved", [0, 1] * 3), ((1, 1, 0, 1, 0, 0),) * 2],
)
def test_each_query_head_reads_its_kv_head(order, reads):
    inputs = attention_inputs(PLAIN.but(head_order=order))
    found = attention(inputs).output
    for head, kv_head in enumerate(reads):
        alone = inputs.but(
            query=inputs.query[:, [head]], key=inputs.key[:, [kv_head]],
            value=inputs.value[:, [kv_head]], kv_head_of=np.zeros(1, int),
        )  # fmt: skip
        close(attention(alone).output, found[:, [head]])


EQUALS = {
    "lower_right": (PLAIN.but(causal="lower_right"), Mask(pattern="causal_lower_right")),
    "upper_left": (PLAIN.but(causal="upper_left"), Mask(pattern="causal_upper_left")),
    "window": (PLAIN.but(window=3), Mask(pattern="window", size=3)),
    "open band is causal": (PLAIN.but(window=(-1, 0)), Mask(pattern="causal_lower_right")),
    "band": (PLAIN.but(window=(2, 0)), Mask(pattern="window", size=3)),
    "padding": (PLAIN.but(kv_lengths=(4, 4)), Mask(pattern="padding", size=4, axes="")),
    "no limit": (PLAIN.but(window=(-1, -1)), None),
}


@pytest.mark.parametrize("name", EQUALS)
@pytest.mark.parametrize("form", ["bool", "float"])
def test_an_option_is_the_mask_that_it_stands_for(name, form):
    case, mask = EQUALS[name]
    if mask is not None and form == "float":
        mask = Mask(pattern=mask.pattern, size=mask.size, axes=mask.axes, form="float")
    close(
        attention(attention_inputs(case)).output,
        attention(attention_inputs(PLAIN.but(mask=mask))).output,
    )


def test_alibi_is_a_bias():
    inputs = attention_inputs(PLAIN.but(alibi=True))
    distance = np.abs(np.arange(5)[:, None] + 2 - np.arange(7))
    bias = -inputs.alibi_slopes[None, :, None, None] * distance
    close(
        attention(inputs.but(alibi_slopes=None, mask=bias)).output,
        attention(inputs).output,
    )
    assert np.ptp(attention(inputs).output - attention(attention_inputs(PLAIN)).output) > 1e-3


def test_a_length_is_a_shorter_sequence():
    inputs = attention_inputs(PLAIN.but(kv_lengths=(4, 7), causal="lower_right", alibi=True))
    found = attention(inputs).output
    short = inputs.but(
        query=inputs.query[:1], key=inputs.key[:1, :, :4], value=inputs.value[:1, :, :4],
        kv_lengths=None,
    )  # fmt: skip
    close(attention(short).output, found[:1])


def test_a_sink_is_one_more_key_without_a_value():
    inputs = attention_inputs(PLAIN.but(sinks=True, head_dim=4))
    query = np.concatenate([inputs.query, np.full((2, 6, 5, 1), 2.0)], axis=-1)
    key = np.concatenate([inputs.key, np.zeros((2, 2, 7, 1))], axis=-1)
    outputs = []
    for head in range(6):
        kv_head = inputs.kv_head_of[head]
        extra = np.zeros((2, 1, 1, 5))
        extra[..., -1] = inputs.sinks[head]  # scale 0.5 times 2 is one
        outputs.append(
            attention(
                inputs.but(
                    query=query[:, [head]], scale=0.5, sinks=None, kv_head_of=np.zeros(1, int),
                    key=np.concatenate([key[:, [kv_head]], extra], axis=2),
                    value=np.concatenate(
                        [inputs.value[:, [kv_head]], np.zeros((2, 1, 1, 3))], axis=2
                    ),
                )
            ).output
        )  # fmt: skip
    close(np.concatenate(outputs, axis=1), attention(inputs).output)


def test_a_large_softcap_is_none_and_a_small_one_flattens():
    close(
        attention(attention_inputs(PLAIN.but(softcap=1e8))).output,
        attention(attention_inputs(PLAIN)).output,
    )
    flat = attention(attention_inputs(PLAIN.but(softcap=1e-9)))
    np.testing.assert_allclose(flat.probabilities, 1 / 7, rtol=1e-8)


@pytest.mark.parametrize("name", ["plain", "softcap", "bias"])  # no positions, and no sink
def test_two_halves_of_the_keys_merge_by_their_log_sum_exp(name):
    inputs = given(name)
    parts = []
    for keys in (slice(0, 3), slice(3, 7)):
        mask = inputs.mask
        parts.append(
            attention(
                inputs.but(
                    key=inputs.key[:, :, keys], value=inputs.value[:, :, keys],
                    mask=None if mask is None else mask[..., keys],
                )
            )
        )  # fmt: skip
    total = np.logaddexp(parts[0].lse, parts[1].lse)
    close(total, attention(inputs).lse)
    merged = sum(np.exp(p.lse - total)[..., None] * p.output for p in parts)
    close(merged, attention(inputs).output)
