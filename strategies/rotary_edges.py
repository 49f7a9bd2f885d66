"""Rotary cases that few draws meet: axes of one length, and bases that models really have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from equivalence.rope.case import RotaryCase
from equivalence.rope.domain import RotaryDomain

# Where two axes are as long, positions may be taken along the wrong one and still fit.
ALIKE: Final = 3
FIRST: Final = 5  # positions that are not the indices of anything
# Yi-34B, Qwen2.5-1M, and the base of Su et al. divided by a thousand.
THETAS: Final = (5_000_000.0, 10_000_000.0, 10.0)


def rotary_edges(domain: RotaryDomain, seed: int) -> Iterator[RotaryCase]:
    """Cases inside ``domain``, as far as it admits such lengths and bases."""
    plain = _plain(domain, seed)
    for axis, sizes in (("num_heads", domain.num_heads), ("batch_size", domain.batch_size)):
        length = max(domain.seq_len[0], min(ALIKE, domain.seq_len[1]))
        if sizes[0] <= length <= sizes[1] and length > 1:
            start = min(FIRST, _room(domain, length))
            yield plain.but(seq_len=length, start=start, **{axis: length})
    yield from _large(plain, domain)
    if domain.theta:
        for theta in THETAS:
            yield plain.but(theta=theta, start=min(1_000, _room(domain, plain.seq_len)))


def _large(plain: RotaryCase, domain: RotaryDomain) -> Iterator[RotaryCase]:
    """More heads, and more tokens, than any drawn case has: beyond the first of each tile."""
    tokens = min(domain.most_tokens, domain.furthest + 1)
    if domain.num_heads[1] > 1:
        yield plain.but(num_heads=domain.most_heads, start=min(FIRST, _room(domain, plain.seq_len)))
    if domain.seq_len[1] > 1:
        yield plain.but(seq_len=tokens)


def _room(domain: RotaryDomain, length: int) -> int:
    """The furthest position that so many tokens may start at."""
    return max(0, domain.furthest - length + 1)


def _plain(domain: RotaryDomain, seed: int) -> RotaryCase:
    """No option, and numbers that tell channels apart where the domain has such."""
    sizes = domain.head_dims
    if domain.head_layouts is not None:
        sizes = tuple(layout[2] for layout in domain.head_layouts)
    even = [size for size in sizes if size % 2 == 0] or list(sizes)
    head_dim = min(even, key=lambda size: abs(size - 8))
    values = "normal" if "normal" in domain.values else domain.values[0]
    fields: dict[str, Any] = {
        "dtype": domain.dtypes[0],
        "pairing": domain.pairings[0],
        "batch_size": domain.batch_size[0],
        "num_heads": domain.num_heads[0],
        "seq_len": domain.seq_len[0],
        "head_dim": head_dim,
        "per_row": not domain.flat,
        "values": values,
    }
    if head_dim % 2:
        fields["rotary_dim"] = head_dim - 1
    if values == "normal":
        fields["seed"] = seed % 2**16
    return RotaryCase(**fields)
