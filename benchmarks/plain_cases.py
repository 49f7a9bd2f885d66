"""Independent seeded cases from a plain loop, for counts and tolerances: nothing searches here.

Hypothesis looks for failures, so its examples are not independent draws; a share of cases, or a
largest ``used`` with a confidence, needs draws that do not depend on what was seen before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from equivalence.calling import LocalTarget
from equivalence.case import MEMORIES, VALUES, AttentionCase
from equivalence.masks import AXES, PATTERNS, Mask

MAGNITUDES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
REAL_HEAD_DIMS = (64, 80, 96, 128)


def plain_case(seed: int, dtype: str) -> AttentionCase:
    """The case of one seed: about a third is plain, the rest combines options freely."""
    rng = np.random.default_rng([seed, 2718])

    def pick(options: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
        total = None if weights is None else np.asarray(weights) / sum(weights)
        return options[int(rng.choice(len(options), p=total))]

    real = rng.random() < 0.15
    batch_size, num_kv_heads = int(rng.integers(1, 4)), pick((1, 2, 3, 4), (2, 4, 2, 1))
    group_size = pick((1, 2, 3, 4, 5), (2, 4, 3, 1, 1))
    q_len = pick((1, 2, 3, 5, 8, 12))
    kv_len = pick((0, 1, 2, q_len, int(rng.integers(3, 33)), int(rng.integers(33, 80))),
                  (0.3, 1, 1, 3, 6, 6))  # fmt: skip
    if rng.random() < 0.01:
        kv_len = int(rng.integers(200, 700))
    if real:
        batch_size, num_kv_heads, q_len = 1, pick((1, 2)), pick((1, 4))
    head_dim = pick(REAL_HEAD_DIMS) if real else int(rng.integers(1, 34))
    value_head_dim = int(rng.integers(1, 34)) if rng.random() < 0.25 else None
    mask = None
    if rng.random() < 0.5:
        mask = _mask(rng, q_len, kv_len)
    rich = rng.random() < 0.5
    causal = pick((None, "upper_left", "lower_right"), (3, 1, 1))
    window = None
    if rich and rng.random() < 0.25:
        window = pick(
            (int(rng.integers(1, 9)), (int(rng.integers(-1, 6)), int(rng.integers(-1, 4))))
        )
    num_heads = num_kv_heads * group_size
    explicit = tuple(int(h) for h in rng.integers(0, num_kv_heads, size=num_heads))
    lengths = tuple(int(n) for n in rng.integers(0, kv_len + 1, size=batch_size))
    return AttentionCase(
        batch_size=batch_size,
        num_kv_heads=num_kv_heads,
        group_size=group_size,
        head_order=pick(("grouped", "interleaved", explicit), (8, 1, 1)),
        q_len=q_len,
        kv_len=kv_len,
        head_dim=head_dim,
        value_head_dim=value_head_dim,
        dtype=dtype,
        causal=causal,
        window=window,
        mask=mask,
        scale=pick((None, 1.0, 0.3, -0.2), (6, 1, 1, 0.3)),
        softcap=pick((None, 5.0, 50.0, 1.3), (3, 1, 1, 1)) if rich else None,
        sinks=rich and rng.random() < 0.2,
        alibi=rich and rng.random() < 0.2,
        kv_lengths=lengths if rich and rng.random() < 0.2 else None,
        values=pick(VALUES),
        magnitude=pick(MAGNITUDES),
        memory=pick(MEMORIES, (4, 1, 1, 1, 1)),
        seed=seed,
    )


def _mask(rng: np.random.Generator, q_len: int, kv_len: int) -> Mask:
    form = ("bool", "float")[int(rng.integers(2))]
    hidden, bias = "-inf", 0.0
    if form == "float":
        hidden = ("-inf", "-1e4", "finfo.min")[int(rng.integers(3))]
        bias = (0.0, 0.3, 3.0, 30.0)[int(rng.integers(4))]
    return Mask(
        pattern=PATTERNS[int(rng.integers(len(PATTERNS)))],
        form=form,
        axes=AXES[int(rng.integers(len(AXES)))],
        size=int(rng.integers(1, max(2, kv_len + 1))) if rng.random() < 0.7 else 40,
        hidden=hidden,
        bias=bias,
        empty_rows=int(rng.integers(1, q_len + 1)) if rng.random() < 0.15 else 0,
        seed=int(rng.integers(1 << 16)),
    )


def refusal(target: LocalTarget, case: AttentionCase) -> str | None:
    """Why ``case`` is outside what ``target`` takes or declares; None where it is inside."""
    declared, options = target.declaration, target.options
    needed = {
        "mask": case.mask is not None,
        "causal": case.causal is not None,
        "scale": case.scale is not None,
        "window": isinstance(case.window, int),
        "window_size": isinstance(case.window, tuple),
        "softcap": case.softcap is not None,
        "sinks": case.sinks,
        "alibi_slopes": case.alibi,
        "kv_lengths": case.kv_lengths is not None,
        "head_order": case.head_order != (declared.head_order or "grouped"),
    }
    for option, asked in needed.items():
        if asked and option not in options:
            return f"takes no {option}"
    if case.dtype not in (declared.dtypes or (case.dtype,)):
        return f"takes no {case.dtype}"
    same_corner = case.q_len == case.kv_len and case.kv_lengths is None
    if case.causal not in (None, declared.causal or "lower_right") and not same_corner:
        return f"causal is {declared.causal}"
    if case.causal is not None and case.mask is not None and not declared.mask_and_causal:
        return "takes no mask together with causal"
    supported = target.supports(case)
    return None if supported is True else str(supported)
