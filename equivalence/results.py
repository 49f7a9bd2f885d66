"""What a whole run found: one result per target, in the words of the JSON contract."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from equivalence.verdict import LawResult, Trouble

DIAGNOSES: Final = (
    "head-mapping",
    "causal-alignment",
    "mask-semantics",
    "wrong-operand",
    "fully-masked-row",
    "window",
    "scale",
    "softcap",
    "precision",
    "overflow",
    "nan-propagation",
    "layout",
    "strides",
    "padding",
    "cache-position",
    "rotary-layout",
    "rotary-scaling",
    "rotary-precision",
    "mla-absorption",
    "mla-scale",
    "lse-merge",
    "quantised-kv",
    "broadcasting",
    "head-dim-tail",
    "head-mixing",
    "determinism",
    "batch-dependence",
    "gradient",
    "sinks",
    "input-mutation",
    "wrong-dtype",
    "wrong-shape",
    "refusal",
    "dropped-op",
    "ignored-option",
    "materialisation",
    "crash",
    "unknown",
)


# Of its cases: a target that refuses so many is called limited, whatever holds of the rest.
LIMITED: Final = 0.5
# And one that refuses so many, which nobody declared, was hardly judged.
HARDLY_JUDGED: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The named mistake: one of ``DIAGNOSES`` and the sentence that states the fact."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One fault of one target: the law it breaks, its smallest case, and what the mistake is.

    ``script`` is a stand-alone program that shows it and needs only torch ("" if not written).
    """

    law: str
    dtype: str
    case: Any
    trouble: Trouble
    diagnosis: Diagnosis
    replay: str
    script: str = ""


@dataclass(slots=True, kw_only=True)
class Shares:
    """What the drawn cases were like; a suite of easy cases proves little."""

    kv_lens: list[int] = field(default_factory=list)
    cases: int = 0
    grouped: int = 0
    real_head_dim: int = 0
    checks: int = 0
    vacuous: int = 0
    refused: int = 0

    def merge(self, others: Iterable[Shares]) -> Shares:
        """The shares of several runs together."""
        for other in others:
            self.kv_lens.extend(other.kv_lens)
            for name in ("cases", "grouped", "real_head_dim", "checks", "vacuous", "refused"):
                setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def summary(self) -> dict[str, float]:
        """Median kv_len, and shares from 0 to 1."""
        cases, judged = max(1, self.cases), max(1, self.checks + self.vacuous)
        return {
            "checks": self.checks,
            "cases": self.cases,
            "median_kv_len": statistics.median(self.kv_lens) if self.kv_lens else 0,
            "grouped": self.grouped / cases,
            "real_head_dim": self.real_head_dim / cases,
            "vacuous": self.vacuous / judged,
            "refused": self.refused / max(1, self.refused + judged),
        }


@dataclass(slots=True, kw_only=True)
class TargetResult:
    """Everything found out about one target.

    not_exercised: feature -> why (the text of a refused trial). card: the identity card, one
    fact a line. trouble: why nothing could be run at all ("" otherwise). failures: deduplicated
    over laws and dtypes, the simplest first.
    """

    target: str
    kind: str
    profile: str
    laws: list[LawResult] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    not_exercised: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, int] = field(default_factory=dict)
    card: list[str] = field(default_factory=list)
    shares: Shares = field(default_factory=Shares)
    tolerance: dict[str, float] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    isolated: bool = True
    interrupted: bool = False
    trouble: str = ""
    refuses_grouped: bool = False

    @property
    def held(self) -> bool | None:
        """False if a law broke, True if at least one was judged and none broke, else None.

        A target that refuses every case of each law that calls it at all was not judged: that it
        refuses what it must refuse says nothing.
        """
        if self.failures or any(law.held is False for law in self.laws):
            return False
        judged = any(law.held for law in self.laws) and self.refused_share() < 1
        return True if judged else None

    def refused_share(self, *, declared: bool = True) -> float:
        """Of the cases of the laws in which it refused some, the part that it refused.

        declared: counting those too that its author excluded.
        """
        some = [law for law in self.laws if law.refused_share(declared=declared) > 0]
        excluded = 0 if declared else sum(law.excluded for law in some)
        refused = sum(law.refused for law in some) - excluded
        return refused / max(1, refused + sum(law.examples + law.vacuous for law in some))

    @property
    def limited(self) -> float:
        """The part of the cases that it refused, where that is most of them; else 0."""
        share = self.refused_share()
        return share if share >= LIMITED else 0.0

    @property
    def hardly_judged(self) -> bool:
        """Whether it refused nearly everything, and nobody declared that it would."""
        return self.refused_share(declared=False) >= HARDLY_JUDGED

    @property
    def crashed(self) -> bool:
        """Whether the target raised, died, hung or exhausted its memory."""
        return any(f.trouble.kind in ("crash", "hang", "memory") for f in self.failures)


@dataclass(slots=True, kw_only=True)
class RunResult:
    """A run over several targets, with the environment that it ran in.

    facts: what the command line declared, which replay lines repeat.
    """

    targets: list[TargetResult] = field(default_factory=list)
    environment: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """3: a target crashed or hung. 1: a law broke, or hardly a case was judged. 0: all held."""
        if any(target.crashed for target in self.targets):
            return 3
        judged = all(target.held is True and not target.hardly_judged for target in self.targets)
        if not self.targets or not judged:
            return 1
        return 0
