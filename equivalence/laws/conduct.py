"""Laws of conduct: what a kernel must not touch, must not depend on, and must refuse."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from equivalence.case import AttentionCase
from equivalence.compare import compare
from equivalence.domain import Domain, in_order, uses
from equivalence.inputs import AttentionInputs
from equivalence.laws.alike import as_contiguous, refuses, untouched
from equivalence.laws.law import law
from equivalence.masks import Mask
from equivalence.subject import Subject
from equivalence.verdict import HELD, INAPPLICABLE, Trouble, Verdict, broken


@law("inputs-are-not-modified")
def inputs_are_not_modified(case: AttentionCase, subject: Subject) -> Verdict:
    """A call leaves its inputs, and the memory around them, as they were."""
    return untouched(subject, subject.inputs(case))


def _strided(case: AttentionCase, domain: Domain) -> AttentionCase | None:
    """The same case in another memory; half of them one key past a tile, half under a bool mask.

    Which kernel reads strides is chosen by lengths and masks: a fault of one of them shows there.
    """
    others = [memory for memory in domain.memories if memory != "contiguous"]
    if not others:
        return None
    changes: dict[str, Any] = {}
    if case.memory not in others:
        changes["memory"] = others[case.seed % len(others)]
    if case.seed % 2 and case.kv_len > 32 and domain.kv_lens is None and not domain.square:
        changes["kv_len"] = length = case.kv_len // 32 * 32 + 1
        if case.kv_lengths is not None:
            changes["kv_lengths"] = tuple(min(n, length) for n in case.kv_lengths)
    plain = case.mask is None and (case.causal is None or domain.mask_and_causal)
    if case.seed // 2 % 2 and plain and "bool" in domain.masks:
        axes = "q" if "q" in domain.mask_axes else domain.mask_axes[0]
        changes["mask"] = Mask(axes=axes)
    return case.but(**changes) if changes else case


@law("strides-do-not-matter", adapt=_strided)
def strides_do_not_matter(case: AttentionCase, subject: Subject) -> Verdict:
    """The same numbers behind other strides give the same output."""
    inputs, plain = subject.inputs(case), None
    if case.memory != "expanded":  # whose numbers are others than those of the plain case
        plain = subject.inputs(case.but(memory="contiguous"))
    return as_contiguous(subject, inputs, kind="strides", plain=plain)


def _uneven_heads(case: AttentionCase, domain: Domain) -> AttentionCase | None:
    """Two key/value heads or more, so that one query head too many cannot be shared out."""
    if not isinstance(case.head_order, str) or domain.head_layouts is not None:
        return None
    changes: dict[str, Any] = {}
    if case.num_kv_heads < 2:
        changes["num_kv_heads"] = 2
    if case.memory == "expanded":
        changes["memory"] = "contiguous"
    if case.mask is not None and "h" in case.mask.axes:
        changes["mask"] = None
    return case.but(**changes) if changes else case


@law("bad-head-counts-are-refused", adapt=_uneven_heads)
def bad_head_counts_are_refused(case: AttentionCase, subject: Subject) -> Verdict:
    """Query heads that do not divide among the key/value heads are refused, never answered."""
    inputs, num_heads = subject.inputs(case), case.num_heads + 1
    again = np.arange(num_heads) % case.num_heads  # the first head once more, behind the last
    uneven = inputs.but(
        query=inputs.query[:, again],
        kv_head_of=inputs.kv_head_of[again],
        sinks=None if inputs.sinks is None else inputs.sinks[again],
        alibi_slopes=None if inputs.alibi_slopes is None else inputs.alibi_slopes[again],
    )
    text = f"{num_heads} query heads over {case.num_kv_heads} key/value heads got an answer"
    return refuses(subject, uneven, text=text)


OPTIONS: Final = ("mask", "causal", "window", "scale", "softcap", "sinks", "alibi", "kv_lengths")


def options_of(domain: Domain) -> list[str]:
    """The options that a domain offers, each of which must do something."""
    offered = {
        "mask": bool(domain.masks),
        "causal": None in domain.causal and len(domain.causal) > 1,
        "window": bool(domain.windows),
        "scale": domain.scale,
        "softcap": domain.softcap,
        "sinks": domain.sinks,
        "alibi": domain.alibi,
        "kv_lengths": domain.kv_lengths,
    }
    return [name for name in OPTIONS if offered[name]]


def _one_option(case: AttentionCase, domain: Domain) -> AttentionCase | None:
    """The same case with one option alone, on numbers that the option should change."""
    offered = options_of(domain)
    if not offered:
        return None
    chosen = option_alone(case, domain)
    if chosen is not None and chosen in offered and case.values == "normal":
        return case
    option = offered[case.seed % len(offered)]
    changes: dict[str, Any] = {
        "mask": None,
        "causal": domain.causal[0],
        "window": None,
        "scale": None,
        "softcap": None,
        "sinks": False,
        "alibi": False,
        "kv_lengths": None,
        "values": "normal",
        "magnitude": 3.0,
        "plants": (),
    }
    kv_len = case.kv_len
    if domain.kv_lens is None and not domain.square and kv_len < 3:
        changes["kv_len"] = kv_len = 3
    if option == "causal" and domain.q_lens is None and not domain.square:
        changes["q_len"] = max(case.q_len, 2)
    match option:
        case "mask":
            changes["mask"] = Mask(
                pattern="random",
                size=50,
                form=domain.masks[case.seed % len(domain.masks)],
                axes=domain.mask_axes[case.seed % len(domain.mask_axes)],
                seed=case.seed % 251,
            )
        case "causal":
            changes["causal"] = next(c for c in domain.causal if c is not None)
        case "window":
            changes["window"] = 2 if "int" in domain.windows else (1, 0)
        case "scale":
            changes["scale"] = 0.25 if case.head_dim != 16 else 0.5
        case "softcap":
            changes["softcap"] = 1.0
        case "kv_lengths":
            changes["kv_lengths"] = (max(1, kv_len // 2),) * case.batch_size
        case _:  # "sinks" or "alibi"
            changes[option] = True
    return in_order(case.but(**changes), domain)


def option_alone(case: AttentionCase, domain: Domain) -> str | None:
    """The one option that the case uses, or None where it uses none or several.

    Causality counts only where the target can be called without it, and the option too.
    """
    used = [name for name in OPTIONS if uses(case, name)]
    bound = None not in domain.causal or any(name in domain.needs_causal for name in used)
    if bound and "causal" in used:
        used.remove("causal")
    return used[0] if len(used) == 1 else None


@law("options-are-not-ignored", adapt=_one_option)
def options_are_not_ignored(case: AttentionCase, subject: Subject) -> Verdict:
    """Each option that is accepted changes the output by itself, where it should."""
    option = option_alone(case, subject.domain)
    if option is None:
        return INAPPLICABLE
    inputs = subject.inputs(case)
    without = _without(inputs, option)
    outcome = subject.call(inputs)
    if subject.unusable(inputs, outcome) is not None:
        return INAPPLICABLE
    exact, plain = subject.exact(inputs), subject.exact(without)
    allowed, other = subject.allowance(inputs), subject.allowance(without)
    rows = (exact.seen > 0) & (plain.seen > 0) & allowed.in_domain & other.in_domain
    apart = np.abs(exact.output - plain.output) > allowed.allowed + other.allowed
    if not (apart & rows[..., None]).any():
        return Verdict(status="vacuous")
    facts = compare(outcome.output, plain.output, other, dtype=inputs.dtype, rows=rows)
    if not facts.passes:
        return HELD
    index = tuple(int(i) for i in np.argwhere(apart & rows[..., None])[0])
    shown = getattr(case, option)
    return broken(
        Trouble(
            kind="ignored-option",
            text=f"{option}={shown!r} is accepted and changes nothing at output{list(index)}",
            index=index,
            got=float(outcome.output[index]),
            expected=float(exact.output[index]),
            error=float(abs(outcome.output[index] - exact.output[index])),
            allowed=float(allowed.allowed[index]),
            outside=int((apart & rows[..., None]).sum()),
            total=int(rows.sum()) * case.v_dim,
            profile=subject.profile(inputs.dtype).name,
        )
    )


def _without(inputs: AttentionInputs, option: str) -> AttentionInputs:
    match option:
        case "window":
            return inputs.but(window=None, band=None)
        case "alibi":
            return inputs.but(alibi_slopes=None)
        case _:
            return inputs.but(**{option: None})
