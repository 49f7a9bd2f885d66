"""Other versions of a counterexample, on which a suspect has to hold as well."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from equivalence.case import AttentionCase
from equivalence.domain import Domain
from equivalence.errors import InvalidRequest

LAYOUTS: Final = ((2, 2), (3, 2), (2, 4), (4, 3))  # (num_kv_heads, group_size)


def variants(case: AttentionCase, domain: Domain) -> Iterator[AttentionCase]:
    """The same shape with other numbers, twice; then two larger shapes with the same options.

    Each keeps the options of the case, so that a mistake that needs them still shows.
    """
    changes: list[dict[str, Any]] = [
        {"values": "normal", "seed": case.seed + 101},
        {"values": "normal", "seed": case.seed + 102, "magnitude": 2.0},
        _larger(case, domain, heads=False),
        _larger(case, domain, heads=True),
    ]
    if case.softcap is not None:  # a cap that acts
        changes.insert(
            2, {"values": "normal", "seed": case.seed + 105, "magnitude": 2 * case.softcap}
        )
    if case.alibi and case.q_len == 1:  # where the slopes start, one query alone cannot tell
        q_len = min(3, domain.q_len[1])
        changes.append({"values": "normal", "seed": case.seed + 106, "q_len": q_len})
    seen = {repr(case)}
    for change in changes:
        try:
            found = case.but(**change)
        except InvalidRequest:
            continue
        if repr(found) not in seen:
            seen.add(repr(found))
            yield found


def _larger(case: AttentionCase, domain: Domain, *, heads: bool) -> dict[str, Any]:
    change: dict[str, Any] = {"values": "normal", "seed": case.seed + 103 + heads}
    change["magnitude"] = 1.0 if heads else 2.0
    q_len = min(case.q_len + 5, max(domain.q_len[1], case.q_len)) if case.q_len > 1 else 1
    kv_len = case.kv_len + 14 + heads if case.kv_len else 0  # one of them even
    if domain.q_lens:
        q_len = max((n for n in domain.q_lens if n <= q_len), default=case.q_len)
    if domain.kv_lens:
        kv_len = max((n for n in domain.kv_lens if n <= kv_len), default=case.kv_len)
    square = case.q_len == case.kv_len > 1 and not domain.q_lens and not domain.kv_lens
    if square and not heads:
        kv_len = q_len  # such a case may owe its mistake to that
    if not domain.longer_queries:
        kv_len = max(q_len, kv_len)
    if domain.square:
        q_len = kv_len
    change |= {"q_len": q_len, "kv_len": kv_len}
    wanted = max(case.head_dim, 12)
    dims = domain.head_dims or (wanted,)
    if domain.head_dims is None and not heads:
        dims = (wanted | 1,)  # no tile divides it
    head_dim = min((d for d in dims if d >= wanted), default=case.head_dim)
    if case.value_head_dim is None or domain.value_head_dim_differs:
        change["head_dim"] = head_dim
        if case.value_head_dim is not None:
            change["value_head_dim"] = case.value_head_dim + head_dim - case.head_dim
    if heads and isinstance(case.head_order, str) and domain.head_layouts is None:
        change["batch_size"] = max(case.batch_size, min(2, domain.batch_size[1]))
        change["num_kv_heads"] = max(case.num_kv_heads, min(2, domain.num_kv_heads[1]))
        change["group_size"] = max(case.group_size, min(3, domain.group_size[1]))
    batch_size = change.get("batch_size", case.batch_size)
    if case.kv_lengths is not None:
        rng = np.random.default_rng(case.seed + 7)
        low = min(1, kv_len)
        change["kv_lengths"] = tuple(int(n) for n in rng.integers(low, kv_len + 1, batch_size))
    if case.mask is not None and case.mask.pattern == "random":
        change["mask"] = replace(case.mask, size=max(case.mask.size, 50))
    if case.plants:
        change["plants"] = case.plants
    return change


def without_options(case: AttentionCase, domain: Domain) -> AttentionCase:
    """The case without all that the target can do without."""
    plain: dict[str, Any] = dict.fromkeys(("mask", "window", "softcap", "kv_lengths", "scale"))
    return case.but(causal=domain.causal[0], sinks=False, alibi=False, **plain)


def with_other_heads(case: AttentionCase, domain: Domain) -> list[AttentionCase]:
    """The case with a few other numbers of heads that the domain has, all of them grouped."""
    low, high = domain.num_kv_heads
    least, most = domain.group_size
    layouts = [(kv, group) for kv, group in LAYOUTS if low <= kv <= high and least <= group <= most]
    if domain.head_layouts is not None:
        layouts = [(kv, group) for kv, group, _ in domain.head_layouts if min(kv, group) > 1]
    if not isinstance(case.head_order, str):
        return []
    found = []
    for kv, group in layouts[: len(LAYOUTS)]:
        with contextlib.suppress(InvalidRequest):
            found.append(
                case.but(num_kv_heads=kv, group_size=group, values="normal", seed=case.seed + 111)
            )
    return found
