"""Shapes as suites of attention kernels use them: standard normal numbers, a short fixed list.

They are our choice, after the tests of FlashAttention (odd lengths, grouped heads, causal, local,
ALiBi, softcap), of torch's SDPA (masks, a scale) and of serving engines (decoding, used lengths,
sinks), with fewer heads and shorter rows for a CPU. The list covers more options than any one of
those suites does, which is in favour of the rules.
"""

from __future__ import annotations

from typing import Any, Final

from equivalence.case import AttentionCase
from equivalence.masks import Mask

NORMAL: Final[dict[str, Any]] = {"values": "normal", "batch_size": 2}
USUAL: Final = (
    AttentionCase(**NORMAL, num_kv_heads=4, q_len=128, kv_len=128, head_dim=64, seed=1),
    AttentionCase(
        **NORMAL, num_kv_heads=4, q_len=128, kv_len=128, head_dim=32, causal="lower_right", seed=2
    ),
    AttentionCase(
        **NORMAL, num_kv_heads=2, group_size=3, q_len=113, kv_len=203, head_dim=64,
        causal="lower_right", seed=3,
    ),
    AttentionCase(**NORMAL, group_size=6, q_len=108, kv_len=256, head_dim=40, seed=4),
    AttentionCase(**NORMAL, num_kv_heads=2, group_size=4, kv_len=217, head_dim=128, seed=5),
    AttentionCase(
        **NORMAL, num_kv_heads=2, group_size=4, kv_len=128, head_dim=64, kv_lengths=(128, 77),
        seed=6,
    ),
    AttentionCase(
        **NORMAL, num_kv_heads=2, group_size=3, q_len=128, kv_len=217, head_dim=32,
        window=(33, 12), seed=7,
    ),
    AttentionCase(
        **NORMAL, num_kv_heads=4, q_len=113, kv_len=203, head_dim=32, causal="lower_right",
        alibi=True, seed=8,
    ),
    AttentionCase(
        **NORMAL, num_kv_heads=2, group_size=3, q_len=128, kv_len=128, head_dim=64,
        causal="lower_right", softcap=50.0, seed=9,
    ),
    AttentionCase(
        **NORMAL, num_kv_heads=4, q_len=64, kv_len=96, head_dim=64,
        mask=Mask(pattern="padding", axes="b", size=80), seed=10,
    ),
    AttentionCase(
        **NORMAL, num_kv_heads=4, q_len=64, kv_len=64, head_dim=64,
        mask=Mask(pattern="causal_lower_right", form="float", axes="hq", bias=1.0), seed=11,
    ),
    AttentionCase(**NORMAL, num_kv_heads=4, q_len=64, kv_len=64, head_dim=64, scale=0.2, seed=12),
    AttentionCase(
        **NORMAL, num_kv_heads=2, group_size=4, q_len=64, kv_len=64, head_dim=64,
        causal="lower_right", window=32, sinks=True, seed=13,
    ),
    AttentionCase(
        **NORMAL, num_kv_heads=2, group_size=2, q_len=128, kv_len=128, head_dim=64,
        causal="lower_right", memory="bshd", seed=14,
    ),
)  # fmt: skip
