"""Fold query heads into rows instead of repeating key/value heads, in a MIL program.

    tile -> reshape -> matmul with queries -> ... -> softmax -> matmul with values

With H query heads that read Hkv key/value heads in groups of G = H / Hkv, the query
``[B, H, L, D]`` is reshaped to ``[B, Hkv, G*L, D]``: no element moves, and row ``g*L + l`` of
key/value head ``k`` is query ``l`` of head ``k*G + g``, which is the head that reads it. A product
treats rows by themselves, so its results are those of the repeated form, element by element.

Which operations repeat heads is found by following elements, not by name
(``equivalence.audit.numbering``); what cannot be shown to be this pattern is left alone, with the
reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from equivalence.audit.graph import Op, Value
from equivalence.audit.read_mil import read_mil
from equivalence.audit.sites import sites_of
from equivalence.coreml.quiet import coremltools
from equivalence.passes.recognising import Foldable, Refused, recognise


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """What became of each attention: the names of softmaxes, and why the others were left."""

    folded: tuple[str, ...]
    refused: dict[str, str]


def fold_queries(program: Any, *, function: str = "main") -> Folded:
    """Fold every attention of a pymil ``Program`` that can be, in place."""
    graph = read_mil(program, function=function)
    found: list[Foldable] = []
    refused: dict[str, str] = {}
    names: list[str] = []
    for site in sites_of(graph):
        try:
            found.append(recognise(graph, site))
            names.append(site.softmax.name)
        except Refused as reason:
            refused[site.softmax.name] = str(reason)
    block = program.functions[function]
    for site_found in reversed(found):  # what comes later first: it reads what comes earlier
        _rewrite(block, site_found)
    return Folded(folded=tuple(names), refused=refused)


@cache
def fold_pass() -> str:
    """Register the pass with coremltools; its name, for a ``PassPipeline``."""
    coremltools()
    from coremltools.converters.mil.mil.passes.graph_pass import AbstractGraphPass
    from coremltools.converters.mil.mil.passes.pass_registry import register_pass

    @register_pass(namespace="equivalence")
    class fold_query_heads(AbstractGraphPass):  # type: ignore[misc]  # noqa: N801
        """Fold query heads into rows."""

        def apply(self, prog: Any) -> None:
            for function in prog.functions:
                fold_queries(prog, function=function)

    del fold_query_heads
    return "equivalence::fold_query_heads"


def folding_pipeline() -> Any:
    """coremltools' default passes, then this one, then those that sweep up behind it."""
    pipeline = coremltools().PassPipeline()
    pipeline.append_pass(fold_pass())
    pipeline.append_pass("common::noop_elimination")
    pipeline.append_pass("common::dead_code_elimination")
    return pipeline


def _rewrite(block: Any, site: Foldable) -> None:
    from coremltools.converters.mil.mil import Builder as mb  # noqa: N813

    score, weighted = site.score.source, site.weighted.source
    width = site.score.given("x").sizes[3]
    kv_len = site.score.output.sizes[3]
    flip = bool(site.score.attributes["transpose_y"]) != site.key.transposed
    with block:
        query = mb.reshape(
            x=score.x, shape=[*site.rows, width], before_op=score, name=f"{score.name}_query"
        )
        scores = mb.matmul(
            x=query,
            y=_var(block, site.key.source),
            transpose_y=flip,
            before_op=score,
            name=f"{score.name}_rows",
        )
        if site.through:
            weights = _folded_spine(block, mb, site, scores)
        else:
            whole = [site.batch_size, site.num_heads, site.q_len, kv_len]
            by_head = mb.reshape(x=scores, shape=whole, before_op=score, name=f"{score.name}_heads")
            _replace(block, score, by_head)
            weights = mb.reshape(x=weighted.x, shape=[*site.rows, kv_len], before_op=weighted)
        output = mb.matmul(
            x=weights,
            y=_var(block, site.value.source),
            before_op=weighted,
            name=f"{weighted.name}_rows",
        )
        own = weighted.outputs[0]
        folded = mb.reshape(
            x=output, shape=list(site.weighted.output.sizes), before_op=weighted, name=own.name
        )
        _replace(block, weighted, folded)
        _remove(block, [site.weighted, *reversed(site.spine)] if site.through else [site.weighted])
        _remove(block, [site.score, *reversed(site.value.chain), *reversed(site.key.chain)])


def _folded_spine(block: Any, mb: Any, site: Foldable, scores: Any) -> Any:
    """The operations between, written again for folded heads."""
    made = {id(site.score.output): scores}
    order = {id(op): place for place, op in enumerate(block.operations)}
    for op in sorted(site.spine, key=lambda op: order[id(op.source)]):
        given: dict[str, Any] = {}
        for name, var in op.source.inputs.items():
            if var is None:
                continue
            values = op.inputs[name]
            if id(values[0]) in made:
                given[name] = made[id(values[0])]
            else:
                given[name] = _folded_operand(mb, site, values[0], var, op)
        made[id(op.output)] = getattr(mb, op.type)(
            **given, before_op=op.source, name=f"{op.name}_rows"
        )
    return made[id(site.weighted.given("x"))]


def _folded_operand(mb: Any, site: Foldable, value: Value, var: Any, op: Op) -> Any:
    """A mask or bias for folded heads: only one that differs from head to head has to change."""
    if len(value.shape) != 4 or value.shape[1] == 1:
        return var
    batch, _, _, length = value.sizes
    groups = site.num_heads // site.num_kv_heads
    return mb.reshape(x=var, shape=[batch, site.num_kv_heads, groups, length], before_op=op.source)


def _var(block: Any, value: Value) -> Any:
    """The variable of a value."""
    op = value.producer
    if op is None:
        return block.inputs[value.name]
    return op.source.outputs[op.outputs.index(value)]


def _replace(block: Any, op: Any, new: Any) -> None:
    block.replace_uses_of_var_after_op(
        anchor_op=op, old_var=op.outputs[0], new_var=new, no_check_var_types=True
    )


def _remove(block: Any, ops: list[Op]) -> None:
    """Take out operations that nothing reads any more, the last first."""
    gone: set[int] = set()
    for op in ops:
        if id(op) in gone or any(out.child_ops for out in op.source.outputs):
            continue
        gone.add(id(op))
        block.remove_ops([op.source])
