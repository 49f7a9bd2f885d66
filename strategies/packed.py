"""Packed and paged cases: lengths first, then heads and numbers, the simplest first."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from equivalence.domain import FUZZ_HEAD_DIMS, REAL_HEAD_DIMS
from equivalence.packed.case import PagedCase, VarlenCase
from equivalence.packed.domain import PackedDomain
from equivalence.strategies.models import MODEL_HEADS

SCALES: Final = (1.0, 0.5, 0.25, 0.1)
SOFTCAPS: Final = (1.0, 5.0, 20.0, 50.0)
MAGNITUDES: Final = (1.0, 0.1, 3.0, 10.0)
UNSEEDED: Final = ("ramp", "steps", "zero")
MANY: Final = 16


def varlen_cases(domain: PackedDomain | None = None) -> st.SearchStrategy[VarlenCase]:
    """Sequences packed end to end, some of them without queries or keys."""
    return _varlen(domain or PackedDomain())


def paged_cases(domain: PackedDomain | None = None) -> st.SearchStrategy[PagedCase]:
    """Sequences in pages; lengths at and around the ends of pages are drawn often."""
    return _paged(domain or PackedDomain())


@st.composite
def _varlen(draw: st.DrawFn, domain: PackedDomain) -> VarlenCase:
    fields = draw(_common(domain))
    count = draw(_counts(domain))
    short = count > domain.sequences[1] or fields["head_dim"] >= 64
    most_q, most_k = (3, 33) if short else (domain.q_len[1], domain.kv_len[1])
    queries = _now_and_then_none(st.integers(1, most_q), domain.empty_queries)
    keys = _now_and_then_none(mostly_long(1, most_k), domain.empty_keys)
    drawn = draw(st.lists(st.tuples(queries, keys), min_size=count, max_size=count))
    if not domain.longer_queries:
        drawn = [(min(q, k), k) for q, k in drawn]
    if not any(q for q, _ in drawn):
        drawn[0] = (1, max(1, drawn[0][1]))
    if not any(q and k for q, k in drawn) and not draw(_seldom()):
        first = next(i for i, (q, _) in enumerate(drawn) if q)
        drawn[first] = (drawn[first][0] if domain.longer_queries else 1, 1)
    fields["q_lens"] = tuple(q for q, _ in drawn)
    fields["kv_lens"] = tuple(k for _, k in drawn)
    if domain.longer_max and draw(st.booleans()):
        fields["longer_max"] = draw(st.integers(1, 70))
    if domain.spare_tokens:
        fields["spare_tokens"] = draw(st.integers(0, 3))
    return VarlenCase(**fields)


@st.composite
def _paged(draw: st.DrawFn, domain: PackedDomain) -> PagedCase:
    fields = draw(_common(domain))
    page_size = draw(st.sampled_from(domain.page_sizes))
    count = draw(_counts(domain))
    most = 33 if count > domain.sequences[1] or fields["head_dim"] >= 64 else domain.kv_len[1]
    pages = max(1, most // page_size)
    at_an_end = st.builds(
        lambda page, off: page * page_size + off, st.integers(1, pages), st.integers(-1, 1)
    )
    length = _now_and_then_none(mostly_long(1, most) | at_an_end.map(abs), domain.empty_keys)
    lengths = draw(st.lists(length, min_size=count, max_size=count))
    if not any(lengths) and not draw(_seldom()):
        lengths[0] = 1
    fields["kv_lengths"] = tuple(lengths)
    if domain.q_lens is not None:
        fields["q_len"] = draw(st.sampled_from(domain.q_lens))
    else:
        most_q = 3 if fields["head_dim"] >= 64 else domain.q_len[1]
        fields["q_len"] = draw(st.just(1) | st.integers(1, most_q))
    if not domain.longer_queries:
        fields["q_len"] = max(1, min(fields["q_len"], *fields["kv_lengths"]))
    fields["page_size"] = page_size
    fields["order"] = draw(st.sampled_from(domain.orders))
    fields["spare_pages"] = draw(st.integers(0, 2))
    fields["longer_table"] = draw(st.integers(0, 2))
    return PagedCase(**fields)


def _seldom() -> st.SearchStrategy[bool]:
    """True one time in eight: a call without a single visible key judges nothing but crashes."""
    return st.integers(0, 7).map(lambda die: die == 7)


def _counts(domain: PackedDomain) -> st.SearchStrategy[int]:
    """How many sequences: few, and now and then more than most kernels are tried with."""
    few = st.integers(*domain.sequences)
    if not domain.many_sequences:
        return few
    return st.integers(0, 11).flatmap(
        lambda die: long(domain.sequences[1] + 1, MANY) if die == 11 else few
    )


def _now_and_then_none(lengths: st.SearchStrategy[int], allowed: bool) -> st.SearchStrategy[int]:
    """``lengths``, and zero one time in eight where that is allowed."""
    if not allowed:
        return lengths.map(lambda length: max(1, length))
    return st.integers(0, 7).flatmap(lambda die: st.just(0) if die == 7 else lengths)


def long(low: int, high: int) -> st.SearchStrategy[int]:
    """Lengths with the upper half twice as likely, and still one integer to shrink."""
    sizes = (*range(low, high + 1), *range((low + high) // 2 + 1, high + 1))
    return st.integers(0, len(sizes) - 1).map(lambda place: sizes[place])


def mostly_long(low: int, high: int) -> st.SearchStrategy[int]:
    """Lengths with the upper two thirds four times as likely, and still one integer to shrink.

    Hypothesis itself tries the smallest often enough.
    """
    upper = range(low + (high - low) // 3 + 1, high + 1)
    sizes = (*range(low, high + 1), *(n for n in upper for _ in range(3)))
    return st.integers(0, len(sizes) - 1).map(lambda place: sizes[place])


@st.composite
def _common(draw: st.DrawFn, domain: PackedDomain) -> dict[str, Any]:
    num_kv_heads, group_size, head_dim = draw(model_or_small_heads(domain))
    fields: dict[str, Any] = {
        "num_kv_heads": num_kv_heads,
        "group_size": group_size,
        "head_dim": head_dim,
        "dtype": draw(st.sampled_from(domain.dtypes)),
        "causal": draw(st.sampled_from(domain.causal)),
        "values": draw(st.sampled_from(telling(domain.values, num_kv_heads))),
    }
    if fields["values"] not in UNSEEDED:
        fields["magnitude"] = draw(st.sampled_from(MAGNITUDES))
        fields["seed"] = draw(st.integers(0, 2**16))
    offered = {
        "window": bool(domain.windows),
        "scale": domain.scale,
        "softcap": domain.softcap,
        "value_head_dim": domain.value_head_dim_differs,
        "memory": len(domain.memories) > 1,
    }
    names = [name for name, possible in offered.items() if possible]
    extras = draw(st.lists(st.sampled_from(names), unique=True, max_size=2)) if names else []
    if "window" in extras:
        fields["window"] = draw(_windows(domain))
    if "scale" in extras:
        fields["scale"] = draw(st.sampled_from(SCALES))
    if "softcap" in extras:
        fields["softcap"] = draw(st.sampled_from(SOFTCAPS))
    if "value_head_dim" in extras:
        fields["value_head_dim"] = draw(st.integers(1, 33))
    if "memory" in extras:
        fields["memory"] = draw(st.sampled_from(domain.memories))
    return fields


def telling(values: tuple[str, ...], num_kv_heads: int) -> tuple[str, ...]:
    """The families that can show a fault: a ramp over a single head is one number everywhere."""
    others = tuple(name for name in values if name != "ramp")
    return others if num_kv_heads == 1 and others else values


@st.composite
def model_or_small_heads(draw: st.DrawFn, domain: Any) -> tuple[int, int, int]:
    """(num_kv_heads, group_size, head_dim); about one in eight is a published model's."""
    if domain.head_layouts is not None:
        pinned: tuple[int, int, int] = draw(st.sampled_from(domain.head_layouts))
        return pinned
    models = [
        heads
        for heads in dict.fromkeys(MODEL_HEADS.values())
        if (domain.group_size[1] > 1 or heads[1] == 1)
        and (domain.num_kv_heads[1] > 1 or heads[0] == 1)
        and (domain.head_dims is None or heads[2] in domain.head_dims)
    ]
    if domain.real_models and models and draw(st.integers(0, 7)) == 7:
        return draw(st.sampled_from(models))
    sizes = domain.head_dims or (*FUZZ_HEAD_DIMS, *REAL_HEAD_DIMS[:-1])
    place = draw(st.integers(0, len(sizes) - 1))
    kv_heads = draw(st.integers(*domain.num_kv_heads))
    return kv_heads, draw(st.integers(*domain.group_size)), sorted(sizes)[place]


def _windows(domain: PackedDomain) -> st.SearchStrategy[int | tuple[int, int]]:
    kinds: list[st.SearchStrategy[int | tuple[int, int]]] = []
    if "int" in domain.windows:
        kinds.append(st.integers(1, 12))
    if "pair" in domain.windows:
        kinds.append(st.tuples(st.integers(-1, 8), st.integers(-1, 8)))
    return st.one_of(kinds)
