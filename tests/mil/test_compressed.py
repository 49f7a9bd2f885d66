"""Compressed weights: our decoder, coremltools' own, and numpy written from the documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import coremltools as ct
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from coremltools.converters.mil.mil import types
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from equivalence.mil import compressed
from equivalence.mil.graph import Graph
from tests.mil.building import ops

SOME = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=(Phase.generate,),  # as small as they are, what fails needs no shrinking
)
FLOATS = st.sampled_from((np.float16, np.float32))
FRACTIONS = st.integers(-999, 999).map(lambda n: n / 512)
BITS = st.sampled_from((1, 2, 3, 4, 6, 8))


def numbers(shape: Any, dtype: Any) -> Any:
    return hnp.arrays(dtype, shape, elements=FRACTIONS)


def whole(shape: Any, low: int, high: int) -> Any:
    return hnp.arrays(np.int64, shape, elements=st.integers(low, high))


def stored(array: np.ndarray, kind: str) -> np.ndarray:
    """Whole numbers in one of MIL's narrow types."""
    return array.astype(types.nptype_from_builtin(getattr(types, kind)))


def weight_of(build: Callable[[], Any], target: Any) -> tuple[np.ndarray, np.ndarray]:
    """(what a graph that uses the weight holds, coremltools' own value of it)."""
    found: list[Any] = []

    @ops.program(input_specs=[ops.TensorSpec(shape=(1,))], opset_version=target)
    def made(unused: Any) -> Any:
        del unused
        found.append(build())
        return ops.identity(x=found[0])

    (ours,) = Graph(made, mode="strict")({"unused": torch.zeros(1)}).values()
    return ours.numpy(), np.asarray(found[0].op.materialized_val_inference())


def agree(build: Callable[[], Any], target: Any, expected: np.ndarray) -> None:
    """All three have the same bits."""
    ours, theirs = weight_of(build, target)
    assert ours.dtype == theirs.dtype == expected.dtype
    assert ours.shape == theirs.shape == expected.shape
    assert ours.tobytes() == expected.tobytes()
    assert theirs.tobytes() == expected.tobytes()


def blocks_of(draw: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A number of blocks along each axis that divides it."""
    return tuple(draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0])) for n in shape)


MATRICES = st.tuples(st.sampled_from((1, 2, 4, 6)), st.sampled_from((2, 3, 6)))


@given(data=st.data())
@SOME
def test_scales_of_ios16(data: st.DataObject) -> None:
    shape, axis = data.draw(MATRICES), data.draw(st.sampled_from((0, 1, -1)))
    signed, dtype = data.draw(st.booleans()), data.draw(FLOATS)
    low, high, kind = (-128, 127, np.int8) if signed else (0, 255, np.uint8)
    numbers_along = data.draw(st.sampled_from(((), (shape[axis],))))
    held = data.draw(whole(shape, low, high)).astype(kind)
    zero = data.draw(whole(numbers_along, low, high)).astype(kind)
    scale = data.draw(numbers(numbers_along, dtype))
    expected = np.empty(shape, dtype)
    for place in np.ndindex(*shape):
        own = (place[axis],) if numbers_along else ()
        distance = float(held[place]) - float(zero[own])
        expected[place] = float(scale[own]) * distance
    agree(
        lambda: ops.constexpr_affine_dequantize(
            quantized_data=held, zero_point=zero, scale=scale, axis=np.int32(axis)
        ),
        ct.target.iOS16,
        expected,
    )


@given(data=st.data())
@SOME
def test_scales_of_blocks(data: st.DataObject) -> None:
    shape, dtype = data.draw(MATRICES), data.draw(FLOATS)
    kind, low, high = data.draw(
        st.sampled_from((("int4", -8, 7), ("uint4", 0, 15), ("int8", -128, 127), ("uint8", 0, 255)))
    )
    blocks = blocks_of(data.draw, shape)
    held = data.draw(whole(shape, low, high))
    scale = data.draw(numbers(blocks, dtype))
    offset = data.draw(whole(blocks, low, high)) if data.draw(st.booleans()) else None
    expected = np.empty(shape, dtype)
    for place in np.ndindex(*shape):
        own = tuple(i // (n // b) for i, n, b in zip(place, shape, blocks, strict=True))
        zero = 0.0 if offset is None else float(offset[own])
        expected[place] = float(scale[own]) * (float(held[place]) - zero)
    extra = {} if offset is None else {"offset": stored(offset, kind)}
    build = ops.constexpr_blockwise_shift_scale
    agree(lambda: build(data=stored(held, kind), scale=scale, **extra), ct.target.iOS18, expected)


@given(data=st.data())
@SOME
def test_one_table_of_ios16(data: st.DataObject) -> None:
    shape, dtype = data.draw(MATRICES), data.draw(FLOATS)
    bits = data.draw(st.sampled_from((1, 2, 4, 6, 8)))
    lut = data.draw(numbers((2**bits,), dtype))
    indices = data.draw(whole(shape, 0, 2**bits - 1))
    # As the documentation draws it: the lowest bit of the first index is the lowest of byte 0.
    stream = sum(int(index) << (bits * n) for n, index in enumerate(indices.ravel()))
    packed = np.frombuffer(stream.to_bytes(-(-bits * indices.size // 8), "little"), np.uint8)
    agree(
        lambda: ops.constexpr_lut_to_dense(
            indices=packed, lut=lut, shape=np.array(shape, np.uint32)
        ),
        ct.target.iOS16,
        lut[indices],
    )


@given(data=st.data())
@SOME
def test_tables_of_groups_and_vectors(data: st.DataObject) -> None:
    shape, dtype, bits = data.draw(MATRICES), data.draw(FLOATS), data.draw(BITS)
    size, axis = data.draw(st.sampled_from((1, 2, 3))), data.draw(st.sampled_from((0, 1)))
    groups = blocks_of(data.draw, shape)
    lut = data.draw(numbers((*groups, 2**bits, size), dtype))
    indices = data.draw(whole(shape, 0, 2**bits - 1))
    wide = [n * size if a == axis else n for a, n in enumerate(shape)]
    expected = np.empty(wide, dtype)
    for place in np.ndindex(*wide):
        index = tuple(i // size if a == axis else i for a, i in enumerate(place))
        own = tuple(i // (n // g) for i, n, g in zip(index, shape, groups, strict=True))
        expected[place] = lut[(*own, indices[index], place[axis] % size)]
    extra = {} if size == 1 else {"vector_axis": np.int32(axis)}
    agree(
        lambda: ops.constexpr_lut_to_dense(
            indices=stored(indices, f"uint{bits}"), lut=lut, **extra
        ),
        ct.target.iOS18,
        expected,
    )


@given(data=st.data())
@SOME
def test_sparse_weights(data: st.DataObject) -> None:
    shape, dtype = data.draw(MATRICES), data.draw(FLOATS)
    mask = data.draw(hnp.arrays(np.bool_, shape))
    mask[0, 0] = True
    dense = np.where(mask, data.draw(numbers(shape, dtype)), 0).astype(dtype)
    packed = np.packbits(mask.ravel(), bitorder="little")
    agree(
        lambda: ops.constexpr_sparse_to_dense(
            nonzero_data=dense[mask], mask=packed, shape=np.array(shape, np.uint32)
        ),
        ct.target.iOS16,
        dense,
    )
    bits = stored(mask.astype(int), "uint1")
    agree(
        lambda: ops.constexpr_sparse_to_dense(nonzero_data=dense[mask], mask=bits),
        ct.target.iOS18,
        dense,
    )


@given(data=st.data())
@SOME
def test_weights_that_are_compressed_twice(data: st.DataObject) -> None:
    """Pruned then looked up or scaled; looked up in a table of whole numbers that is scaled."""
    shape, dtype = data.draw(MATRICES), data.draw(FLOATS)
    mask = data.draw(hnp.arrays(np.bool_, shape))
    mask[0, 0] = True
    bits = stored(mask.astype(int), "uint1")
    held = data.draw(whole(shape, 0, 15))
    lut = data.draw(numbers((1, 1, 16, 1), dtype))

    def pruned_then(make: Callable[[], Any]) -> Any:
        left, values = make()
        return ops.constexpr_sparse_to_dense(nonzero_data=values, mask=left)

    agree(
        lambda: pruned_then(
            lambda: ops.constexpr_lut_to_sparse(
                indices_mask=bits, indices_nonzero_data=stored(held[mask], "uint4"), lut=lut
            )
        ),
        ct.target.iOS18,
        np.where(mask, lut[0, 0, held, 0], 0).astype(dtype),
    )
    scale = data.draw(numbers((1, shape[1]), dtype))
    agree(
        lambda: pruned_then(
            lambda: ops.constexpr_sparse_blockwise_shift_scale(
                data_mask=bits, nonzero_data=stored(held[mask], "uint4"), scale=scale
            )
        ),
        ct.target.iOS18,
        np.where(mask, (scale.astype(float) * held).astype(dtype), 0).astype(dtype),
    )
    small = data.draw(whole((1, 1, 16, 1), -128, 127))
    agree(
        lambda: ops.constexpr_blockwise_shift_scale(
            data=ops.constexpr_lut_to_dense(
                indices=stored(held, "uint4"), lut=small.astype(np.int8)
            ),
            scale=scale,
        ),
        ct.target.iOS18,
        (scale.astype(float) * small[0, 0, held, 0]).astype(dtype),
    )


def test_a_stored_half_becomes_a_float() -> None:
    held = np.array([1.5, -0.25], np.float16)
    agree(
        lambda: ops.constexpr_cast(source_val=held, output_dtype="fp32"),
        ct.target.iOS16,
        held.astype(np.float32),
    )


@pytest.mark.parametrize("fault", ["order of bits", "shuffled table", "one scale for all"])
def test_a_wrong_decoder_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoders = compressed._DECODERS
    if fault == "order of bits":
        turned = lambda packed, bits, count: compressed.np.unpackbits(packed)[:count]  # noqa: E731
        monkeypatch.setattr(compressed, "unpacked", turned)
        check = test_one_table_of_ios16
    elif fault == "shuffled table":
        name, right = "constexpr_lut_to_dense", decoders["constexpr_lut_to_dense"]
        wrong = lambda lut, **more: right(lut=np.roll(lut, 1, -2), **more)  # noqa: E731
        monkeypatch.setitem(decoders, name, wrong)
        check = test_tables_of_groups_and_vectors
    else:
        name, right = "constexpr_blockwise_shift_scale", decoders["constexpr_blockwise_shift_scale"]
        monkeypatch.setitem(
            decoders,
            name,
            lambda data, scale, **more: right(
                data=data, scale=np.full_like(scale, scale.flat[0]), **more
            ),
        )
        check = test_scales_of_blocks
    with pytest.raises(AssertionError):
        check()
