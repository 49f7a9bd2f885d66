"""Bytes of vectors as they are stored, against buffers that really hold them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equivalence.accounting import (
    STORAGES,
    CacheLayer,
    Kept,
    KVSpec,
    Storage,
    named_spec,
    storage_named,
)
from equivalence.errors import InvalidRequest

many = settings(deadline=None)
widths = st.integers(1, 300)


def packed(width: int, bits: int) -> int:
    """The bytes of ``width`` numbers of ``bits`` bits, packed by numpy."""
    return int(np.packbits(np.ones(width * bits, dtype=np.uint8)).nbytes)


@many
@given(
    width=widths, bits=st.sampled_from([3, 4, 5, 8]), group=st.integers(0, 70),
    scale=st.sampled_from(["float16", "float32"]), zeros=st.booleans(),
)  # fmt: skip
def test_quantised_vectors(width: int, bits: int, group: int, scale: str, zeros: bool) -> None:
    numbers = np.arange(width)
    pieces = [numbers[i : i + group] for i in range(0, width, group)] if group else [numbers]
    scales = np.ones((len(pieces), 1 + zeros), dtype=scale)
    storage = Storage(name="", bits=bits, group=group, scale_bits=8 * scales[0].nbytes)
    assert storage.vector_bytes(width) == packed(width, bits) + scales.nbytes


@pytest.mark.parametrize(
    ("name", "block_bytes"), [("q8_0", 34), ("q5_0", 22), ("q4_0", 18), ("q4_1", 20)]
)
def test_blocks_of_ggml(name: str, block_bytes: int) -> None:
    """sizeof(block_q8_0) and the others of ggml-common.h, for 32 elements."""
    assert STORAGES[name].vector_bytes(128) == 4 * block_bytes


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
@many
@given(width=widths)
def test_plain_vectors(name: str, width: int) -> None:
    assert STORAGES[name].vector_bytes(width) == np.zeros(width, dtype=name).nbytes


def test_int8_with_a_scale_for_each_head_and_token() -> None:
    assert named_spec("llama-3.2-3b").bytes_per_token(STORAGES["int8"]) == 28 * 2 * 8 * (128 + 2)


@many
@given(
    tokens=st.integers(0, 50), batch_size=st.integers(1, 4), heads=st.integers(1, 4), width=widths
)
def test_a_scale_for_each_tensor_does_not_grow(
    tokens: int, batch_size: int, heads: int, width: int
) -> None:
    pair = tuple(Kept(name=name, count=heads, width=width) for name in ("key", "value"))
    layer = CacheLayer(kept=pair, num_heads=heads)
    spec = KVSpec(name="", family="", num_heads=heads, num_layers=3, layers=(layer,) * 3)
    held = spec.bytes(tokens, storage=STORAGES["float8"], batch_size=batch_size)
    assert held == 3 * 2 * (batch_size * heads * tokens * width + 4)


def test_groups() -> None:
    assert STORAGES["int4"].grouped(32).vector_bytes(128) == 64 + 4 * 2
    with pytest.raises(InvalidRequest, match="float16 has no scales to group"):
        STORAGES["float16"].grouped(32)
    with pytest.raises(InvalidRequest, match="a group of 0 elements must hold at least 1"):
        STORAGES["int4"].grouped(0)


def test_an_unknown_storage_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"--dtype bf16 is not one of .*did you mean bfloat16"):
        storage_named("bf16", option="--dtype")
