"""Replay lines: the text of a case back to the case (parsed, never evaluated), and the command."""

from __future__ import annotations

import ast
import importlib
import json
import math
import re
import shlex
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from equivalence.case import AttentionCase, HeadLayout
from equivalence.declaration import parse_facts
from equivalence.errors import InvalidRequest
from equivalence.kinds import MODULES
from equivalence.masks import Mask

T = TypeVar("T")
MAX_CHARACTERS: Final = 20_000
MAX_DEPTH: Final = 12
MAX_INTEGER: Final = 2**64
# repr() of a float that is not finite is a bare name.
FLOAT_NAMES: Final = {"nan": math.nan, "inf": math.inf}

CASES: Final[dict[str, Callable[..., Any]]] = {"AttentionCase": AttentionCase}
PARTS: Final[dict[str, Callable[..., Any]]] = {"Mask": Mask, "HeadLayout": HeadLayout}


def register_case(constructor: type[T]) -> type[T]:
    """Let :func:`parse_case` read a further kind of case (a class decorator)."""
    CASES[constructor.__name__] = constructor
    return constructor


def register_part(constructor: type[T]) -> type[T]:
    """Let :func:`parse_case` read a class that stands *inside* a case, as ``Mask`` does."""
    PARTS[constructor.__name__] = constructor
    return constructor


def parse_case(text: str) -> Any:
    """The case that ``text``, such as ``AttentionCase(num_kv_heads=2)``, describes.

    Literals, tuples (a list counts as one), dicts with string keys, ``nan``, ``inf``,
    ``float("nan")``, and calls by keyword of the registered classes are read; nothing is
    evaluated. Raises InvalidRequest, in one line, for everything else: more than 20,000
    characters, more than 12 levels, integers beyond 2**64, an unknown field or a wrong type.
    """
    if len(text) > MAX_CHARACTERS:
        raise _refusal(text, f"it is longer than {MAX_CHARACTERS:,} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _refusal(text, f"it is not an expression: {said}") from None
    except (RecursionError, MemoryError):
        raise _refusal(text, "it is nested too deeply") from None
    case = _value(tree, text, 0)
    if type(case).__name__ not in CASES:
        raise _refusal(text, f"it must start with one of {', '.join(sorted(CASES))}")
    return case


def _value(node: ast.expr, text: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise _refusal(text, "it is nested too deeply")
    match node:
        case ast.Constant(value=bool() | float() | str() | None):
            return node.value
        case ast.Constant(value=int() as number):
            if abs(number) > MAX_INTEGER:
                raise _refusal(text, "it holds an integer beyond 2**64")
            return number
        case ast.Name(id=name) if name in FLOAT_NAMES:
            return FLOAT_NAMES[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _value(operand, text, depth + 1)
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise _refusal(text, "a sign stands before something that is not a number")
            return -number if isinstance(sign, ast.USub) else number
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return tuple(_value(element, text, depth + 1) for element in elements)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_key(k, text): _value(v, text, depth + 1) for k, v in pairs}
        case ast.Call():
            return _constructed(node, text, depth)
    raise _refusal(text, f"{_piece(node)} is neither a literal nor a known constructor")


def _key(node: ast.expr | None, text: str) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _refusal(text, "the keys of a dict must be strings")


def _constructed(node: ast.Call, text: str, depth: int) -> Any:
    name = node.func.id if isinstance(node.func, ast.Name) else _piece(node.func)
    if name == "float" and not node.keywords:
        return _float(node, text)
    constructor = _constructor(name)
    if constructor is None or not isinstance(node.func, ast.Name):
        known = ", ".join(sorted({**CASES, **PARTS}))
        raise _refusal(text, f"{name} is not one of the known constructors {known}")
    if node.args:
        raise _refusal(text, f"{name} takes its fields by name")
    given: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise _refusal(text, f"{name} takes no ** arguments")
        if keyword.arg in given:
            raise _refusal(text, f"{name} is given {keyword.arg} twice")
        given[keyword.arg] = _value(keyword.value, text, depth + 1)
    checked = {field: _typed(constructor, field, value, text) for field, value in given.items()}
    try:
        return constructor(**checked)
    except InvalidRequest:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise _refusal(text, f"{name} refuses its fields: {error}") from None


def _constructor(name: str) -> Callable[..., Any] | None:
    """A registered class; cases of a kind are registered when its module is imported."""
    found = CASES.get(name) or PARTS.get(name)
    if found is None and name.isidentifier() and name[:1].isupper():
        for module in MODULES.values():
            importlib.import_module(module)
        found = CASES.get(name) or PARTS.get(name)
    return found


def _float(node: ast.Call, text: str) -> float:
    match node.args:
        case [ast.Constant(value=str() as word)] if (
            word.strip().lstrip("+-").lower() in FLOAT_NAMES
        ):
            return float(word)
    raise _refusal(text, 'float(...) is read only as float("nan"), float("inf"), float("-inf")')


@cache
def _hints(constructor: Callable[..., Any]) -> dict[str, Any]:
    known = {field.name for field in fields(constructor)}  # type: ignore[arg-type]
    return {n: hint for n, hint in get_type_hints(constructor).items() if n in known}


def _typed(constructor: Callable[..., Any], field: str, value: Any, text: str) -> Any:
    """``value``, once it has the type that ``field`` is annotated with."""
    name = getattr(constructor, "__name__", "")
    hints = _hints(constructor)
    if field not in hints:
        near = get_close_matches(field, hints, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise _refusal(text, f"{name} has no field {field}{hint}")
    if type(value) in {*CASES.values(), *PARTS.values()}:
        if type(value) in _alternatives(hints[field]):
            return value
        raise _refusal(text, f"{name}.{field} cannot be a {type(value).__name__}")
    if isinstance(value, dict) and not any(
        get_origin(hint) in (dict, Mapping) for hint in _alternatives(hints[field])
    ):  # msgspec would take it for the fields of a part
        raise _refusal(text, f"{name}.{field} cannot be a dict")
    try:
        msgspec.convert(value, hints[field], strict=True)
    except msgspec.ValidationError as error:
        raise _refusal(text, f"{name}.{field}={value!r}: {error}") from None
    except TypeError:  # an annotation that msgspec does not know; the constructor decides
        return value
    return value


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _piece(node: ast.AST) -> str:
    try:
        shown = ast.unparse(node)
    except (RecursionError, ValueError):
        return type(node).__name__
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def _refusal(text: str, why: str) -> InvalidRequest:
    shown = " ".join(text.split())
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return InvalidRequest(f"cannot read the case {shown!r}: {' '.join(why.split())}")


def case_text(case: Any) -> str:
    """``repr(case)`` with double quotes around its words, so it stands in single ones unescaped."""
    text = repr(case)
    quoted = re.sub(r"'([A-Za-z0-9_.+-]*)'", r'"\1"', text)
    if "'" in quoted or '"' in text:
        return text
    return quoted


def facts_text(facts: Mapping[str, Any]) -> str:
    """``facts`` as ``--declare`` takes them; without callables, which no command line can say."""
    return ",".join(
        f"{name}={_bare(value)}" for name, value in facts.items() if not callable(value)
    )


def _bare(value: Any) -> str:
    """A word without its quotes, where ``--declare`` reads it back as that word."""
    bare = isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:]*", value)
    return value if bare and parse_facts(f"fact={value}") == {"fact": value} else _literal(value)


def _literal(value: Any) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case tuple() | list():
            inside = ",".join(map(_literal, value))
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        case dict():
            return "{" + ",".join(f"{_literal(k)}:{_literal(v)}" for k, v in value.items()) + "}"
    return repr(value)


def replay_line(
    target: str, case: Any, facts: Mapping[str, Any] | None = None, law: str | None = None
) -> str:
    """The shell command that repeats ``case`` on ``target``, quoted for a POSIX shell."""
    words = ["equivalence", "replay", target, case_text(case)]
    declared = facts_text(facts or {})
    if declared:
        words += ["--declare", declared]
    if law:
        words += ["--law", law]
    return shlex.join(words)
