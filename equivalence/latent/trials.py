"""Try each feature of a latent-attention target on one tiny case before expecting it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from equivalence.dtypes import DTYPES
from equivalence.latent.case import MEMORIES, MlaCase
from equivalence.latent.domain import MODEL_SIZES, MlaDomain
from equivalence.latent.inputs import latent_inputs
from equivalence.outcome import Target
from equivalence.trials import Trials
from equivalence.trying import PREFERRED, TinyCalls

Sizes = tuple[int, int, int, int]  # head_dim, value_head_dim, latent_dim, rope_dim

BASE_SIZES: Final[tuple[Sizes, ...]] = (
    (8, 8, 32, 4),
    (16, 16, 64, 8),
    (64, 64, 256, 32),
    (128, 128, 512, 64),
    (1, 1, 1, 2),
)
BASE_LENGTHS: Final = ((1, 4), (4, 4), (1, 64), (64, 64))
FREE_SIZES: Final[tuple[Sizes, ...]] = (
    (1, 1, 1, 2),
    (3, 3, 5, 2),
    (7, 7, 33, 6),
    (20, 20, 8, 16),
    (2, 2, 24, 4),
)
KV_LENS: Final = (1, 2, 3, 7, 8, 16, 17, 33, 48)
Q_LENS: Final = (1, 2, 3, 5, 8)


def try_features(target: Target, dtypes: Iterable[str] | None = None) -> Trials:
    """Call ``target`` on tiny cases, one for each feature of the contract.

    ``dtypes`` restricts the formats that are tried (default: those declared, or all four).
    """
    declared = target.declaration
    trials = Trials(domain=MlaDomain())
    bench = TinyCalls(target, trials, latent_inputs)
    wanted = tuple(dtypes or declared.dtypes or DTYPES)
    base = bench.base(_bases(wanted))
    if base is None:
        return trials
    changes: dict[str, Any] = {"dtypes": bench.formats(base, wanted)}
    changes |= _sizes(bench, base)
    changes |= _lengths(bench, base)
    for field, most in (("batch_size", 2), ("num_heads", 3)):
        if not bench.works(base.but(**{field: most}), f"{field} {most}"):
            changes[field] = (1, 1)
    changes["scale"] = bench.option("scale", base.but(scale=0.5))
    long = base.but(kv_len=max(2, base.kv_len))
    wide = long.but(num_heads=2, q_len=max(2, base.q_len))
    if not bench.works(wide):  # swapped axes of a single head or token are still contiguous
        wide = long
    memories = {m: wide.but(memory=m) for m in MEMORIES[1:]}
    changes["memories"] = ("contiguous", *bench.accepted("memory", memories))
    trials.domain = trials.domain.but(**changes)
    return trials


def sized(case: MlaCase, sizes: Sizes) -> MlaCase:
    """``case`` with the sizes (head_dim, value_head_dim, latent_dim, rope_dim)."""
    head_dim, value_head_dim, latent_dim, rope_dim = sizes
    return replace(
        case,
        head_dim=head_dim,
        value_head_dim=None if value_head_dim == head_dim else value_head_dim,
        latent_dim=latent_dim,
        rope_dim=rope_dim,
    )


def _bases(dtypes: tuple[str, ...]) -> Iterator[MlaCase]:
    for q_len, kv_len in BASE_LENGTHS:
        for sizes in BASE_SIZES:
            for dtype in (d for d in PREFERRED if d in dtypes):
                plain = MlaCase(
                    q_len=q_len, kv_len=kv_len, dtype=dtype, values="normal", weights="realistic"
                )
                yield sized(plain, sizes)


def _sizes(bench: TinyCalls, base: MlaCase) -> dict[str, Any]:
    """Which sizes are taken; a list is kept only where some were refused."""
    changes: dict[str, Any] = {}
    models = tuple(dict.fromkeys(MODEL_SIZES.values()))
    taken = bench.accepted("sizes", {sizes: sized(base, sizes) for sizes in models})
    free = bench.accepted("sizes", {sizes: sized(base, sizes) for sizes in FREE_SIZES})
    changes["sizes"] = taken
    if len(free) < len(FREE_SIZES):
        own = (base.head_dim, base.v_dim, base.latent_dim, base.rope_dim)
        changes["only_sizes"] = tuple(dict.fromkeys((*free, own, *taken)))
    other = max(1, base.head_dim // 2) if base.head_dim > 1 else 2
    changes["value_head_dim_differs"] = bench.works(
        base.but(value_head_dim=other), "value_head_dim != head_dim"
    )
    return changes


def _lengths(bench: TinyCalls, base: MlaCase) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    kv_lens = bench.accepted("kv_len", {n: base.but(kv_len=n, q_len=1) for n in KV_LENS})
    longest = max(Q_LENS)
    q_lens = bench.accepted("q_len", {n: base.but(q_len=n, kv_len=longest) for n in Q_LENS})
    if len(kv_lens) < len(KV_LENS):
        changes["kv_lens"] = tuple(sorted({*kv_lens, base.kv_len}))
    if len(q_lens) < len(Q_LENS):
        changes["q_lens"] = tuple(sorted({*q_lens, base.q_len}))
    domain = bench.trials.domain
    if not bench.works(base.but(num_heads=domain.most_heads), f"num_heads {domain.most_heads}"):
        changes["most_heads"] = domain.num_heads[1]
    many = base.but(kv_len=domain.most_tokens, q_len=1)
    if not bench.works(many, f"kv_len {domain.most_tokens}"):
        changes["most_tokens"] = domain.kv_len[1]
    changes["longer_queries"] = bench.works(
        base.but(q_len=base.kv_len + 2), "queries that see no token"
    )
    return changes
