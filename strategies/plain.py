"""Attention cases from a seed and a few words, inside a domain: nothing searches here.

A share of cases, or a largest ``used`` with a confidence, needs draws that do not depend on what
was seen before; Hypothesis draws where it hopes to find something. A row says which options a
case has (``attention_factors``); everything else about it is drawn from the generator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any, Final

import numpy as np

from equivalence.case import UNSEEDED, AttentionCase
from equivalence.domain import FUZZ_HEAD_DIMS, Domain
from equivalence.masks import HIDDEN_VALUES, Mask
from equivalence.strategies.attention import (
    MAGNITUDES,
    MASK_PATTERNS,
    MOST_PRODUCTS,
    MOST_SCORES,
    SCALES,
    SOFTCAPS,
    most_queries,
    real_layouts,
)

Row = dict[str, Any]
REAL_SHARE: Final = 0.15  # of cases with the heads of a published model
OPTION_SHARE: Final = 0.25  # of cases that have a given option
LONGEST_REAL: Final = 32  # kv_len of those, whose heads are large
LARGE_SHARE: Final = 0.1  # of batches and kv_len that are drawn from the whole range
SMALL_BATCH: Final = 4
USUAL_KV_LEN: Final = 64
TAILS: Final = (33, 65, 129)
OTHER_WIDTHS: Final = 33


def attention_factors(domain: Domain) -> dict[str, tuple[Any, ...]]:
    """The options that ``domain`` offers, each with its levels, the plainest first."""
    lengths: tuple[str, ...] = ("fewer queries", "as many queries", "more queries")
    if domain.square or domain.q_lens is not None:
        lengths = ("as given",)
    elif not domain.longer_queries:
        lengths = lengths[:2]
    offered: dict[str, tuple[Any, ...]] = {
        "mask": ("", *domain.masks),
        "causal": domain.causal,
        "window": ("", *domain.windows),
        "scale": (False, True) if domain.scale else (False,),
        "softcap": (False, True) if domain.softcap else (False,),
        "sinks": (False, True) if domain.sinks else (False,),
        "alibi": (False, True) if domain.alibi else (False,),
        "kv_lengths": (False, True) if domain.kv_lengths else (False,),
        "other_width": (False, True) if domain.value_head_dim_differs else (False,),
        "memory": domain.memories,
        "head_order": domain.head_orders,
        "lengths": lengths,
    }
    return {name: levels for name, levels in offered.items() if len(levels) > 1}


def attention_allows(domain: Domain, row: Mapping[str, Any]) -> bool:
    """Whether some case inside ``domain`` has all the options of ``row``, which may lack some."""
    causal = row.get("causal", domain.causal[0])
    if row.get("mask") and "causal" in row and causal is not None and not domain.mask_and_causal:
        return False
    # A target that is always causal has one level of causal, which is then no factor.
    bare = "causal" in row and causal is None
    return not (bare and any(row.get(name) for name in domain.needs_causal))


def plain_attention(domain: Domain, rng: np.random.Generator) -> AttentionCase:
    """A case with a random choice of options, independent of every other call."""
    factors = attention_factors(domain)
    while True:
        row = {name: _level(rng, levels) for name, levels in factors.items()}
        if attention_allows(domain, row):
            return attention_from(row, domain, rng)


def attention_from(
    row: Mapping[str, Any],
    domain: Domain,
    rng: np.random.Generator,
    *,
    values: Sequence[str] | None = None,
    tails: bool = False,
) -> AttentionCase:
    """A case inside ``domain`` with the options of ``row``, and the plainest of the others.

    tails: every other kv_len is one beyond a tile of keys.
    """
    num_kv_heads, group_size, head_dim = _heads(domain, rng)
    heads, lengths = num_kv_heads * group_size, str(row.get("lengths", ""))
    batch_size = domain.batch_size[0]
    if head_dim is not None:
        kv_len, q_len = _lengths_of_model(lengths, domain, rng, heads, head_dim)
    else:
        kv_len, q_len = _lengths(lengths, domain, rng, high=domain.kv_len[1], tails=tails)
        most = MOST_SCORES // max(1, heads * q_len * kv_len)
        batch_size = max(batch_size, min(most, _mostly(rng, domain.batch_size, SMALL_BATCH)))
    if head_dim is None:
        scores = batch_size * heads * kv_len * q_len
        sizes = sorted(domain.head_dims or FUZZ_HEAD_DIMS)
        fitting = [size for size in sizes if size * scores <= MOST_PRODUCTS]
        head_dim = int(_pick(rng, fitting or sizes[:1]))
    fields: dict[str, Any] = {
        "batch_size": batch_size,
        "num_kv_heads": num_kv_heads,
        "group_size": group_size,
        "head_dim": head_dim,
        "q_len": q_len,
        "kv_len": kv_len,
        "dtype": domain.dtypes[0],
        "head_order": row.get("head_order", domain.head_orders[0]),
        "causal": row.get("causal", domain.causal[0]),
        "values": _pick(rng, values or domain.values),
        "sinks": bool(row.get("sinks")),
        "alibi": bool(row.get("alibi")),
        "memory": row.get("memory", domain.memories[0]),
    }
    if fields["values"] not in UNSEEDED:
        fields["magnitude"] = _pick(rng, MAGNITUDES)
        fields["seed"] = int(rng.integers(1 << 16))
    if row.get("mask"):
        fields["mask"] = _mask(rng, domain, row["mask"], q_len, kv_len)
    if row.get("window"):
        fields["window"] = _window(rng, row["window"], kv_len)
    if row.get("scale"):
        fields["scale"] = _pick(rng, SCALES)
    if row.get("softcap"):
        fields["softcap"] = _pick(rng, SOFTCAPS)
    if row.get("kv_lengths"):
        low = 0 if domain.empty_rows else min(1, kv_len)
        fields["kv_lengths"] = tuple(_within(rng, (low, kv_len)) for _ in range(batch_size))
    if row.get("other_width"):
        fields["value_head_dim"] = _within(rng, (1, OTHER_WIDTHS))
    return AttentionCase(**fields)


def _level(rng: np.random.Generator, levels: Sequence[Any]) -> Any:
    if rng.random() >= OPTION_SHARE:
        return levels[0]
    return levels[1 + int(rng.integers(len(levels) - 1))]


def _pick(rng: np.random.Generator, options: Sequence[Any]) -> Any:
    return options[int(rng.integers(len(options)))]


def _within(rng: np.random.Generator, bounds: tuple[int, int]) -> int:
    return int(rng.integers(bounds[0], bounds[1] + 1))


def _mostly(rng: np.random.Generator, bounds: tuple[int, int], usual: int) -> int:
    """A number within ``bounds``, and now and then one above ``usual``."""
    low, high = bounds
    if rng.random() >= LARGE_SHARE:
        high = max(low, min(high, usual))
    return _within(rng, (low, high))


def _heads(domain: Domain, rng: np.random.Generator) -> tuple[int, int, int | None]:
    """(num_kv_heads, group_size, head_dim): those of a real model, or head_dim is left open."""
    if domain.head_layouts is not None:
        layout: tuple[int, int, int] = _pick(rng, domain.head_layouts)
        return layout
    models = real_layouts(domain)
    if models and rng.random() < REAL_SHARE:
        real: tuple[int, int, int] = _pick(rng, models)
        return real
    return _within(rng, domain.num_kv_heads), _within(rng, domain.group_size), None


def _lengths_of_model(
    level: str, domain: Domain, rng: np.random.Generator, heads: int, head_dim: int
) -> tuple[int, int]:
    """(kv_len, q_len) as :func:`_lengths`, short enough for heads that are many and wide."""
    low, high = domain.kv_len
    longest = LONGEST_REAL
    if domain.square or level in ("as many queries", "more queries"):
        longest = min(longest, isqrt(most_queries(heads, 1, head_dim)) - 1)
    high = max(low, min(high, longest))
    kv_len, q_len = _lengths(level, domain, rng, high=high, tails=False)
    if domain.square or domain.q_lens is not None:
        return kv_len, q_len
    most = most_queries(heads, kv_len, head_dim)
    return kv_len, min(q_len, max(domain.q_len[0], most))


def _lengths(
    level: str, domain: Domain, rng: np.random.Generator, *, high: int, tails: bool
) -> tuple[int, int]:
    """(kv_len, q_len), near what ``level`` says and inside the domain; kv_len up to ``high``."""
    low = domain.kv_len[0]
    if domain.kv_lens is not None:
        kv_len = int(_pick(rng, sorted(domain.kv_lens)))
    else:
        kv_len = _mostly(rng, (low, high), USUAL_KV_LEN)
        one_beyond = [n for n in TAILS if low <= n <= high]
        if tails and one_beyond and (rng.random() < 0.5 or level == "one query"):
            kv_len = int(_pick(rng, one_beyond))
    if domain.square:
        return kv_len, kv_len
    if domain.q_lens is not None:
        fitting = [n for n in domain.q_lens if domain.longer_queries or n <= kv_len]
        return kv_len, int(_pick(rng, sorted(fitting or domain.q_lens)))
    least, most = domain.q_len
    most = most if domain.longer_queries else max(least, min(most, kv_len))
    if level == "one query":
        return kv_len, least
    if level == "as many queries":
        if domain.kv_lens is None:
            kv_len = min(kv_len, max(least, most))
        return kv_len, max(least, min(most, kv_len))
    if level == "more queries":
        if domain.kv_lens is None:
            kv_len = _within(rng, (low, max(low, min(high, most - 1))))
        return kv_len, _within(rng, (min(most, max(least, kv_len + 1)), most))
    return kv_len, _within(rng, (least, max(least, min(most, kv_len, 12))))


def _mask(rng: np.random.Generator, domain: Domain, form: str, q_len: int, kv_len: int) -> Mask:
    pattern, axes = _pick(rng, MASK_PATTERNS), _pick(rng, domain.mask_axes)
    size = {
        "padding": _within(rng, (1, max(1, kv_len))),
        "random": _pick(rng, (50, 20, 90)),
    }.get(pattern, _within(rng, (1, 8)))
    fields: dict[str, Any] = {"pattern": pattern, "form": form, "axes": axes, "size": size}
    if pattern == "random":
        fields["seed"] = int(rng.integers(256))
    if form == "float":
        fields["hidden"] = _pick(rng, HIDDEN_VALUES)
        fields["bias"] = _pick(rng, (0.0, 1.0, 8.0))
    if domain.empty_rows and "q" in axes and rng.random() < 0.15:
        fields["empty_rows"] = _within(rng, (1, min(2, q_len)))
    return Mask(**fields)


def _window(rng: np.random.Generator, form: str, kv_len: int) -> int | tuple[int, int]:
    if form == "int":
        return _within(rng, (1, kv_len + 2))
    return _within(rng, (-1, kv_len + 1)), _within(rng, (-1, kv_len + 1))


def attention_admits(domain: Domain, case: AttentionCase) -> bool:
    """Whether ``domain`` offers every option of ``case``; its sizes may be any."""
    window = {int: "int", tuple: "pair"}.get(type(case.window), "")
    row = {
        "mask": case.mask.form if case.mask is not None else "",
        "causal": case.causal,
        "window": window,
    }
    offered = {
        "scale": (case.scale is not None, domain.scale),
        "softcap": (case.softcap is not None, domain.softcap),
        "sinks": (case.sinks, domain.sinks),
        "alibi": (case.alibi, domain.alibi),
        "kv_lengths": (case.kv_lengths is not None, domain.kv_lengths),
        "mask": (case.mask is not None, row["mask"] in domain.masks),
        "window": (bool(window), window in domain.windows),
    }
    return (
        case.dtype in domain.dtypes
        and case.causal in domain.causal
        and case.head_order in domain.head_orders
        and all(possible for asked, possible in offered.values() if asked)
        and attention_allows(domain, row)
    )


def attention_within(domain: Domain, case: AttentionCase) -> bool:
    """Whether ``domain`` offers the options of ``case`` and its sizes, numbers and memory too."""
    sizes = (
        (case.batch_size, domain.batch_size),
        (case.num_kv_heads, domain.num_kv_heads),
        (case.group_size, domain.group_size),
    )
    return (
        attention_admits(domain, case)
        and case.values in domain.values
        and case.memory in domain.memories
        and all(low <= size <= high for size, (low, high) in sizes)
    )
