"""SDPA with enable_gqa, by torch's fused CPU kernel and no other."""

from __future__ import annotations

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from equivalence.backends.known_callables import FLASH_WITH_GQA
from equivalence.backends.torch_sdpa_gqa import DTYPES, attention, choice_supports
from equivalence.case import AttentionCase
from equivalence.declaration import attention as declare
from equivalence.errors import Unsupported


def flash_supports(case: AttentionCase) -> bool | str:
    """True, or the condition of torch's flash kernel (sdp_utils_cpp.cpp) that a case breaks."""
    if case.v_dim != case.head_dim:
        return f"value_head_dim={case.v_dim} differs from head_dim={case.head_dim}"
    if case.kv_len == 0:
        return "there is no key"  # the kernel takes none where the strides are torch's own
    if case.memory == "transposed":
        return "the last axis must have stride 1"
    return choice_supports(case)


@declare(
    dtypes=DTYPES,
    causal="upper_left",
    head_order="grouped",
    layout="BHSD",
    profile="flash",
    masked_rows="zeros",
    hidden_nan="leaks",
    deterministic=True,
    gradients=True,
    mask_and_causal=True,
    grouped=True,
    supports=flash_supports,
    known_faults=FLASH_WITH_GQA,
)
def flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """SDPA's fused CPU kernel and no other: key and value are read in place, never copied.

    query ``[B, H, Sq, D]``, key ``[B, Hkv, Skv, D]``, value ``[B, Hkv, Skv, D]`` ->
    ``[B, H, Sq, D]``. Raises Unsupported for what :func:`flash_supports` names.
    """
    # Asked beforehand: torch would warn, then raise a RuntimeError that names no reason.
    if value.shape[-1] != query.shape[-1]:
        raise Unsupported(
            f"value_head_dim={value.shape[-1]} differs from head_dim={query.shape[-1]}"
        )
    if any(x.stride(-1) != 1 for x in (query, key, value)):
        raise Unsupported("the last axis must have stride 1")
    if is_causal and scale is not None and scale <= 0:
        raise Unsupported(f"is_causal with scale={scale} gives NaN")
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return attention(query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale)
