"""What a law is: one sentence, the cases that it speaks about, and a check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from equivalence.errors import InvalidRequest
from equivalence.verdict import Verdict

# (case, domain) -> case or None, and (case, subject) -> verdict, in the types of the law's kind.
Adapt = Callable[[Any, Any], Any]
Check = Callable[[Any, Any], Verdict]
C = TypeVar("C", bound=Check)


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A property that every correct implementation has.

    sentence: the docstring of the check, and the line that reports print.
    adapt: turns a drawn case into one that the law speaks about, inside the same domain, or None
    where there is none. Adapting twice changes nothing, so that a reported case replays.
    check: judges one adapted case. It never raises for what the target does.
    """

    name: str
    kind: str
    sentence: str
    adapt: Adapt
    check: Check


LAWS: Final[dict[str, Law]] = {}


def as_drawn(case: Any, domain: Any) -> Any:
    """Every case, as it was drawn."""
    return case


def law(name: str, *, kind: str = "attention", adapt: Adapt = as_drawn) -> Callable[[C], C]:
    """Register a check as the law called ``name``; its docstring must be one sentence."""

    def register(check: C) -> C:
        sentence = " ".join((check.__doc__ or "").split())
        if not sentence or name in LAWS:
            raise ValueError(f"law {name!r} needs a docstring and a name of its own")
        LAWS[name] = Law(name=name, kind=kind, sentence=sentence, adapt=adapt, check=check)
        return check

    return register


def law_named(name: str) -> Law:
    """The law called ``name``; refuses an unknown one, with the closest names."""
    if name in LAWS:
        return LAWS[name]
    import difflib

    close: list[Any] = difflib.get_close_matches(name, LAWS, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}?" if close else "`equivalence laws` lists them"
    raise InvalidRequest(f"there is no law called {name!r}; {hint}")
