"""Troubles that name their own kind: crashes, shapes, dtypes, and what a law is about."""

from __future__ import annotations

from typing import Any, Final

from equivalence.results import Diagnosis
from equivalence.verdict import Trouble

DIRECT: Final = {
    "crash": "crash",
    "hang": "crash",
    "memory": "crash",
    "wrong-dtype": "wrong-dtype",
    "wrong-shape": "wrong-shape",
    "input-mutation": "input-mutation",
    "not-repeatable": "determinism",
    "nan-leak": "nan-propagation",
    "nan-laundered": "nan-propagation",
    "masked-rows": "fully-masked-row",
    "lse": "lse-merge",
    "gradient": "gradient",
    "refusal": "refusal",
    "answered-refusal": "refusal",
}

# What a mistake in the plain output brings with it: named by that mistake where there is one.
SECONDARY: Final = ("nan-leak", "nan-laundered", "lse", "gradient")

# Where no suspect explains what such a law saw.
FALLBACK: Final = {
    "batch-dependence": "batch-dependence",
    "future-keys": "causal-alignment",
    "hidden-keys": "mask-semantics",
    "ignored-option": "ignored-option",
    "strides": "strides",
}

OPTION_KINDS: Final = {
    "mask": "mask-semantics",
    "causal": "causal-alignment",
    "scale": "scale",
    "window": "window",
    "softcap": "softcap",
    "sinks": "sinks",
    "kv_lengths": "padding",
    "alibi_slopes": "mask-semantics",
}
# Of an option that does nothing.
IGNORED_KINDS: Final = OPTION_KINDS | {"alibi_slopes": "ignored-option"}

SPOKEN: Final = {
    "crash": "the call ended in an exception",
    "hang": "the call did not return",
    "memory": "the call ran out of memory",
    "not-repeatable": "the same call gives different answers",
    "nan-leak": "NaN in a slot that no query sees reaches the output",
    "nan-laundered": "NaN in a slot that a query sees does not reach its output",
}


def spoken(trouble: Trouble, case: Any) -> str:
    """The sentence for a trouble that needs no further evidence."""
    text = trouble.text
    if trouble.kind in ("crash", "hang", "memory"):
        text = f"{SPOKEN[trouble.kind]} at {case!r}" + (f": {text}" if text else "")
    elif trouble.kind in SPOKEN and trouble.text:
        text = f"{SPOKEN[trouble.kind]}: {trouble.text}"
    return text or SPOKEN.get(trouble.kind, trouble.kind)


def direct(trouble: Trouble, case: Any) -> Diagnosis | None:
    """The diagnosis of a trouble that names its own kind."""
    kind = DIRECT.get(trouble.kind)
    return None if kind is None else Diagnosis(kind=kind, text=spoken(trouble, case))


def options_of(case: Any) -> list[str]:
    """The options that a case uses, the rarest first."""
    used = {
        "softcap": getattr(case, "softcap", None) is not None,
        "sinks": getattr(case, "sinks", False),
        "alibi_slopes": getattr(case, "alibi", False),
        "window": getattr(case, "window", None) is not None,
        "kv_lengths": getattr(case, "kv_lengths", None) is not None,
        "mask": getattr(case, "mask", None) is not None,
        "scale": getattr(case, "scale", None) is not None,
        "causal": getattr(case, "causal", None) is not None,
    }
    return [name for name, present in used.items() if present]
