"""What a call copies: seen step by step on small tensors, for each formulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.registry import entries
from equivalence.timing.calls import prepare
from equivalence.timing.profiled import profiled
from equivalence.timing.results import Row
from equivalence.timing.tensors import native, normal, signs

GROUPED = {
    "query": normal((1, 8, 1, 64), "float32", (0,)),
    "key": normal((1, 2, 256, 64), "float32", (1,)),
    "value": normal((1, 2, 256, 64), "float32", (2,)),
}
LONG = {
    "query": normal((1, 8, 1, 64), "float32", (0,)),
    "key": normal((1, 2, 4096, 64), "float32", (1,)),
    "value": normal((1, 2, 4096, 64), "float32", (2,)),
}
CACHE = 2 * 2 * 256 * 64 * 4


def torch_of(array):
    return native(array, arrays="torch", device="cpu")


def row_of(target: LocalTarget, operands=GROUPED) -> Row:
    prepared = prepare(target, operands, causal=False)
    allocation, kernels = profiled(prepared.call, prepared.cache)
    return Row(
        subject=target.name, dtype="float32", sizes={"q_len": 1}, cache_bytes=CACHE, flops=1,
        allocation=allocation, kernels=kernels,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "copies"),
    [
        ("torch.repeat_interleave", True),
        ("torch.repeat_kv", True),
        ("torch.broadcast_matmul", True),
        ("torch.sdpa", True),
        ("torch.sdpa_gqa_math", True),
        ("torch.sdpa_gqa_flash", False),
        ("torch.grouped_matmul", False),
        ("torch.q_fold", False),
        ("torch.fused_grouped", False),
    ],
)
def test_which_formulations_materialise(name, copies):
    row = row_of(entries()[name].load())
    assert row.materialises is copies, row.allocation
    assert row.allocation.traced
    if copies:
        assert row.allocation.copied >= CACHE
        assert row.allocation.allocated >= 4 * CACHE, "four query heads for each shared one"
        assert row.allocation.peak >= CACHE
    else:
        assert row.allocation.allocated < CACHE / 2


def test_expand_shares_and_reshape_copies():
    allocation = row_of(entries()["torch.repeat_kv"].load()).allocation
    assert "expand 1x2x4x256x64" in allocation.shares
    assert any(step.startswith("clone 1x2x4x256x64") for step in allocation.copies)


def test_the_kernel_that_ran_is_named():
    flash = row_of(entries()["torch.sdpa_gqa_flash"].load())
    assert "_scaled_dot_product_flash_attention_for_cpu" in flash.kernels
    math = row_of(entries()["torch.sdpa_gqa_math"].load())
    assert "_scaled_dot_product_attention_math" in math.kernels
    assert "bmm" in row_of(entries()["torch.grouped_matmul"].load()).kernels


def test_as_many_heads_as_queries_are_no_copy_of_repeat_kv():
    equal = {**GROUPED, "query": GROUPED["query"][:, :2]}
    row = row_of(entries()["torch.repeat_kv"].load(), equal)
    assert row.materialises is False
    assert row_of(entries()["torch.repeat_interleave"].load(), equal).materialises is True


def test_a_copy_of_the_values_alone_in_another_format_is_seen():
    def kernel(query, key, value):
        rounded = value.half().float()
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, rounded, enable_gqa=True
        )

    steps = row_of(LocalTarget.of(kernel, name="k")).allocation.copies
    assert any(step.startswith("_to_copy 1x2x256x64") for step in steps)


def test_a_write_in_place_is_seen():
    def kernel(query, key, value):
        room = torch.empty_like(key)
        room.copy_(key)
        return torch.nn.functional.scaled_dot_product_attention(query, room, value, enable_gqa=True)

    assert row_of(LocalTarget.of(kernel, name="k")).materialises is True


def test_numpy_is_seen_by_its_bytes():
    def kernel(query, key, value):
        wide = np.repeat(np.asarray(key), 4, axis=1)
        scores = np.asarray(query) @ wide.swapaxes(-1, -2)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return (weights / weights.sum(-1, keepdims=True)) @ np.repeat(np.asarray(value), 4, axis=1)

    target = LocalTarget.of(kernel, name="k", facts={"arrays": "numpy"})
    row = row_of(target)
    assert row.materialises is True
    assert row.allocation.allocated >= 4 * CACHE
    assert not row.allocation.traced


def test_an_8_bit_cache_is_read_in_blocks_and_never_written_out():
    operands = {name: x if name == "query" else signs(x) for name, x in LONG.items()}
    row = row_of(entries()["cache.int8_blocks"].load(), operands)
    assert row.materialises is False, row.allocation
    few = {name: x if name == "query" else signs(x) for name, x in GROUPED.items()}
    whole = row_of(entries()["cache.int8_per_head"].load(), few)
    assert whole.materialises is True


@torch.library.custom_op("equivalence_test::attention", mutates_args=())
def copies_inside(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A kernel of another library, of which no step is seen."""
    room = torch.empty_like(key).copy_(key)
    return torch.nn.functional.scaled_dot_product_attention(query, room, value, enable_gqa=True)


def test_a_copy_inside_a_kernel_is_seen():
    def kernel(query, key, value):
        return copies_inside(query, key, value)

    row = row_of(LocalTarget.of(kernel, name="k"))
    assert row.allocation.copies == ("copy_ 1x2x256x64 inside equivalence_test::attention",)
    assert row.materialises is True


def test_what_refuses_to_be_followed_is_known_by_its_bytes():
    class Compiled:
        """Stands for compiled code, which no dispatch mode can look into."""

        def __call__(self, query, key, value):
            if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
                raise NotImplementedError("no rule registered for this mode")
            return entries()["torch.repeat_kv"].load().function(query, key, value)

    row = row_of(LocalTarget.of(Compiled(), name="k"))
    assert not row.allocation.traced
    assert row.materialises is True


def test_a_runtime_behind_torch_tensors_is_not_said_to_copy_nothing():
    def kernel(query, key, value):
        """Takes torch's memory, as other runtimes do, and answers without torch."""
        wide = key.detach().numpy()
        weights = np.ones((1, 8, 1, 256), np.float32) / 256
        del wide
        return weights[..., :64]

    row = row_of(LocalTarget.of(kernel, name="k"))
    assert row.allocation.allocated is None
    assert row.materialises is None
