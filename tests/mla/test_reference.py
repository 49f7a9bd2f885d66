"""The float64 reference against 50 digits, against plain attention, and against the whole layer."""

import itertools

import mpmath
import numpy as np
import pytest

from equivalence.inputs import AttentionInputs
from equivalence.latent.case import MlaCase
from equivalence.latent.inputs import latent_inputs
from equivalence.latent.layer import layer_of, rotated
from equivalence.latent.reference import latent_attention, per_head
from equivalence.latent.transforms import (
    change_latent_basis,
    quarter_turn,
    refill_tokens,
    take_batch,
    take_heads,
    take_queries,
    take_tokens,
)
from equivalence.reference import attention

RICH = MlaCase(
    batch_size=2, num_heads=3, head_dim=4, value_head_dim=3, latent_dim=7, rope_dim=4, q_len=3,
    kv_len=6, dtype="float64", values="normal", weights="realistic", magnitude=3.0, seed=5,
)  # fmt: skip


def in_fifty_digits(inputs, b, h, t):
    """One output row, term by term, in 50 digits: eq. 10 to 18 of the paper."""
    with mpmath.workdps(50):
        d, dc = inputs.w_uk.shape[1:]
        dr, dv = inputs.key_rotary.shape[-1], inputs.w_uv.shape[1]
        number = mpmath.mpf
        scale = 1 / mpmath.sqrt(d + dr) if inputs.scale is None else number(inputs.scale)
        weights, values = [], []
        for j in range(inputs.latent.shape[1] - inputs.query_content.shape[2] + t + 1):
            c = [number(float(x)) for x in inputs.latent[b, j]]

            def up(w, rows, c=c):
                return [
                    mpmath.fsum(number(float(w[h, i, x])) * c[x] for x in range(dc))
                    for i in range(rows)
                ]

            key, value = up(inputs.w_uk, d), up(inputs.w_uv, dv)
            score = mpmath.fsum(number(float(inputs.query_content[b, h, t, i])) * key[i]
                                for i in range(d))  # fmt: skip
            score += mpmath.fsum(
                number(float(inputs.query_rotary[b, h, t, i]))
                * number(float(inputs.key_rotary[b, j, i]))
                for i in range(dr)
            )
            weights.append(mpmath.exp(scale * score))
            values.append(value)
        total = mpmath.fsum(weights)
        return [
            float(mpmath.fsum(w * v[e] for w, v in zip(weights, values, strict=True)) / total)
            for e in range(dv)
        ]


@pytest.mark.parametrize(
    "case",
    [
        RICH.but(batch_size=1),
        RICH.but(batch_size=1, magnitude=30.0, scale=0.5),
        MlaCase(head_dim=3, latent_dim=2, kv_len=4, dtype="float64", values="peaky",
                weights="extreme"),
        MlaCase(kv_len=3, dtype="float64"),
    ],
)  # fmt: skip
def test_the_reference_agrees_with_fifty_digits(case):
    inputs = latent_inputs(case)
    output = latent_attention(inputs).output
    for h, t in itertools.product(range(case.num_heads), range(case.q_len)):
        wanted = in_fifty_digits(inputs, 0, h, t)
        np.testing.assert_allclose(output[0, h, t], wanted, rtol=1e-12, atol=1e-13)


def test_it_is_attention_over_keys_and_values_made_of_the_latent():
    inputs = latent_inputs(RICH)
    keys, values = (per_head(inputs.latent, w) for w in (inputs.w_uk, inputs.w_uv))
    shared = np.broadcast_to(inputs.key_rotary[:, None], (*keys.shape[:3], RICH.rope_dim))
    plain = AttentionInputs(
        query=np.concatenate([inputs.query_content, inputs.query_rotary], axis=-1),
        key=np.concatenate([keys, shared], axis=-1),
        value=values,
        kv_head_of=np.arange(RICH.num_heads),
        dtype="float64",
        causal="lower_right",
    )
    exact, other = latent_attention(inputs), attention(plain)
    np.testing.assert_allclose(exact.output, other.output, rtol=1e-12)
    np.testing.assert_allclose(exact.lse, other.lse, rtol=1e-12)


def test_the_scale_counts_content_and_rotary_part_and_never_the_latent():
    for latent_dim in (1, 5, 50):
        inputs = latent_inputs(RICH.but(latent_dim=latent_dim))
        assert inputs.scale_value == pytest.approx((4 + 4) ** -0.5)


def test_rows_that_see_no_token_are_zero():
    exact = latent_attention(latent_inputs(RICH.but(q_len=4, kv_len=2)))
    assert (exact.seen[:, :, :2] == 0).all()
    assert (exact.output[:, :, :2] == 0).all()
    assert (exact.lse[:, :, :2] == -np.inf).all()


def close(first, second):
    np.testing.assert_allclose(first, second, rtol=1e-11, atol=1e-12)


def test_what_changes_nothing_changes_nothing():
    inputs = latent_inputs(RICH)
    output = latent_attention(inputs).output
    close(latent_attention(change_latent_basis(inputs, seed=1)).output, output)
    close(latent_attention(quarter_turn(inputs)).output, output)
    order = np.array([2, 0, 1])
    close(latent_attention(take_heads(inputs, order)).output, output[:, order])
    close(latent_attention(take_batch(inputs, np.array([1]))).output, output[1:])
    later = np.arange(6) > 3
    changed = latent_attention(refill_tokens(inputs, later, seed=2)).output
    close(changed[:, :, 0], output[:, :, 0])
    assert not np.allclose(changed[:, :, 2], output[:, :, 2])
    step = take_tokens(take_queries(inputs, np.array([1])), np.arange(5))
    close(latent_attention(step).output, output[:, :, 1:2])


@pytest.mark.parametrize("query_rank", [None, 5])
@pytest.mark.parametrize("latent_norm", [False, True])
def test_absorbed_and_folded_steps_equal_the_full_causal_layer(query_rank, latent_norm):
    layer = layer_of(RICH.but(kv_len=7, query_rank=query_rank, latent_norm=latent_norm))
    full = layer.full_sequence()
    for position in range(7):
        for step in (layer.absorbed_step(position), layer.folded_step(position)):
            np.testing.assert_allclose(step, full[:, position], rtol=0, atol=1e-10)
        heads = latent_attention(layer.inputs(position)).output[:, :, 0]
        np.testing.assert_allclose(
            np.einsum("mhe,bhe->bm", layer.w_o, heads), full[:, position], rtol=0, atol=1e-10
        )


def test_query_compression_changes_neither_cache_nor_exactness():
    plain, compressed = (layer_of(RICH.but(kv_len=5, query_rank=r)) for r in (None, 4))
    for one, other in zip(plain.cache(), compressed.cache(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.allclose(plain.full_sequence(), compressed.full_sequence())


def test_rotary_scores_depend_on_the_offset_alone():
    layer = layer_of(RICH.but(kv_len=6))
    key, query = layer.hidden @ layer.w_kr.T, layer.hidden @ layer.w_qr[0].T
    for shift in (0, 1, 1000):
        positions = np.arange(6) + shift
        scores = rotated(query, positions) @ rotated(key, positions).swapaxes(-1, -2)
        if shift == 0:
            first = scores
        np.testing.assert_allclose(scores, first, atol=1e-10)
