"""Attention cases, drawn inside a domain: shapes, a seed and a few words, never a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final, TypeVar

from hypothesis import strategies as st

from equivalence.case import UNSEEDED, AttentionCase
from equivalence.domain import FUZZ_HEAD_DIMS, REAL_HEAD_DIMS, Domain
from equivalence.masks import HIDDEN_VALUES, Mask
from equivalence.strategies.models import MODEL_HEADS

T = TypeVar("T")

SCALES: Final = (1.0, 0.5, 0.25, 0.1)
SOFTCAPS: Final = (1.0, 5.0, 20.0, 50.0)
MAGNITUDES: Final = (1.0, 0.1, 3.0, 10.0, 30.0)
LONG_CONTEXTS: Final = (129, 257, 512, 1025, 2048, 4096)
# Kernels work in tiles of 16 to 128: lengths that fill a number of tiles, or miss it by one.
TILES: Final = (16, 32, 64, 96, 128)
LARGE_BATCHES: Final = (8, 11, 16, 17)
# Of one case. Larger ones cost as much as several small ones and break no law that those keep:
# many heads, long keys, many queries and wide heads are drawn, but not all of them together.
MOST_SCORES: Final = 2**14
MOST_PRODUCTS: Final = 2**17
MOST_PRODUCTS_OF_MODELS: Final = 2**18  # whose heads are many and wide
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

    Each option is on in a quarter of the cases, so every two of them meet in one of sixteen.
    About one case in seven has the head counts and head_dim of a published model.
    """
    return _cases(domain or Domain())


@st.composite
def _cases(draw: st.DrawFn, domain: Domain) -> AttentionCase:
    # One source of choices: Hypothesis shrinks each of them, and copies none onto another, as it
    # does between strategies of one kind. Half of the cases of a search would be such copies.
    return _case(draw(st.randoms()), domain)


def _case(pick: Random, domain: Domain) -> AttentionCase:
    # What is drawn first shrinks first: options away, then simple values, then small sizes.
    # Masks have many forms, so every third case has one.
    sides = {name: 3 if name == "mask" else 4 for name in _extras(domain)}
    extras = {name for name, count in sides.items() if pick.randint(1, count) == count}
    fields: dict[str, Any] = {
        "dtype": pick.choice(domain.dtypes),
        "head_order": pick.choice(domain.head_orders),
        "causal": pick.choice(domain.causal),
        "values": pick.choice(_values(domain)),
        "magnitude": pick.choice(MAGNITUDES),
        "seed": pick.randint(0, 2**16),
    }
    if fields["values"] in UNSEEDED:
        fields["magnitude"], fields["seed"] = 1.0, 0
    if "mask" in extras and not domain.mask_and_causal and fields["causal"] is not None:
        if None in domain.causal:
            fields["causal"] = None
        else:
            extras.discard("mask")
    if fields["causal"] is None and (needy := extras & set(domain.needs_causal)):
        if domain.causal[-1] is None or ("mask" in extras and not domain.mask_and_causal):
            extras -= needy
        else:
            fields["causal"] = domain.causal[-1]
    num_kv_heads, group_size, head_dim = _heads(pick, domain)
    real = head_dim is not None
    batch_size = domain.batch_size[0] if real else pick.choice(_batch_sizes(domain, num_kv_heads))
    kv_len = pick.choice(_kv_lens(domain, short=real))
    heads = batch_size * num_kv_heads * group_size
    most = most_queries(heads, kv_len, head_dim)
    q_len = pick.choice(_q_lens(domain, kv_len, most=most, short=real))
    if head_dim is None:
        most = MOST_PRODUCTS // max(1, heads * kv_len * q_len)
        head_dim = pick.choice(_head_dims(domain, most))
    return AttentionCase(
        batch_size=batch_size,
        num_kv_heads=num_kv_heads,
        group_size=group_size,
        head_dim=head_dim,
        q_len=q_len,
        kv_len=kv_len,
        **fields,
        **_options(pick, domain, extras, (batch_size, num_kv_heads, q_len, kv_len)),
    )


def _options(
    pick: Random, domain: Domain, extras: set[str], sizes: tuple[int, int, int, int]
) -> dict[str, Any]:
    """The fields of the options in ``extras``, for (batch_size, num_kv_heads, q_len, kv_len)."""
    batch_size, num_kv_heads, q_len, kv_len = sizes
    fields: dict[str, Any] = {name: True for name in ("sinks", "alibi") if name in extras}
    if "mask" in extras:
        # As many rows as key/value heads: a mask by row then fits the heads as well.
        alike = batch_size == num_kv_heads > 1
        fields["mask"] = _mask(pick, domain, q_len, kv_len, by_row=alike)
    if "window" in extras:
        fields["window"] = _window(pick, domain, kv_len)
    if "scale" in extras:
        fields["scale"] = pick.choice(SCALES)
    if "softcap" in extras:
        fields["softcap"] = pick.choice(SOFTCAPS)
    if "kv_lengths" in extras:
        least = 0 if domain.empty_rows else min(1, kv_len)
        used = (*range(least, kv_len + 1), kv_len, kv_len, max(least, kv_len - 1))
        fields["kv_lengths"] = tuple(pick.choice(used) for _ in range(batch_size))
    if "memory" in extras:
        fields["memory"] = pick.choice(domain.memories)
    if "value_head_dim" in extras:
        fields["value_head_dim"] = pick.randint(1, 33)
    if "plants" in extras:
        fields["plants"] = _plants(pick, num_kv_heads, kv_len)
    return fields


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


def _values(domain: Domain) -> list[str]:
    """Where query and key are zero, most options cannot show: those come once, others thrice."""
    return [*domain.values, *2 * [name for name in domain.values if name not in UNSEEDED]]


def _heads(pick: Random, domain: Domain) -> tuple[int, int, int | None]:
    """(num_kv_heads, group_size, head_dim): those of a real model, or head_dim is left open."""
    if domain.head_layouts is not None:
        return pick.choice(domain.head_layouts)
    models = real_layouts(domain)
    if models and pick.randint(0, 6) == 6:
        return pick.choice(models)
    num_kv_heads = pick.randint(*domain.num_kv_heads)
    group_size = pick.randint(*domain.group_size)
    return num_kv_heads, group_size, None


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


def _head_dims(domain: Domain, most: int) -> Sequence[int]:
    """Those up to ``most``, or the smallest."""
    sizes = sorted(domain.head_dims or (*FUZZ_HEAD_DIMS, *REAL_HEAD_DIMS))
    return [size for size in sizes if size <= most] or sizes[:1]


def _batch_sizes(domain: Domain, num_kv_heads: int) -> list[int]:
    """Small ones mostly, and as many as key/value heads; now and then one that takes two digits."""
    low, high = domain.batch_size
    small = [*range(low, max(low, min(high, 4)) + 1)]
    same = [num_kv_heads] * 8 if low <= num_kv_heads <= high else []
    return [*small, *small, *small, *same, *(n for n in LARGE_BATCHES if low <= n <= high)]


def _kv_lens(domain: Domain, *, short: bool) -> list[int]:
    """Every length up to 64, the longer half twice, and a third at the borders of tiles."""
    if domain.kv_lens is not None:
        return sorted(domain.kv_lens)
    low, high = domain.kv_len
    high = max(low, min(high, 32)) if short else high
    most = max(low, min(high, 64))
    borders = [n for tile in TILES for n in (tile + 1, tile, tile + 2) if low <= n <= high]
    late = [n for n in borders if n % 32 == 1]
    sizes = [*range(low, most + 1), *range((low + most) // 2 + 1, most + 1)]
    sizes += [*borders, *borders, *late, *late, *late]
    return [*sizes, *LONG_CONTEXTS] if domain.long_context and not short else sizes


def most_queries(heads: int, kv_len: int, head_dim: int | None) -> int:
    """How many queries a case has at most; head_dim: of a real model, None where it is open."""
    if head_dim is None:
        return MOST_SCORES // max(1, heads * kv_len)
    return MOST_PRODUCTS_OF_MODELS // max(1, heads * kv_len * head_dim)


def _q_lens(domain: Domain, kv_len: int, *, most: int, short: bool) -> list[int]:
    """A third are single steps; some are as long as the keys, or beyond a tile of 16."""
    if domain.square:
        return [kv_len]
    if domain.q_lens is not None:
        fitting = [n for n in domain.q_lens if domain.longer_queries or n <= kv_len]
        return sorted(fitting) or [min(domain.q_lens)]
    low, high = domain.q_len
    if not domain.longer_queries:
        high = max(low, min(high, kv_len))
    most = max(low, most)
    if short or kv_len > 130:
        return [*range(low, max(low, min(high, most, 3)) + 1)]
    lengths = [*range(low, max(low, min(high, 12)) + 1), *[low] * 4]
    lengths += [n for n in (16, 17, 18, 33) if low <= n <= high]
    if kv_len <= 24:
        squares = (kv_len,) * 4 + (kv_len + 1, kv_len + 2, 2 * kv_len) * domain.longer_queries
        lengths += [n for n in squares if low <= n <= high]
    return [n for n in lengths if n <= most] or [low]


@st.composite
def masks(draw: st.DrawFn, domain: Domain, *, q_len: int, kv_len: int) -> Mask:
    """Masks of every pattern, form and broadcast shape that the domain admits."""
    return _mask(draw(st.randoms()), domain, q_len, kv_len)


def _mask(pick: Random, domain: Domain, q_len: int, kv_len: int, *, by_row: bool = False) -> Mask:
    pattern = pick.choice(MASK_PATTERNS)
    form = pick.choice(domain.masks)
    rows = [axes for axes in domain.mask_axes if by_row and "b" in axes and "h" not in axes]
    axes = pick.choice((*domain.mask_axes, *rows, *rows, *rows))
    fields: dict[str, Any] = {"pattern": pattern, "form": form, "axes": axes}
    match pattern:
        case "padding":
            fields["size"] = pick.randint(1, max(1, kv_len))
        case "random":
            fields["size"] = pick.choice((50, 20, 90))
            fields["seed"] = pick.randint(0, 255)
        case "window" | "block" | "document":
            fields["size"] = pick.randint(1, 8)
        case _:
            pass
    if form == "float":
        fields["hidden"] = pick.choice((*HIDDEN_VALUES, "finfo.min"))
        fields["bias"] = pick.choice((0.0, 1.0, 8.0))
    # A row whose keys all have the same low bias is a row as any other.
    lowest = fields.get("hidden", "-inf") != "-inf"
    if domain.empty_rows and (lowest or "q" in axes) and pick.randint(0, 3) >= 3 - lowest:
        fields["empty_rows"] = pick.randint(1, min(2, q_len))
    return Mask(**fields)


def _window(pick: Random, domain: Domain, kv_len: int) -> int | tuple[int, int]:
    """Of every width; often the smallest, and those where a window stops to hide anything."""
    widths = [*range(1, kv_len + 3), 1, 2, 3, max(1, kv_len - 1), max(1, kv_len), kv_len + 1]
    if pick.choice(domain.windows) == "int":
        width: int = pick.choice(widths)
        return width
    sides = [*range(-1, kv_len + 2), -1, 0, 1, -1, 0, 1]
    return pick.choice(sides), pick.choice(sides)


def _plants(
    pick: Random, num_kv_heads: int, kv_len: int
) -> tuple[tuple[str, int, int, float], ...]:
    """Up to two rows of one number; or a query and a key whose product float16 cannot hold."""
    operands: tuple[str, ...] = ("value", "key", "query")
    numbers = [float(n) for n in range(-8, 9)]
    count = pick.randint(0, 3)
    if count == 3:
        operands, numbers = ("query", "key"), [300.0, -300.0]
    heads, last = num_kv_heads - 1, max(0, kv_len - 1)
    return tuple(
        (
            operands[place] if count == 3 else pick.choice(operands),
            pick.randint(0, heads),
            pick.randint(0, last),
            pick.choice(numbers),
        )
        for place in range(min(count, 2))
    )
