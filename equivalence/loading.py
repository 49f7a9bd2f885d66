"""Import what a target names, and say in one line why that does not work."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from equivalence.calling import LocalTarget
from equivalence.contract import CONTRACTS
from equivalence.declaration import Declaration, declaration_of, require_meant_for
from equivalence.errors import InvalidRequest, require
from equivalence.kinds import MODULES, kind_named
from equivalence.outcome import Target
from equivalence.resolve import ResolvedTarget, closest, listed, registry
from equivalence.signatures import options_taken, parameters_of, require_callable


def load(resolved: ResolvedTarget) -> Target:
    """The target itself, imported into this process, with its facts applied.

    Raises InvalidRequest, in one line, when the import fails (with the exception and the line of
    the user's file), when the attribute is missing (with the callables that are there), when it
    is not callable, or when it cannot take the tensors of its kind.
    """
    if resolved.form == "model":
        from equivalence.saved.target import target_of

        return target_of(resolved.text, Path(resolved.place), resolved.facts)
    told = resolved.facts.get("inputs")
    require(
        told is None,
        f"{resolved.text}: --map (inputs={told!r}) is for the inputs of a saved model; "
        "a function is called by position",
    )
    if resolved.form == "registered":
        target: Target = registry()[resolved.place].load()
        if not resolved.facts:
            return target
        if not isinstance(target, LocalTarget):
            raise InvalidRequest(f"{resolved.text} takes no further facts")
        declaration = target.declaration.but(**resolved.facts)
        require_meant_for(declaration.kind, resolved.facts)
        options = options_taken(target.function, declaration)
        require_callable(target.function, options, declaration.kind, resolved.text)
        return replace(target, declaration=declaration, options=options)
    function = _callable_in(_module(resolved), resolved)
    shipped = None if declaration_of(function) else _shipped(resolved)
    own = {} if shipped is None else stated(shipped)
    return wrapped(function, name=resolved.text, facts={**own, **resolved.facts})


def wrapped(
    function: Callable[..., Any], *, name: str, facts: Mapping[str, Any] | None = None
) -> Target:
    """``function`` as a target of the kind that it, or ``facts``, declares; in this process.

    Raises InvalidRequest when it cannot take the tensors of that kind.
    """
    known = dict(facts or {})
    kind = known.get("kind") or (declaration_of(function) or Declaration()).kind
    require_meant_for(kind, known)
    _require_positionals(function, kind, name)
    # The most usual kind, without the import of what is drawn for it.
    if kind == "attention" or kind not in MODULES:
        return LocalTarget.of(function, name=name, facts=known)
    return kind_named(kind).open(function, name, known)


def stated(declaration: Declaration) -> dict[str, Any]:
    """The facts of a declaration that are not at their defaults."""
    given = {f.name: getattr(declaration, f.name) for f in fields(declaration)}
    defaults = {f.name: f.default for f in fields(declaration)}
    return {name: value for name, value in given.items() if value != defaults[name]}


def _shipped(resolved: ResolvedTarget) -> Declaration | None:
    from equivalence.registry import known_declaration

    return known_declaration(resolved.place, resolved.attribute)


def _module(resolved: ResolvedTarget) -> ModuleType:
    folder = str(Path(resolved.place).parent) if resolved.form == "file" else str(Path.cwd())
    try:
        with first_on_path(folder):
            if resolved.form == "file":
                with first_on_path(str(_root_of(Path(resolved.place)))):
                    return _module_of_file(Path(resolved.place))
            return importlib.import_module(resolved.place)
    except InvalidRequest:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's file raises
        raise InvalidRequest(f"{resolved.text}: {_import_failure(resolved, error)}") from error


@contextmanager
def first_on_path(folder: str) -> Iterator[None]:
    """``folder`` stands first in ``sys.path`` inside the block."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _module_of_file(path: Path) -> ModuleType:
    """The module of a file, under a name that no other file has; an edited file is a new module."""
    stamp = f"{path}:{path.stat().st_mtime_ns}".encode()
    name = f"equivalence_target_{path.stem}_{hashlib.sha256(stamp).hexdigest()[:12]}"
    package = path.parent.relative_to(_root_of(path)).parts
    if package and path.stem != "__init__":  # so that ``from .neighbour import x`` finds it
        name = ".".join((*package, name))
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _root_of(path: Path) -> Path:
    """The folder that a file's package, or the file where it is in none, is imported from."""
    folder = path.parent
    while folder != folder.parent and folder.name.isidentifier() and _is_package(folder):
        folder = folder.parent
    return folder


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _import_failure(resolved: ResolvedTarget, error: BaseException) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if resolved.form == "module" and missing and f"{resolved.place}.".startswith(f"{missing}."):
        return (
            f"there is no module {missing}{closest(missing, _modules_here())}; run in the folder "
            "that holds it, install it, or write path/to/file.py:attr"
        )
    said = " ".join(str(error).split())
    where = _where(resolved, error)
    return f"its import fails{where}: {type(error).__name__}{f': {said}' if said else ''}"


def _modules_here() -> list[str]:
    here = Path.cwd()
    files = [p.stem for p in here.glob("*.py")]
    return files + [p.parent.name for p in here.glob("*/__init__.py")]


def _where(resolved: ResolvedTarget, error: BaseException) -> str:
    """``" at file.py, line 3"``: the last line that is neither ours nor the import system's."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {_shown(error.filename)}, line {error.lineno}"
    own = str(Path(__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen", own)) and "importlib" not in frame.filename
    ]
    theirs = [f for f in frames if "site-packages" not in f.filename] or frames
    if resolved.form == "file":
        theirs = [f for f in frames if f.filename == resolved.place] or theirs
    return f" at {_shown(theirs[-1].filename)}, line {theirs[-1].lineno}" if theirs else ""


def _shown(filename: str) -> str:
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except ValueError:
        return filename


def _callable_in(module: ModuleType, resolved: ResolvedTarget) -> Callable[..., Any]:
    found: Any = module
    for part in resolved.attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            names = [
                name
                for name, value in vars(module).items()
                if callable(value)
                and not name.startswith("_")
                and getattr(value, "__module__", module.__name__) == module.__name__
            ]
            raise InvalidRequest(
                f"{resolved.text}: {_shown(resolved.place)} has no {resolved.attribute}"
                f"{closest(resolved.attribute, names)} (it defines {listed(names)})"
            ) from None
    if not callable(found):
        raise InvalidRequest(
            f"{resolved.text}: {resolved.attribute} is a {type(found).__name__}, not a callable"
        )
    checked: Callable[..., Any] = found
    return checked


def _require_positionals(function: Callable[..., Any], kind: str, text: str) -> None:
    needed = CONTRACTS[kind].tensors
    require(
        not needed or not inspect.isclass(function),
        f"{text}: is a class; name a function or an instance (layer = TheClass()), or declare "
        "kind=kv_cache if it is a cache",
    )
    try:
        parameters = parameters_of(function).values()
    except (ValueError, TypeError):  # a builtin; calling it will tell
        return
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return
    positional = [
        p.name
        for p in parameters
        if p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(positional) < len(needed):
        taken = ", ".join(positional) or "nothing"
        hint = ""
        if not declaration_of(function):
            alike = [name for name, one in CONTRACTS.items() if tuple(positional) == one.tensors]
            of_kind = f"kind={alike[0]}" if len(alike) == 1 else "its kind"
            hint = f"; declare {of_kind} if it is another one"
        raise InvalidRequest(
            f"{text}: takes {taken} by position, but {kind} is called with "
            f"{', '.join(needed)}{hint}"
        )
