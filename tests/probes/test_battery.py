"""Each probe on a right kernel, and on one with a mistake that it has to name."""

from __future__ import annotations

import json
import math

import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.domain import Domain
from equivalence.outcome import Outcome
from equivalence.probes import Asker, NotAnswered, battery, card_lines
from equivalence.probes.channels import channels
from equivalence.probes.empty_rows import empty_rows
from equivalence.probes.heads import head_map
from equivalence.probes.lengths import kv_lengths
from equivalence.probes.masks import bool_mask, float_mask, mask_axes
from equivalence.probes.memories import memories
from equivalence.probes.nans import nans
from equivalence.probes.precision import precision
from equivalence.probes.scale import default_scale, given_scale
from equivalence.probes.sentinel import mask_constant
from equivalence.probes.sinks import sink_use
from equivalence.probes.softcap import softcap
from equivalence.probes.stability import stability
from equivalence.probes.visibility import causal_rule, keys_counted, window_rule
from equivalence.sizes import Sizes
from tests.probes.kernels import broken

EVERYTHING = Domain(
    windows=("int", "pair"), softcap=True, sinks=True, kv_lengths=True, mask_and_causal=True
)
DTYPES = ["float64", "float32", "float16", "bfloat16"]


def asker(dtype="float32", domain=EVERYTHING, **fault):
    return Asker(LocalTarget.of(broken(**fault), name="kernel"), domain, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_right_kernel_has_a_short_card(dtype):
    card = battery(LocalTarget.of(broken(), name="eager"), EVERYTHING, dtype)
    profile = {"float64": "f64", "float32": "f32"}.get(dtype, "flash")
    assert card_lines(card) == [
        "grouped heads, lower-right causal, window 3 including self, window (2, 1), "
        f"scale 1/sqrt(36), softcap tanh, sinks natural, profile {profile}, masked rows zeros",
        "NaN in a value slot hidden by kv_lengths reaches the output",
    ]
    assert 26 <= card.calls <= 60


def test_facts_are_strict_json():
    card = battery(LocalTarget.of(broken(), name="eager"), EVERYTHING, "float32")
    facts = json.loads(json.dumps(card.facts(), allow_nan=False))
    assert facts["mask_constant"]["value"] == "-inf"
    assert facts["heads"]["value_side"] == [0, 0, 0, 1, 1, 1]


def test_a_kernel_that_takes_little_is_asked_little():
    def narrow(query, key, value):
        assert query.shape[-1] == 64
        assert key.shape[2] % 16 == 0
        return broken()(query, key, value, is_causal=True)

    domain = Domain(
        head_dims=(64,),
        kv_lens=(16, 32, 64),
        causal=("lower_right",),
        masks=(),
        scale=False,
        value_head_dim_differs=False,
        memories=("contiguous",),
        longer_queries=False,
    )
    card = battery(LocalTarget.of(narrow, name="narrow"), domain, "float32")
    assert card_lines(card)[0] == (
        "grouped heads, lower-right causal, scale 1/sqrt(64), profile f32"
    )
    assert card.softcap == NotAnswered(why="the target takes no softcap")


def test_a_kernel_that_always_raises_gives_answers_not_exceptions():
    def hopeless(query, key, value):
        raise RuntimeError("no such kernel")

    card = battery(LocalTarget.of(hopeless, name="hopeless"), Domain(), "float32")
    assert isinstance(card.heads, NotAnswered)
    assert "heads: not answered (raised: RuntimeError: no such kernel)" in card_lines(card)


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


@pytest.mark.parametrize(
    ("fault", "meaning"),
    [
        ({}, "attend"),
        ({"mask": lambda m, *_: ~m}, "hide"),
        ({"mask": lambda m, *_: m.float()}, "number"),
        ({"mask": lambda m, *_: torch.ones_like(m)}, "ignored"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bool_mask(fault, meaning, dtype):
    assert bool_mask(asker(dtype, **fault)).meaning == meaning


def test_float_mask_factor():
    assert float_mask(asker()).factor == pytest.approx(1, abs=1e-5)
    assert float_mask(asker(mask=lambda m, *_: m / 4)).factor == pytest.approx(0.25, abs=1e-5)
    assert not float_mask(asker(mask=lambda m, *_: m.clamp(min=-3))).hides


def test_mask_axes():
    right = mask_axes(asker())
    assert right.batch_right
    assert right.head_right

    def as_heads(mask, query_shape, key_shape, group):
        if mask.shape[0] == key_shape[1] and mask.shape[1] == 1:
            return mask.transpose(0, 1).repeat_interleave(group, 1)
        return mask

    assert mask_axes(asker(mask=as_heads)).by_batch == ((0, 0, 1, 1), (0, 0, 1, 1))

    def folded(mask, query_shape, key_shape, group):
        if mask.shape[1] == 1:
            return mask
        return mask.unflatten(1, (group, -1)).transpose(1, 2).flatten(1, 2)

    assert mask_axes(asker(mask=folded)).by_head == (0, 2, 4, 1, 3, 5)


@pytest.mark.parametrize("value", [-1e4, -1e9, -100.0])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_mask_constant(value, dtype):
    assert mask_constant(asker(dtype)).value == -math.inf
    assert mask_constant(asker(dtype, hidden=value)).value == value


@pytest.mark.parametrize(
    ("scale", "source"),
    [
        (lambda f, q, s: f, "1/sqrt(36)"),
        (lambda f, q, s: (q.shape[1] * q.shape[-1]) ** -0.5, "1/sqrt(144), the model dim"),
        (lambda f, q, s: 64**-0.5, "1/sqrt(64), the padded head_dim"),
        (lambda f, q, s: 40**-0.5, "1/sqrt(40), the padded head_dim"),
        (lambda f, q, s: 1.0, "1, not scaled"),
        (lambda f, q, s: f / math.log(2), "1/sqrt(36) times log2(e)"),
        (lambda f, q, s: f * f, "1/sqrt(36) twice"),
        (lambda f, q, s: 0.123, "unknown"),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scale_source(scale, source, dtype):
    assert default_scale(asker(dtype, scale=scale)).source == source


@pytest.mark.parametrize(
    ("dtype", "error"),
    [("float64", 1e-9), ("float32", 1e-6), ("float16", 1e-4), ("bfloat16", 1e-4)],
)
@pytest.mark.parametrize("true", [0.0123, 0.16666, 0.9, 3.3])
def test_scale_is_measured_to_the_stated_error(dtype, error, true):
    found = default_scale(asker(dtype, scale=lambda f, q, s: true))
    assert found.value == pytest.approx(true, rel=error)


def test_given_scale():
    assert given_scale(asker()).right
    assert given_scale(asker(scale=lambda f, q, s: q.shape[-1] ** -0.5)).source == "1/sqrt(36)"
    twice = given_scale(asker(scale=lambda f, q, s: f * q.shape[-1] ** -0.5))
    assert twice.source == "given times the default"


@pytest.mark.parametrize(
    ("cap", "shape"),
    [
        (lambda right, c: right, "tanh"),
        (lambda s, c: s, "ignored"),
        (lambda s, c: s.clamp(-c, c), "clip"),
        (lambda s, c: torch.tanh(s / c), "tanh without c"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_softcap_shape(cap, shape, dtype):
    fault = {} if shape == "tanh" else {"softcap": lambda s, c, bias: cap(s, c)}
    questions = asker(dtype, **fault)
    assert softcap(questions, default_scale(questions)).shape == shape


def test_softcap_order():
    questions = asker()
    right = softcap(questions, default_scale(questions))
    assert right.right

    def after_bias(scores, cap, bias):
        bias = torch.zeros(()) if bias is None else bias
        return cap * torch.tanh((scores + bias) / cap) - torch.nan_to_num(bias)

    late = asker(softcap=after_bias)
    assert softcap(late, default_scale(late)).after_bias is True


def test_softcap_after_the_mask():
    def late(query, key, value, *, attn_mask=None, softcap=None):
        scores = query @ key.mT * query.shape[-1] ** -0.5
        if attn_mask is not None:
            attn_mask = attn_mask if attn_mask.dtype != torch.bool else attn_mask.float().log()
            scores = scores + attn_mask
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        return scores.softmax(-1) @ value

    questions = Asker(LocalTarget.of(late, name="late"), EVERYTHING, "float32")
    assert softcap(questions, NotAnswered(why="")).after_mask is True


@pytest.mark.parametrize(
    ("fault", "use"),
    [
        ({}, "natural"),
        ({"sink": lambda extra, s, top, f: torch.zeros_like(extra)}, "ignored"),
        ({"sink": lambda e, s, top, f: torch.exp(s[None, :, None, None] * f - top)}, "scaled"),
        (
            {"sink": lambda e, s, top, f: torch.exp(s.flip(0)[None, :, None, None] - top)},
            "other heads",
        ),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sinks(fault, use, dtype):
    assert sink_use(asker(dtype, **fault)).use == use


def test_missing_subtraction_of_the_maximum():
    assert stability(asker()).subtracts_max
    naive = stability(asker(probabilities=lambda s: s.exp() / s.exp().sum(-1, keepdim=True)))
    assert not naive.subtracts_max
    assert naive.fails_at == 100


def test_products_that_overflow_before_the_scale():
    def in_half(dots, factor, query, key):
        return (query @ key.mT * factor).float()

    assert stability(asker("float16", scores=lambda *a: in_half(*a))).dots_overflow
    assert not stability(asker("float16")).dots_overflow


def test_nan_leaks_and_laundering():
    leaky = nans(asker())
    assert (leaky.value_leaks, leaky.key_leaks, leaky.laundered) == (True, False, ())
    washed = nans(asker(output=lambda o, *_: torch.nan_to_num(o)))
    assert washed.value_leaks is False
    assert washed.laundered == ("query", "key", "value")


@pytest.mark.parametrize(
    ("fault", "policy"),
    [
        ({}, "zeros"),
        ({"probabilities": lambda s: s.softmax(-1)}, "nan"),
        ({"hidden": -1e9}, "uniform"),
    ],
)
def test_empty_rows(fault, policy):
    found = empty_rows(asker(**fault))
    assert dict(found.by)["bool mask"] == policy


def test_memories():
    assert memories(asker()).wrong == ()

    def raw(query, key, value):
        return query, key.as_strided(key.shape, torch.empty(key.shape).stride()), value

    assert "bshd" in memories(asker(operands=raw)).wrong


def test_a_target_of_one_size_is_asked_at_that_size():
    sizes = Sizes(num_kv_heads=2, group_size=4, head_dim=64, q_lens=(8,), kv_lens=(128,))
    asked = asker(domain=Domain(**sizes.limits()))
    taken = {"query": (1, 8, 8, 64), "key": (1, 2, 128, 64), "value": (1, 2, 128, 64)}
    shapes = set()
    call = asked.target.call
    asked.target = Recording(call, shapes)
    heads = head_map(asked)
    assert heads.query_side == tuple(range(8))
    assert heads.order == "grouped"
    assert default_scale(asked).right
    assert channels(asked).silent == ()
    assert stability(asked).subtracts_max
    assert shapes == {tuple(taken.values())}


class Recording:
    """A target that writes down the shapes that it is called with."""

    def __init__(self, call, shapes):
        self._call, self._shapes = call, shapes

    def call(self, inputs, **more):
        self._shapes.add((inputs.query.shape, inputs.key.shape, inputs.value.shape))
        return self._call(inputs, **more)


def test_channels():
    assert channels(asker()).silent == ()
    cut = channels(asker(operands=lambda q, k, v: (q[..., :64], k[..., :64], v)))
    assert cut.silent == tuple(range(64, 80))
    turned = channels(asker(operands=lambda q, k, v: (q, k, torch.roll(v, 1, -1))))
    assert len(turned.moved) == 80


def test_kv_lengths():
    assert kv_lengths(asker()).right
    assert kv_lengths(asker()).causal_from == "length"
    ignored = kv_lengths(asker(lengths=lambda n, kv_len: torch.full((len(n), 1, 1, 1), kv_len)))
    assert ignored.seen == (tuple(range(6)),) * 2
    fixed = kv_lengths(asker(diagonal=lambda right, rows, n, q, k: rows + k - q))
    assert fixed.causal_from == "kv_len"


@pytest.mark.parametrize(
    ("dtype", "fault", "profile"),
    [
        ("float16", {}, "flash"),
        ("bfloat16", {}, "flash"),
        ("float32", {"probs": lambda p, keep: p.bfloat16().float()}, "bf16_inside"),
        ("float32", {"probs": lambda p, keep: p.half().float()}, "f16_inside"),
        ("float64", {"probs": lambda p, keep: p.float().double()}, "single"),
    ],
)
def test_precision(dtype, fault, profile):
    assert precision(asker(dtype, **fault)).profile == profile


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_stored_scores_are_profile_eager_and_prescaled_operands_math(dtype):
    def eager(query, key, value):
        scores = query @ key.mT * query.shape[-1] ** -0.5
        return scores.float().softmax(-1).to(query.dtype) @ value

    def math_kernel(query, key, value):
        root = query.shape[-1] ** -0.25
        scores = (query * root) @ (key * root).mT
        return scores.float().softmax(-1).to(query.dtype) @ value

    found = [
        precision(Asker(LocalTarget.of(f, name="f"), Domain(group_size=(1, 1)), dtype)).profile
        for f in (eager, math_kernel)
    ]
    assert found == ["eager", "math"]


def test_a_wrong_shape_is_no_answer():
    class Flat:
        name, declaration, options = "flat", None, {}

        def call(self, inputs, *, output_gradient=None):
            return Outcome(status="returned", stored=inputs.query[0], dtype="float32")

    found = keys_counted(Asker(Flat(), Domain(), "float32"))
    assert isinstance(found, NotAnswered)
    assert "returned shape" in found.why


def test_a_target_of_a_single_key_is_asked_what_can_be_asked():
    right = broken()

    def single_key(query, key, value, *, attn_mask=None, scale=None, softcap=None):
        if key.shape[2] != 1:
            raise ValueError("one key")
        return right(query, key, value, attn_mask=attn_mask, scale=scale, softcap=softcap)

    domain = EVERYTHING.but(kv_lens=(1,), windows=(), sinks=False, kv_lengths=False)
    card = battery(LocalTarget.of(single_key, name="single key"), domain, "float32")
    assert isinstance(card.float_mask, NotAnswered)
    assert isinstance(card.softcap, NotAnswered)
    assert "a single key only" in card.softcap.why
    assert not isinstance(card.heads, NotAnswered)
