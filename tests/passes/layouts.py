"""Generated ways of matching heads, and what a fold may make of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from equivalence.coreml.conversion import program_of
from equivalence.mil.graph import Graph

ORDERS: Final = ("grouped", "interleaved", "uneven")
WAYS: Final = ("expand", "index", "stack", "concat", "multiply")
MIXING: Final = ("none", "roll", "talking", "over_heads", "mean", "swap")
MASKS: Final = ("none", "shared", "per_head")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One attention: how key/value heads are repeated, and what happens between the products."""

    key_order: str = "grouped"
    value_order: str = "grouped"
    way: str = "expand"
    mixing: str = "none"
    mask: str = "none"
    batch_size: int = 1
    num_kv_heads: int = 2
    group_size: int = 2
    q_len: int = 1
    kv_len: int = 3
    head_dim: int = 2
    repeat_transposed: bool = False
    read_again: bool = False
    softcap: bool = False
    key_changed: bool = False

    @property
    def num_heads(self) -> int:
        return self.num_kv_heads * self.group_size

    @property
    def foldable(self) -> bool | None:
        """Whether the pass must fold it; None where it may do either."""
        orders = {self.key_order, self.value_order}
        one = self.num_kv_heads == 1
        plain = self.mixing == "none" and not self.read_again and not self.key_changed
        if not plain or not (one or orders == {"grouped"}):
            return False
        return None if self.way == "multiply" else True

    def heads(self, order: str) -> list[int]:
        """Which key/value head each query head reads."""
        kv, group = self.num_kv_heads, self.group_size
        if order == "interleaved":
            return [h % kv for h in range(self.num_heads)]
        heads = [h // group for h in range(self.num_heads)]
        if order == "uneven" and kv > 1:
            heads[group] = 0  # one head more reads the first
        return heads


SIZES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "way": st.sampled_from(WAYS),
    "mask": st.sampled_from(MASKS),
    "batch_size": st.integers(1, 2),
    "num_kv_heads": st.integers(1, 4),
    "group_size": st.integers(2, 3),
    "q_len": st.integers(1, 3),
    "kv_len": st.integers(2, 5),
    "head_dim": st.integers(2, 4),
    "repeat_transposed": st.booleans(),
    "softcap": st.booleans(),
}
plain = st.builds(Layout, **SIZES)
others = st.builds(
    Layout,
    **SIZES,
    key_order=st.sampled_from(ORDERS),
    value_order=st.sampled_from(ORDERS),
    mixing=st.sampled_from(MIXING),
    read_again=st.sampled_from((False, False, True)),
    key_changed=st.sampled_from((False, False, True)),
)
layouts = plain | others


class Attention(nn.Module):
    """The torch module of a layout."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout

    def repeated(self, x: Tensor, order: str) -> Tensor:
        about = self.layout
        heads = about.heads(order)
        batch, kv, rows, width = x.shape
        wide = (batch, about.num_heads, rows, width)
        regular = order != "uneven"
        if about.way == "expand" and regular:
            axis = 2 if order == "grouped" else 1
            shape = (batch, kv, about.group_size, rows, width)
            if axis == 1:
                shape = (batch, about.group_size, kv, rows, width)
            return x.unsqueeze(axis).expand(shape).reshape(wide)
        if about.way == "multiply" and order == "grouped":
            ones = torch.ones(1, 1, about.group_size, 1, 1)
            return (x[:, :, None] * ones).reshape(wide)
        if about.way == "index":
            return torch.index_select(x, 1, torch.tensor(heads))
        if about.way == "stack" and order == "grouped":
            return torch.stack([x] * about.group_size, 2).reshape(wide)
        return torch.cat([x[:, h : h + 1] for h in heads], 1)

    def mixed(self, scores: Tensor) -> Tensor:
        match self.layout.mixing:
            case "roll":
                return torch.cat([scores[:, 1:], scores[:, :1]], 1)
            case "mean":
                return scores + scores.mean(1, keepdim=True)
            case "talking":
                mixing = torch.arange(1.0, 1 + self.layout.num_heads**2)
                weights = mixing.reshape(self.layout.num_heads, -1).sin()
                return torch.einsum("bhqk,hg->bgqk", scores, weights)
            case "swap":
                shape = scores.shape
                by_kv = scores.reshape(shape[0], -1, self.layout.num_kv_heads, *shape[2:])
                return by_kv.transpose(1, 2).reshape(shape)
        return scores

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Any:
        about = self.layout
        if about.repeat_transposed:
            turned = self.repeated(key.transpose(2, 3), about.key_order)
        else:
            turned = self.repeated(key, about.key_order).transpose(2, 3)
        if about.key_changed:
            turned = torch.tanh(turned)
        wide = self.repeated(value, about.value_order)
        scores = self.mixed(query @ turned * 0.5)
        if about.softcap:
            scores = 3.0 * torch.tanh(scores / 3.0)
        if about.mask != "none":
            scores = scores + mask
        axis = 1 if about.mixing == "over_heads" else -1
        output = torch.softmax(scores, axis) @ wide
        return (output, turned.sum(2)) if about.read_again else output


def example(layout: Layout, seed: int = 0) -> dict[str, Tensor]:
    """Tensors of the layout's shapes, float32 numbers."""
    generator = torch.Generator().manual_seed(seed)
    kv = (layout.batch_size, layout.num_kv_heads, layout.kv_len, layout.head_dim)
    heads = layout.num_heads if layout.mask == "per_head" else 1
    shapes = {
        "query": (layout.batch_size, layout.num_heads, layout.q_len, layout.head_dim),
        "key": kv,
        "value": kv,
        "mask": (1, heads, layout.q_len, layout.kv_len),
    }
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def converted(layout: Layout) -> Any:
    """The MIL program of a layout."""
    return program_of(Attention(layout), tuple(example(layout, 1).values()))


def outputs(program: Any, layout: Layout) -> list[Tensor]:
    """What a program computes in mode double."""
    return list(Graph(program, mode="double")(example(layout)).values())


def furthest(before: list[Tensor], after: list[Tensor]) -> float:
    """The largest difference of two sets of outputs, as a share of the largest number."""
    assert [x.shape for x in before] == [x.shape for x in after]
    return max(
        float((a - b).abs().max() / (1 + a.abs().max())) for a, b in zip(before, after, strict=True)
    )
