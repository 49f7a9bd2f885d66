"""Which query heads share a key/value head, as the index lists that a formulation needs."""

from __future__ import annotations

from dataclasses import dataclass

from equivalence.errors import Unsupported

HeadOrder = str | tuple[int, ...]


def group_size_of(num_heads: int, num_kv_heads: int) -> int:
    """Query heads for each key/value head; raises Unsupported where the one does not divide."""
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise Unsupported(
            f"num_heads={num_heads} must be a multiple of num_kv_heads={num_kv_heads}"
        )
    return num_heads // num_kv_heads


def kv_head_map(head_order: HeadOrder, num_heads: int, num_kv_heads: int) -> list[int]:
    """For each query head, the key/value head that it reads."""
    group_size = group_size_of(num_heads, num_kv_heads)
    if head_order == "grouped":
        return [kv_head for kv_head in range(num_kv_heads) for _ in range(group_size)]
    if head_order == "interleaved":
        return list(range(num_kv_heads)) * group_size
    if isinstance(head_order, str) or len(head_order) != num_heads:
        raise Unsupported(f"head_order={head_order!r} does not map {num_heads} query heads")
    return [int(kv_head) for kv_head in head_order]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Query heads sorted by the key/value head that they read.

    take: for each of the num_kv_heads * group_size slots, the query head that stands there; back:
    for each query head, its slot. Both None where the heads already stand in that order.
    group_size: slots for each key/value head; an uneven map fills the spare ones with head 0.
    """

    group_size: int
    take: list[int] | None = None
    back: list[int] | None = None


def fold_of(head_order: HeadOrder, num_heads: int, num_kv_heads: int) -> Fold:
    """The fold of a head order; grouped heads need no permutation."""
    group_size = group_size_of(num_heads, num_kv_heads)
    if head_order == "grouped":
        return Fold(group_size=group_size)
    readers: list[list[int]] = [[] for _ in range(num_kv_heads)]
    for head, kv_head in enumerate(kv_head_map(head_order, num_heads, num_kv_heads)):
        readers[kv_head].append(head)
    widest = max(len(heads) for heads in readers)
    take = [head for heads in readers for head in heads + [0] * (widest - len(heads))]
    back = [0] * num_heads
    for kv_head, heads in enumerate(readers):
        for position, head in enumerate(heads):
            back[head] = kv_head * widest + position
    return Fold(group_size=widest, take=take, back=back)
