"""An 8-bit cache that is read once: small blocks become float32 while they are used, not before."""

from __future__ import annotations

import torch
from torch import Tensor

from equivalence.backends.int8_parts import quantised
from equivalence.backends.one_sequence import grouped, visible_keys, wide
from equivalence.declaration import kv_cache as declare

BLOCK_ELEMENTS = 2**17  # of keys or values in float32 at a time: half a MiB, which stays in cache


class Int8BlocksCache:
    """int8 numbers ``[B, Hkv, max_len, D]`` and a float32 step for each token and head."""

    def __init__(self, *, batch_size: int, num_kv_heads: int, head_dim: int, max_len: int) -> None:
        shape = (batch_size, num_kv_heads, max_len, head_dim)
        self.length, self.max_len = 0, max_len
        self.key, self.value = (torch.zeros(shape, dtype=torch.int8) for _ in range(2))
        self.key_step, self.value_step = (torch.zeros(*shape[:3]) for _ in range(2))

    def append(self, key: Tensor, value: Tensor) -> None:
        """``[B, Hkv, n, D]``. Raises ValueError past max_len."""
        end = self.length + key.shape[2]
        if end > self.max_len:
            raise ValueError(f"{end} tokens exceed {self.max_len}")
        for given, numbers, steps in (
            (key, self.key, self.key_step),
            (value, self.value, self.value_step),
        ):
            whole, step = quantised(given, 3)
            numbers[:, :, self.length : end] = whole
            steps[:, :, self.length : end] = step.squeeze(3)
        self.length = end

    def attend(self, query: Tensor) -> Tensor:
        """``[B, H, q, D]``, in float32, block by block with an online softmax.

        The steps of the keys multiply the scores, and those of the values the weights.
        """
        batch_size, num_heads, q_len, width = query.shape
        num_kv_heads = self.key.shape[1]
        folded = grouped(wide(query), num_kv_heads).flatten(2, 3) * width**-0.5
        rows = folded.shape[2]
        seen = visible_keys(q_len, self.length, causal=True).repeat(rows // q_len, 1)
        top = folded.new_full((batch_size, num_kv_heads, rows, 1), -torch.inf)
        total = torch.zeros_like(top)
        sums = torch.zeros_like(folded)
        block = max(1, BLOCK_ELEMENTS // (batch_size * num_kv_heads * width))
        for start in range(0, self.length, block):
            place = slice(start, min(start + block, self.length))
            keys = self.key[:, :, place].to(folded.dtype)
            scores = folded @ keys.transpose(2, 3) * self.key_step[:, :, None, place]
            scores = scores.masked_fill(~seen[:, place], -torch.inf)
            higher = torch.maximum(top, scores.amax(dim=3, keepdim=True))
            # A row that has seen nothing yet stays at zero; exp(-inf - -inf) would be NaN.
            level = higher.where(higher > -torch.inf, 0.0)
            kept, weights = torch.exp(top - level), torch.exp(scores - level)
            total = total * kept + weights.sum(dim=3, keepdim=True)
            values = self.value[:, :, place].to(folded.dtype)
            sums = sums * kept + (weights * self.value_step[:, :, None, place]) @ values
            top = higher
        output = torch.where(total > 0, sums / total, 0.0)
        return output.view(batch_size, num_heads, q_len, width).to(query.dtype)

    @property
    def positions(self) -> Tensor:
        """int64 ``[L]``."""
        return torch.arange(self.length)

    @property
    def nbytes(self) -> int:
        """The bytes of the numbers and steps in use."""
        tensors = (self.key, self.value, self.key_step, self.value_step)
        return sum(tensor[:, :, : self.length].nbytes for tensor in tensors)

    def truncate(self, length: int) -> None:
        """Keep the oldest ``length`` tokens."""
        self.length = length


@declare(
    dtypes=("float32", "float16", "bfloat16"),
    profile="f32",
    hidden_nan="ignored",
    quantised="int8",
    deterministic=True,
    grouped=True,
)
def cache(
    *, batch_size: int, num_kv_heads: int, head_dim: int, max_len: int, dtype: torch.dtype
) -> Int8BlocksCache:
    """A step for each token and head; whatever the dtype, the sums are float32."""
    del dtype
    return Int8BlocksCache(
        batch_size=batch_size, num_kv_heads=num_kv_heads, head_dim=head_dim, max_len=max_len
    )
