"""Declarations of callables that are not ours: what their documentation or a measurement says.

Nothing here imports the libraries; ``equivalence.registry`` looks a name up when it is asked for.
"""

from __future__ import annotations

from typing import Final

from equivalence.case import AttentionCase
from equivalence.declaration import Declaration, KnownFault


def _torch_sdpa_supports(case: AttentionCase) -> bool | str:
    if case.causal is not None and case.scale is not None and case.scale <= 0:
        # torch 2.13's flash kernel fills -inf in first and scales afterwards.
        return f"is_causal with scale={case.scale} gives NaN"
    return True


FLASH_LAUNDERS_NAN: Final = KnownFault(
    law="visible-nan-is-kept",
    trouble="nan-laundered",
    case=AttentionCase(seed=1),
    note=(
        "torch's fused CPU kernel gives zeros where every score of a row is NaN and the row is "
        "shorter than one vector (pytorch#141128, still so in 2.13; its composite kernel is right)"
    ),
)

# Query heads of one group: of fewer than 32 the sum stays within its profile, and is judged.
LARGE_GROUPS: Final = tuple(range(32, 1025))


def _summed_in_storage(law: str) -> KnownFault:
    return KnownFault(
        law=law,
        trouble="gradient",
        case=AttentionCase(group_size=512, kv_len=3, dtype="bfloat16"),
        note=(
            "torch's fused CPU kernel adds the gradients of the query heads of a group one by one "
            "in 16 bits: of 512 heads the sum stands still at 128 (torch 2.13; its composite "
            "kernel is right)"
        ),
        where={"dtype": ("bfloat16", "float16"), "group_size": LARGE_GROUPS},
    )


FLASH_WITH_GQA: Final = (
    FLASH_LAUNDERS_NAN,
    _summed_in_storage("gradients-agree"),
    _summed_in_storage("group-gradients-sum"),
)

TORCH_SDPA: Final = Declaration(
    dtypes=("float64", "float32", "float16", "bfloat16"),
    causal="upper_left",
    head_order="grouped",
    layout="BHSD",
    profile="flash",
    masked_rows="zeros",
    hidden_nan="leaks",
    deterministic=True,
    gradients=True,
    # A builtin: its signature cannot be read.
    options=("attn_mask", "is_causal", "scale", "enable_gqa"),
    grouped=True,
    supports=_torch_sdpa_supports,
    known_faults=FLASH_WITH_GQA,
)

KNOWN: Final = {
    "torch.nn.functional:scaled_dot_product_attention": TORCH_SDPA,
    "torch:nn.functional.scaled_dot_product_attention": TORCH_SDPA,
}
