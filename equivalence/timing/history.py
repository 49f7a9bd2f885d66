"""Earlier runs: a file that each run appends a line to, and the comparison with one of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from equivalence.bounded import read_bytes
from equivalence.errors import InvalidRequest, require
from equivalence.timing.results import NOISE, Row, TimingRun

SCHEMA: Final = 1
LARGEST: Final = 256 * 2**20


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """A run, in a line of a history or in a report of which it is a part."""

    schema: int
    timing: TimingRun | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row in two runs.

    ratio: its time over the earlier one. relative: the same after both were divided by what all
    rows of their runs have in common, which a faster machine changes too. beyond: more than chance
    explains.
    """

    row: Row
    earlier: Row
    ratio: float
    relative: float
    beyond: bool


def append(path: Path, run: TimingRun) -> None:
    """Add ``run`` to the file as one line; several runs may do so at once.

    Raises InvalidRequest where the file cannot be written.
    """
    line = msgspec.json.encode(_Line(schema=SCHEMA, timing=run)) + b"\n"
    try:
        with path.open("ab") as file:
            file.write(line)
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise InvalidRequest(f"--history {path} cannot be written: {why}") from None


def earlier_run(path: Path, command: str) -> TimingRun:
    """The run of a report of ``time --json``, or the last one of ``command`` in a history.

    Raises InvalidRequest, in one line, where there is none.
    """
    text = read_bytes(path, most=LARGEST, name=f"--against {path}")
    try:
        found = [msgspec.json.decode(text, type=_Line)]
    except msgspec.MsgspecError:
        try:
            decoder = msgspec.json.Decoder(_Line)
            found = [decoder.decode(line) for line in text.splitlines() if line.strip()]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            said = " ".join(str(error).split())[:150]
            raise InvalidRequest(
                f"--against {path} is neither a report of `equivalence time` nor a history: {said}"
            ) from None
    for line in found:
        require(
            line.schema == SCHEMA,
            f"--against {path} has schema {line.schema}; this version reads {SCHEMA}",
        )
    runs = [line.timing for line in found if line.timing is not None]
    runs = [run for run in runs if run.command == command]
    require(bool(runs), f"--against {path} holds no run of `equivalence time {command}`")
    return runs[-1]


def changes(run: TimingRun, earlier: TimingRun) -> list[Change]:
    """The rows that both runs have a time for, the most slowed first."""
    before = {row.key: row for row in earlier.rows if row.time is not None}
    pairs = [(row, before[row.key]) for row in run.rows if row.time and row.key in before]
    ratios = [_ratio(row, old) for row, old in pairs]
    if not ratios:
        return []
    common = math.exp(sum(map(math.log, ratios)) / len(ratios))
    found = [
        Change(
            row=row,
            earlier=old,
            ratio=ratio,
            relative=ratio / common,
            beyond=max(ratio, 1 / ratio) > _chance(row, old),
        )
        for (row, old), ratio in zip(pairs, ratios, strict=True)
    ]
    return sorted(found, key=lambda change: -change.ratio)


def same_machine(run: TimingRun, earlier: TimingRun) -> list[str]:
    """What differs between the machines and libraries of two runs, in words."""
    facts: list[tuple[str, object, object]] = [("threads", earlier.threads, run.threads)]
    facts += [
        (name, earlier.machine.get(name), run.machine.get(name))
        for name in sorted({*run.machine, *earlier.machine})
    ]
    return [f"{name}: {then} then, {now} now" for name, then, now in facts if then != now]


def _ratio(row: Row, earlier: Row) -> float:
    assert row.time is not None
    assert earlier.time is not None
    return row.time.minimum / earlier.time.minimum


def _chance(row: Row, earlier: Row) -> float:
    """The factor within which two runs of the same call lie: the rounds' own spread, or NOISE."""
    spreads: Sequence[float] = [r.time.spread for r in (row, earlier) if r.time is not None]
    return max(NOISE, math.exp(2 * math.hypot(*spreads)))
