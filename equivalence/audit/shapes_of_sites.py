"""How many heads an attention has, and by what means its graph matches them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from equivalence.audit.graph import Op, Value
from equivalence.audit.numbering import Cone
from equivalence.audit.sites import Site

MEANS = {
    "replicated": "key/value heads are repeated",
    "folded": "query heads are folded into rows",
    "broadcast": "a product broadcasts key/value heads",
    "fused": "one operation takes fewer key/value heads than query heads",
    "equal": "as many key/value heads as query heads",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteShape:
    """Sizes of one attention. means: a key of ``MEANS``. order: of the heads (see ``order_of``)."""

    batch_size: int
    num_heads: int
    num_kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    means: str
    order: str
    dtype: str


def shape_of(site: Site) -> SiteShape | None:
    """The sizes of a site; None where they are not known."""
    key, query = site.read("key"), site.queries[0]
    if key is None or not key.heads or not query.sized or len(query.shape) < 3:
        return None
    product = site.scores[0]
    batch = query.sizes[0] if len(query.shape) > 3 else 1
    kv_heads, seen = key.kv_heads, len(key.heads)
    rows = prod(query.sizes[1:-1] if len(query.shape) > 3 else query.sizes[:-1])
    heads, means, order = seen, "equal", "equal"
    if kv_heads < seen:
        means, order = "replicated", key.order
    else:
        whole = _unfolded(query)
        if whole.elements == query.elements and whole.sizes[-3] > kv_heads:
            heads, order = whole.sizes[-3], _order(query, whole, kv_heads, batch)
            means = "broadcast" if not site.fused and _broadcasts(product) else "folded"
            if site.fused and query.sizes[-3] == heads:
                means = "fused"
    head_dim = _width(product, query)
    return SiteShape(
        batch_size=batch,
        num_heads=heads,
        num_kv_heads=kv_heads,
        q_len=rows // heads if heads and rows % heads == 0 else rows,
        kv_len=key.operand.elements // max(1, seen * batch * head_dim),
        head_dim=head_dim,
        means=means,
        order=order,
        dtype=product.output.dtype,
    )


def _width(product: Op, query: Value) -> int:
    transposed = product.attributes.get("transpose_x") and query is product.given("x")
    return query.sizes[-2 if transposed else -1]


def _broadcasts(product: Op) -> bool:
    if product.kind != "matmul":
        return False
    x, y = (product.given(name).shape[:-2] for name in ("x", "y"))
    return x != y and prod(s or 0 for s in x) != prod(s or 0 for s in y)


def _unfolded(query: Value) -> Value:
    """The value on the way to a query that has the most heads."""
    values = [v for v in _way(query) if v.sized and len(v.shape) in (3, 4)]
    return max(values, key=lambda v: v.sizes[-3], default=query)


def _order(query: Value, whole: Value, kv_heads: int, batch: int) -> str:
    """Which heads of ``whole`` were folded into the rows of one key/value head."""
    heads = whole.sizes[-3]
    places = Cone(query, start=whole).places()
    if heads % kv_heads or places.min() < 0:
        return "other"
    of_head = places // prod(whole.sizes[-2:]) % heads
    rows = of_head.reshape(batch, kv_heads, -1)[0]
    group = heads // kv_heads
    if all(set((row // group).tolist()) == {kv} for kv, row in enumerate(rows)):
        return "grouped"
    if all(set((row % kv_heads).tolist()) == {kv} for kv, row in enumerate(rows)):
        return "interleaved"
    return "other"


def _parts_heads(op: Op) -> bool:
    """Whether a transposition makes heads of an axis further back: tokens stand there before it."""
    perm = op.attributes.get("perm", ())
    return op.kind == "transpose" and len(perm) == 4 and perm[1] % 4 != 1


def _way(value: Value) -> Iterator[Value]:
    """A value and what it is a view, a cast or a multiple of."""
    while True:
        yield value
        op = value.producer
        if op is None or op.kind not in ("view", "transpose", "elementwise", "gather"):
            return
        data = [v for v in op.operands if not v.is_constant]
        if len(data) != 1 or _parts_heads(op):
            return
        value = data[0]
