"""Decide where a target runs: in a worker process, or in this one."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, cast

from equivalence import isolation
from equivalence.calling import LocalTarget
from equivalence.declaration import declaration_of
from equivalence.loading import load, stated, wrapped
from equivalence.outcome import Target
from equivalence.resolve import registry, resolve

if TYPE_CHECKING:
    from equivalence.isolation.supervise import Limits
    from equivalence.registry import Backend


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcessTarget(LocalTarget):
    """A target in this process, although it is not ours; ``note`` says why."""

    note: str = ""


class _Noted:
    """Any other target in this process, with the same note."""

    def __init__(self, target: Target, note: str) -> None:
        self._target: Final = target
        self.note: Final = note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def open_target(
    target: str | Callable[..., Any],
    *,
    facts: Mapping[str, Any] | None = None,
    isolate: bool = True,
    limits: Limits | None = None,
) -> Target:
    """The target that ``target`` names or is, with ``facts`` declared on top of its own.

    Runs in a worker process, unless it is one of our own backends, has no name that a worker
    could import it by (a closure, a lambda, a method), or ``isolate`` is False; of the last two,
    ``note_of`` says why. Close it after use. Raises InvalidRequest for a wrong text.
    """
    if isinstance(target, str):
        resolved = resolve(target, facts=facts)
        if resolved.form == "registered" and _is_tame(registry()[target]):
            return load(resolved)
        why = _why_here(isolate)
        if resolved.form == "registered":
            limits = _patient(registry()[target], limits)
        return _isolated(target, facts, limits) if not why else _noted(load(resolved), why)
    text = importable_text(target)
    why = _why_here(isolate)
    if not text:
        why = why or "it has no name that a worker process could import it by"
    if why:
        return _noted(wrapped(target, name=text or name_of(target), facts=facts), why)
    # It may have been declared after its import, which a worker would not see.
    declared = declaration_of(target)
    own = {} if declared is None else stated(declared)
    return _isolated(text, {**own, **dict(facts or {})}, limits)


def _is_tame(backend: Backend) -> bool:
    """Whether it is one of ours, and cannot end this process."""
    return not backend.distribution and not backend.aborts


def _patient(backend: Backend, limits: Limits | None) -> Limits | None:
    """The limits, with as many seconds as one call of this backend may need."""
    from equivalence.isolation.supervise import Limits

    given = limits or Limits()
    return replace(given, seconds=max(given.seconds, backend.patience))


def note_of(target: Target) -> str:
    """Why a target that is not ours runs in this process; empty where it does not."""
    return str(getattr(target, "note", ""))


def _isolated(text: str, facts: Mapping[str, Any] | None, limits: Limits | None) -> Target:
    from equivalence.isolation.target import IsolatedTarget

    return IsolatedTarget(text, facts=facts, limits=limits)


def _noted(target: Target, why: str) -> Target:
    note = f"runs in this process, a crash would end it: {why}"
    if not isinstance(target, LocalTarget):
        return cast(Target, _Noted(target, note))
    known = {f.name: getattr(target, f.name) for f in fields(LocalTarget)}
    return InProcessTarget(**known, note=note)


def _why_here(isolate: bool) -> str:
    if not isolate:
        return "as was asked for"
    if isolation.inside_worker:
        return "this process is a worker already"
    if os.name != "posix" or not sys.executable:
        return "worker processes need a POSIX system and a Python executable"
    return ""


def name_of(function: Callable[..., Any]) -> str:
    """What reports call a callable: its module and name, or its type."""
    name = getattr(function, "__qualname__", "") or type(function).__name__
    module = getattr(function, "__module__", "") or ""
    return f"{module}:{name}" if module else name


def importable_text(function: Callable[..., Any]) -> str:
    """``module:attr`` or ``file.py:attr`` that imports to this very callable, or ""."""
    module_name = getattr(function, "__module__", None)
    attribute = getattr(function, "__qualname__", None)
    module = sys.modules.get(module_name or "")
    # The main file would run again from its first line.
    if module is None or not attribute or module_name == "__main__":
        return ""
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if found is not function:
        return ""
    try:
        spec = importlib.util.find_spec(module_name or "")
    except (ImportError, ValueError):
        spec = None
    file = getattr(module, "__file__", None)
    if spec is not None and _on_path(module_name or "", file):
        return f"{module_name}:{attribute}"
    source = inspect.getsourcefile(module) if file else None
    return f"{source}:{attribute}" if source and source.endswith(".py") else ""


def _on_path(module_name: str, file: str | None) -> bool:
    """Whether a fresh interpreter with this sys.path would find the same module."""
    if file is None:  # built in, or an extension without a file
        return module_name.partition(".")[0] in sys.stdlib_module_names
    relative = module_name.replace(".", os.sep)
    return any(
        file.startswith(os.path.join(os.path.abspath(folder), relative))
        for folder in (os.getcwd(), *sys.path)
    )
