"""What a cache of latents got wrong: its answers beside those of imagined mistakes, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from equivalence.caches.case import CacheCase
from equivalence.caches.domain import CacheDomain
from equivalence.caches.inputs import CacheInputs
from equivalence.caches.program import Program
from equivalence.caches.subject import CacheSubject
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.packed.diagnosis import fits
from equivalence.results import Diagnosis

LONGER: Final[Program] = (("append", 3), ("attend", 2), ("append", 1), ("attend", 1))
ROOM: Final = {"max_len": 4, "evicts": False}
Imagined = Callable[[AttentionInputs], AttentionInputs]


def mistaken_latent(subject: CacheSubject, case: CacheCase) -> Diagnosis | None:
    """The first mistake that explains every answer on ``case``, and on larger ones; else None.

    On the smallest case many mistakes are one, so cases are asked that tell them apart.
    """
    if case.latent_dim is None:
        return None
    wrong = []
    for inputs in map(subject.inputs, (case, *_telling(case, subject.domain))):
        outcome = subject.call(inputs)
        if subject.unusable(inputs, outcome) is None and not subject.sound(inputs, outcome):
            wrong.append((inputs, outcome.output, _suspects(inputs)))
    for number, (kind, text, _) in enumerate(_suspects(subject.inputs(case)) if wrong else ()):
        if all(
            fits(subject, piece, output, suspects[number][2](piece.inputs))
            for inputs, output, suspects in wrong
            for piece in inputs.pieces
        ):
            return Diagnosis(kind=kind, text=text)
    return None


def _telling(case: CacheCase, domain: CacheDomain) -> Iterator[CacheCase]:
    """Cases on numbers and of widths that are all different, as far as the target takes them."""
    pairs = [pair for pair in domain.latents or () if pair[0] != pair[1] and pair[0] > 2]
    widths: dict[str, Any] = {}
    if pairs:
        widths["latent_dim"], widths["rope_dim"] = pairs[0]
        widths["head_dim"] = 5 if domain.head_dims is None else max(domain.head_dims)
    for program in (case.program, LONGER):
        found = case.running(program, values="normal", magnitude=1.0, seed=1, **widths)
        if found is not None and domain.max_lens is None and program is LONGER:
            found = case.running(program, values="normal", magnitude=1.0, seed=1, **widths, **ROOM)
        if found is not None:
            yield found


def _suspects(inputs: CacheInputs) -> list[tuple[str, str, Imagined]]:
    return list(_each_suspect(inputs))


def _each_suspect(inputs: CacheInputs) -> Iterator[tuple[str, str, Imagined]]:
    """The kind, the sentence, and the change of a call that a mistake amounts to."""
    head_dim, latent, rope = inputs.content_dim, inputs.value.shape[-1], inputs.key.shape[-1]
    assert head_dim is not None
    for name, width in (
        ("1/sqrt(latent_dim + rope_dim)", latent + rope),
        ("1/sqrt(latent_dim)", latent),
        ("1/sqrt(head_dim)", head_dim),
        ("1/sqrt(rope_dim)", rope),
        ("1", 1),
    ):
        text = f"the scale is {name}, expected 1/sqrt(head_dim + rope_dim)"
        yield "mla-scale", text, _scaled(width**-0.5)
    for text, weights in (
        ("the rotary part is left out of the scores, or the same for every token", (1.0, 0.0)),
        ("the latent part is left out of the scores, or the same for every token", (0.0, 1.0)),
        ("the rotary part counts twice in the scores", (1.0, 2.0)),
    ):
        yield "mla-absorption", text, _weighted(np.repeat(weights, (latent, rope)))
    text = f"values are the last {latent} columns of an entry, expected its first: the latent"
    yield "mla-absorption", text, lambda call: call.but(value=call.key[..., rope:])
    text = "queries and entries have their rotary part at opposite ends, expected both last"
    for columns in (rope, -rope):
        yield "mla-absorption", text, _rolled(columns)
    for text, turned in (
        ("a token has the rotary key of the one before it", lambda x: np.roll(x, 1, axis=2)),
        ("a token has the rotary key of the next one", lambda x: np.roll(x, -1, axis=2)),
    ):
        yield "cache-position", text, _with_rotary(latent, turned)


def _scaled(scale: float) -> Imagined:
    return lambda call: call.but(scale=scale)


def _weighted(columns: Array) -> Imagined:
    return lambda call: call.but(query=call.query * columns)


def _rolled(columns: int) -> Imagined:
    return lambda call: call.but(query=np.roll(call.query, columns, axis=-1))


def _with_rotary(latent: int, turned: Callable[[Array], Array]) -> Imagined:
    def change(call: AttentionInputs) -> AttentionInputs:
        key = call.key.copy()
        key[..., latent:] = turned(key[..., latent:])
        return call.but(key=key)

    return change
