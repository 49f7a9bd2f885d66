"""Which heads, keys, rows and channels are read: of right kernels and of wrong ones."""

from __future__ import annotations

import math

import pytest
import torch

from equivalence.probes.channels import channels
from equivalence.probes.heads import head_map
from equivalence.probes.lengths import kv_lengths
from equivalence.probes.memories import memories
from equivalence.probes.visibility import causal_rule, keys_counted, window_rule
from tests.probes.asking import asker


@pytest.mark.parametrize(
    ("fault", "order"),
    [
        ({}, "grouped"),
        (
            {
                "expand_key": lambda k, g: k.repeat(1, g, 1, 1),
                "expand_value": lambda v, g: v.repeat(1, g, 1, 1),
            },
            "interleaved",
        ),
        ({"expand_value": lambda v, g: v.repeat(1, g, 1, 1)}, "keys grouped, values interleaved"),
        ({"expand_key": lambda k, g: k.repeat(1, g, 1, 1)}, "keys interleaved, values grouped"),
        (
            {
                "expand_key": lambda k, g: k[:, :1].expand(-1, k.shape[1] * g, -1, -1),
                "expand_value": lambda v, g: v[:, :1].expand(-1, v.shape[1] * g, -1, -1),
            },
            "all on head 0",
        ),
    ],
)
def test_head_map(fault, order):
    assert head_map(asker(**fault)).order == order


def test_output_heads_in_another_order_are_seen_on_the_query_side():
    found = head_map(asker(output=lambda o, *_: o[:, [0, 3, 1, 4, 2, 5]]))
    assert found.query_side == (0, 3, 1, 4, 2, 5)
    assert not found.queries_in_order


def test_mixed_heads_and_moved_batch_rows():
    assert head_map(asker(output=lambda o, *_: o.mean(1, keepdim=True).expand_as(o))).mixes_heads
    moved = head_map(asker(operands=lambda q, k, v: (q, k.flip(0), v.flip(0))))
    assert moved.batch_rows == (1, 0)


def test_softmax_over_heads_does_not_add_up():
    assert head_map(asker(probabilities=lambda s: s.softmax(1))).total == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("fault", "corner"),
    [
        ({}, "lower_right"),
        ({"causal": lambda keys, d, rows, q, k: keys <= rows}, "upper_left"),
        ({"causal": lambda keys, d, rows, q, k: keys < d}, "strict"),
        ({"causal": lambda keys, d, rows, q, k: keys <= d + 1}, "lenient"),
        ({"causal": lambda keys, d, rows, q, k: keys >= 0}, "ignored"),
        ({"causal": lambda keys, d, rows, q, k: keys <= (d if q == k else d + 99)}, "square only"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_causal_rule(fault, corner, dtype):
    assert causal_rule(asker(dtype, **fault)).corner == corner


@pytest.mark.parametrize(
    ("fault", "left", "tile"),
    [
        ({}, 2, 1),
        ({"left": lambda keys, d, left: keys >= d - left - 1}, 3, 1),
        ({"left": lambda keys, d, left: keys > d - left}, 1, 1),
        ({"left": lambda keys, d, left: keys >= 0}, -1, 1),
        ({"left": lambda keys, d, left: keys >= (d - left) // 4 * 4}, 2, 4),
    ],
)
def test_window_rule(fault, left, tile):
    found = window_rule(asker(**fault), 3)
    assert (found.left, found.right, found.tile) == (left, 0, tile)


def test_window_pair_sides():
    found = window_rule(asker(right=lambda keys, d, right: keys <= d + right + 1), (2, 1))
    assert (found.left, found.right, found.expected) == (2, 2, (2, 1))


def test_keys_that_are_missing_or_count_twice():
    def drop_tail(scores):
        whole = scores.shape[-1] // 16 * 16 or scores.shape[-1]
        scores = scores.clone()
        scores[..., whole:] = -math.inf
        return scores.softmax(-1)

    def double_last(scores):
        weights = scores.exp()
        weights[..., -1] *= 2
        return weights / weights.sum(-1, keepdim=True)

    def padded(scores):
        return scores.exp() / (scores.exp().sum(-1, keepdim=True) + -scores.shape[-1] % 16)

    assert keys_counted(asker(probabilities=drop_tail)).missing == (32, 33, 34, 35, 36)
    assert keys_counted(asker(probabilities=double_last)).duplicated == (36,)
    assert keys_counted(asker(probabilities=padded)).total == pytest.approx(37 / 48, rel=1e-3)


def test_kv_lengths():
    assert kv_lengths(asker()).right
    assert kv_lengths(asker()).causal_from == "length"
    ignored = kv_lengths(asker(lengths=lambda n, kv_len: torch.full((len(n), 1, 1, 1), kv_len)))
    assert ignored.seen == (tuple(range(6)),) * 2
    fixed = kv_lengths(asker(diagonal=lambda right, rows, n, q, k: rows + k - q))
    assert fixed.causal_from == "kv_len"


def test_channels():
    assert channels(asker()).silent == ()
    cut = channels(asker(operands=lambda q, k, v: (q[..., :64], k[..., :64], v)))
    assert cut.silent == tuple(range(64, 80))
    turned = channels(asker(operands=lambda q, k, v: (q, k, torch.roll(v, 1, -1))))
    assert len(turned.moved) == 80


def test_memories():
    assert memories(asker()).wrong == ()

    def raw(query, key, value):
        return query, key.as_strided(key.shape, torch.empty(key.shape).stride()), value

    assert "bshd" in memories(asker(operands=raw)).wrong
