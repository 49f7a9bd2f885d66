"""The words of an identity card."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from equivalence.probes.asking import NotAnswered
from equivalence.probes.card import IdentityCard
from equivalence.probes.scale import described
from equivalence.probes.visibility import WindowRule

SHOWN: Final = 6
CORNERS: Final = {
    "lower_right": "lower-right causal",
    "upper_left": "upper-left causal",
    "ignored": "causal flag ignored",
    "strict": "causal without the diagonal",
    "lenient": "causal with one future key",
    "square only": "causal only where q_len = kv_len",
    "unknown": "causal by an unknown rule",
}


def _applied(whose: object, by: str, what: str) -> str:
    """Whose mask is applied, listed ``by`` what; or that no ``what`` explains what came out."""
    flat = str(whose)
    return f"that of no {what}" if set(flat) <= set("None(), ") else f"{flat} by {by}"


def card_lines(card: IdentityCard) -> list[str]:
    """The summary, then what is unusual, then what could not be asked."""
    return [", ".join(summary(card)), *oddities(card), *unanswered(card)]


def summary(card: IdentityCard) -> Iterator[str]:
    """The usual facts, a few words each."""
    if not isinstance(card.heads, NotAnswered):
        yield f"{card.heads.order} heads" if card.heads.group_size > 1 else "equal heads"
    if not isinstance(card.causal, NotAnswered):
        yield CORNERS[card.causal.corner]
    for rule in (card.window, card.window_pair):
        if not isinstance(rule, NotAnswered):
            yield _window(rule)
    yield described(card.scale)
    if not isinstance(card.softcap, NotAnswered):
        yield f"softcap {card.softcap.shape}"
    if not isinstance(card.sinks, NotAnswered):
        yield f"sinks {card.sinks.use}"
    if not isinstance(card.precision, NotAnswered):
        yield f"profile {card.precision.profile or 'none that is known'}"
    if not isinstance(card.empty_rows, NotAnswered) and card.empty_rows.policy != "unknown":
        yield f"masked rows {card.empty_rows.policy}"


def _window(rule: WindowRule) -> str:
    if rule.ignored:
        return "window ignored"
    if (rule.left, rule.right) == rule.expected and (rule.anchor, rule.tile) == ("lower_right", 1):
        return f"window {rule.given}{' including self' if isinstance(rule.given, int) else ''}"
    if rule.left is None:
        return "window by an unknown rule"
    tile = f" in steps of {rule.tile}" if rule.tile > 1 else ""
    anchor = ", from the upper left" if rule.anchor == "upper_left" else ""
    if isinstance(rule.given, int):
        both = "" if rule.right == 0 else f" and {_count(rule.right)} after it"
        return f"window {rule.given} keeps {rule.left + 1} including self{both}{tile}{anchor}"
    sides = f"{_count(rule.left)} left and {_count(rule.right)} right"
    return f"window {rule.given} keeps {sides} of self{tile}{anchor}"


def _count(side: int | None) -> str:
    return "all" if side == -1 else str(side)


def oddities(card: IdentityCard) -> Iterator[str]:
    """One line for each finding that a correct kernel does not show, or that a user must know."""
    if not isinstance(card.heads, NotAnswered):
        heads = card.heads
        if heads.mixes_heads:
            yield "heads or batch rows are mixed in the output"
        if not heads.queries_in_order:
            yield f"output heads come from query heads {heads.query_side}"
        if heads.batch_rows != tuple(range(len(heads.batch_rows))):
            yield f"batch rows read batch rows {heads.batch_rows}"
        if not math.isnan(heads.total) and abs(heads.total - 1) > 0.02:
            yield f"the weights of a row add up to {heads.total:.3g}, not 1"
    if not isinstance(card.keys, NotAnswered):
        if card.keys.missing:
            yield f"keys {listed(card.keys.missing)} of {card.keys.kv_len} never count"
        if card.keys.duplicated:
            yield f"keys {listed(card.keys.duplicated)} of {card.keys.kv_len} count twice"
        if not card.keys.missing and abs(card.keys.total - 1) > 0.02:
            yield f"the weights of {card.keys.kv_len} keys add up to {card.keys.total:.4g}"
    if not isinstance(card.kv_lengths, NotAnswered):
        if not card.kv_lengths.right:
            yield f"kv_lengths {card.kv_lengths.given} leaves keys {card.kv_lengths.seen}"
        if card.kv_lengths.causal_from in ("kv_len", "other"):
            yield f"with kv_lengths the diagonal ends at {card.kv_lengths.causal_from}"
    yield from _mask_oddities(card)
    if not isinstance(card.given_scale, NotAnswered) and not card.given_scale.right:
        yield f"a given scale of {card.given_scale.given} acts as {card.given_scale.value:.6g}" + (
            "" if card.given_scale.source == "unknown" else f" ({card.given_scale.source})"
        )
    if not isinstance(card.softcap, NotAnswered):
        if card.softcap.after_bias is True:
            yield "the softcap is applied after the bias"
        if card.softcap.after_mask is True:
            yield "the softcap is applied after the mask, so hidden keys count"
    if not isinstance(card.channels, NotAnswered):
        if card.channels.silent:
            yield f"channels {listed(card.channels.silent)} of query and key change no score"
        if card.channels.moved:
            yield f"value channels {listed(card.channels.moved)} do not come back"
    yield from _number_oddities(card)
    if not isinstance(card.memories, NotAnswered) and card.memories.wrong:
        yield f"wrong for tensors that lie in memory as {', '.join(card.memories.wrong)}"


def _mask_oddities(card: IdentityCard) -> Iterator[str]:
    if not isinstance(card.bool_mask, NotAnswered) and card.bool_mask.meaning != "attend":
        meaning = {
            "hide": "True in a bool mask hides a key",
            "ignored": "a bool mask is ignored",
            "number": "a bool mask is added as 0 and 1",
        }
        yield meaning.get(card.bool_mask.meaning, "a bool mask acts by an unknown rule")
    if not isinstance(card.float_mask, NotAnswered):
        if abs(card.float_mask.factor - 1) > 0.05:
            yield f"a float mask acts {card.float_mask.factor:.3g} times"
        if not card.float_mask.hides:
            yield "-inf in a float mask does not hide a key"
    if not isinstance(card.mask_axes, NotAnswered):
        if not card.mask_axes.batch_right:
            rows = _applied(card.mask_axes.by_batch, "(row, head)", "batch row")
            yield f"a mask by batch row is applied as {rows}"
        if not card.mask_axes.head_right:
            heads = _applied(card.mask_axes.by_head, "head", "head")
            yield f"a mask by head is applied as {heads}"
    if not isinstance(card.mask_constant, NotAnswered) and math.isfinite(card.mask_constant.value):
        yield f"hidden keys score {card.mask_constant.value:.6g}, not -inf"


def _number_oddities(card: IdentityCard) -> Iterator[str]:
    if not isinstance(card.stability, NotAnswered):
        if not card.stability.subtracts_max:
            yield f"equal scores of {card.stability.fails_at:g} overflow: the maximum is not taken"
        if card.stability.dots_overflow:
            yield "q.k overflows before it is scaled"
    if not isinstance(card.nans, NotAnswered):
        for name, leaks in (("value", card.nans.value_leaks), ("key", card.nans.key_leaks)):
            if leaks is True:
                yield f"NaN in a {name} slot hidden by {card.nans.hidden_by} reaches the output"
        if card.nans.laundered:
            yield f"NaN in a visible {', '.join(card.nans.laundered)} slot disappears"
    if not isinstance(card.empty_rows, NotAnswered):
        if card.empty_rows.policy == "mixed":
            held = ", ".join(f"{way}: {what}" for way, what in card.empty_rows.by)
            yield f"rows that see no key differ by the way that they came about ({held})"
        if card.empty_rows.finite_minimum == "nan":
            yield "rows masked with the lowest finite number are NaN"


def unanswered(card: IdentityCard) -> Iterator[str]:
    """Questions that the target refused or broke on (not those about options it lacks)."""
    for name in card.__dataclass_fields__:
        fact = getattr(card, name)
        if isinstance(fact, NotAnswered) and ":" in fact.why:
            yield f"{name.replace('_', ' ')}: not answered ({fact.why})"


def listed(places: Sequence[int]) -> str:
    """``[0, 1, 2]``, cut after a few, with their number."""
    first = ", ".join(str(place) for place in places[:SHOWN])
    more = f", ... {len(places)} in all" if len(places) > SHOWN else ""
    return f"[{first}{more}]"
