"""Packed tokens in plain torch, one sequence after the other."""

from __future__ import annotations

from torch import Tensor

from equivalence.backends.one_sequence import attend, visible_keys
from equivalence.declaration import varlen as declare


@declare(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="lower_right",
    profile="f32",
    masked_rows="zeros",
    hidden_nan="ignored",
    deterministic=True,
    grouped=True,
)
def one_by_one(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    window_size: tuple[int, int] | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Each sequence by itself, in float32 (float64 for float64).

    query ``[total_q, H, D]``, key ``[total_k, Hkv, D]``, value ``[total_k, Hkv, Dv]``,
    cu_seqlens ``[N + 1]`` -> ``[total_q, H, Dv]``; zeros where a query sees no key.
    Raises Unsupported where H is no multiple of Hkv.
    """
    output = query.new_zeros(*query.shape[:2], value.shape[-1])
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for i in range(len(ends_q) - 1):
        rows, keys = slice(*ends_q[i : i + 2]), slice(*ends_k[i : i + 2])
        q, k, v = (x.transpose(0, 1) for x in (query[rows], key[keys], value[keys]))
        seen = visible_keys(
            q.shape[1],
            k.shape[1],
            causal=causal,
            window=window,
            window_size=window_size,
            device=query.device,
        )
        output[rows] = attend(q, k, v, seen, scale, softcap).transpose(0, 1)
    return output
