"""A case is its own text; its defaults are the smallest case; a bad field is refused by value."""

import dataclasses

import pytest
from hypothesis import given, settings

from equivalence.case import AttentionCase, HeadLayout
from equivalence.domain import Domain
from equivalence.errors import InvalidRequest
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.replay import case_text, parse_case
from equivalence.strategies.attention import attention_cases

CONSTRUCTORS = {"AttentionCase": AttentionCase, "Mask": Mask, "HeadLayout": HeadLayout}
EVERYTHING = Domain(
    causal=(None, "lower_right", "upper_left"), mask_and_causal=True, windows=("int", "pair"),
    head_orders=("grouped", "interleaved"), softcap=True, sinks=True, alibi=True, kv_lengths=True,
)  # fmt: skip


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(case=attention_cases(EVERYTHING))
def test_the_text_of_a_case_is_the_case(case):
    assert eval(repr(case), dict(CONSTRUCTORS)) == case  # noqa: S307
    assert parse_case(repr(case)) == case
    assert parse_case(case_text(case)) == case
    assert hash(parse_case(repr(case))) == hash(case)


def test_only_what_differs_from_the_defaults_is_printed():
    assert repr(AttentionCase()) == "AttentionCase()"
    assert repr(Mask()) == "Mask()"
    assert repr(HeadLayout(num_kv_heads=2)) == "HeadLayout(num_kv_heads=2)"
    case = AttentionCase(num_kv_heads=2, group_size=2, mask=Mask(axes="h", size=3), window=(1, -1))
    assert repr(case) == (
        "AttentionCase(num_kv_heads=2, group_size=2, window=(1, -1), mask=Mask(axes='h', size=3))"
    )
    assert repr(case.but(window=None, mask=None, num_kv_heads=1, group_size=1)) == "AttentionCase()"


def test_the_defaults_are_the_smallest_legal_case():
    inputs = attention_inputs(AttentionCase())
    for operand in (inputs.query, inputs.key, inputs.value):
        assert operand.shape == (1, 1, 1, 1)
    for field in dataclasses.fields(AttentionCase):
        value = field.default
        if isinstance(value, int) and not isinstance(value, bool) and value:
            # No size goes below its default, but for a sequence without keys.
            assert field.name == "kv_len" or refused(**{field.name: value - 1})
        elif not isinstance(value, str | float):
            assert not value, field.name  # no option is on


def refused(**fields):
    with pytest.raises(InvalidRequest) as caught:
        AttentionCase(**fields)
    return str(caught.value)


BAD = [
    ({"batch_size": 0}, "batch_size=0 must be at least 1"),
    ({"num_kv_heads": 0}, "num_kv_heads=0 must be at least 1"),
    ({"group_size": -2}, "group_size=-2 must be at least 1"),
    ({"q_len": 0}, "q_len=0 must be at least 1"),
    ({"kv_len": -1}, "kv_len=-1 must not be negative"),
    ({"head_dim": 0}, "head_dim=0 must be at least 1"),
    ({"head_dim": 1.5}, "head_dim=1.5 is not a whole number"),
    ({"q_len": True}, "q_len=True is not a whole number"),
    ({"value_head_dim": 0}, "value_head_dim=0 must be at least 1"),
    ({"dtype": "float8"}, "dtype='float8' is not one of"),
    ({"head_order": "paired"}, "head order 'paired' is not one of"),
    (
        {"head_order": (0, 1)},
        "head order (0, 1) must name a key/value head in 0..0 for each of the 1",
    ),
    ({"head_order": (1,)}, "head order (1,) must name a key/value head in 0..0"),
    ({"causal": "upper_right"}, "causal='upper_right' is neither None nor one of"),
    ({"causal": True}, "causal=True is neither None nor one of"),
    ({"window": 0}, "window=0 must be at least 1"),
    ({"window": (1,)}, "window=(1,) must be (left, right)"),
    ({"window": (-2, 0)}, "window=(-2, 0) must be (left, right), whole numbers of at least -1"),
    ({"window": 1.5}, "window=1.5 is not a whole number"),
    ({"mask": "causal"}, "mask='causal' is not a Mask"),
    ({"softcap": 0.0}, "softcap=0.0 must be positive"),
    ({"softcap": -1.0}, "softcap=-1.0 must be positive"),
    ({"kv_lengths": (1, 1)}, "kv_lengths=(1, 1) must hold 1 numbers in 0..1"),
    ({"kv_lengths": (2,)}, "kv_lengths=(2,) must hold 1 numbers in 0..1"),
    ({"values": "gaussian"}, "values='gaussian' is not one of"),
    ({"memory": "strided"}, "memory='strided' is not one of"),
    ({"seed": -1}, "seed=-1 must not be negative"),
    ({"plants": (("output", 0, 0, 1.0),)}, "holds ('output', 0, 0, 1.0), which is not"),
    ({"plants": (("key", -1, 0, 1.0),)}, "holds ('key', -1, 0, 1.0), which is not"),
    ({"plants": (("key", 0, 1.0),)}, "holds ('key', 0, 1.0), which is not"),
]


@pytest.mark.parametrize(("fields", "text"), BAD, ids=[str(fields) for fields, _ in BAD])
def test_a_bad_field_is_refused(fields, text):
    assert text in refused(**fields)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"pattern": "stairs"}, "pattern='stairs' is not one of"),
        ({"form": "int"}, "form='int' is not one of"),
        ({"axes": "qb"}, "axes='qb' is not one of"),
        ({"hidden": "-1e9"}, "hidden='-1e9' is not one of"),
        ({"size": 0}, "size=0 must be at least 1"),
        ({"size": 2.5}, "size=2.5 is not a whole number"),
        ({"empty_rows": -1}, "empty_rows=-1 must not be negative"),
        ({"seed": -1}, "seed=-1 must not be negative"),
        ({"bias": 1.0}, "bias=1.0 and hidden='-inf' need form='float'"),
        ({"hidden": "-1e4"}, "bias=0.0 and hidden='-1e4' need form='float'"),
    ],
)
def test_a_bad_mask_is_refused(fields, text):
    with pytest.raises(InvalidRequest) as caught:
        Mask(**fields)
    assert text in str(caught.value)


def test_head_maps():
    assert HeadLayout(num_kv_heads=2, group_size=3).kv_head_of == (0, 0, 0, 1, 1, 1)
    both = HeadLayout(num_kv_heads=2, group_size=3, order="interleaved")
    assert both.kv_head_of == (0, 1, 0, 1, 0, 1)
    assert HeadLayout(num_kv_heads=2, order=(1, 0)).kv_head_of == (1, 0)
    assert AttentionCase(num_kv_heads=2, group_size=3).num_heads == 6
    assert AttentionCase(window=3).band == (2, 0)
    assert AttentionCase(window=(3, -1)).band == (3, -1)
    assert (AttentionCase(head_dim=4).v_dim, AttentionCase(value_head_dim=2).v_dim) == (4, 2)
