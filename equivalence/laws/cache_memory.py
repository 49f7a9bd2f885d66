"""Laws about the memory of a cache: what it forgot, never wrote, or has no room for."""

from __future__ import annotations

import numpy as np

from equivalence.caches.case import CacheCase
from equivalence.caches.domain import CacheDomain
from equivalence.caches.inputs import CacheInputs
from equivalence.caches.program import Program
from equivalence.caches.subject import CacheSubject
from equivalence.dtypes import Array, rounded
from equivalence.laws.alike import pieces_repeat, untouched, where_declared
from equivalence.laws.caches import compared
from equivalence.laws.law import law
from equivalence.verdict import HELD, INAPPLICABLE, Trouble, Verdict, broken


def _rolled_back(case: CacheCase, domain: CacheDomain) -> CacheCase | None:
    """The same case with room for a token that is appended and taken back."""
    if "truncate" not in domain.words or case.evicts:
        return None
    if _place(case) is not None:
        return case
    if domain.max_lens is not None:
        return None
    roomier = case.but(max_len=case.max_len + 1)
    return roomier if _place(roomier) is not None else None


def _place(case: CacheCase) -> int | None:
    """The first operation after which every row keeps as many tokens, and one more fits."""
    for step, state in enumerate(case.states[:-1]):
        lengths = set(state.lengths)
        if len(lengths) == 1 and 0 < max(lengths) < case.max_len:
            return step
    return None


def _with_rollback(case: CacheCase, inputs: CacheInputs, number: float | None) -> CacheInputs:
    """The program with tokens appended and taken back in between."""
    step = _place(case)
    assert step is not None
    state = case.states[step]
    kept = max(state.lengths)
    count = min(2, case.max_len - kept)
    steps: Program = (*(("append", 1),) * count, ("truncate", kept))
    return inputs.but(
        key=_inserted(inputs.key, state.tokens, count, case, number),
        value=_inserted(inputs.value, state.tokens, count, case, number),
        program=(*case.program[: step + 1], *steps, *case.program[step + 1 :]),
    )


def _inserted(tokens: Array, at: int, count: int, case: CacheCase, number: float | None) -> Array:
    shape = (*tokens.shape[:2], count, tokens.shape[3])
    noise = 3.0 * np.random.default_rng([case.seed, 73]).normal(size=shape)
    noise = rounded(noise, case.dtype) if number is None else np.full(shape, number)
    return np.concatenate([tokens[:, :, :at], noise, tokens[:, :, at:]], axis=2)


@law("cache-forgotten-tokens-do-not-matter", kind="kv_cache", adapt=_rolled_back)
def cache_forgotten_tokens_do_not_matter(case: CacheCase, subject: CacheSubject) -> Verdict:
    """Tokens that were appended and truncated away again change no later answer."""
    inputs = subject.inputs(case)
    other = _with_rollback(case, inputs, None)
    return compared(subject, inputs, other, "hidden-keys", "itself without a rollback")


@law("cache-forgotten-nan-is-ignored", kind="kv_cache", adapt=_rolled_back)
def cache_forgotten_nan_is_ignored(case: CacheCase, subject: CacheSubject) -> Verdict:
    """NaN that was appended and truncated away never reaches an answer, where declared."""
    inputs = subject.inputs(case)
    other = _with_rollback(case, inputs, float("nan"))
    verdict = compared(subject, inputs, other, "nan-leak", "itself without a rollback")
    return where_declared(verdict, subject, "truncated tokens")


def _padded(case: CacheCase, domain: CacheDomain) -> CacheCase | None:
    """The same case with rows of unequal length."""
    if not domain.ragged:
        return None
    if any(op[0] == "append" and len(op) > 2 and len(set(op[1:])) > 1 for op in case.program):
        return case
    if domain.batch_size[1] < 2 or (domain.max_lens is not None and case.max_len < 2):
        return None
    batch_size = max(2, case.batch_size)
    program = (("append", 2, *(1,) * (batch_size - 1)), *case.program)
    return case.running(
        tuple(op for op in program if op[0] != "reorder"),
        batch_size=batch_size,
        max_len=max(2, case.max_len),
        evicts=False,
    )


def _repadded(inputs: CacheInputs, seed: int, number: float | None) -> CacheInputs:
    """Other numbers in the columns that ``lengths`` leaves out."""
    padding = np.zeros((inputs.batch_size, inputs.key.shape[2]), bool)
    token = 0
    for word, *numbers in inputs.program:
        if word == "append":
            for row, count in enumerate(numbers if len(numbers) > 1 else ()):
                padding[row, token + count : token + max(numbers)] = True
            token += max(numbers)
    rng = np.random.default_rng([seed, 79])
    changed = []
    for tokens in (inputs.key, inputs.value):
        noise = rounded(3.0 * rng.normal(size=tokens.shape), inputs.dtype)
        if number is not None:
            noise = np.full(tokens.shape, number)
        changed.append(np.where(padding[:, None, :, None], noise, tokens))
    return inputs.but(key=changed[0], value=changed[1])


@law("cache-padding-does-not-matter", kind="kv_cache", adapt=_padded)
def cache_padding_does_not_matter(case: CacheCase, subject: CacheSubject) -> Verdict:
    """What stands behind the lengths of an append, padding that is, changes nothing."""
    inputs = subject.inputs(case)
    other = _repadded(inputs, case.seed, None)
    return compared(subject, inputs, other, "hidden-keys", "itself with other padding")


@law("cache-padding-nan-is-ignored", kind="kv_cache", adapt=_padded)
def cache_padding_nan_is_ignored(case: CacheCase, subject: CacheSubject) -> Verdict:
    """NaN behind the lengths of an append never reaches an answer, where declared."""
    inputs = subject.inputs(case)
    other = _repadded(inputs, case.seed, float("nan"))
    verdict = compared(subject, inputs, other, "nan-leak", "itself with other padding")
    return where_declared(verdict, subject, "padding")


@law("cache-unwritten-memory-does-not-matter", kind="kv_cache")
def cache_unwritten_memory_does_not_matter(case: CacheCase, subject: CacheSubject) -> Verdict:
    """Memory that the cache allocates and never writes may hold NaN, and changes nothing."""
    if subject.declared.arrays != "torch":
        return INAPPLICABLE
    inputs = subject.inputs(case)
    other = inputs.but(poisoned=True)
    than = "itself where torch.empty gives NaN"
    return compared(subject, inputs, other, "hidden-keys", than)


@law("cache-inputs-are-not-modified", kind="kv_cache")
def cache_inputs_are_not_modified(case: CacheCase, subject: CacheSubject) -> Verdict:
    """append and attend leave their arguments as they were."""
    return untouched(subject, subject.inputs(case), "the cache")


@law("cache-repeats-itself", kind="kv_cache")
def cache_repeats_itself(case: CacheCase, subject: CacheSubject) -> Verdict:
    """A fresh cache gives the same answers, bit for bit where the factory declares it."""
    return pieces_repeat(
        subject,
        subject.inputs(case),
        text="a fresh cache gives other bits",
        than="the answers of another fresh cache",
    )


def _filled(case: CacheCase, domain: CacheDomain) -> CacheCase | None:
    return None if domain.evicts else case


@law("cache-overflow-raises", kind="kv_cache", adapt=_filled)
def cache_overflow_raises(case: CacheCase, subject: CacheSubject) -> Verdict:
    """Appending past max_len raises; it neither drops a token nor grows in silence."""
    inputs = subject.inputs(case)
    outcome = subject.call(inputs)
    if not subject.sound(inputs, outcome):
        return INAPPLICABLE
    last = inputs.states[-1]
    room = case.max_len - max(last.lengths)
    filling: Program = (("append", 1),) * room
    longer = [
        np.concatenate([x, np.zeros((*x.shape[:2], room + 1, x.shape[3]))], axis=2)
        for x in (inputs.key, inputs.value)
    ]
    full = inputs.but(
        key=longer[0],
        value=longer[1],
        program=(*inputs.program, *filling, ("append", 1)),
        overflowing=True,
    )
    second = subject.call_again(full)
    if second.status in ("refused", "raised"):
        if int(second.extras.get("step", 0)) == len(full.program) - 1:
            return HELD
        return broken(Trouble(kind="crash", text=second.text))
    if second.status != "returned":
        return subject.unusable(full, second) or HELD
    text = f"a token past max_len={case.max_len} was taken without a word"
    return broken(Trouble(kind="answered-refusal", text=text))
