"""What an author says of a kernel: decorators that record facts and change nothing else."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeVar

from equivalence.case import CAUSAL_CORNERS
from equivalence.contract import CONTRACTS
from equivalence.dtypes import DTYPES
from equivalence.errors import InvalidRequest, require
from equivalence.profiles import PROFILES
from equivalence.sizes import Sizes

F = TypeVar("F", bound=Callable[..., Any])
ATTRIBUTE: Final = "__equivalence__"
MASKED_ROWS: Final = ("zeros", "nan", "uniform", "finite", "uniform_or_nan")
LAYOUTS: Final = ("BHSD", "BSHD")
ARRAYS: Final = ("torch", "numpy", "jax", "mlx")
HIDDEN_NAN: Final = ("ignored", "leaks")
PAIRINGS: Final = ("half", "interleaved")
TABLES: Final = ("float32", "float64", "bfloat16")
KINDS: Final = tuple(CONTRACTS)
# Facts that mean something for one kind of target alone.
FACTS_OF: Final = {
    "attention": ("sizes", "inputs"),
    "rotary": ("pairing", "tables"),
    "kv_cache": ("evicts", "quantised", "latent"),
    "converter": ("dynamic", "routes", "targets", "compressions", "exact"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFault:
    """A fault of a released runtime that is found again on every run, and not held against it.

    law and trouble say which failures it explains, and ``where`` on which cases: field of the case
    ("mask.form": of its mask) -> the values that it has there (nothing: on all). ``case`` shows
    it, and is run every time: once it holds, the entry is out of date and the run fails. ``note``
    says what happens.
    """

    law: str
    trouble: str
    case: Any
    note: str
    where: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def explains(self, law: str, trouble: str, case: Any) -> bool:
        """Whether a failure of ``law`` on ``case`` is this fault."""
        return (law, trouble) == (self.law, self.trouble) and all(
            _field(case, name) in values for name, values in self.where.items()
        )


def _field(case: Any, name: str) -> Any:
    """A field of a case, or of what stands in a field; None where there is none."""
    for part in name.split("."):
        case = getattr(case, part, None)
    return case


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The declared facts of a target; None everywhere means "not declared".

    dtypes: names that it takes. causal: its corner for q_len != kv_len. head_order: "grouped",
    "interleaved" or a map. layout: "BHSD" or "BSHD". profile: its precision profile in 16 bit.
    masked_rows: what a row that sees no key holds; "uniform_or_nan" is NaN where -inf hides every
    key, and else the mean of the values. head_dims: the ones that it takes.
    supports: ``case -> True | "reason"``. deterministic: a repeat is bitwise equal.
    batch_invariant: a row's bits do not depend on its batch. gradients: differentiable.
    hidden_nan: "ignored" when NaN in a hidden slot must not matter. lse: "natural" or "base2"
    when a second result is the log-sum-exp. mask_and_causal: both may be given, meaning AND.
    arrays, device: what it is called with, and where. options: contract options that it takes
    through ``**kwargs``, as names or as {contract name: its own keyword}.
    pairing, tables: of a rotary embedding, how channels are paired ("half" or "interleaved") and
    the format in which its angles and tables are computed (float32 unless declared).
    grouped: grouped heads are meant to work, so refusing them all is a failure.
    evicts: "oldest" when a full cache forgets its oldest tokens. quantised: "int8" when a cache
    keeps 8-bit numbers, with a step for each batch row and head, or finer ones. latent: a cache
    keeps one latent and one rotary key a token for all heads (MLA); True for any widths, or the
    (latent_dim, rope_dim) that it takes.
    dynamic: other shapes than the example's are meant to work (of a converter; so are the next).
    costly: each new shape costs a compilation, so few are tried and drawn.
    routes, targets, compressions: the values that its options ``route``, ``target`` and
    ``compression`` may take. exact: it computes in float64 from what is stored.
    known_faults: faults that are known and expected, each shown again on every run.
    sizes: the only ones that it takes (of attention), where it was made for those. inputs: of a
    saved model, which input is which: "query", "key", "value" or "mask" -> its name there.
    """

    kind: str = "attention"
    dtypes: tuple[str, ...] | None = None
    causal: str | None = None
    head_order: str | tuple[int, ...] | None = None
    layout: str | None = None
    profile: str | None = None
    masked_rows: str | None = None
    head_dims: tuple[int, ...] | None = None
    supports: Callable[[Any], bool | str] | None = None
    deterministic: bool | None = None
    batch_invariant: bool | None = None
    gradients: bool | None = None
    hidden_nan: str | None = None
    lse: str | None = None
    mask_and_causal: bool | None = None
    arrays: str = "torch"
    device: str = "cpu"
    options: tuple[str, ...] | dict[str, str] | None = None
    grouped: bool | None = None
    pairing: str | None = None
    tables: str | None = None
    evicts: str | None = None
    quantised: str | None = None
    latent: bool | tuple[int, int] | None = None
    dynamic: bool | None = None
    costly: bool | None = None
    routes: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None
    compressions: tuple[str, ...] | None = None
    exact: bool | None = None
    known_faults: tuple[KnownFault, ...] = ()
    sizes: Sizes | None = None
    inputs: dict[str, str] | None = None

    def __post_init__(self) -> None:
        for name, allowed in (
            ("kind", KINDS),
            ("causal", CAUSAL_CORNERS),
            ("layout", LAYOUTS),
            ("profile", tuple(PROFILES)),
            ("masked_rows", MASKED_ROWS),
            ("hidden_nan", HIDDEN_NAN),
            ("lse", ("natural", "base2")),
            ("arrays", ARRAYS),
            ("evicts", ("oldest",)),
            ("quantised", ("int8",)),
            ("pairing", PAIRINGS),
            ("tables", TABLES),
        ):
            value = getattr(self, name)
            require(
                value is None or value in allowed,
                f"declared {name}={value!r} is not one of {', '.join(allowed)}",
            )
        require(
            self.latent is None or isinstance(self.latent, bool) or _are_widths(self.latent),
            f"declared latent={self.latent!r} is neither true nor (latent_dim, rope_dim)",
        )
        for dtype in self.dtypes or ():
            require(dtype in DTYPES, f"declared dtype {dtype!r} is not one of {', '.join(DTYPES)}")

    def but(self, **changes: Any) -> Declaration:
        """The same declaration with some facts changed; refuses an unknown name."""
        known = {f.name for f in fields(self)}
        for name in changes:
            require(
                name in known, f"{name!r} cannot be declared; known: {', '.join(sorted(known))}"
            )
        for name in ("dtypes", "head_dims", "routes", "targets", "compressions"):
            value = changes.get(name)
            if isinstance(value, str | int):
                changes[name] = (value,)
            elif value is not None:
                changes[name] = tuple(value)
        if isinstance(changes.get("latent"), list):
            changes["latent"] = tuple(changes["latent"])
        return replace(self, **changes)


def require_meant_for(kind: str, facts: Mapping[str, Any]) -> None:
    """Refuse facts of another kind of target: nothing would read them."""
    for owner, names in FACTS_OF.items():
        for name in names:
            require(
                owner == kind or facts.get(name) is None,
                f"declared {name}={facts.get(name)!r} is a fact of kind {owner}, "
                f"and this target is of kind {kind}",
            )


def _are_widths(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(type(width) is int and width > 0 for width in value)
    )


def attention(**facts: Any) -> Callable[[F], F]:
    """Declare an attention kernel: ``@equivalence.attention(causal="lower_right", ...)``.

    The facts are those of :class:`Declaration`. The function itself is returned unchanged.
    """
    return _recording("attention", facts)


def varlen(**facts: Any) -> Callable[[F], F]:
    """Declare a kernel for packed tokens: ``@equivalence.varlen(profile="flash", ...)``."""
    return _recording("varlen", facts)


def paged(**facts: Any) -> Callable[[F], F]:
    """Declare a kernel for paged keys and values: ``@equivalence.paged(dtypes=..., ...)``."""
    return _recording("paged", facts)


def mla(**facts: Any) -> Callable[[F], F]:
    """Declare a kernel of latent attention: ``@equivalence.mla(profile="flash", ...)``."""
    return _recording("mla", facts)


def rotary(**facts: Any) -> Callable[[F], F]:
    """Declare a rotary embedding: ``@equivalence.rotary(pairing="interleaved", ...)``."""
    return _recording("rotary", facts)


def converter(**facts: Any) -> Callable[[F], F]:
    """Declare a converter: ``@equivalence.converter(dynamic=True, profile="eager", ...)``."""
    return _recording("converter", facts)


def kv_cache(**facts: Any) -> Callable[[F], F]:
    """Declare a factory of caches: ``@equivalence.kv_cache(evicts="oldest", ...)``."""
    return _recording("kv_cache", facts)


def _recording(kind: str, facts: dict[str, Any]) -> Callable[[F], F]:
    require_meant_for(kind, facts)
    declaration = Declaration(kind=kind).but(**facts)

    def record(function: F) -> F:
        setattr(function, ATTRIBUTE, declaration)
        return function

    return record


def declaration_of(target: object) -> Declaration | None:
    """What ``target`` declares, or None."""
    found = getattr(target, ATTRIBUTE, None)
    return found if isinstance(found, Declaration) else None


def parse_facts(text: str) -> dict[str, Any]:
    """``causal=upper_left,layout=BSHD,head_dims=(64,128)`` as facts; values are literals.

    Raises InvalidRequest, naming the piece, when one is not ``name=value``.
    """
    facts: dict[str, Any] = {}
    for piece in _split_outside_brackets(text):
        name, equals, value = piece.partition("=")
        if not equals or not name.strip():
            raise InvalidRequest(f"--declare takes name=value pairs, not {piece!r}")
        name = name.strip()
        try:
            found = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            found = _bare(value.strip())
        add_fact(facts, name, found)
    return facts


def add_fact(facts: dict[str, Any], name: str, value: Any) -> None:
    """Refuse a fact that is stated twice, and not alike."""
    require(
        facts.get(name, value) == value,
        f"{name} is declared twice, as {facts.get(name)} and as {value}",
    )
    facts[name] = value


def _bare(text: str) -> Any:
    """A value that is no literal: true, false, a word, or words in brackets."""
    if text[:1] + text[-1:] in ("()", "[]"):
        return tuple(piece.strip() for piece in text[1:-1].split(",") if piece.strip())
    return {"true": True, "false": False}.get(text.lower(), text)


def _split_outside_brackets(text: str) -> list[str]:
    pieces, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece for piece in pieces if piece.strip()]
