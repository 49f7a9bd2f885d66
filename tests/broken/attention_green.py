"""Kernels beside the collection that are right, however odd they look: none may be condemned."""

from __future__ import annotations

from tests.broken.attention_base import broken, broken_with_lse
from tests.broken.attention_gradients import GRADIENTS, backward_with
from tests.broken.attention_heads import tiled
from tests.broken.attention_splits import LSE, merged
from tests.broken.entry import Broken


def alibi_bias_off_by_one(query, key, value, *, alibi_slopes=None):
    """Slope * (key - position - 1): a shift of every score of a row, which softmax forgets."""

    def shifted(right, at):
        return right - at.given["alibi_slopes"].to(at.wide).view(1, -1, 1, 1)

    return broken(alibi=shifted)(query, key, value, is_causal=True, alibi_slopes=alibi_slopes)


def _green(name, kernel, *rows, note="", **facts):
    return Broken(
        name=name, kernel=kernel, rows=rows, facts=facts, smallest=None, diagnoses=(), note=note
    )


GREEN = (
    _green("right", broken()),
    _green("right_with_lse", broken_with_lse(), **LSE),
    _green("right_backward", backward_with(""), **GRADIENTS),
    _green("right_split", broken(probs=merged(16))),
    _green(
        "tiled_and_declared",
        broken(key_heads=tiled, value_heads=tiled),
        "ATT-HM-llama.cpp-25315",
        head_order="interleaved",
        note="negative control: the map of heads is a convention, and this one is stated",
    ),
    _green(
        "causal_with_the_diagonal",
        broken(),
        "ATT-CA-flashinfer-348",
        note="negative control: query 0 of 2 sees keys 0 and 1 of 3; the 'fix' is broken",
    ),
    _green(
        "causal_bias_of_one",
        broken(scores=lambda right, at: right + 1.0 if at.given["is_causal"] else right),
        "ATT-MS-tinygrad-2425",
        note="equivalent mutant: softmax forgets a shift; softcap is declined",
        supports=lambda case: (case.softcap is None and not case.sinks) or "a shift shows there",
    ),
    _green(
        "alibi_off_by_one",
        alibi_bias_off_by_one,
        "ATT-MS-vllm-945",
        note="equivalent mutant, as long as no log-sum-exp is handed out",
        causal="lower_right",
    ),
)
