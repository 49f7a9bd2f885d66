"""Count how often the error bound rejects correct code: it must never.

    OMP_NUM_THREADS=1 python -m benchmarks.false_alarms --cases 5000 --seed 0

Every case is drawn by ``benchmarks.plain_cases`` from its own seed and given to every backend
that takes it. A check is one (case, backend) judged non-vacuously. Prints the alarms with their
cases, then worst ``used`` and counts for each (backend, dtype, profile), and the shares of the
cases. Exits 1 after an alarm. With ``--seconds`` the seeds it came to stand in its first line.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import torch

from benchmarks.plain_cases import REAL_HEAD_DIMS, plain_case, refusal
from equivalence.bounds import Allowance, allowance
from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.compare import compare
from equivalence.dtypes import DTYPES
from equivalence.inputs import attention_inputs
from equivalence.profiles import profile_for
from equivalence.reference import attention
from equivalence.registry import OURS

Key = tuple[str, str, str]  # backend, dtype, profile


@dataclass(slots=True)
class Tally:
    """What a run has seen so far."""

    checks: Counter[Key] = field(default_factory=Counter)
    vacuous: Counter[Key] = field(default_factory=Counter)
    unjudged: Counter[Key] = field(default_factory=Counter)
    alarms: Counter[Key] = field(default_factory=Counter)
    used: defaultdict[Key, float] = field(default_factory=lambda: defaultdict(float))
    shares: Counter[str] = field(default_factory=Counter)
    kv_lens: list[int] = field(default_factory=list)

    def count_case(self, case: AttentionCase) -> None:
        """Count what a case is like."""
        features = {
            "grouped": case.num_kv_heads >= 2 and case.group_size >= 2,
            "real head_dim": case.head_dim in REAL_HEAD_DIMS,
            "odd head_dim": case.head_dim % 2 == 1,
            "other value_head_dim": case.v_dim != case.head_dim,
            "bool mask": case.mask is not None and case.mask.form == "bool",
            "float mask": case.mask is not None and case.mask.form == "float",
            "causal": case.causal is not None,
            "window": case.window is not None,
            "softcap": case.softcap is not None,
            "sinks": case.sinks,
            "alibi": case.alibi,
            "kv_lengths": case.kv_lengths is not None,
            "other strides": case.memory != "contiguous",
            "magnitude >= 10": case.magnitude >= 10,
        }
        self.shares.update(name for name, present in features.items() if present)
        self.kv_lens.append(case.kv_len)


def judge(case: AttentionCase, targets: list[LocalTarget], tally: Tally) -> None:
    """Give one case to every target that takes it."""
    inputs = attention_inputs(case)
    exact = attention(inputs)
    bounds: dict[str, Allowance] = {}
    tally.count_case(case)
    for target in targets:
        if refusal(target, case) is not None:
            continue
        profile = profile_for(case.dtype, target.declaration.profile)
        if profile.name not in bounds:
            bounds[profile.name] = allowance(inputs, exact, profile)
        key = (target.name, case.dtype, profile.name)
        outcome = target.call(inputs)
        if outcome.stored is None:
            tally.alarms[key] += 1
            print(f"ALARM {target.name}: {outcome.status}: {outcome.text}\n  {case!r}", flush=True)
            continue
        found = compare(
            outcome.output,
            exact.output,
            bounds[profile.name],
            dtype=case.dtype,
            rows=exact.seen > 0,
        )
        if not found.judged:
            tally.unjudged[key] += 1
        elif not found.passes:
            tally.alarms[key] += 1
            print(
                f"ALARM {target.name}: used {found.used:.4g} under {profile.name} at "
                f"{found.index}: got {found.got!r}, expected {found.expected!r}\n  {case!r}",
                flush=True,
            )
        elif found.vacuous:
            tally.vacuous[key] += 1
        else:
            tally.checks[key] += 1
            tally.used[key] = max(tally.used[key], found.used)


def report(tally: Tally, cases: int, seconds: float) -> None:
    """Print the totals, the table and the shares."""
    checks, alarms = sum(tally.checks.values()), sum(tally.alarms.values())
    vacuous, unjudged = sum(tally.vacuous.values()), sum(tally.unjudged.values())
    print(f"{checks} checks, {alarms} false alarms, in {cases} cases and {seconds:.0f} s")
    print(
        f"not counted as checks: {vacuous} vacuous ({vacuous / max(1, checks + vacuous):.1%}), "
        f"{unjudged} without a row to judge\n"
    )
    print("| backend | dtype | profile | checks | false alarms | vacuous | worst used |")
    print("|---|---|---|---:|---:|---:|---:|")
    for key in sorted(tally.checks | tally.alarms | tally.vacuous):
        print(
            f"| {' | '.join(key)} | {tally.checks[key]} | {tally.alarms[key]} "
            f"| {tally.vacuous[key]} | {tally.used[key]:.4f} |"
        )
    print(f"\nshares of the cases: median kv_len {statistics.median(tally.kv_lens):g}", end="")
    for name, count in sorted(tally.shares.items()):
        print(f", {name} {count / cases:.0%}", end="")
    print()


def main() -> int:
    """Run the loop; 1 after an alarm, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=500, help="cases in each dtype")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case")
    parser.add_argument("--seconds", type=float, help="draw no further case after so long")
    parser.add_argument("--backend", action="append", help="a registered name; all by default")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    names = asked.backend or [b.name for b in OURS if b.name.startswith(("torch.", "numpy."))]
    targets = [backend.load() for backend in OURS if backend.name in names]
    tally, start = Tally(), time.perf_counter()
    done = 0
    while done < asked.cases and time.perf_counter() - start < (asked.seconds or math.inf):
        for dtype in DTYPES:
            judge(plain_case(asked.seed + done, dtype), targets, tally)
        done += 1
    print(f"seeds {asked.seed} to {asked.seed + done - 1}")
    report(tally, done * len(DTYPES), time.perf_counter() - start)
    return 1 if tally.alarms else 0


if __name__ == "__main__":
    sys.exit(main())
