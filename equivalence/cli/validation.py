"""Refuse a wrong request at the door, in one line that names the value and what to write."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from equivalence.errors import InvalidRequest, require
from equivalence.resolve import closest

if TYPE_CHECKING:
    from equivalence.outcome import Target

IN_CODE: Final = ("supports", "known_faults", "sizes")  # no text can say these
MOST_EXAMPLES: Final = 10_000_000
# Declared as one value, or as a tuple of them.
SEVERAL: Final = {"dtypes": "(float32,float16)", "head_dims": "(64,128)"}
WORDS: Final = {"int": "a whole number", "float": "a number", "str": "a word"}


def at_least(option: str, value: float, lowest: float) -> None:
    """Refuse a number below ``lowest``, or one that is not a number."""
    require(
        math.isfinite(value) and value >= lowest,
        f"{option} {value:g} must be at least {lowest:g}",
    )


def even(option: str, value: int) -> None:
    """Refuse an odd number: channels are rotated in pairs."""
    require(value >= 2 and value % 2 == 0, f"{option} {value} must be even")


def searching(*, examples: int | None, seconds: float | None, seed: int) -> None:
    """Refuse a search of no length or without an end, and a seed below zero."""
    if examples is not None:
        at_least("--examples", examples, 1)
        require(
            examples <= MOST_EXAMPLES,
            f"--examples {examples} is more than a search does, {MOST_EXAMPLES} at most; "
            "--hunt SECONDS searches for as long as is wanted",
        )
    above_zero("--seconds", seconds)
    at_least("--seed", seed, 0)


def above_zero(option: str, value: float | None) -> None:
    """Refuse a number that is zero, negative or not finite; None passes."""
    require(
        value is None or (math.isfinite(value) and value > 0),
        f"{option} {value} must be a number above 0",
    )


def one_of(option: str, value: str, known: Iterable[str]) -> str:
    """``value``, if it is one of ``known``."""
    names = list(known)
    require(
        value in names,
        f"{option} {value} is not one of {', '.join(names)}{closest(value, names)}",
    )
    return value


def known_dtypes(dtypes: Sequence[str] | None) -> tuple[str, ...] | None:
    """The asked dtypes without repetition; None for no choice."""
    from equivalence.dtypes import DTYPES

    if not dtypes:
        return None
    return tuple(dict.fromkeys(one_of("--dtype", dtype, DTYPES) for dtype in dtypes))


def known_laws(laws: Sequence[str] | None, kind: str | None) -> tuple[str, ...] | None:
    """The asked laws without repetition, of ``kind`` where one is given; None for all of them."""
    from equivalence.laws import LAWS, all_laws

    names = list(LAWS) if kind is None else [law.name for law in all_laws(kind)]
    require(bool(names), f"--kind {kind}: this version has no laws for it (`equivalence laws`)")
    for law in laws or ():
        require(
            law in names,
            f"--law {law}: there is no such law{f' for {kind}' if kind else ''}"
            f"{closest(law, names)} (`equivalence laws` lists them)",
        )
    return tuple(dict.fromkeys(laws)) if laws else None


def of_kind(target: Target, kind: str, what: str) -> None:
    """Refuse a target of another kind than the one that ``what`` is about."""
    own = target.declaration.kind
    require(own == kind, f"{what} is about {kind}, and {target.name} is declared as {own}")


def known_kind(kind: str) -> str:
    """``kind``, if it is one."""
    from equivalence.declaration import KINDS

    return one_of("--kind", kind, KINDS)


def declared_facts(
    declare: Sequence[str] | None,
    *,
    kind: str | None = None,
    device: str | None = None,
    arrays: str | None = None,
    inputs: str | None = None,
) -> dict[str, Any]:
    """The facts of ``--declare``, ``--kind``, ``--device``, ``--arrays`` and ``--map``, typed."""
    from equivalence.declaration import ARRAYS, Declaration, add_fact, parse_facts

    facts: dict[str, Any] = {}
    hints = {n: hint for n, hint in get_type_hints(Declaration).items() if n not in IN_CODE}
    for text in declare or ():
        for name, value in parse_facts(text).items():
            require(
                name in hints,
                f"--declare {name}={value}: {name} cannot be declared here{closest(name, hints)} "
                f"(known: {', '.join(sorted(hints))})",
            )
            add_fact(facts, name, _typed(name, value, hints[name]))
    if kind is not None:
        add_fact(facts, "kind", known_kind(kind))
    if device is not None:
        add_fact(facts, "device", _known_device(device))
    if arrays is not None:
        add_fact(facts, "arrays", one_of("--arrays", arrays, ARRAYS))
    if inputs is not None:
        add_fact(facts, "inputs", _mapped(inputs))
    try:
        Declaration().but(**facts)
    except InvalidRequest as error:
        raise InvalidRequest(f"--declare: {error}") from None
    return facts


def _mapped(text: str) -> dict[str, str]:
    """``query=a,key=b`` as a mapping."""
    from equivalence.saved.interface import ALIASES

    found: dict[str, str] = {}
    for piece in text.split(","):
        role, equals, name = (part.strip() for part in piece.partition("="))
        require(bool(equals and name), f"--map takes role=name pairs, not {piece!r}")
        one_of("--map", role, tuple(ALIASES))
        require(role not in found, f"--map gives {role} more than once")
        found[role] = name
    return found


def _typed(name: str, value: Any, hint: Any) -> Any:
    import msgspec

    given = value
    if name in SEVERAL and isinstance(value, str | int):
        value = (value,)
    try:
        msgspec.convert(value, hint, strict=True)
    except msgspec.ValidationError as error:
        said = re.sub(r" - at `\$.*`", "", str(error)).replace("`bool | null`", "true or false")
        said = said.replace(" | null", "")
        said = said.replace("`bool | array`", "true, or widths as in (512,64)")
        said = re.sub(r"`(\w+)`", lambda found: WORDS.get(found[1], found[0]), said)
        if name in SEVERAL:
            said = said.replace(",", f" or several as in {SEVERAL[name]},", 1)
        raise InvalidRequest(f"--declare {name}={given}: {said[:1].lower()}{said[1:]}") from None
    return value


def _known_device(device: str) -> str:
    import torch

    try:
        torch.empty(0, device=device)
    except Exception as error:  # torch names the trouble in many types
        said = str(error).strip().splitlines()
        raise InvalidRequest(
            f"--device {device} is not available here: {said[0] if said else type(error).__name__}"
        ) from None
    return device


def fits(case: Any, gib: float) -> None:
    """Refuse a case whose scores, or operands, in float64 alone take more than ``gib``."""

    def size(name: str) -> int:
        return int(getattr(case, name, 0) or 0)

    queries = size("batch_size") * size("num_heads") * (size("q_len") or size("seq_len"))
    keys = size("batch_size") * (size("num_kv_heads") or 1) * size("kv_len")
    needed = 8 * max(queries * max(size("kv_len"), size("head_dim")), keys * size("head_dim"))
    if needed > gib * 2**30:
        raise InvalidRequest(
            f"the case needs more than {needed / 2**30:,.0f} GiB; --memory {gib:g} is the limit"
        )
