"""Decode steps of whole layers, written in torch: projections, attention over the cache, output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from equivalence.dtypes import Array

if TYPE_CHECKING:
    from torch import Tensor


class Cached(tuple[Any, ...]):
    """The tensors that a design keeps of the tokens."""

    __slots__ = ()


@dataclass(kw_only=True)
class Step:
    """One step; the tensors are torch's, in one format.

    hidden ``[B, m]``; w_q ``[m, H * width]``; w_new ``[m, what a token keeps]``; w_o ``[H * d,
    m]``; cached: what is kept of the tokens, to which the step adds nothing.
    """

    name: str
    hidden: Tensor
    w_q: Tensor
    w_new: Tensor
    w_o: Tensor
    cached: Cached
    num_heads: int
    head_dim: int

    def __call__(self) -> Tensor:
        """The step that is timed: ``[B, m]``."""
        new = self.hidden @ self.w_new  # of this token; not written to the cache
        output = self.output(self.core(self.project()))
        del new
        return output

    def project(self) -> Tensor:
        """``[B, H * width]``."""
        return self.hidden @ self.w_q

    def core(self, query: Tensor) -> Tensor:
        """Attention over the cache: ``[B, H, 1, d]``."""
        raise NotImplementedError

    def output(self, heads: Tensor) -> Tensor:
        """``[B, m]``."""
        return heads.reshape(heads.shape[0], -1) @ self.w_o

    def truth(self, query: Tensor) -> dict[str, Array]:
        """What the attention is judged on, by the words of its kind, in float64."""
        raise NotImplementedError

    @property
    def weights(self) -> Iterator[Tensor]:
        """All weights that a step reads."""
        yield from (self.w_q, self.w_new, self.w_o)

    @property
    def cache_bytes(self) -> int:
        """Bytes kept of the tokens."""
        return sum(tensor.nbytes for tensor in self.cached)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(tensor.nbytes for tensor in self.weights)

    @property
    def flops(self) -> int:
        """Additions and multiplications, those of the projections included."""
        batch = self.hidden.shape[0]
        shared = sum(weight.numel() for weight in (self.w_q, self.w_new, self.w_o))
        return 2 * batch * shared + self.attention_flops

    @property
    def attention_flops(self) -> int:
        """Those of the attention alone."""
        raise NotImplementedError


@dataclass(kw_only=True)
class Grouped(Step):
    """Key/value heads ``[B, Hkv, S, d]``; ``function`` is an attention kernel."""

    function: Callable[..., Any]

    def core(self, query: Tensor) -> Tensor:
        split: Tensor = query.view(query.shape[0], self.num_heads, 1, self.head_dim)
        result: Tensor = self.function(split, *self.cached)
        return result

    def truth(self, query: Tensor) -> dict[str, Array]:
        split = query.view(query.shape[0], self.num_heads, 1, self.head_dim)
        return {"query": _wide(split), "key": _wide(self.cached[0]), "value": _wide(self.cached[1])}

    @property
    def attention_flops(self) -> int:
        batch, _, tokens, width = self.cached[0].shape
        return int(4 * batch * self.num_heads * tokens * width)


@dataclass(kw_only=True)
class Latent(Step):
    """The latent and the rotary key of each token in one buffer ``[B, S, d_c + d_R]``.

    w_uk and w_uv ``[H, d, d_c]``. The rotary part of the query counts as rotated already.
    """

    w_uk: Tensor
    w_uv: Tensor
    rope_dim: int

    @property
    def rank(self) -> int:
        """d_c."""
        return int(self.w_uk.shape[-1])

    @property
    def scale(self) -> float:
        """(d + d_R) ** -0.5."""
        width = self.head_dim + self.rope_dim
        return float(width**-0.5)

    def parts(self, query: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Content and rotary part of the query ``[B, H, 1, ...]``, latents and rotary keys."""
        split = query.view(query.shape[0], self.num_heads, 1, self.head_dim + self.rope_dim)
        (cache,) = self.cached
        return (
            split[..., : self.head_dim],
            split[..., self.head_dim :],
            cache[..., : self.rank],
            cache[..., self.rank :],
        )

    def truth(self, query: Tensor) -> dict[str, Array]:
        content, rotary, latent, key_rotary = self.parts(query)
        named = {
            "query_content": content,
            "query_rotary": rotary,
            "latent": latent,
            "key_rotary": key_rotary,
            "w_uk": self.w_uk,
            "w_uv": self.w_uv,
        }
        return {name: _wide(tensor) for name, tensor in named.items()}

    @property
    def weights(self) -> Iterator[Tensor]:
        yield from (self.w_q, self.w_new, self.w_o, self.w_uk, self.w_uv)


@dataclass(kw_only=True)
class Absorbed(Latent):
    """Every head against the cache itself, which two products read where it lies.

    The second takes the rotary keys along and drops their sums: a product with the latents alone
    would have a slice for an operand, which torch's 16-bit product copies first.
    """

    def core(self, query: Tensor) -> Tensor:
        import torch

        content, rotary, _, _ = self.parts(query)
        (cache,) = self.cached
        inside = torch.cat([content @ self.w_uk, rotary], dim=-1).squeeze(2)
        scores = torch.bmm(inside, cache.transpose(1, 2)) * self.scale
        wide = torch.promote_types(scores.dtype, torch.float32)
        weights = scores.to(wide).softmax(dim=-1).to(scores.dtype)
        sums = torch.bmm(weights, cache)[..., : self.rank].unsqueeze(2)
        result: Tensor = sums @ self.w_uv.transpose(-2, -1)
        return result

    @property
    def attention_flops(self) -> int:
        batch, tokens, kept = self.cached[0].shape
        per_head = 2 * tokens * kept + 2 * self.head_dim * self.rank
        return int(2 * batch * self.num_heads * per_head)


@dataclass(kw_only=True)
class Expanded(Latent):
    """A kernel of kind ``mla``; ``rebuilds``: it makes every key and value from the latents."""

    function: Callable[..., Any]
    rebuilds: bool = True

    def core(self, query: Tensor) -> Tensor:
        content, rotary, latent, key_rotary = self.parts(query)
        result: Tensor = self.function(
            content, rotary, latent, key_rotary, self.w_uk, self.w_uv, scale=self.scale
        )
        return result

    @property
    def attention_flops(self) -> int:
        batch, tokens, kept = self.cached[0].shape
        if not self.rebuilds:
            per_head = tokens * (kept + self.rank) + 2 * self.head_dim * self.rank
        else:
            per_head = tokens * 2 * self.head_dim * (self.rank + 1) + tokens * self.rope_dim
        return int(2 * batch * self.num_heads * per_head)


def _wide(tensor: Tensor) -> Array:
    import torch

    array: Array = tensor.detach().cpu().to(torch.float64).numpy()
    return array
