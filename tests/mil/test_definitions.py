"""Operations against their definition, written in numpy, and coremltools' value where it has one.

And each operation that can be evaluated is named by a test of this folder.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equivalence.mil.registry import operations
from tests.mil.building import evaluated, inferred, ops
from tests.mil.test_operations import BROADCAST, FEW, SHAPES, floats, whole


def means(name: str, build: Callable[..., Any], expected: Any, **arrays: np.ndarray) -> None:
    """Our value is ``expected``, one array or several, and coremltools' is too if it has one."""
    wanted = [np.asarray(one) for one in (expected if isinstance(expected, tuple) else (expected,))]
    theirs = inferred(build, arrays)
    for found in (evaluated(build, arrays), theirs):
        if found is None:
            continue
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert one.shape == other.shape, name
            np.testing.assert_allclose(one, other, rtol=3e-6, atol=3e-6, err_msg=name)


ELEMENTWISE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "acos": np.arccos,
    "asin": np.arcsin,
    "atanh": np.arctanh,
    "relu6": lambda x: np.minimum(np.maximum(x, 0), 6),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@given(data=st.data())
@FEW
def test_of_one_number(name: str, data: st.DataObject) -> None:
    small = name in ("acos", "asin", "atanh")
    x = data.draw(floats(SHAPES, st.integers(-9, 9).map(lambda n: n / (10 if small else 1))))
    means(name, lambda x: getattr(ops, name)(x=x), ELEMENTWISE[name](x), x=x)


@given(data=st.data())
@FEW
def test_halves_are_rounded_to_even(data: st.DataObject) -> None:
    x = data.draw(floats(SHAPES, st.integers(-9, 9).map(lambda n: n / 2)))
    means("round", lambda x: ops.round(x=x), np.round(x), x=x)


SLOPES: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "elu": lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x)),
    "leaky_relu": lambda x, alpha: np.where(x >= 0, x, alpha * x),
    "threshold": np.maximum,
}


@pytest.mark.parametrize("name", SLOPES)
@given(data=st.data())
@FEW
def test_of_a_number_and_a_parameter(name: str, data: st.DataObject) -> None:
    x, alpha = data.draw(floats(SHAPES)), data.draw(st.sampled_from((0.25, 0.5, 2.0)))
    expected = SLOPES[name](x, np.float32(alpha))
    means(name, lambda x: getattr(ops, name)(x=x, alpha=alpha), expected, x=x)


LOGIC = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}


@pytest.mark.parametrize("name", LOGIC)
@given(data=st.data())
@FEW
def test_logic(name: str, data: st.DataObject) -> None:
    x, y = (data.draw(hnp.arrays(np.bool_, shape)) for shape in data.draw(BROADCAST).input_shapes)
    means(name, lambda x, y: getattr(ops, name)(x=x, y=y), LOGIC[name](x, y), x=x, y=y)


@given(data=st.data())
@FEW
def test_powers(data: st.DataObject) -> None:
    shapes = data.draw(BROADCAST).input_shapes
    x = data.draw(floats(shapes[0], st.integers(1, 12).map(lambda n: n / 4)))
    y = data.draw(floats(shapes[1], st.integers(-6, 6).map(lambda n: n / 2)))
    means("pow", lambda x, y: ops.pow(x=x, y=y), x**y, x=x, y=y)


@given(data=st.data())
@FEW
def test_bands(data: st.DataObject) -> None:
    x = data.draw(floats(hnp.array_shapes(min_dims=2, max_dims=4, max_side=4)))
    lower, upper = data.draw(st.integers(-1, 3)), data.draw(st.integers(-1, 3))
    expected = x.copy()
    for place in np.ndindex(*x.shape):
        below = place[-2] - place[-1]
        if (lower >= 0 and below > lower) or (upper >= 0 and -below > upper):
            expected[place] = 0
    means("band_part", lambda x: ops.band_part(x=x, lower=lower, upper=upper), expected, x=x)


@given(data=st.data())
@FEW
def test_filling(data: st.DataObject) -> None:
    x = data.draw(floats(SHAPES))
    value = data.draw(st.sampled_from((-1.5, 0.0, 2.0)))
    like = np.full(x.shape, value, np.float32)
    means("fill", lambda x: ops.fill(shape=ops.shape(x=x), value=value), like, x=x)
    means("fill_like", lambda x: ops.fill_like(ref_tensor=x, value=value), like, x=x)
    first, step = data.draw(st.integers(-3, 3)), data.draw(st.integers(1, 3))
    count = data.draw(st.integers(1, 5))
    last = first + step * count
    expected = np.arange(first, last, step).astype(np.float32)
    means(
        "range_1d",
        lambda x: ops.add(
            x=ops.range_1d(start=float(first), end=float(last), step=float(step)),
            y=ops.mul(x=x, y=0.0),
        ),
        expected,
        x=np.ones(1, np.float32),
    )


@given(data=st.data())
@FEW
def test_other_shapes(data: st.DataObject) -> None:
    x = data.draw(floats(hnp.array_shapes(min_dims=2, max_dims=4, max_side=4)))
    axis = data.draw(st.integers(1, x.ndim - 1))  # coremltools infers nothing of no axes
    expected = x.reshape(int(np.prod(x.shape[:axis])), -1)
    means("flatten2d", lambda x: ops.flatten2d(x=x, axis=axis), expected, x=x)
    other = np.zeros((x.size, 3), np.float32)
    means(
        "reshape_like",
        lambda x, y: ops.reshape_like(
            x=x, ref_tensors=(y, x), begins=[0, 0], ends=[1, 0], end_masks=[False, False]
        ),
        x.reshape(-1),
        x=x,
        y=other,
    )
    ends = data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=x.ndim,
                              max_size=x.ndim))  # fmt: skip
    value = data.draw(st.sampled_from((-1.5, 0.0)))
    flat = [n for pair in ends for n in pair]
    means(
        "pad",
        lambda x: ops.pad(x=x, pad=flat, mode="constant", constant_val=value),
        np.pad(x, ends, constant_values=value),
        x=x,
    )


def distinct(data: st.DataObject) -> np.ndarray:
    """A tensor in which no number stands twice."""
    shape = data.draw(SHAPES)
    order = data.draw(st.permutations(range(int(np.prod(shape)))))
    return (np.array(order, np.float32) / 4).reshape(shape)


@given(data=st.data())
@FEW
def test_places_of_the_largest(data: st.DataObject) -> None:
    x = distinct(data)
    axis, keep = data.draw(st.integers(0, x.ndim - 1)), data.draw(st.booleans())
    means(
        "reduce_argmax",
        lambda x: ops.reduce_argmax(x=x, axis=axis, keep_dims=keep),
        np.argmax(x, axis, keepdims=keep),
        x=x,
    )
    means(
        "reduce_argmin",
        lambda x: ops.reduce_argmin(x=x, axis=axis, keep_dims=keep),
        np.argmin(x, axis, keepdims=keep),
        x=x,
    )
    ascending = data.draw(st.booleans())
    turned = x if ascending else -x
    order = np.argsort(turned, axis, kind="stable")
    means("argsort", lambda x: ops.argsort(x=x, axis=axis, ascending=ascending), order, x=x)
    k = data.draw(st.integers(1, x.shape[axis]))
    first = np.take(order, range(k), axis)
    means(
        "topk",
        lambda x: ops.topk(x=x, k=k, axis=axis, ascending=ascending),
        (np.take_along_axis(x, first, axis), first),
        x=x,
    )


@given(data=st.data())
@FEW
def test_norms_and_sums(data: st.DataObject) -> None:
    x = data.draw(floats(hnp.array_shapes(min_dims=3, max_dims=4, max_side=3)))
    norm = np.sqrt(np.square(x, dtype=np.float64).sum((-3, -2, -1), keepdims=True) + 1e-3)
    means("l2_norm", lambda x: ops.l2_norm(x=x, epsilon=1e-3), x / norm, x=x)
    positive = np.abs(x) + 0.5
    axis = data.draw(st.integers(0, x.ndim - 1))
    means(
        "reduce_log_sum",
        lambda x: ops.reduce_log_sum(x=x, axes=[axis], keep_dims=True),
        np.log(positive.sum(axis, keepdims=True)),
        x=positive,
    )
    means("non_zero", lambda x: ops.non_zero(x=x), np.argwhere(x), x=x)


@given(data=st.data())
@FEW
def test_elements_by_their_places(data: st.DataObject) -> None:
    x = data.draw(floats(hnp.array_shapes(min_dims=2, max_dims=3, max_side=4)))
    named = data.draw(st.integers(1, x.ndim))
    places = sorted(
        data.draw(st.sets(st.sampled_from([*np.ndindex(*x.shape[:named])]), min_size=1))
    )
    indices = np.array(places, np.int32)
    read = np.stack([x[place] for place in places])
    means("gather_nd", lambda x, i: ops.gather_nd(x=x, indices=i), read, x=x, i=indices)
    updates = data.draw(floats(read.shape))
    for mode, join in (("update", lambda old, new: new), ("add", np.add), ("max", np.maximum)):
        written = x.copy()
        for place, new in zip(places, updates, strict=True):
            written[place] = join(written[place], new)
        means(
            "scatter_nd",
            lambda d, u, mode=mode: ops.scatter_nd(data=d, indices=indices, updates=u, mode=mode),
            written,
            d=x,
            u=updates,
        )


@given(data=st.data())
@FEW
def test_whole_numbers_are_not_rounded(data: st.DataObject) -> None:
    """What float32 cannot hold, an int32 can."""
    x = data.draw(whole(SHAPES, 2**24, 2**24 + 9))
    (found,) = evaluated(lambda x: ops.add(x=x, y=np.int32(1)), {"x": x})
    assert np.array_equal(found, x + 1)


def test_each_operation_is_tested() -> None:
    """By its name, as a word or behind ``ops.``, in a test of this folder."""
    named: set[str] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named.add(node.value)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                named.add(node.attr if node.value.id == "ops" else "")
    assert set(operations()) - named == set()
