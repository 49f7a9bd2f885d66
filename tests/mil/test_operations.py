"""Each operation against coremltools' own value inference, on drawn tensors and parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.mil.building import evaluated, ops, own_value

FEW = settings(
    max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
NUMBERS = st.integers(-24, 24).map(lambda n: n / 4)
SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, max_side=4)


def floats(shape: Any, elements: Any = NUMBERS) -> Any:
    return hnp.arrays(np.float32, shape, elements=elements)


def whole(shape: Any, low: int = -9, high: int = 9) -> Any:
    return hnp.arrays(np.int32, shape, elements=st.integers(low, high))


def same(build: Callable[..., Any], **arrays: np.ndarray) -> None:
    """Our value is coremltools' own, in value, shape and type."""
    ours, theirs = evaluated(build, arrays), own_value(build, arrays)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape or one.size == other.size == 1
        assert one.dtype == other.dtype or one.dtype.kind in "iub"
        np.testing.assert_allclose(
            one.reshape(other.shape), other, rtol=3e-6, atol=3e-6, equal_nan=True
        )


BROADCAST = hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3, min_dims=1)
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
ARITHMETIC = ("add", "sub", "mul", "maximum", "minimum")
DIVISIONS = ("real_div", "floor_div", "mod")


@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARISONS, *DIVISIONS])
@given(data=st.data())
@FEW
def test_binary(name: str, data: st.DataObject) -> None:
    shapes = data.draw(BROADCAST).input_shapes
    draw = data.draw(st.sampled_from((floats, whole)))
    x, y = data.draw(draw(shapes[0])), data.draw(draw(shapes[1]))
    if name in DIVISIONS:
        y = np.where(y == 0, np.ones_like(y), np.abs(y) if draw is whole else y)
        x = np.abs(x) if draw is whole else x  # rounding of negative quotients is not written down
    if name == "mod":
        y = np.abs(y)
    same(lambda x, y: getattr(ops, name)(x=x, y=y), x=x, y=y)


UNARY = (
    "abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "relu", "sigmoid", "sign", "sin",
    "square", "tan", "tanh", "atan", "sinh", "cosh",
)  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@given(data=st.data())
@FEW
def test_unary(name: str, data: st.DataObject) -> None:
    x = data.draw(floats(SHAPES, st.integers(-9, 9).map(lambda n: n / 8)))
    same(lambda x: getattr(ops, name)(x=x), x=x)


@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "inverse", "log"])
@given(data=st.data())
@FEW
def test_unary_of_positive_numbers(name: str, data: st.DataObject) -> None:
    x = data.draw(floats(SHAPES, st.integers(1, 40).map(lambda n: n / 8)))
    same(lambda x: getattr(ops, name)(x=x), x=x)


@given(data=st.data())
@FEW
def test_clip_and_softmax(data: st.DataObject) -> None:
    x = data.draw(floats(SHAPES))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    same(lambda x: ops.softmax(x=x, axis=axis), x=x)
    same(lambda x: ops.clip(x=x, alpha=-1.0, beta=2.0), x=x)
    same(lambda x: ops.reverse(x=x, axes=[axis]), x=x)
    from_front = axis % x.ndim
    same(lambda x: ops.cumsum(x=x, axis=from_front), x=x)


REDUCTIONS = (
    "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_l1_norm", "reduce_l2_norm",
    "reduce_sum_square", "reduce_prod", "reduce_log_sum_exp",
)  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@given(data=st.data())
@FEW
def test_reductions(name: str, data: st.DataObject) -> None:
    x = data.draw(floats(SHAPES, st.integers(-8, 8).map(lambda n: n / 4)))
    axes = data.draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, unique=True))
    keep = data.draw(st.booleans())
    same(lambda x: getattr(ops, name)(x=x, axes=axes, keep_dims=keep), x=x)


@given(data=st.data())
@FEW
def test_matmul(data: st.DataObject) -> None:
    rows, inner, columns = (data.draw(st.integers(1, 4)) for _ in range(3))
    batch = data.draw(BROADCAST).input_shapes if data.draw(st.booleans()) else ((), ())
    turn_x, turn_y = data.draw(st.booleans()), data.draw(st.booleans())
    x = data.draw(floats((*batch[0], *((inner, rows) if turn_x else (rows, inner)))))
    y = data.draw(floats((*batch[1], *((columns, inner) if turn_y else (inner, columns)))))
    same(lambda x, y: ops.matmul(x=x, y=y, transpose_x=turn_x, transpose_y=turn_y), x=x, y=y)


@given(data=st.data())
@FEW
def test_linear(data: st.DataObject) -> None:
    rows, inner, columns = (data.draw(st.integers(1, 4)) for _ in range(3))
    weight, bias = data.draw(floats((columns, inner))), data.draw(floats((columns,)))
    same(lambda x: ops.linear(x=x, weight=weight, bias=bias), x=data.draw(floats((rows, inner))))


@given(data=st.data())
@FEW
def test_attention(data: st.DataObject) -> None:
    heads, q_len, kv_len, width = (data.draw(st.integers(1, 4)) for _ in range(4))
    query = data.draw(floats((1, heads, q_len, width)))
    key, value = (data.draw(floats((1, heads, kv_len, width))) for _ in range(2))
    attend = ops.scaled_dot_product_attention
    same(lambda q, k, v: attend(query=q, key=k, value=v), q=query, k=key, v=value)
    mask = data.draw(hnp.arrays(np.bool_, (1, 1, q_len, kv_len)))
    mask[..., 0] = True
    same(
        lambda q, k, v, m: attend(query=q, key=k, value=v, attn_mask=m),
        q=query, k=key, v=value, m=mask,
    )  # fmt: skip


@given(data=st.data())
@FEW
def test_shapes(data: st.DataObject) -> None:
    x = data.draw(floats(SHAPES))
    perm = data.draw(st.permutations(range(x.ndim)))
    same(lambda x: ops.transpose(x=x, perm=perm), x=x)
    same(lambda x: ops.reshape(x=x, shape=(-1,)), x=x)
    longer = (1, *x.shape)
    same(lambda x: ops.reshape(x=x, shape=longer), x=x)
    axes = data.draw(st.lists(st.integers(0, x.ndim), min_size=1, max_size=1))
    same(lambda x: ops.expand_dims(x=x, axes=axes), x=x)
    same(lambda x: ops.squeeze(x=ops.expand_dims(x=x, axes=axes), axes=axes), x=x)
    reps = data.draw(st.lists(st.integers(1, 3), min_size=x.ndim, max_size=x.ndim))
    same(lambda x: ops.tile(x=x, reps=reps), x=x)
    same(lambda x: ops.shape(x=x), x=x)


@given(data=st.data())
@FEW
def test_joining_and_splitting(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    x, y = data.draw(floats(shape)), data.draw(floats(shape))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    same(lambda x, y: ops.concat(values=[x, y], axis=axis), x=x, y=y)
    same(lambda x, y: ops.stack(values=[x, y], axis=axis), x=x, y=y)
    (ours,) = evaluated(
        lambda x, y: ops.concat(values=[x, y], axis=axis, interleave=True), {"x": x, "y": y}
    )
    # Not the value that coremltools 9.0 infers, which leaves ``interleave`` out.
    expected = np.stack([x, y], axis % len(shape) + 1)
    np.testing.assert_array_equal(ours, expected.reshape(ours.shape))
    both = np.concatenate([x, y], axis=axis)
    same(lambda x: ops.split(x=x, num_splits=2, axis=axis), x=both)


@given(data=st.data())
@FEW
def test_slices(data: st.DataObject) -> None:
    x = data.draw(floats(SHAPES))
    begin = [data.draw(st.integers(0, n - 1)) for n in x.shape]
    end = [data.draw(st.integers(b + 1, n)) for b, n in zip(begin, x.shape, strict=True)]
    stride = [data.draw(st.integers(1, 2)) for _ in x.shape]
    flags = st.lists(st.booleans(), min_size=x.ndim, max_size=x.ndim)
    given_masks = {"begin_mask": data.draw(flags), "end_mask": data.draw(flags)}
    same(
        lambda x: ops.slice_by_index(x=x, begin=begin, end=end, stride=stride, **given_masks),
        x=x,
    )
    squeeze = [i == 0 for i in range(x.ndim)] if x.ndim > 1 else [False]
    same(
        lambda x: ops.slice_by_index(
            x=x, begin=begin, end=[b + 1 for b in begin], squeeze_mask=squeeze
        ),
        x=x,
    )
    size = [e - b for b, e in zip(begin, end, strict=True)]
    same(lambda x: ops.slice_by_size(x=x, begin=begin, size=size), x=x)
    none, everything, backwards = [0] * x.ndim, [True] * x.ndim, [-1] * x.ndim
    same(
        lambda x: ops.slice_by_index(
            x=x, begin=none, end=none, stride=backwards, begin_mask=everything, end_mask=everything
        ),
        x=x,
    )
    update = data.draw(floats(tuple(size)))
    same(
        lambda x, update: ops.slice_update(x=x, update=update, begin=begin, end=end),
        x=x,
        update=update,
    )


@given(data=st.data())
@FEW
def test_gathers(data: st.DataObject) -> None:
    x = data.draw(floats(SHAPES))
    axis = data.draw(st.integers(0, x.ndim - 1))
    indices = data.draw(whole((data.draw(st.integers(1, 3)),), 0, x.shape[axis] - 1))
    same(lambda x, i: ops.gather(x=x, indices=i, axis=axis), x=x, i=indices)
    along = data.draw(whole(x.shape, 0, x.shape[axis] - 1))
    same(lambda x, i: ops.gather_along_axis(x=x, indices=i, axis=axis), x=x, i=along)


@given(data=st.data())
@FEW
def test_choices(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    a, b = data.draw(floats(shape)), data.draw(floats(shape))
    cond = data.draw(hnp.arrays(np.bool_, shape))
    same(lambda c, a, b: ops.select(cond=c, a=a, b=b), c=cond, a=a, b=b)
    same(lambda c: ops.logical_not(x=c), c=cond)
    same(lambda a: ops.cast(x=a, dtype="int32"), a=a)
    same(lambda c: ops.cast(x=c, dtype="fp16"), c=cond)
