"""The law about the bytes that a cache says it holds."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from equivalence.caches.case import CacheCase
from equivalence.caches.subject import CacheSubject
from equivalence.dtypes import format_of
from equivalence.laws.law import law
from equivalence.outcome import Outcome
from equivalence.verdict import HELD, INAPPLICABLE, Trouble, Verdict, broken

LARGEST_PAGE: Final = 256
AMPLE: Final = 1024  # tokens of room, beside which a page more or less is little
MOST_ELEMENTS: Final = 2**21  # of a cache with ample room
STEPS: Final = 4


@law("cache-bytes", kind="kv_cache")
def cache_bytes(case: CacheCase, subject: CacheSubject) -> Verdict:
    """nbytes is the elements of each token kept or given room, and each token adds no more."""
    outcome = subject.call(subject.inputs(case))
    if outcome.status != "returned":
        return INAPPLICABLE
    held = _held(outcome, len(case.program) - 1)
    if held is None:
        return INAPPLICABLE
    quantised = subject.declared.quantised is not None
    kept = sum(case.states[-1].lengths)
    least, most = kept * _token(case, quantised), _most(case, quantised, LARGEST_PAGE)
    whole = quantised or held % _token(case, quantised) == 0
    if not (whole and least <= held <= most):
        text = (
            f"nbytes={held} at the end; {kept} tokens of {_what(case, quantised)} are kept, "
            f"and there is room for {case.batch_size} x {case.max_len}"
        )
        return broken(Trouble(kind="bytes", text=text))
    return _growing(case, subject, quantised)


def _growing(case: CacheCase, subject: CacheSubject, quantised: bool) -> Verdict:
    """What a few more tokens, and much room, add."""
    steps, room = min(STEPS, case.max_len), case.max_len
    if subject.domain.max_lens is None:
        steps = STEPS
        ample = case.batch_size * AMPLE * case.elements_per_token <= MOST_ELEMENTS
        room = AMPLE if ample else max(case.max_len, STEPS)
    program = (*(("append", 1),) * steps, ("attend", 1))
    longer = case.but(program=program, max_len=room, evicts=False)
    outcome = subject.call(subject.inputs(longer))
    found = [_held(outcome, step) for step in range(steps)]
    if outcome.status != "returned" or None in found:
        return INAPPLICABLE
    sizes = [size for size in found if size is not None]
    token = _token(case, quantised) * case.batch_size
    grown = {after - before for before, after in pairwise(sizes)}
    if len(grown) == 1 and steps >= STEPS and 0 not in grown:  # pages would not grow every time
        (more,) = grown
        # Of a quantised cache steps may come with every token, or the newest wait as they were.
        steps_too = 2 * token + 64 * case.batch_size * case.num_kv_heads
        highest = max(_token(case, False) * case.batch_size, steps_too) if quantised else token
        if not token <= more <= highest:
            text = (
                f"each token adds {more} bytes, and {case.batch_size} of {_what(case, quantised)} "
                f"{'are' if case.batch_size > 1 else 'is'} appended"
            )
            return broken(Trouble(kind="bytes", text=text))
    if sizes[-1] > _most(longer, quantised, 1) + LARGEST_PAGE * token:
        text = (
            f"nbytes={sizes[-1]} with room for {case.batch_size} x {room} tokens of "
            f"{_what(case, quantised)}"
        )
        return broken(Trouble(kind="bytes", text=text))
    return HELD


def _held(outcome: Outcome, step: int) -> int | None:
    found = outcome.extras.get(f"nbytes/{step}")
    return None if found is None else int(found)


def _token(case: CacheCase, quantised: bool) -> int:
    return case.elements_per_token * (1 if quantised else format_of(case.dtype).bits // 8)


def _most(case: CacheCase, quantised: bool, page: int) -> int:
    """The bytes of the room, rounded up to a page of so many tokens."""
    rows = case.batch_size * -(-case.max_len // page) * page
    # A quantised cache holds its steps too, and they may come with every token.
    steps = rows * (_token(case, quantised) + 64 * case.num_kv_heads) if quantised else 0
    return rows * _token(case, quantised) + steps


def _what(case: CacheCase, quantised: bool) -> str:
    text = f"{_token(case, quantised)} bytes"
    return text if case.latent_dim is None else f"{text} (latent_dim + rope_dim elements)"
