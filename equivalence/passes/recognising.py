"""Which attentions of a graph can be folded, and why others cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from equivalence.audit.graph import Graph, Op, Value
from equivalence.audit.numbering import Cone
from equivalence.audit.sites import Read, Site

# What treats each row of scores by itself, as far as shapes and axes allow.
ROWWISE: Final = ("elementwise", "softmax")


class Refused(Exception):
    """Why an attention is left as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """Keys or values before they were repeated; transposed: with the last two axes swapped."""

    source: Value
    transposed: bool
    chain: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foldable:
    """One attention that can be folded.

    spine: the operations from the scores to the product with values, without those two. through:
    whether they can be written for folded heads too, which takes a single query.
    """

    score: Op
    weighted: Op
    key: Operand
    value: Operand
    spine: tuple[Op, ...]
    batch_size: int
    num_heads: int
    num_kv_heads: int
    q_len: int
    through: bool

    @property
    def rows(self) -> tuple[int, int, int]:
        """The leading axes of folded queries: batch, key/value heads, rows."""
        groups = self.num_heads // self.num_kv_heads
        return self.batch_size, self.num_kv_heads, groups * self.q_len


def recognise(graph: Graph, site: Site) -> Foldable:
    """What a fold needs to know of a site. Raises Refused, with the reason."""
    score, weighted = _two_products(site)
    query = score.given("x")
    if score.attributes["transpose_x"]:
        raise Refused("the query comes transposed")
    if weighted.attributes["transpose_x"] or weighted.attributes["transpose_y"]:
        raise Refused("the product with values transposes an operand")
    for operand in (query, *(read.operand for read in site.reads)):
        if not operand.sized or len(operand.shape) != 4:
            sizes = list(operand.shape)
            raise Refused(f"{operand.name} has the shape {sizes}, not four known sizes")
    batch_size, num_heads, q_len, _ = query.sizes
    key, value = site.reads
    for read in (key, value):
        _require_grouped(read, num_heads)
    if key.kv_heads != value.kv_heads:
        raise Refused(f"{key.kv_heads} key heads and {value.kv_heads} value heads are repeated")
    for read in (key, value):
        if read.operand.sizes[0] != batch_size:
            raise Refused("keys or values broadcast over the batch")
    spine = _spine(score, weighted)
    for op in spine:
        _require_rowwise(op, score.output)
    own = {id(op) for op in (score, weighted)}
    key_operand, value_operand = (_operand(read, own, graph) for read in (key, value))
    if value_operand.transposed:
        raise Refused("values are repeated transposed")
    return Foldable(
        score=score,
        weighted=weighted,
        key=key_operand,
        value=value_operand,
        spine=spine,
        batch_size=batch_size,
        num_heads=num_heads,
        num_kv_heads=key.kv_heads,
        q_len=q_len,
        through=q_len == 1 and _closed(score, spine, weighted, graph),
    )


def _two_products(site: Site) -> tuple[Op, Op]:
    if site.fused:
        raise Refused(f"{site.softmax.type} is one operation, which no product can be taken out of")
    if len(site.scores) != 1 or len(site.weighted) != 1:
        counts = f"{len(site.scores)} and {len(site.weighted)}"
        raise Refused(f"{counts} products make its scores and take its values, not 1 and 1")
    score, weighted = site.scores[0], site.weighted[0]
    if (score.kind, weighted.kind) != ("matmul", "matmul"):
        raise Refused(f"its products are {score.type} and {weighted.type}, not matmul")
    if site.softmax.kind != "softmax":
        raise Refused("its softmax is spelled out")
    if site.reads[0].operand is not score.given("y"):
        raise Refused("keys are the first operand of their product")
    if site.reads[1].operand is not weighted.given("y"):
        raise Refused("values are the first operand of their product")
    return score, weighted


def _require_grouped(read: Read, num_heads: int) -> None:
    if not read.heads:
        raise Refused(f"the heads of its {read.role}s could not be followed")
    if len(read.heads) != num_heads:
        raise Refused(f"{len(read.heads)} {read.role} heads meet {num_heads} query heads")
    if read.kv_heads == len(read.heads):
        raise Refused(f"no {read.role} heads are repeated")
    if read.order not in ("grouped", "one"):
        raise Refused(f"its {read.role} heads are matched in {read.order} order, not grouped")


def _operand(read: Read, own: set[int], graph: Graph) -> Operand:
    cone = Cone(read.operand)
    groups = len(read.heads) // read.kv_heads
    batch, heads, rows, width = read.operand.sizes
    found = None
    for source in (*cone.roots, *(out for op in cone.ops for out in op.outputs)):
        if source.shape == (batch, heads // groups, rows, width):
            transposed = False
        elif source.shape == (batch, heads // groups, width, rows):
            transposed = True
        else:
            continue
        below = Cone(read.operand, start=source)
        if source in below.roots and _repeats(below, groups, transposed):
            found = Operand(source=source, transposed=transposed, chain=tuple(below.ops))
            break
    if found is None:
        raise Refused(f"its {read.role}s are not one tensor with each head repeated")
    inside = {id(op) for op in found.chain} | own
    for op in found.chain:
        for output in op.outputs:
            if output in graph.outputs or any(id(user) not in inside for user in output.consumers):
                raise Refused(f"the repeated {read.role}s are read elsewhere too ({op.name})")
    return found


_KNOWN: Final[dict[Any, bool]] = {}


def _repeats(cone: Cone, groups: int, transposed: bool) -> bool:
    start = next(i for i, root in enumerate(cone.roots) if root is cone.start)
    key = (cone.key, start, groups, transposed)
    if key not in _KNOWN:
        if len(_KNOWN) > 256:
            _KNOWN.clear()
        _KNOWN[key] = cone.repeats(groups, transposed=transposed)
    return _KNOWN[key]


def _spine(score: Op, weighted: Op) -> tuple[Op, ...]:
    """Everything that the scores go into before the product with values, in order.

    Raises Refused where they go anywhere that this product does not follow from.
    """
    spine: list[Op] = []
    waiting = [score.output]
    while waiting:
        for op in waiting.pop(0).consumers:
            if op is weighted or op in spine:
                continue
            spine.append(op)
            if len(spine) > 64:
                raise Refused("too much is made of its scores")
            if op.kind in ROWWISE:
                waiting += op.outputs
    for op in spine:
        if op.kind not in ROWWISE:
            raise Refused(f"{op.type} {op.name} may mix heads between scores and values")
    return tuple(spine)


def _require_rowwise(op: Op, scores: Value) -> None:
    """Each row of each head must be treated by itself, and keep its place."""
    if op.output.shape != scores.shape:
        raise Refused(f"{op.type} {op.name} changes the shape of scores")
    if op.kind == "softmax" and op.attributes["axis"] not in (-1, 3):
        raise Refused(f"softmax {op.name} runs over axis {op.attributes['axis']}, not over keys")


def _closed(score: Op, spine: tuple[Op, ...], weighted: Op, graph: Graph) -> bool:
    """Whether nothing else reads what the spine makes, and every other operand can be folded."""
    inside = {id(op) for op in spine} | {id(weighted)}
    made = [score.output, *(out for op in spine for out in op.outputs)]
    for value in made:
        if value in graph.outputs or any(id(user) not in inside for user in value.consumers):
            return False
    kept = {id(value) for value in made}
    for op in spine:
        for value in op.operands:
            if id(value) not in kept and not (value.sized and len(value.shape) in (0, 1, 4)):
                return False
    return True
