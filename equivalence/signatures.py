"""Which options of the contract a callable takes, and under which keyword."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from equivalence.contract import CONTRACTS, Options
from equivalence.declaration import Declaration
from equivalence.errors import require

# Kinds whose options are left out where a case has none, but for these.
ALWAYS_GIVEN: Final = {
    "attention": ("causal", "enable_gqa", "head_order"),
    "rotary": ("interleaved",),
}
ADVICE: Final = "give it one, or name a function that fills it in"
POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def options_taken(function: Callable[..., Any], declaration: Declaration) -> dict[str, str]:
    """Contract option -> keyword, read from the signature and the declaration.

    A builtin or ``*args`` callable has no readable signature: it takes what it declares.
    """
    declared = declaration.options or ()
    contract = CONTRACTS[declaration.kind]
    if isinstance(declared, dict):
        taken = dict(declared)
    else:
        taken = {_contract_name(name, contract.options): name for name in declared}
    try:
        parameters = parameters_of(function)
    except (ValueError, TypeError):
        return taken
    positional = [name for name, p in parameters.items() if p.kind in POSITIONAL]
    tensors = set(positional[: len(contract.tensors)])
    for option, keywords in contract.options.items():
        for keyword in keywords:
            parameter = parameters.get(keyword)
            if (
                option not in taken
                and parameter is not None
                and keyword not in tensors
                and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY
            ):
                taken[option] = keyword
    return taken


def _contract_name(keyword: str, options: Options) -> str:
    for option, keywords in options.items():
        if keyword == option or keyword in keywords:
            return option
    return keyword


def require_callable(
    function: Callable[..., Any], taken: Mapping[str, str], kind: str, text: str
) -> None:
    """Refuse a callable that no call of the kind can succeed on, and a keyword that it lacks."""
    tensors = len(CONTRACTS[kind].tensors)
    if not tensors:  # a factory
        return
    try:
        parameters = parameters_of(function)
    except (ValueError, TypeError):
        return
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        for option, keyword in taken.items():
            require(
                keyword in parameters,
                f"{text}: declared to take {option} as {keyword!r}, but it has no such parameter "
                f"(it has {', '.join(parameters) or 'none'})",
            )
        for option in CONTRACTS[kind].required:
            require(
                option in taken,
                f"{text}: has no parameter {' or '.join(CONTRACTS[kind].options[option])}, which "
                f"{kind} always gives; add it, or declare its kind if it is another one",
            )
    filled = [name for name, p in parameters.items() if p.kind in POSITIONAL][:tensors]
    called = CONTRACTS[kind].tensors
    always = {taken[option] for option in ALWAYS_GIVEN.get(kind, ()) if option in taken}
    for name, p in parameters.items():
        if p.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        known = name in taken.values()
        if p.default is not inspect.Parameter.empty or name in filled or name in always:
            continue
        require(
            name not in called,
            f"{text}: takes {', '.join(filled)} by position, and then {name}; "
            f"{kind} is called with {', '.join(called)}",
        )
        advice = _other_kind(name, kind) or ADVICE
        require(known, f"{text}: {name} has no default, and is no option of {kind}: {advice}")
        require(
            kind not in ALWAYS_GIVEN,
            f"{text}: {name} has no default, and is left out where a case has none: {ADVICE}",
        )


def _other_kind(name: str, kind: str) -> str:
    """Which kinds call something by this name, as advice; "" where none does."""
    others = [
        other
        for other, contract in CONTRACTS.items()
        if other != kind
        and (name in contract.tensors or any(name in words for words in contract.options.values()))
    ]
    if not others:
        return ""
    return f"it is one of {' and '.join(others)} (--kind {others[0]})"


def unknown_parameters(
    function: Callable[..., Any], taken: Mapping[str, str], kind: str
) -> list[str]:
    """Parameters that no call will fill: neither tensors of the kind nor keywords of an option."""
    tensors = len(CONTRACTS[kind].tensors)
    if not tensors:  # a factory: its sizes are keywords
        return []
    try:
        parameters = parameters_of(function)
    except (ValueError, TypeError):
        return []
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    positional = [name for name, p in parameters.items() if p.kind in POSITIONAL]
    known = {*positional[:tensors], *taken.values()}
    return [name for name, p in parameters.items() if p.kind in named and name not in known]


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a callable; those of ``forward`` where a module passes all on to it.

    Raises ValueError or TypeError for a builtin, as ``inspect.signature`` does.
    """
    parameters = inspect.signature(function).parameters
    passed_on = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    forward = getattr(function, "forward", None)
    if callable(forward) and all(p.kind in passed_on for p in parameters.values()):
        return inspect.signature(forward).parameters
    return parameters
