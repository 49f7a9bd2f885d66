"""Transformers' attention registry through a real layer: Llama's, its cache and its own masks.

The projections of the layer are slices and its rotation is by angle zero, so that queries, keys
and values reach the registry's function as they are given, older keys through a DynamicCache.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import DynamicCache, LlamaConfig
from transformers.masking_utils import create_causal_mask
from transformers.models.llama.modeling_llama import LlamaAttention

from equivalence.backends.head_folding import group_size_of
from equivalence.backends.known_callables import FLASH_LAUNDERS_NAN
from equivalence.backends.torch_flex_attention import _uncompiled
from equivalence.backends.torch_sdpa_gqa import choice_supports
from equivalence.case import AttentionCase
from equivalence.declaration import KnownFault
from equivalence.declaration import attention as declare
from equivalence.errors import Unsupported
from equivalence.masks import Mask

DTYPES = ("float64", "float32", "float16", "bfloat16")

FLOAT64_ROWS: Final = KnownFault(
    law="masked-rows",
    trouble="masked-rows",
    case=AttentionCase(kv_len=2, dtype="float64", mask=Mask(empty_rows=1)),
    where={"dtype": ("float64",)},
    note=(
        "transformers 5.24: eager softmaxes in float32 whatever the dtype, where the lowest "
        "float64 of its own mask is -inf: a row that sees no key is NaN, and the mean in float32"
    ),
)


LOWEST_FLOAT64: Final = KnownFault(
    law="agrees-with-float64",
    trouble="non-finite",
    case=AttentionCase(dtype="float64", mask=Mask(form="float", hidden="finfo.min", empty_rows=1)),
    where={"dtype": ("float64",), "mask.hidden": ("finfo.min",)},
    note=FLOAT64_ROWS.note,
)
FLOAT16_ROWS: Final = KnownFault(
    law="masked-rows",
    trouble="masked-rows",
    case=AttentionCase(
        batch_size=2,
        kv_len=3,
        dtype="float16",
        mask=Mask(empty_rows=1),
        values="outliers",
        seed=170,
    ),
    where={"dtype": ("float16",)},
    note=(
        "transformers 5.24: eager adds -65504 to the scores of hidden float16 keys, which does not "
        "swallow them: a row that sees no key still tells its keys apart"
    ),
)

EAGER: Final = (FLOAT64_ROWS, LOWEST_FLOAT64, FLOAT16_ROWS)


def _flex_fault(
    law: str, trouble: str, note: str, where: dict[str, tuple[Any, ...]], **mask: Any
) -> KnownFault:
    values = "ramp" if law == "hidden-keys-do-not-matter" else "steps"
    case = AttentionCase(group_size=2, kv_len=2, values=values, mask=Mask(**mask))
    return KnownFault(law=law, trouble=trouble, case=case, where=where, note=note)


BOOL_ADDED: Final = (
    "transformers 5.24: flex_attention adds a bool mask of rank 4 to the scores as 0 and 1"
)
FLEX: Final = (
    *(
        _flex_fault(law, trouble, BOOL_ADDED, {"mask.form": ("bool",)}, pattern="padding")
        for law, trouble in (
            ("agrees-with-float64", "outside-bound"),
            ("hidden-keys-do-not-matter", "hidden-keys"),
        )
    ),
    _flex_fault("masked-rows", "masked-rows", BOOL_ADDED, {"mask.form": ("bool",)}, empty_rows=1),
    _flex_fault(
        "agrees-with-float64",
        "outside-bound",
        "transformers 5.24: flex_attention reads the mask of head 0 for every head",
        {"mask.axes": ("h", "bh", "hq", "bhq")},
        pattern="padding",
        form="float",
        size=2,
        axes="h",
    ),
)


class _Slice(nn.Module):
    def __init__(self, start: int, stop: int) -> None:
        super().__init__()
        self.start, self.stop = start, stop

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden[..., self.start : self.stop]


@lru_cache(maxsize=256)
def _layer(name: str, num_heads: int, num_kv_heads: int, head_dim: int) -> Any:
    """``LlamaAttention`` of these sizes over ``[query | key | value]`` as its hidden states."""
    config = LlamaConfig(
        hidden_size=num_heads * head_dim,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_dim=head_dim + head_dim % 2,  # the rotation, by angle zero, wants pairs
        num_hidden_layers=1,
    )
    config._attn_implementation = name
    layer: Any = LlamaAttention(config, layer_idx=0).eval()
    edges = [0, num_heads * head_dim]
    edges += [edges[1] + n * num_kv_heads * head_dim for n in (1, 2)]
    layer.q_proj, layer.k_proj, layer.v_proj = (_Slice(*ends) for ends in pairwise(edges))
    layer.o_proj = nn.Identity()
    layer.head_dim = head_dim
    return layer


def supports(case: AttentionCase) -> bool | str:
    """True, or why not."""
    if case.v_dim != case.head_dim:
        return f"value_head_dim={case.v_dim} differs from head_dim={case.head_dim}"
    if case.q_len > case.kv_len:
        return f"q_len={case.q_len} exceeds kv_len={case.kv_len}: new tokens bring their own keys"
    return choice_supports(case)


def _attend(
    name: str,
    operands: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    **more: Any,
) -> Tensor:
    query, key, value = operands
    batch_size, num_heads, q_len, head_dim = query.shape
    num_kv_heads, kv_len = key.shape[1:3]
    group_size_of(num_heads, num_kv_heads)
    if value.shape[-1] != head_dim or q_len > kv_len:
        raise Unsupported(f"value_head_dim={value.shape[-1]}, q_len={q_len}, kv_len={kv_len}")
    if causal and mask is not None:
        raise Unsupported("a mask of rank 4 takes the place of the causal one")
    layer = _layer(name, num_heads, num_kv_heads, head_dim)
    layer.scaling = head_dim**-0.5 if scale is None else scale
    past, cache = kv_len - q_len, DynamicCache(config=layer.config)
    if past:
        cache.update(key[:, :, :past], value[:, :, :past], 0)
    new = (query, key[:, :, past:], value[:, :, past:])
    hidden = torch.cat([x.transpose(1, 2).flatten(2) for x in new], dim=-1)
    if causal:
        mask = create_causal_mask(layer.config, hidden, None, cache)
        more["is_causal"] = True
    elif mask is not None and mask.dtype == torch.bool and name == "eager":
        # as transformers' own eager_mask makes them
        mask = torch.where(mask, torch.zeros((), dtype=query.dtype), torch.finfo(query.dtype).min)
    angle = torch.zeros(batch_size, q_len, head_dim, dtype=query.dtype)
    options = {"is_causal": False, **more}
    output: Tensor = layer(hidden, (angle + 1, angle), mask, cache=cache, **options)[0]
    by_head: Tensor = output.unflatten(-1, (num_heads, head_dim))
    return by_head.transpose(1, 2)


def _facts(**facts: Any) -> dict[str, Any]:
    return {
        "dtypes": DTYPES,
        "causal": "lower_right",
        "head_order": "grouped",
        "layout": "BHSD",
        "deterministic": True,
        "grouped": True,
        "hidden_nan": "leaks",
        "supports": supports,
        **facts,
    }


@declare(**_facts(profile="single", masked_rows="uniform_or_nan", known_faults=EAGER))
def eager(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``attn_implementation="eager"``; True in a bool mask becomes 0, False the lowest number."""
    return _attend("eager", (query, key, value), attn_mask, is_causal, scale)


@declare(**_facts(profile="flash", masked_rows="zeros", known_faults=(FLASH_LAUNDERS_NAN,)))
def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``attn_implementation="sdpa"``, the default of transformers."""
    return _attend("sdpa", (query, key, value), attn_mask, is_causal, scale)


@declare(**_facts(profile="flash", masked_rows="zeros", known_faults=FLEX))
def flex(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """``attn_implementation="flex_attention"``, its compilation switched off.

    A mask is given whole along batch and queries: it indexes both, and broadcasts neither.
    """
    if attn_mask is not None:
        shape = (query.shape[0], attn_mask.shape[1], query.shape[2], key.shape[2])
        attn_mask = attn_mask.expand(shape)
    with torch.compiler.set_stance("force_eager"), _uncompiled():
        return _attend(
            "flex_attention", (query, key, value), attn_mask, is_causal, scale, softcap=softcap
        )
