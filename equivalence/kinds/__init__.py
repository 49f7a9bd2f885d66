"""The kinds of thing that can be put under test, and what the engine needs to know of each."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from equivalence.errors import InvalidRequest

if TYPE_CHECKING:
    from hypothesis import strategies as st

    from equivalence.outcome import Target
    from equivalence.results import Diagnosis, Shares
    from equivalence.trials import Trials
    from equivalence.verdict import Trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of target: how it is called, what is drawn for it, and who judges it.

    case_type: the frozen dataclass of its cases; it has ``dtype`` and ``but(**changes)``.
    open: wraps a callable, its name and facts declared on the command line as a Target.
    trials: tries each feature of a target on a tiny case (dtypes None: all that make sense).
    domain_of: (target, case) -> the domain of one case, where trying every feature costs far more
    than the case.
    subject: what the laws of this kind take beside a case; it has a ``target``.
    strategy: cases inside a domain, as ``trials`` returned it, narrowed to one dtype.
    count: adds one drawn case to the shares of a run.
    diagnose: (subject, law name, case, trouble) -> Diagnosis, where the kind names its mistakes
    itself.
    retold: (subject, law name, case, diagnoses) -> the one of them that explains the case too.
    identify: (target, domain, dtype) -> the lines of its identity card, from probes.
    pairs: (domain, seed) -> cases that have every two options together at least once.
    edges: (domain, seed) -> few cases that draws meet by luck alone, as at the edges of tiles.
    admits: (domain, case) -> whether the target takes the options of a case from elsewhere.
    within: (domain, case) -> whether the domain has that case, its sizes and numbers too.
    plainest: failing cases -> the simplest cases that may show the same mistake, in order of size.
    spare: (domain, diagnosis kind) -> the part of the domain where that mistake cannot show.
    """

    name: str
    case_type: type
    open: Callable[[Callable[..., Any], str, Mapping[str, Any]], Target]
    trials: Callable[[Target, tuple[str, ...] | None], Trials]
    subject: Callable[[Target, Any], Any]
    strategy: Callable[[Any], st.SearchStrategy[Any]]
    count: Callable[[Shares, Any], None]
    domain_of: Callable[[Target, Any], Any] | None = None
    diagnose: Callable[[Any, str, Any, Trouble], Diagnosis] | None = None
    retold: Callable[[Any, str, Any, Sequence[Diagnosis]], Diagnosis | None] | None = None
    spare: Callable[[Any, str], Any] | None = None
    identify: Callable[[Target, Any, str], list[str]] | None = None
    pairs: Callable[[Any, int], Iterable[Any]] | None = None
    edges: Callable[[Any, int], Iterable[Any]] | None = None
    admits: Callable[[Any, Any], bool] | None = None
    within: Callable[[Any, Any], bool] | None = None
    plainest: Callable[[Iterable[Any]], Sequence[Any]] | None = None


MODULES: Final = {
    "attention": "equivalence.kinds.attention",
    "mla": "equivalence.kinds.mla",
    "rotary": "equivalence.kinds.rotary",
    "varlen": "equivalence.kinds.varlen",
    "paged": "equivalence.kinds.paged",
    "kv_cache": "equivalence.kinds.kv_cache",
    "converter": "equivalence.kinds.converter",
}


def kind_named(name: str) -> Kind:
    """The kind called ``name``; refuses one that is unknown, listing the known ones."""
    if name not in MODULES:
        raise InvalidRequest(f"kind={name!r} is not one of {', '.join(MODULES)}")
    kind: Kind = importlib.import_module(MODULES[name]).KIND
    return kind
