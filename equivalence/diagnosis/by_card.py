"""What an identity card says against a kernel, in the words of a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Iterator

from equivalence.case import AttentionCase
from equivalence.probes.asking import NotAnswered
from equivalence.probes.card import IdentityCard
from equivalence.results import Diagnosis


def faults(card: IdentityCard, case: AttentionCase) -> Iterator[Diagnosis]:
    """Findings about something that ``case`` uses, the most telling first."""
    if not isinstance(card.heads, NotAnswered) and case.num_heads > 1:
        if card.heads.mixes_heads:
            yield Diagnosis(kind="head-mixing", text="values of several heads mix in one output")
        # Of one query head for each key/value head, every order by name is the same map.
        several = case.group_size > 1 or not isinstance(case.head_order, str)
        if several and case.num_kv_heads > 1 and card.heads.order != str(case.head_order):
            yield Diagnosis(kind="head-mapping", text=f"the probed map is {card.heads.order}")
    if (
        case.causal is not None
        and not isinstance(card.causal, NotAnswered)
        and card.causal.corner != case.causal
    ):
        text = f"the probed causal rule is {card.causal.corner.replace('_', '-')}"
        yield Diagnosis(kind="causal-alignment", text=text)
    if case.window is not None:
        for rule in (card.window, card.window_pair):
            if not isinstance(rule, NotAnswered) and (
                (rule.left, rule.right) != rule.expected or rule.tile != 1
            ):
                text = f"window {rule.given} keeps {rule.left} keys left and {rule.right} right"
                yield Diagnosis(kind="window", text=text)
    if case.mask is not None:
        yield from _masks(card)
    scale = card.scale if case.scale is None else card.given_scale
    if not isinstance(scale, NotAnswered) and not scale.right:
        text = f"the probed scale is {scale.value:.6g} ({scale.source})"
        yield Diagnosis(kind="scale", text=text)
    if case.softcap and not isinstance(card.softcap, NotAnswered) and not card.softcap.right:
        yield Diagnosis(kind="softcap", text=f"the probed softcap is {card.softcap.shape}")
    if case.sinks and not isinstance(card.sinks, NotAnswered) and card.sinks.use != "natural":
        yield Diagnosis(kind="sinks", text=f"the probed sinks are {card.sinks.use}")
    if not isinstance(card.channels, NotAnswered) and card.channels.silent:
        text = f"channels {list(card.channels.silent)} of query and key change no score"
        yield Diagnosis(kind="head-dim-tail", text=text)
    if not isinstance(card.keys, NotAnswered) and (card.keys.missing or card.keys.duplicated):
        said = {"never count": card.keys.missing, "count twice": card.keys.duplicated}
        text = ", ".join(f"keys {list(keys)} {what}" for what, keys in said.items() if keys)
        yield Diagnosis(kind="head-dim-tail", text=text)


def _masks(card: IdentityCard) -> Iterator[Diagnosis]:
    if not isinstance(card.bool_mask, NotAnswered) and card.bool_mask.meaning != "attend":
        text = f"the probed meaning of True in a bool mask is {card.bool_mask.meaning}"
        yield Diagnosis(kind="mask-semantics", text=text)
    if not isinstance(card.mask_axes, NotAnswered):
        if not card.mask_axes.batch_right:
            text = f"the mask by batch row is applied as {card.mask_axes.by_batch}"
            yield Diagnosis(kind="broadcasting", text=text)
        if not card.mask_axes.head_right:
            text = f"the mask by head is applied as {card.mask_axes.by_head}"
            yield Diagnosis(kind="broadcasting", text=text)
    if not isinstance(card.mask_constant, NotAnswered) and math.isfinite(card.mask_constant.value):
        text = f"hidden keys score {card.mask_constant.value:.6g}, expected -inf"
        yield Diagnosis(kind="mask-semantics", text=text)
