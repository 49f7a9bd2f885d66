"""Attention cases, drawn inside a domain: shapes, a seed and a few words, never a tensor."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from equivalence.case import AttentionCase
from equivalence.domain import FUZZ_HEAD_DIMS, REAL_HEAD_DIMS, Domain
from equivalence.masks import HIDDEN_VALUES, Mask
from equivalence.strategies.models import MODEL_HEADS

SCALES: Final = (1.0, 0.5, 0.25, 0.1)
SOFTCAPS: Final = (1.0, 5.0, 20.0, 50.0)
MAGNITUDES: Final = (1.0, 0.1, 3.0, 10.0, 30.0)
UNSEEDED: Final = ("ramp", "steps", "zero")
LONG_CONTEXTS: Final = (129, 257, 512, 1025, 2048, 4096)
MAX_EXTRAS: Final = 3
MASK_PATTERNS: Final = (
    "padding",
    "random",
    "causal_lower_right",
    "window",
    "block",
    "document",
    "causal_upper_left",
    "all",
)


def attention_cases(domain: Domain | None = None) -> st.SearchStrategy[AttentionCase]:
    """Cases inside ``domain`` (default: all of it), the simplest first.

    Every option is drawn alone and together with up to two others. About one case in seven has
    the head counts and head_dim of a published model.
    """
    return _cases(domain or Domain())


@st.composite
def _cases(draw: st.DrawFn, domain: Domain) -> AttentionCase:
    num_kv_heads, group_size, head_dim, real = draw(_heads(domain))
    fields: dict[str, Any] = {
        "num_kv_heads": num_kv_heads,
        "group_size": group_size,
        "head_dim": head_dim,
        "batch_size": domain.batch_size[0] if real else draw(st.integers(*domain.batch_size)),
        "dtype": draw(st.sampled_from(domain.dtypes)),
        "head_order": draw(st.sampled_from(domain.head_orders)),
    }
    fields["kv_len"] = kv_len = draw(_kv_lens(domain, short=real))
    fields["q_len"] = draw(_q_lens(domain, kv_len, short=real))
    fields["causal"] = causal = draw(st.sampled_from(domain.causal))
    # Where query and key are zero, most options cannot show: those come once, the others twice.
    shown = (*domain.values, *(name for name in domain.values if name not in UNSEEDED))
    fields["values"] = values = draw(st.sampled_from(shown))
    if values not in UNSEEDED:
        fields["magnitude"] = draw(st.sampled_from(MAGNITUDES))
        fields["seed"] = draw(st.integers(0, 2**16))
    extras = draw(_options(_extras(domain)))
    if "mask" in extras and not domain.mask_and_causal and None in domain.causal:
        fields["causal"] = causal = None
    if "mask" in extras and (causal is None or domain.mask_and_causal):
        fields["mask"] = draw(masks(domain, q_len=fields["q_len"], kv_len=kv_len))
    if "window" in extras and (causal is not None or not domain.window_needs_causal):
        fields["window"] = draw(_windows(domain, kv_len))
    if "scale" in extras:
        fields["scale"] = draw(st.sampled_from(SCALES))
    if "softcap" in extras:
        fields["softcap"] = draw(st.sampled_from(SOFTCAPS))
    if "sinks" in extras:
        fields["sinks"] = True
    if "alibi" in extras:
        fields["alibi"] = True
    if "kv_lengths" in extras:
        lengths = st.lists(
            st.integers(0 if domain.empty_rows else 1, kv_len),
            min_size=fields["batch_size"],
            max_size=fields["batch_size"],
        )
        fields["kv_lengths"] = tuple(draw(lengths))
    if "memory" in extras:
        fields["memory"] = draw(st.sampled_from(domain.memories))
    if "value_head_dim" in extras:
        fields["value_head_dim"] = draw(st.integers(1, 33))
    if "plants" in extras:
        fields["plants"] = tuple(draw(st.lists(_plants(num_kv_heads, kv_len), max_size=2)))
    return AttentionCase(**fields)


def _options(names: list[str]) -> st.SearchStrategy[list[str]]:
    """Up to three of ``names``; how many is drawn first, so each number is as likely."""
    some = st.sampled_from(names)
    return st.integers(0, min(MAX_EXTRAS, len(names))).flatmap(
        lambda count: st.lists(some, unique=True, min_size=count, max_size=count)
    )


def _extras(domain: Domain) -> list[str]:
    offered = {
        "mask": bool(domain.masks),
        "window": bool(domain.windows),
        "scale": domain.scale,
        "softcap": domain.softcap,
        "sinks": domain.sinks,
        "alibi": domain.alibi,
        "kv_lengths": domain.kv_lengths,
        "value_head_dim": domain.value_head_dim_differs,
        "memory": len(domain.memories) > 1,
        "plants": True,
    }
    return [name for name, possible in offered.items() if possible]


@st.composite
def _heads(draw: st.DrawFn, domain: Domain) -> tuple[int, int, int, bool]:
    """(num_kv_heads, group_size, head_dim, whether they are those of a real model)."""
    if domain.head_layouts is not None:
        return (*draw(st.sampled_from(domain.head_layouts)), True)
    models = real_layouts(domain)
    if models and draw(st.integers(0, 6)) == 6:
        return (*draw(st.sampled_from(models)), True)
    num_kv_heads = draw(st.integers(*domain.num_kv_heads))
    group_size = draw(st.integers(*domain.group_size))
    return num_kv_heads, group_size, draw(head_dims(domain)), False


def real_layouts(domain: Domain) -> list[tuple[int, int, int]]:
    """The layouts of published models that the domain admits, without repeats."""
    if not domain.real_models:
        return []
    grouped = domain.group_size[1] > 1
    several = domain.num_kv_heads[1] > 1
    return [
        heads
        for heads in dict.fromkeys(MODEL_HEADS.values())
        if (grouped or heads[1] == 1)
        and (several or heads[0] == 1)
        and heads[0] >= domain.num_kv_heads[0]
        and heads[1] >= domain.group_size[0]
        and (domain.head_dims is None or heads[2] in domain.head_dims)
    ]


def head_dims(domain: Domain) -> st.SearchStrategy[int]:
    """Head sizes: 1 to 33 and those of real models, or just the ones that the domain names."""
    if domain.head_dims is not None:
        return st.sampled_from(sorted(domain.head_dims))
    # One integer, so that a large size shrinks through the small ones.
    sizes = (*FUZZ_HEAD_DIMS, *REAL_HEAD_DIMS[:-1])
    return st.integers(0, len(sizes) - 1).map(lambda place: sizes[place])


def _kv_lens(domain: Domain, *, short: bool) -> st.SearchStrategy[int]:
    if domain.kv_lens is not None:
        return st.sampled_from(sorted(domain.kv_lens))
    low, high = domain.kv_len
    high = max(low, min(high, 32)) if short else high
    # The longer half comes twice: median of a suite above 16, and still one integer to shrink.
    sizes = (*range(low, high + 1), *range((low + high) // 2 + 1, high + 1))
    lengths = st.integers(0, len(sizes) - 1).map(lambda place: sizes[place])
    if domain.long_context and not short:
        return st.integers(0, 39).flatmap(
            lambda die: st.sampled_from(LONG_CONTEXTS) if die == 39 else lengths
        )
    return lengths


def _q_lens(domain: Domain, kv_len: int, *, short: bool) -> st.SearchStrategy[int]:
    if domain.square:
        return st.just(kv_len)
    if domain.q_lens is not None:
        fitting = [n for n in domain.q_lens if domain.longer_queries or n <= kv_len]
        return st.sampled_from(sorted(fitting or domain.q_lens))
    low, high = domain.q_len
    if not domain.longer_queries:
        high = max(low, min(high, kv_len))
    if short or kv_len > 128:
        return st.integers(low, max(low, min(high, 3)))
    lengths = st.integers(low, max(low, min(high, 12)))
    return lengths | st.just(kv_len) if low <= kv_len <= high else lengths


@st.composite
def masks(draw: st.DrawFn, domain: Domain, *, q_len: int, kv_len: int) -> Mask:
    """Masks of every pattern, form and broadcast shape that the domain admits."""
    pattern = draw(st.sampled_from(MASK_PATTERNS))
    form = draw(st.sampled_from(domain.masks))
    axes = draw(st.sampled_from(domain.mask_axes))
    fields: dict[str, Any] = {"pattern": pattern, "form": form, "axes": axes}
    match pattern:
        case "padding":
            fields["size"] = draw(st.integers(1, max(1, kv_len)))
        case "random":
            fields["size"] = draw(st.sampled_from((50, 20, 90)))
            fields["seed"] = draw(st.integers(0, 255))
        case "window" | "block" | "document":
            fields["size"] = draw(st.integers(1, 8))
        case _:
            pass
    if form == "float":
        fields["hidden"] = draw(st.sampled_from(HIDDEN_VALUES))
        fields["bias"] = draw(st.sampled_from((0.0, 1.0, 8.0)))
    if domain.empty_rows and "q" in axes and draw(st.integers(0, 3)) == 3:
        fields["empty_rows"] = draw(st.integers(1, min(2, q_len)))
    return Mask(**fields)


def _windows(domain: Domain, kv_len: int) -> st.SearchStrategy[int | tuple[int, int]]:
    # Everywhere, and around the length at which a window stops to hide anything.
    ints = st.integers(1, kv_len + 2) | st.integers(max(1, kv_len - 1), kv_len + 1)
    sides = st.integers(-1, kv_len + 1)
    kinds: list[st.SearchStrategy[int | tuple[int, int]]] = []
    if "int" in domain.windows:
        kinds.append(ints)
    if "pair" in domain.windows:
        kinds.append(st.tuples(sides, sides))
    return st.one_of(kinds)


def _plants(num_kv_heads: int, kv_len: int) -> st.SearchStrategy[tuple[str, int, int, float]]:
    return st.tuples(
        st.sampled_from(("value", "key", "query")),
        st.integers(0, num_kv_heads - 1),
        st.integers(0, max(0, kv_len - 1)),
        st.integers(-8, 8).map(float),
    )
