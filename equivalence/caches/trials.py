"""Try each feature of a cache once, on one tiny program."""

from __future__ import annotations

from typing import Any, Final

from equivalence.caches.case import CacheCase
from equivalence.caches.domain import CacheDomain
from equivalence.caches.inputs import cache_inputs
from equivalence.dtypes import DTYPES
from equivalence.outcome import Target
from equivalence.packed.trials import BASE_HEAD_DIMS, HEAD_DIMS
from equivalence.trials import Trials
from equivalence.trying import PREFERRED, TinyCalls

MAX_LENS: Final = (1, 2, 3, 5, 8, 16, 32, 64, 128, 256)
FEATURES: Final = {
    "truncate": (("append", 1), ("append", 1), ("truncate", 1), ("attend", 1)),
    "reorder": (("append", 1), ("reorder", 1, 0), ("attend", 1)),
    "fork": (("append", 1), ("fork",), ("append", 1), ("attend", 1)),
}
LATENTS: Final = ((1, 2), (2, 2), (3, 2), (4, 2), (8, 4), (16, 8), (32, 8), (64, 16), (512, 64))
# Not those of one number for the one head, nor of values so large that scores of them are maxima.
LATENT_VALUES: Final = ("steps", "normal", "one_hot", "outliers", "peaky")
QUANTISED_VALUES: Final = ("ramp", "steps", "zero", "normal", "offset", "one_hot", "equal_keys")


def try_cache(target: Target, dtypes: tuple[str, ...] | None = None) -> Trials:
    """Run tiny programs on fresh caches, one for each feature."""
    declared = target.declaration
    trials = Trials(domain=CacheDomain())
    calls = TinyCalls(target, trials, cache_inputs)
    wanted = tuple(dtypes or declared.dtypes or DTYPES)
    base = calls.base(
        CacheCase(
            latent_dim=latent,
            rope_dim=rope,
            head_dim=size,
            dtype=dtype,
            max_len=room,
            values="normal",
            batch_size=rows,
        )
        for rows in (2, 1)
        for room in (4, 16, 256)
        for latent, rope in _latents(target)
        for size in declared.head_dims or BASE_HEAD_DIMS
        for dtype in PREFERRED
        if dtype in wanted
    )
    if base is None:
        text = trials.not_exercised.get("anything", "")
        if "latent_dim" in text and declared.latent is None:
            trials.not_exercised["anything"] = f"{text}; --declare latent=true gives it latents"
        return trials
    changes: dict[str, Any] = {
        "dtypes": calls.formats(base, wanted),
        "evicts": declared.evicts is not None,
        **_sizes(target, trials, calls, base),
        **_operations(calls, base),
    }
    if base.latent_dim is not None:
        changes["values"] = LATENT_VALUES
    if declared.quantised is not None:
        changes |= {"magnitudes": (1.0, 0.1, 3.0), "values": QUANTISED_VALUES}
    trials.domain = CacheDomain(**changes)
    return trials


def _latents(target: Target) -> tuple[tuple[int | None, int], ...]:
    """The latent_dim and rope_dim to be tried; (None, 2) for a cache of keys and values."""
    declared = target.declaration.latent
    if not declared:
        return ((None, 2),)
    return LATENTS if isinstance(declared, bool) else (declared,)


def _sizes(target: Target, trials: Trials, calls: TinyCalls, base: CacheCase) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    tried = target.declaration.head_dims or HEAD_DIMS
    sizes = calls.accepted("head_dim", {d: base.but(head_dim=d) for d in tried})
    if target.declaration.head_dims or len(sizes) < len(tried):
        changes["head_dims"] = sizes or (base.head_dim,)
    if base.latent_dim is not None:
        pairs = {pair: base.but(latent_dim=pair[0], rope_dim=pair[1]) for pair in _latents(target)}
        changes["latents"] = calls.accepted("(latent_dim, rope_dim)", pairs)
        changes["num_kv_heads"] = (1, 1)
    rooms = calls.accepted("max_len", {n: base.but(max_len=n) for n in MAX_LENS})
    if len(rooms) < len(MAX_LENS):
        changes["max_lens"] = tuple(n for n in rooms if n <= 32) or rooms[:1]
    if base.batch_size == 1:
        changes["batch_size"], changes["many_rows"] = (1, 1), False
    if base.latent_dim is not None:
        if not calls.works(base.but(group_size=2), "several query heads"):
            changes["group_size"] = (1, 1)
        return changes
    several = calls.works(base.but(num_kv_heads=2), "several heads")
    if not calls.works(base.but(num_kv_heads=2, group_size=2), "grouped heads"):
        shared = calls.works(base.but(group_size=2), "one kv head for all query heads")
        trials.refuses_grouped = not shared
        if not several:
            changes["num_kv_heads"] = (1, 1)
        if several or not shared:
            changes["group_size"] = (1, 1)
    return changes


def _operations(calls: TinyCalls, base: CacheCase) -> dict[str, Any]:
    words = ["append", "attend"]
    room = max(base.max_len, 2)
    base = base.but(max_len=room)
    for word, program in FEATURES.items():
        if base.batch_size == 1 and word == "reorder":
            program = (("append", 1), ("reorder", 0), ("attend", 1))
        if calls.works(base.but(program=program), word):
            words += [word, "switch"] if word == "fork" else [word]
    lengths = (("append", 1, 0), ("append", 1), ("attend", 1))
    ragged = base.batch_size > 1 and calls.works(base.but(program=lengths), "append lengths")
    chunk = base.but(program=(("append", 2), ("attend", 1)))
    several = base.but(program=(("append", 1), ("append", 1), ("attend", 2)))
    return {
        "words": tuple(words),
        "ragged": ragged,
        "chunks": calls.works(chunk, "several tokens in one append"),
        "several_queries": calls.works(several, "several queries in one attend"),
    }
