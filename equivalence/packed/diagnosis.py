"""From a counterexample on packed or paged sequences to the name of the mistake.

The weights that the target gives to every slot are read (``equivalence.weights``); where they are
right, other scales are tried on the float64 reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from equivalence.bounds import allowance
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.packed.case import PagedCase
from equivalence.packed.inputs import PagedInputs
from equivalence.piecewise import Piece, PiecewiseSubject
from equivalence.results import Diagnosis
from equivalence.verdict import Trouble
from equivalence.weights import Odd, first_odd, read_weights

DIRECT: Final = {
    "crash": "crash",
    "hang": "crash",
    "memory": "crash",
    "wrong-shape": "wrong-shape",
    "wrong-dtype": "wrong-dtype",
    "input-mutation": "input-mutation",
    "not-repeatable": "determinism",
    "answered-refusal": "refusal",
    "refusal": "refusal",
    "declaration": "refusal",
    "nan-leak": "nan-propagation",
}
BY_LAW: Final = {
    "packed-equals-one-by-one": "batch-dependence",
    "packed-order-does-not-matter": "batch-dependence",
    "packed-neighbours-do-not-matter": "padding",
    "packed-empty-sequences-do-not-matter": "padding",
    "packed-max-seqlen-does-not-matter": "padding",
    "packed-decode-equals-prefill": "causal-alignment",
    "page-order-does-not-matter": "cache-position",
    "page-size-does-not-matter": "cache-position",
    "stale-pages-do-not-matter": "padding",
    "paged-equals-one-by-one": "batch-dependence",
    "paged-sequences-do-not-see-each-other": "batch-dependence",
    "shared-pages-are-read-alike": "cache-position",
    "paged-decode-equals-prefill": "causal-alignment",
}


def diagnose(subject: PiecewiseSubject, law: str, case: Any, trouble: Trouble) -> Diagnosis:
    """Name the mistake that makes the target of ``subject`` break ``law`` on ``case``."""
    if trouble.kind in DIRECT:
        return Diagnosis(kind=DIRECT[trouble.kind], text=trouble.text)
    inputs = subject.inputs(case)
    if varies(subject, inputs):
        return Diagnosis(kind="determinism", text=f"{trouble.text}; a repeat gives other bits")
    found = read_weights(subject, inputs)
    odd = None if found is None else first_odd(found)
    if odd is not None:
        return _elsewhere(odd, subject, case) or explained(odd, inputs)
    by_scale = other_scale(subject, inputs)
    if by_scale is not None:
        return by_scale
    misplaced = out_of_step(
        subject, inputs, "cache-position" if isinstance(case, PagedCase) else "wrong-operand"
    )
    if misplaced is not None:
        return misplaced
    if law in BY_LAW:
        return Diagnosis(kind=BY_LAW[law], text=trouble.text)
    return last_resort(trouble)


def varies(subject: PiecewiseSubject, inputs: Any) -> bool:
    """Whether repeated calls differ; what is read from one of them then means little."""
    answers = [subject.call_again(inputs).stored for _ in range(4)]
    first = answers[0]
    return first is not None and any(
        other is None or other.tobytes() != first.tobytes() for other in answers[1:]
    )


def last_resort(trouble: Trouble) -> Diagnosis:
    """A small excess over the bound is precision; anything else is not known."""
    if trouble.kind == "outside-bound" and trouble.used is not None and trouble.used < 64:
        text = f"{trouble.text}, by {trouble.used:.3g} of what the profile {trouble.profile} allows"
        return Diagnosis(kind="precision", text=text)
    if trouble.kind == "non-finite":
        return Diagnosis(kind="overflow", text=trouble.text)
    return Diagnosis(kind="unknown", text=trouble.text)


def who(odd: Odd) -> str:
    """The query that the weights belong to, in words."""
    return f"{odd.piece.label.rstrip(',')}: query {odd.query} of query head {odd.head}"


CORNER_HINT: Final = "; --declare causal=upper_left accepts that"


def common(odd: Odd, inputs: Any, *, hint: str = CORNER_HINT) -> Diagnosis | None:
    """What means the same for sequences and caches: NaN, other heads, the causal corner."""
    if not np.isfinite(odd.got).all():
        text = f"{who(odd)} is not finite, although keys are 0 and values 0 or 1"
        return Diagnosis(kind="nan-propagation", text=text)
    if odd.heads:
        own = int(odd.piece.inputs.kv_head_of[odd.head])
        read = ", ".join(str(i) for i in odd.heads)
        return Diagnosis(
            kind="head-mapping", text=f"{who(odd)} reads key/value head {read}, expected {own}"
        )
    own_places = inputs.own_places(odd.piece, odd.row)
    call = odd.piece.inputs
    if call.causal is None:
        return None
    upper = set(own_places[: odd.query + 1].tolist())
    seen = (set(own_places.tolist()) & set(np.flatnonzero(odd.expected).tolist())) - set(
        odd.missing
    ) | set(odd.extra)
    right = len(own_places) - call.query.shape[2]
    if right and seen == upper and call.band is None:
        text = f"{who(odd)} sees keys 0 to {odd.query}: upper-left, expected lower-right{hint}"
        return Diagnosis(kind="causal-alignment", text=text)
    later = [int(p) for p in odd.extra if p in set(own_places.tolist())]
    if later and call.band is None and len(later) == len(odd.extra):
        text = f"{who(odd)} sees {inputs.owner(later[0])}, which comes after it"
        return Diagnosis(kind="causal-alignment", text=text)
    return None


def merged_wrongly(odd: Odd) -> Diagnosis | None:
    """Right places with unequal weights: partial results were put together wrongly."""
    if not odd.uneven:
        return None
    there = odd.got[odd.expected > 0]
    if np.ptp(there) > 0.1 * there.max(initial=0.0):
        low, high = float(there.min()), float(there.max())
        text = (
            f"{who(odd)} weighs equal keys between {low:.3g} and {high:.3g} instead of "
            f"{float(odd.expected.max()):.3g}: parts of the keys are merged wrongly"
        )
        return Diagnosis(kind="lse-merge", text=text)
    return None


def _elsewhere(odd: Odd, subject: PiecewiseSubject, case: Any) -> Diagnosis | None:
    """What an experiment with other lengths says: is the same sequence right by itself?"""
    (sequence,) = odd.piece.sequences
    paged = isinstance(case, PagedCase)
    lens = case.kv_lengths if paged else case.kv_lens
    finite = bool(np.isfinite(odd.got).all())
    mixed_up = paged and bool(odd.missing) and len(lens) > 2  # tokens of another sequence
    if finite and (odd.heads or (odd.extra and not mixed_up)):
        return None
    if paged:
        trials = [(lens[sequence],), (8 * case.page_size,), (64 * case.page_size,)]
        cases = [case.but(kv_lengths=trial, longer_table=0) for trial in trials]
    else:
        cases = [case.but(q_lens=(case.q_lens[sequence],), kv_lens=(lens[sequence],))]
    right = [subject.sound(inputs, subject.call(inputs)) for inputs in map(subject.inputs, cases)]
    if finite and odd.extra:
        if not all(right):
            return None
        text = f"{who(odd)} is right alone, however long, and wrong in a batch of {len(lens)}"
        return Diagnosis(kind="batch-dependence", text=text)
    off = not finite or not (0.9 < odd.total < 1.1 or odd.missing)
    if paged and any(right) and off:
        state = f"has weights that add up to {odd.total:.3g}" if finite else "is not finite"
        text = (
            f"{who(odd)} {state}, right with other lengths or a shorter page table: an empty part "
            "of a split is merged"
        )
        return Diagnosis(kind="lse-merge", text=text)
    if right[0] and odd.missing and len(lens) > 2:
        text = f"{who(odd)} is right alone and wrong in a batch of {len(lens)}"
        return Diagnosis(kind="batch-dependence", text=text)
    return None


def explained(odd: Odd, inputs: Any) -> Diagnosis:
    """What the weights of packed or paged sequences say."""
    found = common(odd, inputs) or merged_wrongly(odd)
    if found is not None:
        return found
    call = odd.piece.inputs
    if odd.extra:
        own = set(inputs.own_places(odd.piece, odd.row).tolist())
        if call.band is not None and odd.extra[0] in own:
            text = f"{who(odd)} sees {inputs.owner(odd.extra[0])}, outside its window"
            return Diagnosis(kind="window", text=text)
        if odd.missing and isinstance(inputs, PagedInputs):
            text = (
                f"{who(odd)} sees {inputs.owner(odd.extra[0])} in the place of "
                f"{inputs.owner(odd.missing[0])}: the page table is not followed"
            )
            return Diagnosis(kind="cache-position", text=text)
        text = f"{who(odd)} sees {inputs.owner(odd.extra[0])}, which is not its own"
        return Diagnosis(kind="padding", text=text)
    if odd.missing and call.causal is not None:
        places = inputs.own_places(odd.piece, odd.row).tolist()
        own = len(places) - call.query.shape[2] + odd.query
        if own >= 0 and list(odd.missing) == [places[own]]:
            text = f"{who(odd)} does not see its own token, the last that it may see"
            return Diagnosis(kind="causal-alignment", text=text)
    if odd.missing:
        lost = inputs.owner(odd.missing[0])
        kind = "window" if call.band is not None else "padding"
        half = odd.got[odd.expected > 0].max(initial=0.0)
        if half == 0.0:
            text = f"{who(odd)} sees none of its {len(odd.missing)} keys"
        else:
            text = f"{who(odd)} does not see {lost}"
        return Diagnosis(kind=kind, text=text)
    # Whatever lies in a page would show as a slot; what does not comes from a merge.
    paged = isinstance(inputs, PagedInputs)
    what = "an empty part of a split" if paged else "padding"
    text = f"the weights of {who(odd)} add up to {odd.total:.3g}: {what} takes part"
    return Diagnosis(kind="lse-merge" if paged else "padding", text=text)


def other_scale(subject: PiecewiseSubject, inputs: Any) -> Diagnosis | None:
    """A wrong scale that explains every answer, where the expected one does not."""
    outcome = subject.call(inputs)
    if subject.unusable(inputs, outcome) is not None or subject.sound(inputs, outcome):
        return None
    call = inputs.pieces[0].inputs
    head_dim, num_heads = call.query.shape[3], call.query.shape[1]
    right = call.scale_value
    named = {
        "1": 1.0,
        "1 / head_dim": 1.0 / head_dim,
        "head_dim ** -0.5": head_dim**-0.5,
        "the square of it": right * right,
        "half of it": right / 2,
        "twice it": right * 2,
        "1/sqrt(2) times it": right * 2**-0.5,
        "sqrt(2) times it": right * 2**0.5,
        "(num_heads * head_dim) ** -0.5": (num_heads * head_dim) ** -0.5,
        "log2(e) times it": right * float(np.log2(np.e)),
        "ln(2) times it": right * float(np.log(2.0)),
    }
    for name, scale in named.items():
        if scale != right and all(
            fits(subject, piece, outcome.output, piece.inputs.but(scale=scale))
            for piece in inputs.pieces
        ):
            text = f"every answer is that of scale {scale:.4g} ({name}), expected {right:.4g}"
            return Diagnosis(kind="scale", text=text)
    return None


def out_of_step(subject: PiecewiseSubject, inputs: Any, kind: str) -> Diagnosis | None:
    """Keys that stand beside the values of other tokens, where that explains every answer."""
    outcome = subject.call(inputs)
    if subject.unusable(inputs, outcome) is not None or subject.sound(inputs, outcome):
        return None
    if any(piece.inputs.kv_lengths is not None for piece in inputs.pieces):
        return None
    for text, order in (
        ("every key stands beside the value of the token after it", lambda n: np.arange(n) - 1),
        ("every key stands beside the value of the token before it", lambda n: np.arange(1, n + 1)),
        ("keys are in reverse order beside their values", lambda n: np.arange(n)[::-1]),
    ):
        if all(
            fits(subject, piece, outcome.output, _reordered(piece.inputs, order))
            for piece in inputs.pieces
        ):
            return Diagnosis(kind=kind, text=text)
    return None


def _reordered(inputs: AttentionInputs, order: Callable[[int], Array]) -> AttentionInputs:
    length = inputs.key.shape[2]
    return inputs.but(key=inputs.key[:, :, order(length) % max(1, length)])


def fits(subject: PiecewiseSubject, piece: Piece, output: Any, inputs: AttentionInputs) -> bool:
    """Whether the piece of the whole ``output`` is float64 attention of other ``inputs``."""
    other = Piece(label="", inputs=inputs, take=piece.take, sequences=piece.sequences)
    allowed = allowance(inputs, other.exact, subject.profile(inputs.dtype)).allowed
    with np.errstate(invalid="ignore"):
        near = np.abs(piece.take(output) - other.exact.output) <= allowed
    return bool((near | (other.exact.seen == 0)[..., None]).all())
