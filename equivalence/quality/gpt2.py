"""GPT-2 with a number of key/value heads of one's own, under the names of its weights.

Radford et al. (2019). With ``num_kv_heads == num_heads`` it is the model of transformers; with
fewer, ``c_attn`` is [n_embd, (num_heads + 2 num_kv_heads) * head_dim].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from equivalence.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a GPT-2."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocabulary: int
    max_tokens: int

    @property
    def width(self) -> int:
        """n_embd."""
        return self.num_heads * self.head_dim

    def grouped(self, num_kv_heads: int) -> Shape:
        """The same with other key/value heads."""
        require(
            num_kv_heads >= 1 and self.num_heads % num_kv_heads == 0,
            f"num_heads={self.num_heads} must be a multiple of num_kv_heads={num_kv_heads}",
        )
        return replace(self, num_kv_heads=num_kv_heads)


class Affine(nn.Module):
    """x [..., inputs] @ weight [inputs, outputs] + bias, the way round that GPT-2 keeps it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Attention(nn.Module):
    """Causal attention in which query head h reads key/value head h // group_size."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        heads = shape.num_heads + 2 * shape.num_kv_heads
        self.c_attn = Affine(shape.width, heads * shape.head_dim)
        self.c_proj = Affine(shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        shape = self.shape
        sizes = [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads]
        heads = self.c_attn(x).unflatten(-1, (sum(sizes), shape.head_dim)).transpose(-2, -3)
        query, key, value = heads.split(sizes, dim=-3)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=shape.num_kv_heads != shape.num_heads
        )
        projected: Tensor = self.c_proj(mixed.transpose(-2, -3).flatten(-2))
        return projected


class Feed(nn.Module):
    """The two layers between attentions, with the tanh form of GELU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc = Affine(width, 4 * width)
        self.c_proj = Affine(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        fed: Tensor = self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))
        return fed


class Block(nn.Module):
    """One layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(shape.width)
        self.attn = Attention(shape)
        self.ln_2 = nn.LayerNorm(shape.width)
        self.mlp = Feed(shape.width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        fed: Tensor = x + self.mlp(self.ln_2(x))
        return fed


class Gpt2(nn.Module):
    """tokens [B, S] -> logits [B, S, vocabulary]; the last layer is the embedding, transposed."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.wte = nn.Embedding(shape.vocabulary, shape.width)
        self.wpe = nn.Embedding(shape.max_tokens, shape.width)
        self.h = nn.ModuleList(Block(shape) for _ in range(shape.num_layers))
        self.ln_f = nn.LayerNorm(shape.width)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[-1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        logits: Tensor = self.ln_f(x) @ self.wte.weight.T
        return logits


def from_weights(state: Mapping[str, Tensor], shape: Shape) -> Gpt2:
    """The model that holds these weights, named as transformers names GPT-2's."""
    own = {name.removeprefix("transformer."): weight for name, weight in state.items()}
    ignored = (".attn.bias", ".attn.masked_bias")  # masks that old checkpoints carry
    kept = {n: w for n, w in own.items() if not n.endswith(ignored) and n != "lm_head.weight"}
    model = Gpt2(shape).to(next(iter(kept.values())).dtype)
    model.load_state_dict(kept)
    return model
