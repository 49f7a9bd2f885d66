"""Softmax attention written out: products, a scale, a mask, a softmax."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn


class SpelledOut(nn.Module):
    """query ``[B, H, Sq, D]``, key and value ``[B, Hkv, Skv, D]``, maybe a mask of rank 4.

    causal: lower-right order in time, made inside. scale: None stands for D ** -0.5.
    """

    def __init__(self, *, causal: bool = False, scale: float | None = None) -> None:
        super().__init__()
        self.causal: Final = causal
        self.scale: Final = scale

    def scaled(self, scores: Tensor, query: Tensor) -> Tensor:
        """The scores times the scale."""
        return scores * (query.shape[-1] ** -0.5 if self.scale is None else self.scale)

    def hidden(self, query: Tensor, key: Tensor) -> Tensor:
        """The pairs that causal order hides: bool ``[Sq, Skv]``."""
        q_len, kv_len = query.shape[2], key.shape[2]
        place = torch.arange(q_len, device=query.device)[:, None] + (kv_len - q_len)
        return torch.arange(kv_len, device=query.device) > place

    def masked(self, scores: Tensor, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """Scores ``[B, H, Sq, Skv]`` with -inf at hidden pairs and an additive mask added."""
        if self.causal:
            scores = scores.masked_fill(self.hidden(query, key), -torch.inf)
        if mask is None:
            return scores
        if mask.dtype == torch.bool:
            return scores.masked_fill(~mask, -torch.inf)
        return scores + mask


def repeated(x: Tensor, groups: int) -> Tensor:
    """Hugging Face's repeat_kv: each head ``groups`` times, one beside the other."""
    batch, heads, length, width = x.shape
    wide = x[:, :, None].expand(batch, heads, groups, length, width)
    return wide.reshape(batch, heads * groups, length, width)


class RepeatKV(SpelledOut):
    """Keys and values expanded to the heads of the query, as Hugging Face's eager code does."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        groups = query.shape[1] // key.shape[1]
        wide_key, wide_value = repeated(key, groups), repeated(value, groups)
        scores = self.scaled(query @ wide_key.transpose(2, 3), query)
        return torch.softmax(self.masked(scores, query, key, mask), -1) @ wide_value


class RepeatInterleave(SpelledOut):
    """Keys and values repeated by ``repeat_interleave``."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        groups = query.shape[1] // key.shape[1]
        wide_key = torch.repeat_interleave(key, groups, dim=1)
        wide_value = torch.repeat_interleave(value, groups, dim=1)
        scores = self.scaled(query @ wide_key.transpose(2, 3), query)
        return torch.softmax(self.masked(scores, query, key, mask), -1) @ wide_value


class QFoldDecode(SpelledOut):
    """One query: the heads of a group are the rows of one product, and nothing is repeated."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        batch, heads, _, width = query.shape
        kv_heads = key.shape[1]
        groups = heads // kv_heads
        folded = query.reshape(batch, kv_heads, groups, width)
        scores = self.scaled(folded @ key.transpose(2, 3), query)
        if mask is not None and mask.shape[1] != 1:
            mask = mask.reshape(mask.shape[0], kv_heads, groups, mask.shape[3])
        probabilities = torch.softmax(self.masked(scores, query, key, mask), -1)
        return (probabilities @ value).reshape(batch, heads, 1, value.shape[3])


class QFoldPrefill(SpelledOut):
    """Groups times queries as rows, in rank 4; viewed by head for mask and softmax."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        batch, heads, q_len, width = query.shape
        kv_heads, kv_len = key.shape[1], key.shape[2]
        rows = heads // kv_heads * q_len
        folded = query.reshape(batch, kv_heads, rows, width)
        scores = self.scaled(folded @ key.transpose(2, 3), query)
        by_head = self.masked(scores.reshape(batch, heads, q_len, kv_len), query, key, mask)
        probabilities = torch.softmax(by_head, -1).reshape(batch, kv_heads, rows, kv_len)
        return (probabilities @ value).reshape(batch, heads, q_len, value.shape[3])


class QFoldWideMask(SpelledOut):
    """The same, with the mask expanded to the rows instead."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        batch, heads, q_len, width = query.shape
        kv_heads = key.shape[1]
        groups = heads // kv_heads
        folded = query.reshape(batch, kv_heads, groups * q_len, width)
        scores = self.scaled(folded @ key.transpose(2, 3), query)
        if self.causal:
            hidden = self.hidden(query, key).repeat(groups, 1)
            scores = scores.masked_fill(hidden, -torch.inf)
        if mask is not None:
            wide = row_mask(mask, heads, kv_heads, q_len)
            if mask.dtype == torch.bool:
                scores = scores.masked_fill(~wide, -torch.inf)
            else:
                scores = scores + wide
        folded_output = torch.softmax(scores, -1) @ value
        return folded_output.reshape(batch, heads, q_len, value.shape[3])


def row_mask(mask: Tensor, heads: int, kv_heads: int, q_len: int) -> Tensor:
    """A mask ``[B or 1, H or 1, Sq or 1, Skv]`` for the rows ``G * Sq`` of folded queries."""
    batch, kv_len = mask.shape[0], mask.shape[3]
    groups = heads // kv_heads
    own_heads = kv_heads if mask.shape[1] != 1 else 1
    own_groups = groups if mask.shape[1] != 1 else 1
    by_group = mask.reshape(batch, own_heads, own_groups, mask.shape[2], kv_len)
    wide = by_group.expand(batch, own_heads, groups, q_len, kv_len)
    return wide.reshape(batch, own_heads, groups * q_len, kv_len)


class Broadcast(SpelledOut):
    """Rank 5: the group is an axis over which keys and values broadcast."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        batch, heads, q_len, width = query.shape
        kv_heads, kv_len = key.shape[1], key.shape[2]
        wide = query.reshape(batch, kv_heads, heads // kv_heads, q_len, width)
        scores = self.scaled(wide @ key[:, :, None].transpose(3, 4), query)
        by_head = self.masked(scores.reshape(batch, heads, q_len, kv_len), query, key, mask)
        probabilities = torch.softmax(by_head, -1)
        by_group = probabilities.reshape(batch, kv_heads, heads // kv_heads, q_len, kv_len)
        return (by_group @ value[:, :, None]).reshape(batch, heads, q_len, value.shape[3])


class Einsum(SpelledOut):
    """Rank 5 by ``einsum``, which names the axes."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        batch, heads, q_len, width = query.shape
        kv_heads, kv_len = key.shape[1], key.shape[2]
        wide = query.reshape(batch, kv_heads, heads // kv_heads, q_len, width)
        scores = self.scaled(torch.einsum("bhgld,bhsd->bhgls", wide, key), query)
        by_head = self.masked(scores.reshape(batch, heads, q_len, kv_len), query, key, mask)
        probabilities = torch.softmax(by_head, -1)
        by_group = probabilities.reshape(batch, kv_heads, heads // kv_heads, q_len, kv_len)
        output = torch.einsum("bhgls,bhsd->bhgld", by_group, value)
        return output.reshape(batch, heads, q_len, value.shape[3])
