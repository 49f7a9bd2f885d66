"""From multi-head attention to grouped: one key/value head for each group of query heads.

Ainslie et al. (2023), section 2.1: the key and value projections of each group are averaged, and
the model is then trained for a while. Keeping the first head of a group, or drawing new ones, are
there to compare. Query head h reads key/value head h // group_size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from equivalence.errors import InvalidRequest, require

if TYPE_CHECKING:
    from torch import Tensor

Method = Literal["mean", "first", "random"]
METHODS: Final = ("mean", "first", "random")
# GPT-2 keeps query, key and value in one matrix whose columns they are; Llama and those like it
# keep a matrix for each, whose rows they are.
GPT2: Final = re.compile(r"(.*\.|)attn\.c_attn\.(weight|bias)")
LLAMA: Final = re.compile(r"(.*\.|)self_attn\.([kv])_proj\.(weight|bias)")


def pool_heads(
    heads: Tensor, *, num_kv_heads: int, axis: int = 0, method: Method = "mean", seed: int = 0
) -> Tensor:
    """[num_heads, ...] -> [num_kv_heads, ...] along ``axis``, in the same dtype.

    "mean" is exact where it can be: groups of equal heads give that head, bit for bit, and the
    order inside a group does not matter. "random" draws from a normal distribution with the
    deviation of all heads.
    """
    import torch

    num_heads = heads.shape[axis]
    require(method in METHODS, f"method {method!r} is not one of {', '.join(METHODS)}")
    require(
        num_kv_heads >= 1 and num_heads % num_kv_heads == 0,
        f"num_heads={num_heads} must be a multiple of num_kv_heads={num_kv_heads}",
    )
    grouped = heads.movedim(axis, 0).unflatten(0, (num_kv_heads, num_heads // num_kv_heads))
    if method == "first":
        pooled = grouped[:, 0]
    elif method == "mean":
        # By value, so that the order of the heads is no matter; from the least, so that equal
        # ones leave nothing to round.
        ordered = grouped.double().sort(dim=1).values
        least = ordered[:, 0]
        pooled = least + (ordered - least.unsqueeze(1)).mean(dim=1)
    else:
        drawn = torch.randn(
            grouped[:, 0].shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        pooled = drawn * heads.double().std(correction=0)
    stored: Tensor = pooled.to(heads.dtype).movedim(0, axis).contiguous()
    return stored


def repeat_heads(heads: Tensor, *, group_size: int, axis: int = 0) -> Tensor:
    """[num_kv_heads, ...] -> [num_kv_heads * group_size, ...]: each head once a query head."""
    require(group_size >= 1, f"group_size={group_size} must be at least 1")
    return heads.repeat_interleave(group_size, dim=axis)


def pool_state_dict(
    state: Mapping[str, Tensor],
    *,
    num_heads: int,
    num_kv_heads: int,
    method: Method = "mean",
    seed: int = 0,
) -> dict[str, Tensor]:
    """The weights with ``num_kv_heads`` key/value heads; all else is left as it is.

    Knows GPT-2's names (``attn.c_attn``) and those of Llama, Mistral, Qwen and others
    (``self_attn.k_proj``, ``self_attn.v_proj``). Raises InvalidRequest for weights without
    either, for heads that do not divide, and for weights whose heads are shared already.
    """
    require(
        num_heads >= 1 and num_kv_heads >= 1 and num_heads % num_kv_heads == 0,
        f"num_heads={num_heads} must be a multiple of num_kv_heads={num_kv_heads}",
    )
    drawn = iter(range(seed * 1_000_003, (seed + 1) * 1_000_003))

    def pool(heads: Tensor) -> Tensor:
        return pool_heads(heads, num_kv_heads=num_kv_heads, method=method, seed=next(drawn))

    return _changed(state, num_heads, num_heads, pool)


def repeat_state_dict(
    state: Mapping[str, Tensor], *, num_heads: int, num_kv_heads: int
) -> dict[str, Tensor]:
    """The multi-head weights that compute what these grouped ones do."""
    require(
        num_heads >= 1 and num_kv_heads >= 1 and num_heads % num_kv_heads == 0,
        f"num_heads={num_heads} must be a multiple of num_kv_heads={num_kv_heads}",
    )
    group_size = num_heads // num_kv_heads
    return _changed(
        state, num_heads, num_kv_heads, lambda heads: repeat_heads(heads, group_size=group_size)
    )


def _changed(
    state: Mapping[str, Tensor],
    num_heads: int,
    num_kv_heads: int,
    change: Callable[[Tensor], Tensor],
) -> dict[str, Tensor]:
    """``state`` with ``change`` applied to the [num_kv_heads, head_dim, ...] of keys and values."""
    changed = dict(state)
    found = False
    for name, weight in state.items():
        if GPT2.fullmatch(name):
            changed[name] = _fused(name, weight, num_heads, num_kv_heads, change)
        elif LLAMA.fullmatch(name):
            _require_heads(name, weight.shape[0], num_kv_heads)
            changed[name] = change(weight.unflatten(0, (num_kv_heads, -1))).flatten(0, 1)
        else:
            continue
        found = True
    if not found:
        raise InvalidRequest(
            "no weight is called ...attn.c_attn.weight or ...self_attn.k_proj.weight, so there "
            f"are no key/value heads to pool among {len(state)} weights"
        )
    return changed


def _fused(
    name: str, weight: Tensor, num_heads: int, num_kv_heads: int, change: Callable[[Tensor], Tensor]
) -> Tensor:
    """GPT-2's [..., (num_heads + 2 num_kv_heads) * head_dim]."""
    import torch

    columns = weight.shape[-1]
    _require_heads(name, columns, num_heads + 2 * num_kv_heads)
    head_dim = columns // (num_heads + 2 * num_kv_heads)
    widths = [num_heads * head_dim, num_kv_heads * head_dim, num_kv_heads * head_dim]
    query, *pair = weight.split(widths, dim=-1)
    pooled = []
    for one in pair:
        heads = one.unflatten(-1, (num_kv_heads, head_dim)).movedim(-2, 0)
        pooled.append(change(heads).movedim(0, -2).flatten(-2))
    return torch.cat([query, *pooled], dim=-1)


def _require_heads(name: str, size: int, heads: int) -> None:
    require(size % heads == 0, f"{name} has {size} features, which are no {heads} whole heads")
