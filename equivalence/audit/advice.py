"""What to change in a graph that repeats key/value heads."""

from __future__ import annotations

from collections.abc import Sequence

from equivalence.audit.account import Account
from equivalence.audit.replication import Replication

MIB = 2**20


def advice_of(account: Account) -> list[str]:
    """One line for each way in which heads are matched by repeating them."""
    groups: dict[tuple[tuple[int, int] | None, str], list[Replication]] = {}
    for one in account.of_heads:
        groups.setdefault((one.matched, one.order), []).append(one)
    return [_advice(*matched, order, ones) for (matched, order), ones in groups.items() if matched]


def _advice(kv_heads: int, heads: int, order: str, ones: Sequence[Replication]) -> str:
    keys = sum("key" in one.roles for one in ones)
    values = sum("value" in one.roles for one in ones)
    size = sum(one.written for one in ones) / MIB
    group = heads // kv_heads if heads % kv_heads == 0 else 0
    types = " and ".join(dict.fromkeys(one.op.type for one in ones))
    found = (
        f"{len(ones)} {types} repeat {kv_heads} key/value heads to {heads} "
        f"({keys} feed the products of scores, {values} those of values): {size:,.6g} MiB written"
    )
    if order in ("grouped", "one") and group:
        return (
            f"{found}; fold the query instead: reshape it from [B, {heads}, L, D] to "
            f"[B, {kv_heads}, {group}*L, D], multiply by keys and values as they are, and reshape "
            "back"
        )
    if order == "interleaved":
        return (
            f"{found}; query head h reads key/value head h % {kv_heads}, so a fold must also "
            f"transpose the query from [B, {group}, {kv_heads}, L, D] and the output back"
        )
    return f"{found}; the heads are matched in no regular order, so no reshape replaces it"
