"""The table of tolerances: TOML that people review, so each number is short and errs outwards."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from equivalence.bounded import read_text
from equivalence.dtypes import DTYPES
from equivalence.errors import InvalidRequest, require
from equivalence.replay import replay_line
from equivalence.tolerances.measuring import FEWEST, Measured, covered

SCHEMA: Final = 1
LARGEST: Final = 16 * 2**20  # bytes of a file that is read
OUTWARD: Final = Context(prec=2, rounding=ROUND_CEILING)
HEAD: Final = """\
# Written by `equivalence tolerances --write`; `--check` compares it with new measurements.
# used: the largest error over the allowed error in so many independent cases.
# k: |error| <= k u sum p|v| where queries, keys and values are standard normal numbers, without
# biases, scale or softcap.
# atol: what torch.testing.assert_close needs there, beside its own rtol; defaults_reject is the
# share of cases that it rejects otherwise. searched_*: from a search for the largest error.
"""
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One backend in one dtype."""

    kind: str
    profile: str
    law: str
    used: NonNegative
    worst: str
    vacuous: Whole = 0
    refused: Whole = 0
    k: NonNegative | None = None
    atol: NonNegative | None = None
    rtol: NonNegative | None = None
    defaults_reject: NonNegative | None = None
    searched_k: NonNegative | None = None
    searched_used: NonNegative | None = None
    searched: str = ""


class Tolerances(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole table: how it was measured, where, and an entry for each backend and dtype."""

    schema: int
    cases: Whole
    seed: Whole
    search: Whole
    covers: NonNegative
    confidence: NonNegative
    environment: dict[str, Any]
    tolerance: dict[str, dict[str, Entry]]


def entry_of(measured: Measured, facts: Mapping[str, Any] | None = None) -> Entry:
    """The entry of one measurement, its numbers rounded outwards to two digits."""

    def line(case: Any) -> str:
        return replay_line(measured.backend, case, facts or {}, measured.law)

    close, searched = measured.close, measured.searched is not None
    return Entry(
        kind=measured.kind,
        profile=measured.profile,
        law=measured.law,
        used=outward(measured.used),
        worst=line(measured.worst),
        vacuous=measured.vacuous,
        refused=measured.refused,
        k=None if measured.k is None else outward(measured.k),
        atol=None if close is None else outward(close.atol),
        rtol=None if close is None else close.rtol,
        defaults_reject=None if close is None else outward(close.rejects),
        searched_k=outward(measured.searched_k) if searched else None,
        searched_used=outward(measured.searched_used) if searched else None,
        searched=line(measured.searched) if searched else "",
    )


def table_of(
    found: Iterable[Measured],
    *,
    cases: int,
    seed: int,
    search: int,
    environment: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
) -> Tolerances:
    """The table of all that was measured."""
    tolerance: dict[str, dict[str, Entry]] = {}
    for measured in found:
        own = tolerance.setdefault(measured.backend, {})
        own[measured.dtype] = entry_of(measured, facts)
    return Tolerances(
        schema=SCHEMA,
        cases=cases,
        seed=seed,
        search=search,
        covers=math.floor(1e4 * covered(cases)) / 1e4,
        confidence=0.95,
        environment=dict(environment),
        tolerance=tolerance,
    )


def outward(number: float) -> float:
    """``number``, not below it, with two significant digits."""
    if number == 0 or not math.isfinite(number):
        return number
    # Its shortest decimal reads as the number, so one that is not below reads as one not below.
    return float(OUTWARD.create_decimal(repr(number)))


def to_toml(table: Tolerances) -> str:
    """The table as text: backends by name, dtypes in their order, one fact a line."""
    lines = [HEAD]
    for name in ("schema", "cases", "seed", "search", "covers", "confidence"):
        lines.append(f"{name} = {_value(getattr(table, name))}")
    nested = {k: v for k, v in table.environment.items() if isinstance(v, Mapping)}
    lines += ["", "[environment]"]
    lines += [
        f"{_key(name)} = {_value(value)}"
        for name, value in table.environment.items()
        if name not in nested and value is not None
    ]
    for name, part in nested.items():
        lines += ["", f"[environment.{_key(name)}]"]
        lines += [f"{_key(k)} = {_value(v)}" for k, v in part.items() if v is not None]
    lines += ["", "[tolerance]"]
    for backend in sorted(table.tolerance):
        entries = table.tolerance[backend]
        for dtype in sorted(entries, key=_place):
            lines += ["", f"[tolerance.{_key(backend)}.{_key(dtype)}]"]
            entry = entries[dtype]
            facts = {name: getattr(entry, name) for name in entry.__struct_fields__}
            lines += [
                f"{name} = {_value(value)}"
                for name, value in facts.items()
                if value is not None and (name, value) != ("searched", "")
            ]
    return "\n".join(lines) + "\n"


def from_toml(text: str, *, source: str) -> Tolerances:
    """Read a table; raises InvalidRequest, in one line that names ``source``, where it is none."""
    try:
        read = tomllib.loads(text)
        schema = read.get("schema")
        if isinstance(schema, int) and schema > SCHEMA:
            raise InvalidRequest(f"{source} has schema {schema}; this version reads {SCHEMA}")
        table = msgspec.convert(read, Tolerances)
    except InvalidRequest:
        raise
    except (ValueError, RecursionError, OverflowError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InvalidRequest(f"{source} is not a table of tolerances: {said[:200]}") from None
    require(table.schema == SCHEMA, f"{source} has schema {table.schema}, this version {SCHEMA}")
    require(table.cases >= FEWEST, f"{source} was measured on {table.cases} cases, below {FEWEST}")
    return table


def read_table(path: Path, option: str) -> Tolerances:
    """The table in a file; raises InvalidRequest where there is none."""
    text = read_text(path, most=LARGEST, name=f"{option} {path}")
    return from_toml(text, source=f"{option} {path}")


def _place(dtype: str) -> tuple[int, str]:
    return (DTYPES.index(dtype) if dtype in DTYPES else len(DTYPES), dtype)


def _key(name: str) -> str:
    bare = name.replace("-", "").replace("_", "")
    return name if bare.isascii() and bare.isalnum() else _text(name)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            if math.isfinite(value):
                return repr(value)
            return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return _text(str(value))


def _text(text: str) -> str:
    """A basic string of TOML, which is one of JSON without DEL and without half surrogates."""
    whole = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007F")
