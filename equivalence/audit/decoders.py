"""A whole decode step of EXAONE 4 as a torch module, to be converted and counted.

As ``transformers`` writes it: RMSNorm of queries and keys and behind each block, rotary
embeddings, a gated feed-forward, an embedding and a head. Hidden width and vocabulary are small
and the weights random: how many operations a graph has depends on neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from equivalence.audit.recipes import DECODED, Recipe, attend_of, taking
from equivalence.errors import require

WIDTH: Final = 64  # of hidden states, of the feed-forward and of the vocabulary
EPSILON: Final = 1e-5
THETA: Final = 1e6


class Norm(nn.Module):
    """RMSNorm over the last axis."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON))


class Block(nn.Module):
    """The weights of one layer, by the names of ``transformers``."""

    def __init__(self, recipe: Recipe, attend: Any) -> None:
        super().__init__()
        inner, kept = (n * recipe.head_dim for n in (recipe.num_heads, recipe.num_kv_heads))
        self.attend: Final = attend
        self.q_proj, self.o_proj = _linear(WIDTH, inner), _linear(inner, WIDTH)
        self.k_proj, self.v_proj = _linear(WIDTH, kept), _linear(WIDTH, kept)
        self.q_norm, self.k_norm = Norm(recipe.head_dim), Norm(recipe.head_dim)
        self.post_attention_layernorm = Norm(WIDTH)
        self.gate_proj, self.up_proj = _linear(WIDTH, WIDTH), _linear(WIDTH, WIDTH)
        self.down_proj = _linear(WIDTH, WIDTH)
        self.post_feedforward_layernorm = Norm(WIDTH)

    def fed(self, x: Tensor) -> Tensor:
        """The gated feed-forward."""
        made: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return made


class Decoder(nn.Module):
    """token, position int32 ``[1, 1]`` and ``[1]``, mask ``[1, 1, 1, S]`` -> logits ``[1, 1, V]``.

    Of a cache that the caller keeps also key and value ``[1, Hkv, S - 1, D]`` of each layer; the
    new ones are put behind them, and returned for the caller to keep.
    """

    def __init__(self, recipe: Recipe, attend: Callable[..., Tensor] | None) -> None:
        super().__init__()
        self.recipe: Final = recipe
        self.embed_tokens = nn.Embedding(WIDTH, WIDTH)
        self.layers: Any = nn.ModuleList(
            Block(recipe, attend or attend_of(recipe.formulation)) for _ in range(recipe.layers)
        )
        self.norm = Norm(WIDTH)
        self.lm_head = _linear(WIDTH, WIDTH)
        pairs = torch.arange(0, recipe.head_dim, 2) / recipe.head_dim
        angles = torch.arange(recipe.context)[:, None] / THETA**pairs
        for name in ("cos", "sin"):  # tables: float16 angles would be wrong from 2,048 on
            table = getattr(torch, name)(torch.cat((angles, angles), -1))
            self.register_buffer(f"{name}_table", table, persistent=False)
        self.states: tuple[str, ...] = ()
        if recipe.cache == "state":
            shape = (1, recipe.num_kv_heads, recipe.context, recipe.head_dim)
            self.states = cache_names(recipe)
            for name in self.states:
                self.register_buffer(name, torch.zeros(shape).half())

    def run(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """One step."""
        token, position, mask, *past = tensors
        turn = tuple(self.get_buffer(f"{n}_table")[position][None, None] for n in ("cos", "sin"))
        x = self.embed_tokens(token)
        new: list[Tensor] = []
        for layer, block in enumerate(self.layers):
            query = self._turned(self._heads(block.q_proj(x), block.q_norm), turn)
            key = self._turned(self._heads(block.k_proj(x), block.k_norm), turn)
            value = self._heads(block.v_proj(x))
            if self.states:
                kept = [
                    self._written(f"{what}_cache_{layer}", made, position)
                    for what, made in (("key", key), ("value", value))
                ]
            else:
                pair = past[2 * layer : 2 * layer + 2]
                kept = [
                    torch.cat((old, made), 2) for old, made in zip(pair, (key, value), strict=True)
                ]
                new += [key, value]
            attended = block.attend(query, *kept, mask).transpose(1, 2).flatten(2)
            x = x + block.post_attention_layernorm(block.o_proj(attended))
            x = x + block.post_feedforward_layernorm(block.fed(x))
        return (self.lm_head(self.norm(x)), *new)

    def _heads(self, made: Tensor, norm: nn.Module | None = None) -> Tensor:
        parted = made.view(1, 1, -1, self.recipe.head_dim).transpose(1, 2)
        return parted if norm is None else norm(parted)

    def _turned(self, x: Tensor, turn: tuple[Tensor, ...]) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * turn[0] + torch.cat((-second, first), -1) * turn[1]

    def _written(self, name: str, made: Tensor, position: Tensor) -> Tensor:
        cache = self.get_buffer(name)
        cache[:, :, position : position + 1] = made
        return cache


def _linear(given: int, made: int) -> nn.Linear:
    return nn.Linear(given, made, bias=False)


def cache_names(recipe: Recipe) -> tuple[str, ...]:
    """The states of a decode step, in order."""
    return tuple(f"{w}_cache_{layer}" for layer in range(recipe.layers) for w in ("key", "value"))


def decoder_arguments(recipe: Recipe) -> list[str]:
    """The inputs of a decode step, in order."""
    caches = [name.replace("_cache", "") for name in cache_names(recipe)]
    return ["token", "position", "mask", *(caches if recipe.cache == "inputs" else ())]


def decoder_of(recipe: Recipe, attend: Callable[..., Tensor] | None = None) -> nn.Module:
    """The module of a recipe; its weights are the same for every formulation and cache."""
    require(
        recipe.model == DECODED and recipe.q_len == 1 and recipe.head_order == "grouped",
        f"--part decoder is one decode step of {DECODED} with grouped heads",
    )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        made: nn.Module = taking(decoder_arguments(recipe), Decoder)(recipe, attend).eval()
    return made


def decoder_example(recipe: Recipe) -> tuple[Tensor, ...]:
    """Zeros of the shapes of a decode step; those of a cache are one zero, seen many times."""
    zero = torch.zeros(1, dtype=getattr(torch, recipe.dtype))
    past = zero.expand(1, recipe.num_kv_heads, recipe.context - 1, recipe.head_dim)
    position = torch.zeros(1, dtype=torch.int32)
    count = len(decoder_arguments(recipe)) - 3
    return (position[None], position, zero.new_zeros(1, 1, 1, recipe.context), *[past] * count)


def decoder_numbers(recipe: Recipe, seed: int = 0) -> dict[str, Tensor]:
    """Numbers of one step, by input and state: the last token of a full cache."""
    generator = torch.Generator().manual_seed(seed)
    last = recipe.context - 1
    numbers = {
        "token": torch.tensor([[3]], dtype=torch.int32),
        "position": torch.tensor([last], dtype=torch.int32),
        "mask": torch.zeros(1, 1, 1, recipe.context).half(),
    }
    for name in cache_names(recipe):
        shape = (1, recipe.num_kv_heads, recipe.context, recipe.head_dim)
        numbers[name] = torch.randn(shape, generator=generator).half()
        numbers[name.replace("_cache", "")] = numbers[name][:, :, :last]
    return numbers
