"""Keys in parts, put together without a thought for a part that a row does not see at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.engine import Request, check_target
from tests.diagnosis.asking import diagnosis_of
from tests.diagnosis.hunting import fails

NAN = "is NaN: -inf minus -inf, where parts of the keys are put together"


def scores_of(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask


def merged(query: Tensor, key: Tensor, value: Tensor, *, attn_mask: Any = None) -> Tensor:
    """Two halves of the keys, merged by their log-sum-exps."""
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        raise NotImplementedError("boolean masks only")
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = scores_of(query, key, attn_mask)
    half = -(-key.shape[2] // 2)
    parts = [(scores[..., :half], value[:, :, :half]), (scores[..., half:], value[:, :, half:])]
    parts = [part for part in parts if part[0].shape[-1]]
    sums = torch.stack([score.logsumexp(-1, keepdim=True) for score, _ in parts])
    outputs = torch.stack([score.softmax(-1) @ rows for score, rows in parts])
    return ((sums - sums.logsumexp(0)).exp() * outputs).sum(0)


def online(query: Tensor, key: Tensor, value: Tensor, *, attn_mask: Any = None) -> Tensor:
    """An online softmax over tiles of 16 keys."""
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = scores_of(query, key, attn_mask)
    top = torch.full((*scores.shape[:3], 1), -torch.inf)
    total, output = torch.zeros_like(top), torch.zeros(*scores.shape[:3], value.shape[-1])
    for tile, rows in zip(scores.split(16, -1), value.split(16, 2), strict=True):
        higher = torch.maximum(top, tile.amax(-1, keepdim=True))
        weights, kept = (tile - higher).exp(), (top - higher).exp()
        total = total * kept + weights.sum(-1, keepdim=True)
        output = output * kept + weights @ rows
        top = higher
    return output / total


def nothing(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """NaN, whatever it is given."""
    return torch.full((*query.shape[:3], value.shape[3]), torch.nan)


def test_nothing_but_nan_is_told_as_it_is() -> None:
    assert found(nothing) == [
        "every output is NaN, on the case and on larger ones with other numbers"
    ]


def guarded(query: Tensor, key: Tensor, value: Tensor, *, attn_mask: Any = None) -> Tensor:
    """Parts of 16 keys, merged by their log-sum-exps, as flash decoding does it."""
    if query.shape[1] % key.shape[1]:
        raise NotImplementedError("heads")
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = scores_of(query, key, attn_mask)
    if not key.shape[2]:
        return torch.zeros(*query.shape[:3], value.shape[-1])
    parts = list(zip(scores.split(16, -1), value.split(16, 2), strict=True))
    sums = torch.stack([score.logsumexp(-1, keepdim=True) for score, _ in parts])
    outputs = torch.stack([score.softmax(-1).nan_to_num(0.0) @ rows for score, rows in parts])
    whole = sums.logsumexp(0)
    return ((sums - torch.where(whole.isfinite(), whole, 0.0)).exp() * outputs).sum(0)


def found(kernel: Any, **facts: Any) -> list[str]:
    target = LocalTarget.of(kernel, name="kernel", facts=facts)
    asked = Request(examples=25, dtypes=("float32",), laws=("agrees-with-float64",))
    return [failure.diagnosis.text for failure in check_target(target, asked).failures]


def test_a_merge_by_log_sum_exps_is_advised_its_profile() -> None:
    outliers = AttentionCase(
        batch_size=2, num_kv_heads=2, q_len=6, kv_len=65, head_dim=9, values="outliers",
        magnitude=30.0,
    )  # fmt: skip
    advice = "within that of profile split; --declare profile=split accepts it"
    drawn = (outliers.but(seed=seed) for seed in range(100))
    case = next(case for case in drawn if fails(guarded, case))
    assert diagnosis_of(guarded, case).text.endswith(advice)
    assert found(guarded, profile="split") == []


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (merged, f"a row that sees nothing of one of 2 equal parts {NAN}"),
        (online, f"a row that sees nothing of the first 16 keys {NAN}"),
    ],
)
def test_a_part_that_sees_nothing_is_named(kernel: Any, text: str) -> None:
    target = LocalTarget.of(kernel, name="kernel")
    asked = Request(
        examples=25, dtypes=("float32",), laws=("agrees-with-float64", "key-permutation")
    )
    result = check_target(target, asked)
    first = result.failures[0]
    assert (first.diagnosis.kind, first.diagnosis.text) == ("lse-merge", text)
    assert "unknown" not in {failure.diagnosis.kind for failure in result.failures}
