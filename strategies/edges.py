"""Cases at the edges of tiles, and options given so that they act: few, and asked for on purpose.

Kernels work in tiles of 16 to 128 keys, have code of their own for a single query and for long
keys, and read some values of an option as none given. Drawn numbers meet such places by luck.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from equivalence.case import UNSEEDED, AttentionCase
from equivalence.domain import REAL_HEAD_DIMS, Domain, in_order
from equivalence.masks import Mask

# Of the last queries of 130 keys, some window of two starts at a multiple of each tile.
QUERIES: Final = 33
KEYS: Final = 130
# The last of so many keys stands alone in its tile, whatever the tile is.
ONE_BEYOND: Final = 129
HALF_WINDOW: Final = 65  # which then starts in the middle, at another multiple of tiles
# As many queries as keys: one beyond tiles of 128, or of 64 where heads are many and large.
PREFILLS: Final = (129, 65)
MOST_PRODUCTS: Final = 2**25
SHORT: Final = 3
SMALL_CAP: Final = 1.0
LARGE_SCORES: Final = 10.0  # of the query, so that caps and scales act
# One query and one key whose product float16 cannot hold.
LARGE_PRODUCT: Final = (("query", 0, 0, 300.0), ("key", 0, 0, 300.0))


def attention_edges(domain: Domain, seed: int) -> Iterator[AttentionCase]:
    """Cases inside ``domain``, as far as it admits such lengths and options."""
    return (in_order(case, domain) for case in _edges(domain, seed))


def _edges(domain: Domain, seed: int) -> Iterator[AttentionCase]:
    plain = _plain(domain, seed)
    if plain.values not in UNSEEDED:  # rows shorter than a vector; NaN goes by seed into q, k, v
        short = _long(plain, domain, 1, SHORT)
        yield from (short.but(seed=(seed + n) % 2**16) for n in range(3))
    for window in domain.windows:
        two: int | tuple[int, int] = 2 if window == "int" else (1, 0)
        half: int | tuple[int, int] = (
            HALF_WINDOW if window == "int" else (HALF_WINDOW - 1, HALF_WINDOW)
        )
        yield _long(plain, domain, QUERIES, KEYS).but(window=two)
        yield _long(plain, domain, 1, KEYS).but(window=two)
        yield _long(plain, domain, 1, ONE_BEYOND).but(window=half)
        if window == "pair":  # 0 hides every earlier key, and -1 no later one
            yield _long(plain, domain, 5, 27).but(window=(0, -1))
    if domain.causal[-1] is not None:
        yield _long(plain.but(causal=domain.causal[-1]), domain, QUERIES, ONE_BEYOND)
    yield from _whole_prefill(plain, domain)
    if domain.masks and (plain.causal is None or domain.mask_and_causal):
        # A tile that is padded to its end must hide its last key as any other.
        for form in domain.masks:
            case = _long(plain, domain, 1, ONE_BEYOND)
            size, axes = max(1, case.kv_len - 1), _plainest(domain.mask_axes)
            yield case.but(mask=Mask(pattern="padding", form=form, size=size, axes=axes))
    if domain.masks and domain.mask_and_causal and domain.causal[-1] is not None:
        # Each hides keys that the other shows: a kernel that drops one of them is seen.
        case = _long(plain.but(causal=domain.causal[-1]), domain, 5, 27)
        axes = _plainest(domain.mask_axes)
        yield case.but(mask=Mask(pattern="random", size=50, form=domain.masks[0], axes=axes))
    yield from _mask_by_row(plain, domain)
    yield from _used_lengths(plain, domain)
    # Drawn cases are seldom that wide, nor is a product that large the only one that is.
    widest = max(domain.head_dims or REAL_HEAD_DIMS)
    if domain.head_layouts is None:
        yield _long(plain.but(head_dim=widest), domain, 5, 27)
    yield _long(plain.but(plants=LARGE_PRODUCT), domain, 1, 27)
    if domain.softcap:
        capped = plain.but(softcap=SMALL_CAP, **_large(plain))
        yield _long(capped, domain, 1, ONE_BEYOND)
        yield _long(capped, domain, QUERIES, ONE_BEYOND)
    if domain.scale:
        yield _long(plain.but(scale=0.25, **_large(plain)), domain, 1, ONE_BEYOND)
        yield from _odd_scales(plain, domain)


def _whole_prefill(plain: AttentionCase, domain: Domain) -> Iterator[AttentionCase]:
    """As many queries as keys, one beyond a tile of queries too, in causal order if there is.

    No drawn case has so many queries. Where few are all that is drawn, few are all there is.
    """
    if domain.q_lens is not None or domain.q_len[1] < QUERIES:
        return
    for length in PREFILLS:
        case = _long(plain.but(causal=domain.causal[-1]), domain, QUERIES, length)
        case = case.but(q_len=case.kv_len)
        products = case.batch_size * case.num_heads * case.q_len * case.kv_len * case.head_dim
        if case.kv_len <= length and products <= MOST_PRODUCTS:
            yield case
            return


def _mask_by_row(plain: AttentionCase, domain: Domain) -> Iterator[AttentionCase]:
    """A mask for each batch row where rows are as many as key/value heads: it fits those too."""
    by_row = [axes for axes in domain.mask_axes if "b" in axes and "h" not in axes]
    low, high = domain.batch_size
    if not by_row or not low <= plain.num_kv_heads <= high or plain.num_kv_heads < 2:
        return
    if domain.masks and (plain.causal is None or domain.mask_and_causal):
        case = _long(plain.but(batch_size=plain.num_kv_heads), domain, 5, 27)
        mask = Mask(pattern="random", size=50, form=domain.masks[0], axes=by_row[0])
        yield case.but(mask=mask)


def _used_lengths(plain: AttentionCase, domain: Domain) -> Iterator[AttentionCase]:
    """Rows of different length, and options that count positions from where each row ends.

    ALiBi without causal order: behind its own position a shift of all distances changes nothing.
    """
    if not domain.kv_lengths:
        return
    batch_size = max(domain.batch_size[0], min(2, domain.batch_size[1]))
    case = _long(plain.but(batch_size=batch_size), domain, 5, 27)
    lengths = (case.kv_len - case.kv_len // 4, *[max(1, case.kv_len // 3)] * (batch_size - 1))
    if case.kv_len:
        case = case.but(kv_lengths=lengths)
        if domain.alibi:
            yield case.but(alibi=True)
        if domain.causal[-1] is not None:
            yield case.but(causal=domain.causal[-1])


def _odd_scales(plain: AttentionCase, domain: Domain) -> Iterator[AttentionCase]:
    """A scale of 0, which ``scale or default`` reads as none, and one below it.

    Nothing may be hidden: scores that are hidden before they are scaled turn into NaN, or infinity.
    """
    open_rows = None in domain.causal or domain.causal[-1] == "lower_right"
    if not open_rows:
        return
    if None in domain.causal:
        case = _long(plain.but(causal=None), domain, 5, 27)
    else:
        case = _long(plain, domain, 1, 27)
    if case.causal is not None and case.q_len > 1:
        return
    case = case.but(**_large(plain))
    if domain.zero_scale:
        yield case.but(scale=0.0)
    if domain.negative_scale:
        yield case.but(scale=-0.5)


def _plainest(mask_axes: tuple[str, ...]) -> str:
    """A mask with a row for every query, or else the first form that there is."""
    return "q" if "q" in mask_axes else mask_axes[0]


def _large(case: AttentionCase) -> dict[str, Any]:
    return {"magnitude": LARGE_SCORES} if case.values == "normal" else {}


def _plain(domain: Domain, seed: int) -> AttentionCase:
    """No option, few heads, and numbers that tell keys apart where the domain has such."""
    telling = [name for name in domain.values if name not in UNSEEDED]
    values = "normal" if "normal" in telling else (telling or list(domain.values))[0]
    fields: dict[str, Any] = {
        "dtype": domain.dtypes[0],
        "head_order": domain.head_orders[0],
        "causal": domain.causal[0],
        "batch_size": domain.batch_size[0],
        "values": values,
    }
    if values not in UNSEEDED:
        fields["seed"] = seed % 2**16
    if domain.head_layouts is not None:
        layout = domain.head_layouts[0]
        fields |= dict(zip(("num_kv_heads", "group_size", "head_dim"), layout, strict=True))
    else:
        fields["num_kv_heads"] = max(domain.num_kv_heads[0], min(2, domain.num_kv_heads[1]))
        fields["group_size"] = max(domain.group_size[0], min(2, domain.group_size[1]))
        fields["head_dim"] = min(domain.head_dims or (8,), key=lambda size: abs(size - 8))
    return AttentionCase(**fields)


def _long(case: AttentionCase, domain: Domain, q_len: int, kv_len: int) -> AttentionCase:
    """The case with these lengths, or the nearest that the domain has."""
    if domain.kv_lens is not None:
        kv_len = min(domain.kv_lens, key=lambda n: abs(n - kv_len))
    else:
        kv_len = max(domain.kv_len[0], min(domain.kv_len[1], kv_len))
    if domain.square:
        return case.but(q_len=kv_len, kv_len=kv_len)
    most = domain.q_len[1] if domain.longer_queries else min(domain.q_len[1], kv_len)
    if domain.q_lens is not None:
        fitting = [n for n in domain.q_lens if n <= most] or [min(domain.q_lens)]
        q_len = min(fitting, key=lambda n: abs(n - q_len))
    else:
        q_len = max(domain.q_len[0], min(most, q_len))
    return case.but(q_len=q_len, kv_len=kv_len)
