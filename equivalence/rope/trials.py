"""Try each feature of a rotary embedding once, on one tiny case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from equivalence.dtypes import DTYPES
from equivalence.outcome import Target
from equivalence.rope.case import MEMORIES, RotaryCase
from equivalence.rope.domain import FUZZ_HEAD_DIMS, RotaryDomain
from equivalence.rope.inputs import rotary_inputs
from equivalence.rope.scaling import ROPE_TYPES, RopeScaling
from equivalence.trials import Trials

BASE_HEAD_DIMS: Final = (8, 64, 128, 32, 16, 4, 2, 256)
PREFERRED: Final = ("float32", "bfloat16", "float16", "float64")


class _Bench:
    """Calls the target on tiny cases and writes down every refusal."""

    def __init__(self, target: Target, trials: Trials) -> None:
        self.target = target
        self.trials = trials

    def works(self, case: RotaryCase, feature: str | None = None) -> bool:
        outcome = self.target.call(rotary_inputs(case))
        if outcome.status == "returned":
            return True
        if outcome.status in ("died", "hung", "memory"):
            self.trials.crashes.append((case, outcome))
        if feature is not None:
            self.trials.not_exercised.setdefault(feature, outcome.text)
        return False

    def accepted(self, feature: str, cases: Mapping[Any, RotaryCase]) -> tuple[Any, ...]:
        return tuple(
            value for value, case in cases.items() if self.works(case, f"{feature} {value}")
        )

    def option(self, name: str, case: RotaryCase) -> bool:
        """Whether the signature takes an option, and the tiny case with it works."""
        if name not in self.target.options:
            self.trials.not_exercised.setdefault(name, "not among its options")
            return False
        return self.works(case, name)


def try_rotary_features(target: Target, *, dtypes: Iterable[str] | None = None) -> Trials:
    """Call ``target`` on tiny cases, one for each feature of the contract.

    ``dtypes`` restricts the formats that are tried (default: those declared, or all four).
    """
    declared = target.declaration
    trials = Trials(domain=RotaryDomain())
    bench = _Bench(target, trials)
    wanted = tuple(dtypes or declared.dtypes or DTYPES)
    base = _working_base(bench, wanted)
    if base is None:
        return trials
    trials.base = base
    formats = bench.accepted("dtype", {d: base.but(dtype=d) for d in wanted})
    for dtype in declared.dtypes or ():
        if dtype in wanted and dtype not in formats:
            text = trials.not_exercised[f"dtype {dtype}"]
            trials.contradictions.append((base.but(dtype=dtype), f"declared dtype {dtype}: {text}"))
    changes: dict[str, Any] = {"dtypes": tuple(d for d in DTYPES if d in formats)}
    changes["pairings"] = _pairings(bench, base)
    changes |= _shapes(bench, base)
    changes["scalings"] = _scalings(bench, base)
    changes["theta"] = bench.option("theta", base.but(theta=500_000.0))
    changes["attention_factor"] = bench.option("attention_factor", base.but(attention_factor=2.0))
    memories = {memory: base.but(memory=memory, num_heads=2) for memory in MEMORIES[1:]}
    changes["memories"] = ("contiguous", *bench.accepted("memory", memories))
    if not bench.works(base.but(start=1_000_000), "position 1,000,000"):
        far = [n for n in (65_536, 4_096, 2_048, 512) if bench.works(base.but(start=n))]
        changes["furthest"] = far[0] if far else 64
    trials.domain = trials.domain.but(**changes)
    return trials


def _working_base(bench: _Bench, dtypes: tuple[str, ...]) -> RotaryCase | None:
    declared = bench.target.declaration
    first_text = ""
    for per_row in (False, True):
        for head_dim in declared.head_dims or BASE_HEAD_DIMS:
            for dtype in (d for d in PREFERRED if d in dtypes):
                case = RotaryCase(
                    seq_len=2,
                    head_dim=head_dim,
                    start=1,
                    per_row=per_row,
                    pairing=declared.pairing or "half",
                    values="normal",
                    dtype=dtype,
                )
                if bench.works(case, "anything"):
                    bench.trials.not_exercised.pop("anything", None)
                    return case
                first_text = first_text or bench.trials.not_exercised["anything"]
                if len(bench.trials.crashes) >= 3:
                    return None
    bench.trials.not_exercised["anything"] = first_text
    return None


def _pairings(bench: _Bench, base: RotaryCase) -> tuple[str, ...]:
    """Both where the option is taken and nothing is declared, else the one that is meant."""
    declared = bench.target.declaration.pairing
    if "interleaved" not in bench.target.options or declared is not None:
        return (declared or "half",)
    cases = {p: base.but(pairing=p) for p in ("half", "interleaved")}
    return bench.accepted("pairing", cases) or (base.pairing,)


def _shapes(bench: _Bench, base: RotaryCase) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "flat": not base.per_row,
        "by_row": bench.works(base.but(per_row=True), "positions by row"),
        "partial": False,
    }
    if base.head_dim >= 4:
        partial = base.but(rotary_dim=base.head_dim // 4 * 2)
        changes["partial"] = bench.option("rotary_dim", partial)
    declared = bench.target.declaration.head_dims
    tried = declared or FUZZ_HEAD_DIMS
    cases = {
        size: base.but(head_dim=size, rotary_dim=None if size % 2 == 0 else size - 1)
        for size in tried
        if size % 2 == 0 or (changes["partial"] and size > 2)
    }
    taken = bench.accepted("head_dim", cases)
    for size in declared or ():
        if size in cases and size not in taken:
            text = bench.trials.not_exercised[f"head_dim {size}"]
            bench.trials.contradictions.append((cases[size], f"declared head_dim {size}: {text}"))
    changes["head_dims"] = taken or (base.head_dim,)
    several = changes["by_row"] and bench.works(base.but(batch_size=2, per_row=True))
    if not (bench.works(base.but(batch_size=2), "batch_size 2") or several):
        changes["batch_size"] = (1, 1)
    if not bench.works(base.but(num_heads=2), "several heads"):
        changes["num_heads"] = (1, 1)
    if not bench.works(base.but(seq_len=1), "seq_len 1"):
        changes["seq_len"] = (2, 12)
    return changes


def _scalings(bench: _Bench, base: RotaryCase) -> tuple[str, ...]:
    if "scaling" not in bench.target.options:
        bench.trials.not_exercised.setdefault("scaling", "not among its options")
        return ()
    cases = {
        name: base.but(scaling=RopeScaling(rope_type=name))
        for name in ROPE_TYPES
        if name != "dynamic" or base.head_dim >= 4
    }
    return bench.accepted("scaling", cases)
