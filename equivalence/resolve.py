"""From the text of a target to where it is found: a registered name, a module, or a file."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

from equivalence.errors import InvalidRequest, require

FORMS: Final = "a registered name, package.module:attr or path/to/file.py:attr"
MODELS: Final = (".mlpackage", ".onnx")
CLOSE: Final = 0.61  # at 0.6, window is close to kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTarget:
    """Where a target is found; nothing of the user's has been imported yet.

    text: as it was written, and as replay lines write it. place: the registered name, the dotted
    module, or the absolute path of the file or saved model. attribute: dotted inside the module or
    file, "" for a registered name or a model. facts: what is declared on top of its own.
    """

    text: str
    form: Literal["registered", "module", "file", "model"]
    place: str
    attribute: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def resolve(text: str, *, facts: Mapping[str, Any] | None = None) -> ResolvedTarget:
    """Find out what ``text`` names, without importing anything that is not ours.

    Raises InvalidRequest, in one line, for an unknown name (with the closest known ones), a
    missing file, a file without an attribute (with the functions that it defines), or a model of
    a form that is not read. ``equivalence.loading`` does the rest.
    """
    known = dict(facts or {})
    place, colon, attribute = text.rpartition(":")
    if not colon:
        place, attribute = text, ""
    if Path(place).suffix in (*MODELS, ".mlmodel", ".mlmodelc"):
        return ResolvedTarget(text=text, form="model", place=str(_model(text, place)), facts=known)
    like_a_file = place.endswith(".py") or "/" in place or "\\" in place
    there = like_a_file and bool(attribute) and Path(place).expanduser().is_file()
    # The registry reads what every installed distribution says of itself.
    names = () if there else registered_names()
    if text in names:
        return ResolvedTarget(text=text, form="registered", place=text, facts=known)
    if like_a_file:
        path = _file(text, place)
        require(
            bool(attribute), f"{text}: write {place}:NAME; {place} defines {listed(defined(path))}"
        )
        return ResolvedTarget(
            text=text, form="file", place=str(path), attribute=attribute, facts=known
        )
    require(bool(colon), _unknown_name(text, names))
    parts = place.split(".")
    require(
        all(part.isidentifier() for part in parts) and bool(attribute),
        f"{text!r} is not {FORMS}",
    )
    return ResolvedTarget(text=text, form="module", place=place, attribute=attribute, facts=known)


def registered_names() -> tuple[str, ...]:
    """The names in the registry, sorted."""
    return tuple(sorted(registry()))


def registry() -> Mapping[str, Any]:
    """Registered name -> entry with ``load() -> LocalTarget``."""
    from equivalence.registry import entries

    return entries()


def defined(path: Path) -> list[str]:
    """The public functions and classes that the file's top level defines, read without running."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
        return []
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [n.name for n in tree.body if isinstance(n, kinds) and not n.name.startswith("_")]


def closest(word: str, words: Iterable[str]) -> str:
    """``"; did you mean x or y?"``, or nothing where no word comes close."""
    near = get_close_matches(word, list(words), n=3, cutoff=CLOSE)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _file(text: str, place: str) -> Path:
    path = Path(place).expanduser()
    if path.is_file():
        return path.resolve()
    if path.is_dir():
        raise InvalidRequest(f"{text}: {place} is a folder; write {place}/FILE.py:NAME")
    beside = [str(p) for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
    where = closest(str(path), beside) or f"; the folder you are in is {Path.cwd()}"
    raise InvalidRequest(f"{text}: there is no file {place}{where}")


def _model(text: str, place: str) -> Path:
    path = Path(place).expanduser()
    require(text == place, f"{text}: a saved model has no attribute; write {place} alone")
    require(
        path.suffix in MODELS,
        f"{text}: of saved models, {' and '.join(MODELS)} are read; save it as one of these, or "
        f"give the function it was converted from, as {FORMS}",
    )
    require(path.exists(), f"{text}: there is no model {place}; you are in {Path.cwd()}")
    return path.resolve()


def _unknown_name(text: str, names: tuple[str, ...]) -> str:
    near = closest(text, names)
    hint = near or "; write package.module:attr or path/to/file.py:attr for one's own function"
    return f"{text!r} is not a registered name{hint} (`equivalence backends` lists the names)"


def listed(names: list[str]) -> str:
    """At most twelve names, and how many more there are."""
    if not names:
        return "no public function"
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
