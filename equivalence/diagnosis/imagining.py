"""What a kernel with one mistake would have computed: changed inputs, or a changed reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from equivalence.bounds import allowance
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.profiles import Profile
from equivalence.reference import Attention, attention


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A computation with a mistake in it.

    inputs: what it amounts to reading. exact: its intermediate values and output. rearrange: what
    then happens to the output (and to its error bound), such as a permutation.
    """

    inputs: AttentionInputs
    exact: Attention
    rearrange: Callable[[Array], Array] | None = None

    def output(self) -> Array:
        """``[B, H, Sq, Dv]``."""
        return self.exact.output if self.rearrange is None else self.rearrange(self.exact.output)

    def allowed(self, profile: Profile) -> Array:
        """The error bound of the output under ``profile``."""
        bound = allowance(self.inputs, self.exact, profile).allowed
        return bound if self.rearrange is None else np.abs(self.rearrange(bound))

    def empty(self) -> Array:
        """Elements of rows that see no key, whose content is a matter of policy: bool."""
        spread = np.broadcast_to((self.exact.seen == 0)[..., None], self.exact.output.shape)
        if self.rearrange is None:
            return spread
        return np.asarray(self.rearrange(spread.astype(np.float64)) > 0)


Imagine = Callable[[AttentionInputs], "World | AttentionInputs | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One mistake that may be the cause.

    kind: one of ``results.DIAGNOSES``. sentence: the fact, in words that hold if it is the cause.
    imagine: the inputs of a call -> what the mistake makes of them, None where it says nothing
    about that call. cost: the simpler of two explanations has the lower one. declare: what to
    declare where this is a convention and not a mistake.
    """

    kind: str
    sentence: str
    imagine: Imagine
    cost: int = 10
    declare: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One call and what came of it, next to what is right."""

    case: Any
    inputs: AttentionInputs
    actual: Array
    exact: Attention
    allowed: Array
    wrong: Array
    profile: Profile = field(repr=False)


Family = Callable[[Sight], Iterator[Suspect]]


def world_of(suspect: Suspect, inputs: AttentionInputs) -> World | None:
    """The world of a suspect for these inputs, None where it says nothing or cannot be built."""
    try:
        found = suspect.imagine(inputs)
        if found is None or isinstance(found, World):
            return found
        return World(inputs=found, exact=attention(found))
    except (ValueError, IndexError, ZeroDivisionError):
        return None  # shapes that the mistake cannot apply to


def full(inputs: AttentionInputs, array: Array) -> Array:
    """A broadcastable array at its full shape ``[B, H, Sq, Skv]``."""
    shape = (*inputs.query.shape[:3], inputs.key.shape[2])
    return np.broadcast_to(array, shape)


def transposed_fold(inputs: AttentionInputs, *, by_group: bool) -> Array:
    """The order of query heads that are folded as (group, kv head), or read back so: ``[H]``."""
    heads, kv_heads = inputs.query.shape[1], inputs.key.shape[1]
    fold = (heads // kv_heads, kv_heads) if by_group else (kv_heads, heads // kv_heads)
    order: Array = np.arange(heads).reshape(fold).T.ravel()
    return order


def with_visible(inputs: AttentionInputs, visible: Array) -> AttentionInputs:
    """The same inputs where exactly ``visible`` may attend, whatever the options say."""
    bias = inputs.bias
    mask: Array = np.asarray(visible, bool)
    if bias is not None:
        shape = np.broadcast_shapes(mask.shape, bias.shape)
        mask = np.where(np.broadcast_to(mask, shape), bias, -np.inf)
    while mask.ndim < 4:
        mask = mask[None]
    return inputs.but(
        mask=mask, causal=None, band=None, window=None, kv_lengths=None, alibi_slopes=None
    )


def with_bias(inputs: AttentionInputs, bias: Array) -> AttentionInputs:
    """The same inputs with ``bias`` as the only one; what is visible stays."""
    shape = np.broadcast_shapes(inputs.visible.shape, bias.shape)
    mask = np.where(np.broadcast_to(inputs.visible, shape), bias, -np.inf)
    return inputs.but(
        mask=mask, causal=None, band=None, window=None, kv_lengths=None, alibi_slopes=None
    )


def with_heads(
    inputs: AttentionInputs, key_map: Array, value_map: Array | None = None
) -> AttentionInputs:
    """Query head h reads key head ``key_map[h]`` and value head ``value_map[h]``."""
    value_map = key_map if value_map is None else value_map
    return inputs.but(
        key=inputs.key[:, key_map],
        value=inputs.value[:, value_map],
        kv_head_of=np.arange(inputs.query.shape[1]),
    )


def with_keys(inputs: AttentionInputs, index: Array) -> AttentionInputs:
    """Only the keys ``index`` (some perhaps twice), each visible where it was."""
    pinned = with_visible(inputs, full(inputs, inputs.visible))
    assert pinned.mask is not None
    mask = np.broadcast_to(pinned.mask, (*pinned.mask.shape[:3], inputs.key.shape[2]))
    return pinned.but(
        key=inputs.key[:, :, index], value=inputs.value[:, :, index], mask=mask[..., index]
    )


def from_scores(
    inputs: AttentionInputs,
    scores: Array,
    visible: Array | None = None,
    *,
    sinks: Array | None = None,
    capped: Array | None = None,
) -> World:
    """The world whose scores are these ``[B, H, Sq, Skv]``.

    sinks ``[B, H, Sq]``: those of the inputs unless given.
    """
    exact = attention(inputs)
    if sinks is None and inputs.sinks is not None:
        sinks = np.broadcast_to(inputs.sinks[None, :, None], scores.shape[:3])
    seen = exact.visible if visible is None else np.broadcast_to(visible, scores.shape)
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if sinks is not None:
        top = np.maximum(top, sinks[..., None])
    top = np.where(np.isfinite(top), top, 0.0)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    share = None
    if sinks is not None:
        extra = np.exp(sinks[..., None] - top)
        total = total + extra
        share = (extra / total)[..., 0]
    weights = weights / np.where(total > 0, total, 1.0)
    changed = replace(
        exact,
        scores=scores,
        capped=exact.capped if capped is None else capped,
        probabilities=weights,
        visible=seen,
        sink_probability=share,
        output=np.matmul(weights, inputs.value[:, inputs.kv_head_of]),
    )
    return World(inputs=inputs, exact=changed)


def from_weights(inputs: AttentionInputs, weights: Array) -> World:
    """The world whose probabilities are these ``[B, H, Sq, Skv]``, adding up to 1 or not."""
    exact = attention(inputs)
    output = np.matmul(weights, inputs.value[:, inputs.kv_head_of])
    changed = replace(exact, probabilities=weights, output=output)
    return World(inputs=inputs.but(sinks=None), exact=replace(changed, sink_probability=None))


def rearranged(inputs: AttentionInputs, rearrange: Callable[[Array], Array]) -> World:
    """The right computation, whose output is then rearranged."""
    return World(inputs=inputs, exact=attention(inputs), rearrange=rearrange)
