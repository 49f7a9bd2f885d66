"""The rotary kind: ``fn(x, positions, *, theta=10000.0, ...) -> x``, positions made rotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from equivalence.calling import LocalTarget
from equivalence.declaration import Declaration, declaration_of
from equivalence.kinds import Kind
from equivalence.outcome import Target
from equivalence.results import Diagnosis, Shares
from equivalence.rope.case import RotaryCase
from equivalence.rope.subject import RotarySubject
from equivalence.rope.trials import try_rotary_features
from equivalence.signatures import options_taken
from equivalence.strategies.rotary import rotary_cases
from equivalence.trials import Trials
from equivalence.verdict import Trouble

REAL_HEAD_DIMS: Final = (64, 80, 96, 128, 256)


def _open(function: Callable[..., Any], name: str, facts: Mapping[str, Any]) -> Target:
    declaration = declaration_of(function) or Declaration(kind="rotary")
    declaration = declaration.but(**{"kind": "rotary", **dict(facts)})
    options = options_taken(function, declaration)
    return LocalTarget(name=name, function=function, declaration=declaration, options=options)


def _trials(target: Target, dtypes: tuple[str, ...] | None) -> Trials:
    return try_rotary_features(target, dtypes=dtypes)


def _count(shares: Shares, case: RotaryCase) -> None:
    shares.kv_lens.append(case.seq_len)
    shares.real_head_dim += case.head_dim in REAL_HEAD_DIMS


def _diagnose(subject: Any, law: str, case: Any, trouble: Trouble) -> Diagnosis:
    from equivalence.rope.diagnosis import diagnose

    return diagnose(subject, law, case, trouble)


KIND: Final = Kind(
    name="rotary",
    case_type=RotaryCase,
    open=_open,
    trials=_trials,
    subject=RotarySubject,
    strategy=rotary_cases,
    count=_count,
    diagnose=_diagnose,
)
