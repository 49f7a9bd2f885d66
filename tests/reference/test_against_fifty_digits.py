"""The float64 reference against the definition at 50 digits, written a second time."""

import mpmath
import numpy as np
import pytest

from equivalence.case import AttentionCase
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.reference import attention
from tests.reference import fifty_digits

SHAPE = {"q_len": 3, "kv_len": 5, "head_dim": 3, "values": "normal", "dtype": "float64"}
GROUPED = {**SHAPE, "batch_size": 2, "num_kv_heads": 2, "group_size": 2}

CASES = {
    "plain": AttentionCase(**SHAPE),
    "scale": AttentionCase(**SHAPE, scale=-0.3),
    "peaked": AttentionCase(**SHAPE, magnitude=30.0),
    "grouped": AttentionCase(**GROUPED),
    "interleaved": AttentionCase(**GROUPED, head_order="interleaved"),
    "explicit": AttentionCase(**GROUPED, head_order=(1, 0, 0, 1)),
    "uneven explicit": AttentionCase(**GROUPED, head_order=(1, 1, 1, 0)),
    "wide values": AttentionCase(**SHAPE, value_head_dim=4),
    "softcap": AttentionCase(**SHAPE, softcap=1.3, magnitude=3.0),
    "sinks": AttentionCase(**GROUPED, sinks=True),
    "sinks outweigh": AttentionCase(
        **GROUPED, sinks=True, mask=Mask(form="float", hidden="-1e4", empty_rows=1)
    ),
    "alibi": AttentionCase(**GROUPED, alibi=True),
    "lengths": AttentionCase(**GROUPED, kv_lengths=(2, 5), alibi=True),
    "a length of zero": AttentionCase(**GROUPED, kv_lengths=(0, 4), causal="lower_right"),
    "lower right": AttentionCase(**SHAPE, causal="lower_right"),
    "upper left": AttentionCase(**SHAPE, causal="upper_left"),
    "more queries than keys": AttentionCase(**{**SHAPE, "q_len": 6}, causal="lower_right"),
    "window": AttentionCase(**SHAPE, window=2),
    "window of one": AttentionCase(**SHAPE, window=1, causal="lower_right"),
    "two-sided window": AttentionCase(**SHAPE, window=(1, 1)),
    "open window": AttentionCase(**SHAPE, window=(-1, 0)),
    "bool mask": AttentionCase(**GROUPED, mask=Mask(pattern="random", axes="bhq", size=60)),
    "bool mask per head": AttentionCase(**GROUPED, mask=Mask(pattern="padding", axes="h", size=4)),
    "bias": AttentionCase(**GROUPED, mask=Mask(form="float", axes="bq", bias=2.0)),
    "bias and hidden": AttentionCase(
        **GROUPED, mask=Mask(pattern="window", form="float", axes="hq", size=2, bias=1.0)
    ),
    "all at -1e4": AttentionCase(
        **SHAPE, mask=Mask(form="float", hidden="-1e4", empty_rows=2, bias=1.0)
    ),
    "empty rows": AttentionCase(**GROUPED, mask=Mask(empty_rows=2), sinks=True),
    "no keys": AttentionCase(**{**SHAPE, "kv_len": 0}),
    "everything": AttentionCase(
        **GROUPED, causal="lower_right", window=(2, 0), softcap=2.0, sinks=True, alibi=True,
        kv_lengths=(4, 5), scale=0.7, mask=Mask(pattern="random", form="float", size=80, bias=1.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_output_and_log_sum_exp(name):
    inputs = attention_inputs(CASES[name])
    found = attention(inputs)
    outputs, sums = fifty_digits.attention(inputs)
    # Rounding errors of float64 are relative to the largest values, not to what is left of them.
    allowed = 1e-12 * max(1.0, float(np.abs(inputs.value).max(initial=0.0)))
    for place in np.ndindex(*found.output.shape):
        b, h, i, e = place
        assert abs(mpmath.mpf(float(found.output[place])) - outputs[b][h][i][e]) < allowed, place
    for b, h, i in np.ndindex(*found.lse.shape):
        expected = sums[b][h][i]
        if expected is None:
            assert found.lse[b, h, i] == -np.inf
            assert not found.output[b, h, i].any()
        else:
            assert abs(float(found.lse[b, h, i]) - float(expected)) <= 1e-12 * (
                1 + abs(float(expected))
            )


@pytest.mark.parametrize("name", CASES)
def test_visible_pairs(name):
    inputs = attention_inputs(CASES[name])
    found = attention(inputs)
    for b, h, i, j in np.ndindex(*found.visible.shape):
        assert found.visible[b, h, i, j] == fifty_digits.sees(inputs, b, h, i, j), (b, h, i, j)


def test_a_float64_answer_keeps_its_relative_precision_where_nothing_cancels():
    inputs = attention_inputs(AttentionCase(kv_len=3, values="one_hot", dtype="float64"))
    inputs = inputs.but(query=np.full((1, 1, 1, 1), 1.0), key=np.array([[[[0.0], [-300], [-600]]]]))
    inputs = inputs.but(value=np.array([[[[0.0], [0.0], [1.0]]]]))
    (((expected,),),), _ = fifty_digits.attention(inputs)
    found = attention(inputs).output[0, 0, 0, 0]
    assert abs(found / float(expected[0]) - 1) < 1e-12
