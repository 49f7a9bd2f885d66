"""What each registered backend says of itself, whether it can run here, and in which version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version

from equivalence.declaration import Declaration, declaration_of
from equivalence.errors import InvalidRequest
from equivalence.registry import Backend, entries

SHORT = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendFacts:
    """One row of the list of backends; a fact that is not declared, or not to be had, is "".

    here: "yes", "slow" (runs when it is named), "unverified" (its adapter has never met the
    library that it is for) or "no", with ``why``. version: of what it needs, torch for the rest.
    """

    name: str
    kind: str
    here: str
    why: str
    install: str
    version: str
    dtypes: str = ""
    causal: str = ""
    masked_rows: str = ""
    profile: str = ""
    faults: int = 0


def backend_facts(names: Iterable[str] | None = None) -> Iterator[BackendFacts]:
    """The facts of these backends (None: all); imports what their modules import.

    A library that is missing, or breaks when it is imported, costs its own row only.
    """
    for name, backend in entries().items():
        if names is None or name in names:
            yield _facts(backend)


def _facts(backend: Backend) -> BackendFacts:
    usable = backend.available()
    why = "" if usable is True else str(usable)
    here = "slow" if backend.slow else "yes"
    try:
        declared = declaration_of(backend.function()) or Declaration(kind=backend.kind)
    except InvalidRequest as error:
        declared, why = Declaration(kind=backend.kind), why or str(error)
    if backend.unverified:
        here, why = "unverified", why or "never run against the library that it is for"
    elif why:
        here = "no"
    return BackendFacts(
        name=backend.name,
        kind=backend.kind,
        here=here,
        why=why,
        install=f"attention-equivalence[{backend.extra}]" if backend.extra else backend.pip,
        version=_version(backend),
        dtypes=" ".join(SHORT[dtype] for dtype in declared.dtypes or ()),
        causal=(declared.causal or "").replace("_", "-"),
        masked_rows=(declared.masked_rows or "").replace("_", " "),
        profile=declared.profile or "",
        faults=len({fault.note for fault in declared.known_faults}),
    )


def _version(backend: Backend) -> str:
    """Of the first library that it needs: ``jax 0.10.2``; "" where that is not installed."""
    module = backend.requires[0] if backend.requires else "torch"
    if backend.distribution or module not in _distributions():
        return ""
    distribution = _distributions()[module]
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return ""


@cache
def _distributions() -> dict[str, str]:
    """Top-level module -> the distribution that brings it."""
    return {module: names[0] for module, names in packages_distributions().items()}
