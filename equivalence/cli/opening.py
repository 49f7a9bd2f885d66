"""Which targets a command is about, opened, and closed again at the end."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from equivalence.outcome import Target
from equivalence.request import Request


class Asked(Protocol):
    """What a session knows of the targets that it will check."""

    @property
    def request(self) -> Request:
        """How hard to look."""
        ...

    @property
    def unavailable(self) -> dict[str, str]:
        """Registered names that cannot run here, and why: filled in as they come by."""
        ...

    def request_for(self, target: Target) -> Request:
        """What is asked of this target; refuses what its kind does not know."""
        ...


def targets_of(
    named: Sequence[str] | None,
    facts: Mapping[str, Any],
    session: Asked,
    *,
    seconds: float | None,
    gib: float | None,
) -> Iterator[Target]:
    """The named targets, all opened before the first is handed out; else what is available."""
    if named:
        opened = open_all(named, facts, seconds=seconds, gib=gib)
        try:
            for target in opened:
                session.request_for(target)  # refuses before the first one runs
            yield from opened
        finally:
            for target in opened:
                target.close()
        return
    for name in all_available(facts, session):
        (target,) = open_all([name], facts, seconds=seconds, gib=gib)
        try:
            yield target
        finally:
            target.close()


def all_available(facts: Mapping[str, Any], session: Asked) -> Iterator[str]:
    """The registered names that can run here, of the kinds that the request is about."""
    from equivalence.laws import LAWS

    asked = session.request
    kinds = {LAWS[name].kind for name in asked.laws} if asked.laws else None
    if "kind" in facts or asked.head_layouts is not None:
        kinds = {facts.get("kind", "attention")}
    yield from available(kinds, session.unavailable)


def available(
    kinds: Container[str] | None, unavailable: dict[str, str], *, patience: float = 0.0
) -> Iterator[str]:
    """The registered names of these kinds (None: all) that can run here.

    Why others of them cannot goes to ``unavailable``. Slow ones are among those, but for the ones
    whose calls take fewer seconds than ``patience``.
    """
    from equivalence.registry import entries

    for name, backend in entries().items():
        if kinds is None or backend.kind in kinds:
            usable = backend.available()
            if usable is True and backend.slow and backend.patience >= patience:
                usable = "slow: it runs when it is named"
            if usable is True:
                yield name
            else:
                unavailable[name] = str(usable)


def open_all(
    targets: Sequence[str], facts: Mapping[str, Any], *, seconds: float | None, gib: float | None
) -> list[Target]:
    """Open every target that was named; a wrong one is refused before anything runs."""
    from equivalence.isolation.opening import open_target
    from equivalence.isolation.supervise import GIB, Limits

    limits = Limits()
    if seconds is not None:
        limits = replace(limits, seconds=seconds)
    if gib is not None:
        limits = replace(limits, memory=int(gib * GIB))
    opened: list[Target] = []
    try:
        for text in targets:
            opened.append(open_target(text, facts=facts, limits=limits))
    except BaseException:
        for target in opened:
            target.close()
        raise
    return opened
