"""Query heads folded into the query axis, whose rows are then masked as if they were queries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from equivalence.case import AttentionCase
from equivalence.diagnosis import suspects_folds
from equivalence.diagnosis.table import FAMILIES
from tests.diagnosis.asking import diagnosis_of
from tests.diagnosis.hunting import hunted

Count = Callable[[Tensor, int, int], Tensor]


def folded(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    by_query: bool,
    count: Count,
    ends: bool = False,
    is_causal: bool = False,
    window: int | None = None,
    attn_mask: Any = None,
) -> Tensor:
    """Grouped attention on one tall matrix of queries for each key/value head.

    by_query: row f is query f // group_size, and not f % q_len. count: as which query it is
    masked. ends: the last row ends at the last key, and not the last query.
    """
    batch, heads, q_len, width = query.shape
    kv_heads, kv_len = key.shape[1:3]
    if heads % kv_heads:
        raise NotImplementedError("heads")
    group = heads // kv_heads
    tall = query.reshape(batch, kv_heads, group, q_len, width)
    tall = (tall.transpose(2, 3) if by_query else tall).flatten(2, 3)
    scores = tall @ key.mT * width**-0.5
    row = count(torch.arange(group * q_len), group, q_len)
    diagonal = row[:, None] + kv_len - (group * q_len if ends else q_len)
    columns = torch.arange(kv_len)
    if is_causal or window is not None:
        scores = scores.masked_fill(columns > diagonal, -torch.inf)
    if window is not None:
        scores = scores.masked_fill(columns <= diagonal - window, -torch.inf)
    if attn_mask is not None:
        if attn_mask.shape[1] > 1:
            raise NotImplementedError("one mask for all heads")
        mask = attn_mask.expand(-1, -1, q_len, -1)[:, :, row]
        bias = torch.zeros_like(scores)
        is_bool = mask.dtype == torch.bool
        scores = scores + (bias.masked_fill(~mask, -torch.inf) if is_bool else mask)
    weights = scores.softmax(-1).nan_to_num(0.0)
    output = weights @ value
    if by_query:
        return output.unflatten(2, (q_len, group)).transpose(2, 3).flatten(1, 2)
    return output.unflatten(2, (group, q_len)).flatten(1, 2)


UNWRAPPED = [
    (False, lambda f, n, q: f, False, "i * q_len + r, expected r"),
    (True, lambda f, n, q: f, False, "r * group_size + i, expected r"),
    # which a single query shows already, and both folds alike
    (False, lambda f, n, q: f, True, "i of group_size, expected r"),
    (True, lambda f, n, q: f, True, "i of group_size, expected r"),
]
CONFUSED = [
    (False, lambda f, n, q: f // n, False, "(i * q_len + r) // group_size, expected r"),
    (True, lambda f, n, q: f % q, False, "(r * group_size + i) % q_len, expected r"),
]


@pytest.mark.parametrize(
    ("option", "kind", "fold"),
    [
        *(("causal", "causal-alignment", fold) for fold in UNWRAPPED + CONFUSED),
        *(("window", "window", fold) for fold in UNWRAPPED[:2] + CONFUSED),
        *(("mask", "mask-semantics", fold) for fold in CONFUSED),
    ],
)
def test_the_row_that_is_counted_is_told(option: str, kind: str, fold: Any) -> None:
    by_query, count, ends, words = fold
    kernel = partial(folded, by_query=by_query, count=count, ends=ends)
    case = hunted(kernel, "float32", (option,))
    assert case is not None
    found = diagnosis_of(kernel, case)
    assert (found.kind, found.text.endswith(f"is masked as query {words}")) == (kind, True), found


@pytest.mark.parametrize(
    ("by_query", "right"), [(False, lambda f, n, q: f % q), (True, lambda f, n, q: f // n)]
)
def test_the_right_count_is_right(by_query: bool, right: Count) -> None:
    kernel = partial(folded, by_query=by_query, count=right)
    assert hunted(kernel, "float32", ("causal", "window", "mask"), draws=100) is None


def test_a_layout_is_not_read_off_one_small_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2 queries and 2 heads the output is that of BSHD by chance; calls without causal deny it.

    Asked of a table that does not know the mistake, as if it were another one.
    """
    unknown = [family for family in FAMILIES["attention"] if family is not suspects_folds.rows]
    monkeypatch.setitem(FAMILIES, "attention", unknown)
    kernel = partial(folded, by_query=True, count=lambda f, n, q: f % q)
    case = AttentionCase(group_size=2, q_len=2, causal="lower_right")
    found = diagnosis_of(kernel, case)
    assert (found.kind, found.text) == (
        "causal-alignment",
        "right without causal, wrong with it: causal='lower_right'",
    )


@pytest.mark.parametrize(
    ("by_query", "row"), [(False, "i * q_len + r"), (True, "r * group_size + i")]
)
def test_of_several_queries_the_order_is_told(by_query: bool, row: str) -> None:
    kernel = partial(folded, by_query=by_query, count=lambda f, n, q: f, ends=True)
    case = AttentionCase(group_size=2, q_len=3, kv_len=8, causal="lower_right", values="normal")
    words = f"is masked as query {row} of group_size * q_len, expected r"
    assert diagnosis_of(kernel, case).text.endswith(words)
