"""From a counterexample of a cache to the name of the mistake."""

from __future__ import annotations

from typing import Final

import numpy as np

from equivalence.caches.case import CacheCase
from equivalence.caches.image_diagnosis import mistaken_image
from equivalence.caches.inputs import CacheInputs
from equivalence.caches.latent_diagnosis import mistaken_latent
from equivalence.caches.subject import CacheSubject
from equivalence.packed.diagnosis import (
    DIRECT,
    common,
    last_resort,
    merged_wrongly,
    other_scale,
    out_of_step,
    varies,
    who,
)
from equivalence.results import Diagnosis
from equivalence.verdict import Trouble
from equivalence.weights import Odd, first_odd, read_weights

BY_TROUBLE: Final = {
    **DIRECT,
    "positions": "cache-position",
    "bytes": "materialisation",
    "answered-refusal": "cache-position",
}
BY_LAW: Final = {
    "cache-appends-add-up": "cache-position",
    "cache-decode-equals-prefill": "cache-position",
    "cache-rows-are-independent": "batch-dependence",
    "cache-reorder-moves-rows": "cache-position",
    "cache-forks-are-independent": "cache-position",
    "cache-forgotten-tokens-do-not-matter": "cache-position",
    "cache-padding-does-not-matter": "padding",
    "cache-unwritten-memory-does-not-matter": "nan-propagation",
}
OVERFLOW_HINT: Final = "; --declare evicts=oldest accepts a cache that forgets its oldest tokens"


def diagnose(subject: CacheSubject, law: str, case: CacheCase, trouble: Trouble) -> Diagnosis:
    """Name the mistake that makes the cache of ``subject`` break ``law`` on ``case``."""
    if trouble.kind in BY_TROUBLE:
        hint = OVERFLOW_HINT if trouble.kind == "answered-refusal" else ""
        return Diagnosis(kind=BY_TROUBLE[trouble.kind], text=trouble.text + hint)
    inputs = subject.inputs(case)
    if varies(subject, inputs):
        return Diagnosis(kind="determinism", text=f"{trouble.text}; a repeat gives other bits")
    in_latents = mistaken_latent(subject, case)
    if in_latents is not None:
        return in_latents
    in_images = mistaken_image(subject, case)
    if in_images is not None:
        return in_images
    found = read_weights(subject, inputs)
    odd = None if found is None else first_odd(found)
    quantised = subject.declared.quantised is not None
    if odd is not None and quantised and odd.uneven and not 0.5 < odd.total < 2:
        text = f"the weights of {who(odd)} add up to {odd.total:.4g}: 8-bit values lack their step"
        return Diagnosis(kind="quantised-kv", text=text)
    if odd is not None:
        return _explained(odd, inputs)
    if quantised and not _sound(subject, inputs):
        text = f"{trouble.text}; it weighs its tokens right, so their 8-bit images are off"
        return Diagnosis(kind="quantised-kv", text=text)
    by_scale = other_scale(subject, inputs)
    if by_scale is not None:
        return by_scale
    misplaced = out_of_step(subject, inputs, "cache-position")
    if misplaced is not None and inputs.content_dim is None:
        return misplaced
    if law in BY_LAW:
        return Diagnosis(kind=BY_LAW[law], text=trouble.text)
    if trouble.kind == "outside-bound" and len(case.program) > 2:
        text = f"{trouble.text}; values are where they belong, so keys are not"
        return Diagnosis(kind="cache-position", text=text)
    return last_resort(trouble)


def _sound(subject: CacheSubject, inputs: CacheInputs) -> bool:
    return subject.sound(inputs, subject.call(inputs))


def _explained(odd: Odd, inputs: CacheInputs) -> Diagnosis:
    """What the weights of an answer say."""
    found = _mask_of_another_row(odd, inputs) or common(odd, inputs, hint="") or merged_wrongly(odd)
    if found is not None:
        return found
    number = inputs.pieces.index(odd.piece)
    state = inputs.kept_by(number)
    kept = state.rows[odd.row]
    places = inputs.own_places(odd.piece, odd.row).tolist()
    uneven_rows = len(set(state.lengths)) > 1
    foreign = [p for p in odd.extra if p // inputs.key.shape[2] != odd.row and p not in places]
    if foreign and not any(op[0] == "reorder" for op in inputs.program):
        text = f"{who(odd)} of row {odd.row} sees {inputs.owner(foreign[0])}"
        return Diagnosis(kind="batch-dependence", text=text)
    if uneven_rows:
        what = "sees padding" if odd.extra or not odd.missing else "does not see all its tokens"
        lengths = ", ".join(str(n) for n in state.lengths)
        text = f"{who(odd)} of row {odd.row} {what}; the rows keep {lengths} tokens"
        return Diagnosis(kind="padding", text=text)
    if odd.missing:
        index = places.index(odd.missing[0]) if odd.missing[0] in places else 0
        which = {0: "the oldest token", len(places) - 1: "the newest token"}.get(index, "a token")
        text = f"{who(odd)} does not see {which}, position {kept.positions[index]}"
        if odd.extra:
            text += f", but {inputs.owner(odd.extra[0])}, which is not kept"
        return Diagnosis(kind="cache-position", text=text)
    if odd.extra:
        text = f"{who(odd)} sees {inputs.owner(odd.extra[0])}, which is not kept"
        return Diagnosis(kind="cache-position", text=text)
    text = f"the weights of {who(odd)} add up to {odd.total:.3g}: unused slots take part"
    return Diagnosis(kind="cache-position", text=text)


def _mask_of_another_row(odd: Odd, inputs: CacheInputs) -> Diagnosis | None:
    """Each key/value head sees as many tokens as the row with *its* number keeps."""
    lengths = inputs.kept_by(inputs.pieces.index(odd.piece)).lengths
    head = int(odd.piece.inputs.kv_head_of[odd.head])
    if len(lengths) != inputs.key.shape[1] or lengths[odd.row] == lengths[head]:
        return None
    count = int(np.count_nonzero(odd.got > 0.5 * odd.got.max(initial=0.0)))
    longer = abs(odd.total - lengths[odd.row] / max(1, lengths[head])) < 0.05
    if count == lengths[head] or longer:
        text = (
            f"{who(odd)} of row {odd.row} sees as far as row {head} does, the number of its "
            "key/value head: a mask by row meets the axis of heads"
        )
        return Diagnosis(kind="broadcasting", text=text)
    return None
