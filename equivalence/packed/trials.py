"""Try each feature of a packed or paged kernel once, on one tiny case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from equivalence.dtypes import DTYPES
from equivalence.outcome import Target
from equivalence.packed.case import MEMORIES, PagedCase, VarlenCase
from equivalence.packed.domain import PackedDomain
from equivalence.packed.making import paged_inputs, varlen_inputs
from equivalence.trials import Trials
from equivalence.trying import PREFERRED
from equivalence.trying import TinyCalls as TinyCalls

HEAD_DIMS: Final = (1, 2, 3, 4, 5, 7, 8, 16, 24, 32, 33, 64, 80, 96, 128, 256)
BASE_HEAD_DIMS: Final = (8, 64, 16, 32, 128, 1, 256)
PAGE_SIZES: Final = (1, 2, 3, 4, 8, 16, 64, 128, 256)


def try_varlen(target: Target, dtypes: tuple[str, ...] | None = None) -> Trials:
    """Call a kernel for packed tokens on tiny cases, one for each feature."""
    first = VarlenCase(q_lens=(2, 3), kv_lens=(4, 3), values="normal")
    trials, calls, base = _begin(target, dtypes, first, varlen_inputs)
    if base is None:
        return trials
    changes = {
        "empty_queries": calls.works(base.but(q_lens=(2, 0)), "a sequence without queries"),
        "empty_keys": calls.works(base.but(kv_lens=(4, 0)), "a sequence without keys"),
        "longer_queries": calls.works(base.but(q_lens=(6, 3)), "more queries than keys"),
        "spare_tokens": calls.works(base.but(spare_tokens=1), "keys behind the last sequence"),
        "longer_max": "max_seqlen_k" in target.options or "max_seqlen_q" in target.options,
    }
    return _finish(trials, calls, base, changes)


def try_paged(target: Target, dtypes: tuple[str, ...] | None = None) -> Trials:
    """Call a kernel for paged keys and values on tiny cases, one for each feature."""
    first = PagedCase(kv_lengths=(3, 5), page_size=2, values="normal")
    trials, calls, base = _begin(target, dtypes, first, paged_inputs)
    if base is None:
        return trials
    sizes = calls.accepted("page_size", {n: base.but(page_size=n) for n in PAGE_SIZES})
    q_lens = calls.accepted("q_len", {n: base.but(q_len=n) for n in (1, 2, 3)})
    changes = {
        "page_sizes": tuple(n for n in sizes if n <= 16) or sizes[:2],
        "empty_keys": calls.works(base.but(kv_lengths=(3, 0)), "a sequence without keys"),
        "longer_queries": calls.works(base.but(q_len=5), "more queries than keys"),
    }
    if len(q_lens) < 3:
        changes["q_lens"] = q_lens
    return _finish(trials, calls, base, changes)


def _begin(
    target: Target, dtypes: tuple[str, ...] | None, first: Any, make: Callable[[Any], Any]
) -> tuple[Trials, TinyCalls, Any]:
    declared = target.declaration
    trials = Trials(domain=PackedDomain())
    calls = TinyCalls(target, trials, make)
    wanted = tuple(dtypes or declared.dtypes or DTYPES)
    if declared.causal is not None and "causal" not in target.options:
        first = first.but(causal=declared.causal)
    base = calls.base(
        first.but(dtype=dtype, head_dim=size, **pages)
        for pages in ({}, *({"page_size": n} for n in (16, 64, 256) if hasattr(first, "page_size")))
        for size in declared.head_dims or BASE_HEAD_DIMS
        for dtype in PREFERRED
        if dtype in wanted
    )
    if base is None:
        return trials, calls, None
    formats = calls.formats(base, wanted)
    trials.domain = PackedDomain(dtypes=formats)
    return trials, calls, base


def _finish(trials: Trials, calls: TinyCalls, base: Any, changes: dict[str, Any]) -> Trials:
    declared = calls.target.declaration
    tried = declared.head_dims or HEAD_DIMS
    sizes = calls.accepted("head_dim", {d: base.but(head_dim=d) for d in tried})
    if declared.head_dims or len(sizes) < len(tried):
        changes["head_dims"] = sizes or (base.head_dim,)
    other = max(1, base.head_dim // 2) if base.head_dim > 1 else 2
    changes["value_head_dim_differs"] = calls.works(
        base.but(value_head_dim=other), "value_head_dim != head_dim"
    )
    changes |= _heads(trials, calls, base)
    corner = declared.causal or "lower_right"
    if base.causal is not None:
        changes["causal"] = (base.causal,)
    elif calls.option("causal", base.but(causal=corner)):
        changes["causal"] = (None, corner)
    else:
        changes["causal"] = (None,)
    windows = []
    for option, kind, window in (("window", "int", 2), ("window_size", "pair", (1, 0))):
        if calls.option(option, base.but(window=window)):
            windows.append(kind)
    changes["windows"] = tuple(windows)
    changes["scale"] = calls.option("scale", base.but(scale=0.5))
    changes["softcap"] = calls.option("softcap", base.but(softcap=5.0))
    wide = base.but(num_kv_heads=2)  # swapped axes of a single head are still contiguous
    if not calls.works(wide):
        wide = base
    memories = {memory: wide.but(memory=memory) for memory in MEMORIES[1:]}
    changes["memories"] = ("contiguous", *calls.accepted("memory", memories))
    trials.domain = trials.domain.but(**changes)
    return trials


def _heads(trials: Trials, calls: TinyCalls, base: Any) -> dict[str, Any]:
    several = calls.works(base.but(num_kv_heads=2), "several heads")
    if calls.works(base.but(num_kv_heads=2, group_size=2), "grouped heads"):
        return {}
    shared = calls.works(base.but(group_size=2), "one kv head for all query heads")
    trials.refuses_grouped = not shared
    if shared and not several:
        return {"num_kv_heads": (1, 1)}
    return {"group_size": (1, 1), **({} if several else {"num_kv_heads": (1, 1)})}
