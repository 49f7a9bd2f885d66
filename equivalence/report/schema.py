"""The shape of the JSON report, schema 1; docs/json.md describes every key.

Keys are only ever added to a schema; a key that changes its meaning makes a new one.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from equivalence.timing.results import TimingRun

SCHEMA: Final = 1
Number = float | str  # the strings are "NaN", "Infinity" and "-Infinity"


class DiagnosisJson(msgspec.Struct, frozen=True, kw_only=True):
    """The named mistake: ``kind`` is one of ``equivalence.results.DIAGNOSES``."""

    kind: str
    text: str


class CounterexampleJson(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest case found: the worst element of the output, and the line that replays it."""

    case: str
    replay: str
    index: list[int]
    got: Number | None
    expected: Number | None
    used: Number | None
    error: Number | None = None
    allowed: Number | None = None
    outside: int = 0
    total: int = 0
    trouble: str = ""
    text: str = ""
    where: str = ""
    profile: str = ""


class CallsJson(msgspec.Struct, frozen=True, kw_only=True):
    """The calls that a law looked at: how many, and the CPU seconds of the fastest and the median.

    Of cases as they are drawn, so they show what a call costs and not what a kernel can do.
    """

    calls: int
    minimum: Number
    median: Number


class DtypeJson(msgspec.Struct, frozen=True, kw_only=True):
    """One law in one dtype.

    histogram: the checks by the part of the bound that they used, in the places of
    ``equivalence.used_parts``. worst: the line that replays the one that used most.
    """

    dtype: str
    held: bool | None
    examples: int
    vacuous: int
    refused: int
    used: Number
    timing: CallsJson | None = None
    histogram: list[int] = []
    worst: str = ""


class LawJson(msgspec.Struct, frozen=True, kw_only=True):
    """One law over all dtypes; ``held`` is null when nothing non-vacuous was judged."""

    name: str
    held: bool | None
    examples: int
    vacuous: int
    refused: int
    counterexample: CounterexampleJson | None = None
    diagnosis: DiagnosisJson | None = None
    used: Number = 0.0
    known: str = ""
    seconds: Number = 0.0
    dtypes: list[DtypeJson] = []
    reasons: dict[str, int] = {}
    remarks: dict[str, int] = {}


class FailureJson(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, told once whatever the number of laws and dtypes that it breaks."""

    law: str
    dtype: str
    counterexample: CounterexampleJson
    diagnosis: DiagnosisJson
    script: str = ""


class TargetJson(msgspec.Struct, frozen=True, kw_only=True):
    """One target; of ``graph`` (what its graph costs) and ``allocation`` less is better.

    ratios: times over times of the same run, where less is better too.
    """

    target: str
    kind: str
    held: bool | None
    profile: str
    laws: list[LawJson]
    tolerance: dict[str, Number]
    not_exercised: dict[str, str]
    timings: dict[str, Number]
    sentence: str = ""
    trouble: str = ""
    failures: list[FailureJson] = []
    card: list[str] = []
    shares: dict[str, Number] = {}
    remarks: dict[str, int] = {}
    refuses_grouped: bool = False
    limited: Number = 0.0
    isolated: bool = True
    interrupted: bool = False
    graph: dict[str, Number] = {}
    allocation: dict[str, Number] = {}
    ratios: dict[str, Number] = {}


class PairJson(msgspec.Struct, frozen=True, kw_only=True):
    """Two formulations: comparisons made, those equal bit for bit, and the worst of both bounds."""

    first: str
    second: str
    held: bool | None
    compared: int
    vacuous: int
    equal: int
    broken: int
    used: Number
    counterexample: CounterexampleJson | None = None


class AxisJson(msgspec.Struct, frozen=True, kw_only=True):
    """One question on which runtimes may differ: runtime -> its meaning, or why it has none."""

    axis: str
    asks: str
    case: str
    answers: dict[str, str]
    refused: dict[str, str]


class DisagreementJson(msgspec.Struct, frozen=True, kw_only=True):
    """Two runtimes, the questions (from 1) that they answer differently, and the smallest case."""

    first: str
    second: str
    questions: list[int]
    case: str


class ReportJson(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run; ``complaints`` are about the list of expected failures, and fail it.

    timing: the table of `equivalence time`, with every round.
    """

    schema: int
    targets: list[TargetJson]
    environment: dict[str, Any]
    pairs: list[PairJson] = []
    odd: list[str] = []
    exit_code: int = 0
    interrupted: bool = False
    seconds: Number = 0.0
    complaints: list[str] = []
    axes: list[AxisJson] = []
    disagreements: list[DisagreementJson] = []
    timing: TimingRun | None = None
