"""Latent-attention cases, drawn inside a domain: shapes, a seed and a few words."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from equivalence.latent.case import MlaCase
from equivalence.latent.domain import MlaDomain

SCALES: Final = (1.0, 0.5, 0.1)
MAGNITUDES: Final = (1.0, 0.1, 3.0, 10.0, 30.0)
LONG_CONTEXTS: Final = (129, 257, 512, 1025, 4096)
UNSEEDED: Final = ("ramp", "zero")


def mla_cases(domain: MlaDomain | None = None) -> st.SearchStrategy[MlaCase]:
    """Cases inside ``domain`` (default: all of it), the simplest first.

    A third have the ratios of DeepSeek-V2 (latent_dim = 4 head_dim, rope_dim = head_dim / 2), one
    in eight the sizes of a published model, the others any.
    """
    return _cases(domain or MlaDomain())


@st.composite
def _cases(draw: st.DrawFn, domain: MlaDomain) -> MlaCase:
    fields, real = draw(_sizes(domain))
    if not real:
        fields["batch_size"] = draw(st.integers(*domain.batch_size))
    fields["dtype"] = draw(st.sampled_from(domain.dtypes))
    fields["kv_len"] = kv_len = draw(_kv_lens(domain, short=real))
    fields["q_len"] = draw(_q_lens(domain, kv_len, short=real))
    fields["values"] = values = draw(st.sampled_from(domain.values))
    fields["weights"] = weights = draw(st.sampled_from(domain.weights))
    if values not in UNSEEDED:
        fields["magnitude"] = draw(st.sampled_from(MAGNITUDES))
    if values not in UNSEEDED or weights != "plain":
        fields["seed"] = draw(st.integers(0, 2**16))
    extras = draw(st.lists(st.sampled_from(_extras(domain)), unique=True, max_size=3))
    if "value_head_dim" in extras and not real:
        fields["value_head_dim"] = draw(st.integers(1, domain.head_dim[1]))
    if "scale" in extras:
        fields["scale"] = draw(st.sampled_from(SCALES))
    if "query_rank" in extras and values not in UNSEEDED:
        fields["query_rank"] = draw(st.integers(1, 24))
    if "latent_norm" in extras and values not in UNSEEDED:
        fields["latent_norm"] = True
    if "memory" in extras:
        fields["memory"] = draw(st.sampled_from(domain.memories))
    return MlaCase(**fields)


def _extras(domain: MlaDomain) -> list[str]:
    offered = {
        "memory": len(domain.memories) > 1,
        "value_head_dim": domain.value_head_dim_differs and domain.only_sizes is None,
        "scale": domain.scale,
        "query_rank": True,
        "latent_norm": True,
    }
    return [name for name, possible in offered.items() if possible]


@st.composite
def _sizes(draw: st.DrawFn, domain: MlaDomain) -> tuple[dict[str, Any], bool]:
    """The widths and the number of heads, and whether the widths are those of a model."""
    low, high = domain.num_heads
    if domain.head_layouts is not None:
        num_kv_heads, group_size, head_dim = draw(st.sampled_from(domain.head_layouts))
        return {
            "num_heads": num_kv_heads * group_size,
            "head_dim": head_dim,
            "latent_dim": 4 * head_dim,
            "rope_dim": max(2, head_dim // 4 * 2),
        }, True
    listed = domain.only_sizes
    # One integer decides, so that a model's sizes shrink into small ones.
    if listed is not None or (domain.sizes and draw(st.integers(0, 7)) == 7):
        sizes = draw(st.sampled_from(listed if listed is not None else domain.sizes))
        head_dim, value_head_dim, latent_dim, rope_dim = sizes
        fields: dict[str, Any] = {
            "num_heads": draw(st.integers(low, min(high, 2) if head_dim > 32 else high)),
            "head_dim": head_dim,
            "latent_dim": latent_dim,
            "rope_dim": rope_dim,
        }
        if value_head_dim != head_dim:
            fields["value_head_dim"] = value_head_dim
        return fields, head_dim > 16
    head_dim = draw(st.integers(*domain.head_dim))
    fields = {"num_heads": draw(st.integers(low, high)), "head_dim": head_dim}
    if draw(st.integers(0, 2)) == 2:
        fields["latent_dim"] = min(4 * head_dim, domain.latent_dim[1])
        fields["rope_dim"] = max(2, head_dim // 4 * 2)
    else:
        fields["latent_dim"] = draw(st.integers(*domain.latent_dim))
        fields["rope_dim"] = 2 * draw(st.integers(1, domain.rope_dim[1] // 2))
    return fields, False


def _kv_lens(domain: MlaDomain, *, short: bool) -> st.SearchStrategy[int]:
    if domain.kv_lens is not None:
        return st.sampled_from(sorted(domain.kv_lens))
    low, high = domain.kv_len
    high = max(low, min(high, 24)) if short else high
    # The longer half comes twice: median of a suite above 16, and still one integer to shrink.
    lengths = (*range(low, high + 1), *range((low + high) // 2 + 1, high + 1))
    drawn = st.integers(0, len(lengths) - 1).map(lambda place: lengths[place])
    if domain.long_context and not short:
        return st.integers(0, 39).flatmap(
            lambda die: st.sampled_from(LONG_CONTEXTS) if die == 39 else drawn
        )
    return drawn


def _q_lens(domain: MlaDomain, kv_len: int, *, short: bool) -> st.SearchStrategy[int]:
    if domain.q_lens is not None:
        fitting = [n for n in sorted(domain.q_lens) if domain.longer_queries or n <= kv_len]
        return st.sampled_from(fitting or sorted(domain.q_lens)[:1])
    low, high = domain.q_len
    if not domain.longer_queries:
        high = max(low, min(high, kv_len))
    if short or kv_len > 128:
        return st.integers(low, max(low, min(high, 3)))
    lengths = st.integers(low, high)
    return lengths | st.just(kv_len) if low <= kv_len <= 16 else lengths
