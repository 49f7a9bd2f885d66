"""Mistakes that a simpler one looks like on the smallest case: the right one is told."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from equivalence.calling import LocalTarget
from equivalence.engine import Request, check_target
from tests.diagnosis.asking import diagnosis_of
from tests.diagnosis.hunting import hunted


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    seen: Tensor | None = None,
    bias: Tensor | None = None,
    head_of: Tensor | None = None,
) -> Tensor:
    """Grouped attention; head_of: which key/value head each query head reads."""
    heads, kv_heads = query.shape[1], key.shape[1]
    if heads % kv_heads:
        raise NotImplementedError("heads")
    head_of = torch.arange(heads) // (heads // kv_heads) if head_of is None else head_of
    scores = query @ key[:, head_of].mT * query.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0) @ value[:, head_of]


def shifted(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Divides by the group size with a shift, which is right for powers of two."""
    group = query.shape[1] // key.shape[1]
    head_of = torch.arange(query.shape[1]) >> (group.bit_length() - 1)
    return attend(query, key, value, head_of=head_of.clamp(max=key.shape[1] - 1))


def distances(query: Tensor, key: Tensor, *, offset: int) -> Tensor:
    row, column = torch.arange(query.shape[2])[:, None], torch.arange(key.shape[2])
    return (row + offset - column).abs()


def folded_slopes(query: Tensor, key: Tensor, value: Tensor, *, alibi_slopes: Any = None) -> Tensor:
    """Slopes reshaped to [group_size, num_kv_heads]."""
    if alibi_slopes is None:
        return attend(query, key, value)
    slopes = alibi_slopes.reshape(-1, key.shape[1]).T.reshape(1, -1, 1, 1)
    offset = key.shape[2] - query.shape[2]
    return attend(query, key, value, bias=-slopes * distances(query, key, offset=offset))


def corner_of_slopes(
    query: Tensor, key: Tensor, value: Tensor, *, alibi_slopes: Any = None
) -> Tensor:
    """Distances from the upper-left corner, which one query cannot tell from a wrong sign."""
    if alibi_slopes is None:
        return attend(query, key, value)
    bias = -alibi_slopes[None, :, None, None] * distances(query, key, offset=0)
    return attend(query, key, value, bias=bias)


def tiled_window(query: Tensor, key: Tensor, value: Tensor, *, window: int | None = None) -> Tensor:
    """Begins at the first whole tile of 4 inside the window."""
    if window is None:
        return attend(query, key, value)
    row = torch.arange(query.shape[2])[:, None] + key.shape[2] - query.shape[2]
    column = torch.arange(key.shape[2])
    first = (row - window + 4).div(4, rounding_mode="floor") * 4
    return attend(query, key, value, seen=(column <= row) & (column >= first))


def tail_twice(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The last tile of 8 begins where the one before it does, where it is not full."""
    start = key.shape[2] // 8 * 8
    if 0 < start < key.shape[2]:
        key, value = (torch.cat([x, x[:, :, start:]], 2) for x in (key, value))
    return attend(query, key, value)


def repeated_lengths(
    query: Tensor, key: Tensor, value: Tensor, *, kv_lengths: Any = None
) -> Tensor:
    """Lengths repeated for the heads as a whole, expected each of them for its own heads."""
    if kv_lengths is None:
        return attend(query, key, value)
    batch, heads = query.shape[:2]
    lengths = kv_lengths.repeat(heads).reshape(batch, heads, 1, 1)
    return attend(query, key, value, seen=torch.arange(key.shape[2]) < lengths)


@pytest.mark.parametrize(
    ("kernel", "options", "kind", "text"),
    [
        (shifted, (), "head-mapping", "the map is shifted (min(h >> log2(group_size) rounded"),
        (folded_slopes, ("alibi",), "mask-semantics", "the slopes are folded as (group, kv head)"),
        (corner_of_slopes, ("alibi",), "causal-alignment", "ALiBi distances are anchored upper-le"),
        (tiled_window, ("window",), "window", "a tile of 4 keys that the window hides in part is"),
        (tail_twice, (), "head-dim-tail", "keys beyond the last full tile of 8 count twice: "),
        (
            repeated_lengths,
            ("kv_lengths",),
            "padding",
            "uses the kv_length of batch row (b * num_heads + h) % batch_size",
        ),
    ],
)
def test_it_is_told(kernel: Any, options: tuple[str, ...], kind: str, text: str) -> None:
    case = hunted(kernel, "float32", options)
    assert case is not None
    found = diagnosis_of(kernel, case)
    assert (found.kind, text in found.text) == (kind, True), (case, found)


def nothing(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Forgets to return."""


def test_a_kernel_that_returns_nothing_has_one_fault() -> None:
    """No answer is not an answer to heads that it should refuse."""
    target = LocalTarget.of(nothing, name="kernel")
    laws = ("agrees-with-float64", "bad-head-counts-are-refused")
    found = check_target(target, Request(examples=5, dtypes=("float32",), laws=laws)).failures
    assert [one.diagnosis.kind for one in found] == ["wrong-shape"]
