"""A mask has the shape that its axes say, and hides what its pattern says."""

import math

import numpy as np
import pytest

from equivalence.masks import AXES, FORMS, HIDDEN_VALUES, PATTERNS, Mask

B, H, Q, K = 2, 3, 5, 7


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("form", FORMS)
def test_shape_and_type(axes, pattern, form):
    tensor = Mask(pattern=pattern, axes=axes, form=form, size=40).tensor(B, H, Q, K, "float32")
    lengths = {"b": B, "h": H, "q": Q}
    assert tensor.shape == (*(lengths[a] if a in axes else 1 for a in "bhq"), K)
    assert tensor.dtype == (bool if form == "bool" else np.float64)


@pytest.mark.parametrize("axes", [a for a in AXES if "b" in a or "h" in a])
@pytest.mark.parametrize("pattern", [p for p in PATTERNS if p != "all"])
def test_rows_and_heads_really_differ(axes, pattern):
    size = {"random": 50, "padding": 5}.get(pattern, 2)
    keep = Mask(pattern=pattern, axes=axes, size=size).visible(B, H, Q, K)
    for axis, letter in enumerate("bh"):
        if letter in axes:
            first = np.take(keep, [0], axis=axis)
            assert (keep != first).any(), letter


def own_document(size, shift, i):
    """The document of the query, and in other rows and heads one of those before it, in turn."""
    own, count = (i + K - Q) // size, math.ceil(K / size)
    return (own - shift) % count if shift else own


def by_loops(pattern, size, shift, i, j):
    here = i + (K - Q) + shift  # the key that query i stands on, moved by the batch and head
    match pattern:
        case "all":
            return True
        case "padding":
            return j < max(1, size - shift)
        case "causal_upper_left":
            return j <= i + shift
        case "causal_lower_right":
            return j <= here
        case "window":
            return here - size < j <= here
        case "block":
            return j // size <= own_document(size, shift, i)
        case "document":
            return j // size == own_document(size, shift, i)
    raise AssertionError(pattern)


@pytest.mark.parametrize("pattern", [p for p in PATTERNS if p != "random"])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_what_is_hidden(pattern, size):
    keep = Mask(pattern=pattern, axes="bhq", size=size, empty_rows=1).visible(B, H, Q, K)
    for b, h, i, j in np.ndindex(B, H, Q, K):
        expected = i >= 1 and by_loops(pattern, size, b + h, i, j)
        assert keep[b, h, i, j] == expected, (b, h, i, j)


def test_random_keeps_about_its_percentage_and_follows_its_seed():
    big = Mask(pattern="random", axes="bhq", size=20).visible(4, 8, 32, 64)
    assert 0.18 < big.mean() < 0.22
    again = Mask(pattern="random", axes="bhq", size=20).visible(4, 8, 32, 64)
    other = Mask(pattern="random", axes="bhq", size=20, seed=1).visible(4, 8, 32, 64)
    assert (big == again).all()
    assert (big != other).any()
    assert Mask(pattern="random", size=100).visible(1, 1, 5, 7).all()


@pytest.mark.parametrize("hidden", HIDDEN_VALUES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_what_a_float_mask_adds(hidden, dtype):
    mask = Mask(pattern="padding", form="float", hidden=hidden, size=4, bias=2.0, axes="q")
    tensor = mask.tensor(1, 1, 400, 5, dtype)
    added = tensor[..., 4]
    lowest = {"float16": -65504.0, "bfloat16": -float.fromhex("0x1.fep127")}.get(dtype)
    if lowest is None:
        lowest = float(np.finfo(dtype).min)
    assert (added == {"-inf": -np.inf, "-1e4": -1e4, "finfo.min": lowest}[hidden]).all()
    assert 1.8 < tensor[..., :4].std() < 2.2
    assert not Mask(form="float").tensor(1, 1, 3, 3, dtype).any()


def test_empty_rows_are_the_first_and_no_more_than_there_are():
    keep = Mask(empty_rows=2).visible(1, 1, 5, 3)
    assert keep[0, 0].any(axis=-1).tolist() == [False, False, True, True, True]
    assert not Mask(empty_rows=9).visible(1, 1, 5, 3).any()
