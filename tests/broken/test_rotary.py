"""Every mistake of the rotary collection is seen, named, and shown on the case stated here."""

import pytest

from equivalence.engine import Request, check_target
from equivalence.kinds import kind_named
from equivalence.rope.case import RotaryCase
from equivalence.rope.scaling import RopeScaling
from tests.broken import rotary_kernels as kernels

TURNED = RotaryCase(start=1)
TWO_PAIRS = RotaryCase(head_dim=4, start=1)
PARTIAL = RotaryCase(head_dim=4, rotary_dim=2, start=1)
LINEAR = RopeScaling(rope_type="linear")
YARN = RopeScaling(rope_type="yarn")

# name: (diagnosis, a piece of its text, the smallest case; None: two channels or four, two tokens)
COLLECTION = {
    "mixed_layout": ("rotary-layout", "no rotation", TWO_PAIRS),
    "deinterleaves_and_leaves": (
        "rotary-layout",
        "permuted from neighbours to half order",
        RotaryCase(head_dim=4),
    ),
    "turns_all_channels": ("rotary-layout", "rotary_dim is ignored", PARTIAL),
    "pairs_across_the_head": ("rotary-layout", "(i, i + head_dim / 2)", PARTIAL),
    "turns_half_of_them": ("rotary-layout", "half of rotary_dim does not turn", TWO_PAIRS),
    "other_pairing": ("rotary-layout", "--declare pairing=interleaved", TWO_PAIRS),
    "turns_backwards": ("rotary-layout", "backwards", TURNED),
    "factor_applied_twice": ("rotary-scaling", "applied twice", RotaryCase(scaling=YARN)),
    "attention_factor_dropped": (
        "rotary-scaling",
        "attention_factor=1.0 is dropped",
        RotaryCase(scaling=YARN.but(attention_factor=1.0)),
    ),
    "mscale_collapses": ("rotary-scaling", "collapses to 1", RotaryCase(scaling=YARN)),
    "prefill_is_not_scaled": (
        "rotary-scaling",
        "linear scaling is ignored",
        RotaryCase(seq_len=2, scaling=LINEAR),
    ),
    "scaling_ignored": (
        "rotary-scaling",
        "linear scaling is ignored",
        RotaryCase(start=1, scaling=LINEAR),
    ),
    "counts_tokens_for_dynamic": (
        "rotary-scaling",
        "sees the number of tokens",
        RotaryCase(head_dim=4, start=8, scaling=RopeScaling(rope_type="dynamic")),
    ),
    "attention_factor_ignored": (
        "rotary-scaling",
        "attention_factor is ignored",
        RotaryCase(attention_factor=2.0),
    ),
    "theta_ignored": (
        "ignored-option",
        "theta is ignored",
        RotaryCase(head_dim=4, start=1, theta=500_000.0),
    ),
    "angle_in_half": ("rotary-precision", "rounded to float16", None),
    "table_was_cast": ("rotary-precision", "cos and sin are rounded to bfloat16", TURNED),
    "positions_in_bfloat16": (
        "rotary-precision",
        "positions are rounded to bfloat16",
        RotaryCase(start=257),
    ),
    "one_too_far": ("cache-position", "position + 1", RotaryCase()),
    "counts_what_is_kept": ("cache-position", "tokens count from 0", TURNED),
    "reruns_from_the_last_position": (
        "cache-position",
        "count on from the last position",
        RotaryCase(seq_len=2),
    ),
    "rows_share_positions": (
        "cache-position",
        "positions of row 0",
        RotaryCase(batch_size=2, row_step=1),
    ),
    "padding_not_taken_off": ("padding", "padding is taken for text", None),
    "doubled_position": ("cache-position", "taken twice", TURNED),
    "positions_along_the_heads": (
        "rotary-layout",
        "along the heads",
        RotaryCase(num_heads=2, seq_len=2),
    ),
    "theta_of_a_million_at_most": (
        "ignored-option",
        "is not taken: angles are those of theta=1e+06",
        RotaryCase(head_dim=4, start=1, theta=5_000_000.0),
    ),
    "table_ends": ("cache-position", "positions stop at 2,047", RotaryCase(start=2_048)),
    "table_of_256": ("cache-position", "start again at 0 after 255", RotaryCase(start=256)),
    "exponents_not_doubled": ("rotary-layout", "exponents are i / rotary_dim", TWO_PAIRS),
    "last_exponent_is_one": ("rotary-layout", "2 i / (rotary_dim - 2)", TWO_PAIRS),
    "slowest_first": ("rotary-layout", "in reverse order", TWO_PAIRS),
    "cosine_for_sine": ("rotary-layout", "are exchanged", RotaryCase()),
    "both_halves_add": ("rotary-layout", "both halves add", TURNED),
    "moves_the_offset": ("input-mutation", "wrote to its positions", RotaryCase()),
}
DECLARED = {"deinterleaves_and_leaves": {"pairing": "interleaved"}}


def checked(name, **facts):
    target = kind_named("rotary").open(getattr(kernels, name), name, facts)
    return check_target(target, Request(dtypes=("float32",)))


def test_the_collection_starts_from_a_right_one():
    result = checked("right")
    assert result.held is True
    assert not result.failures


@pytest.mark.parametrize("name", COLLECTION)
def test_the_mistake_is_seen_named_and_small(name):
    kind, text, smallest = COLLECTION[name]
    result = checked(name, **DECLARED.get(name, {}))
    assert result.held is False
    named = [f for f in result.failures if f.diagnosis.kind == kind and text in f.diagnosis.text]
    assert named, [(f.case, f.diagnosis) for f in result.failures]
    assert all(f.diagnosis.kind == kind for f in result.failures)
    if smallest is None:
        assert named[0].case.head_dim <= 4
        assert named[0].case.seq_len <= 2
    else:
        assert named[0].case == smallest


def test_dynamic_scaling_makes_cached_keys_stale_and_that_is_a_property():
    # huggingface/transformers#25104: kept as it is by its maintainers
    result = checked("right")
    assert result.remarks["with dynamic scaling cached keys go stale as the context grows"]
    law = next(law for law in result.laws if law.law == "cached-keys-stay-valid")
    assert law.held is True
