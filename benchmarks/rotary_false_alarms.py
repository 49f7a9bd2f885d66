"""Count how often the rotary bound rejects correct code: it must never.

    OMP_NUM_THREADS=1 python -m benchmarks.rotary_false_alarms --cases 3000 --seed 0

Every case of ``benchmarks.rotary_plain`` is given to every embedding that takes it, in four
dtypes. A check is one (case, embedding) judged non-vacuously: the output against its bound, and
apart from that the lengths of pairs against theirs. Prints alarms with their cases, then counts
and the worst ``used`` of each (embedding, dtype). Exits 1 after an alarm.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from benchmarks.rotary_plain import CORRECT, rotary_case
from equivalence.calling import LocalTarget
from equivalence.compare import compare
from equivalence.declaration import Declaration
from equivalence.dtypes import DTYPES
from equivalence.outcome import Target
from equivalence.profiles import profile_for
from equivalence.registry import OURS
from equivalence.rope.bounds import allowance, norm_allowance
from equivalence.rope.case import THETA, RotaryCase
from equivalence.rope.inputs import rotary_inputs
from equivalence.rope.reference import pairs, rotary

Key = tuple[str, str]  # embedding, dtype
OPTIONS = ("theta", "rotary_dim", "interleaved", "scaling", "attention_factor")


@dataclass(slots=True)
class Tally:
    """What a run has seen so far."""

    checks: Counter[Key] = field(default_factory=Counter)
    vacuous: Counter[Key] = field(default_factory=Counter)
    unjudged: Counter[Key] = field(default_factory=Counter)
    alarms: Counter[Key] = field(default_factory=Counter)
    used: defaultdict[Key, float] = field(default_factory=lambda: defaultdict(float))
    norms: defaultdict[Key, float] = field(default_factory=lambda: defaultdict(float))


def targets() -> Iterator[LocalTarget]:
    """Our backends that can run here, and the other correct embeddings."""
    for backend in OURS:
        if backend.kind == "rotary" and backend.available() is True:
            yield backend.load()
    for correct in CORRECT:
        arrays = "numpy" if correct.name.startswith("numpy") else "torch"
        yield LocalTarget(
            name=correct.name,
            function=correct.function,
            declaration=Declaration(
                kind="rotary",
                profile=correct.profile,
                tables=correct.tables,
                pairing=correct.pairing,
                arrays=arrays,
            ),
            options={name: name for name in OPTIONS if name != "interleaved"},
        )


def takes(target: LocalTarget, case: RotaryCase) -> bool:
    """Whether the target has what the case needs, and does not exclude it."""
    formats = target.declaration.dtypes
    if (formats is not None and case.dtype not in formats) or target.supports(case) is not True:
        return False
    needs = {
        "theta": case.theta != THETA,
        "rotary_dim": case.rotary_dim is not None,
        "scaling": case.scaling is not None,
        "attention_factor": case.attention_factor is not None,
    }
    if any(needed and name not in target.options for name, needed in needs.items()):
        return False
    return "interleaved" in target.options or case.pairing == (target.declaration.pairing or "half")


def judge(case: RotaryCase, target: Target, tally: Tally) -> None:
    """One case through one embedding: outputs, then lengths of pairs."""
    inputs = rotary_inputs(case)
    exact = rotary(inputs)
    profile = profile_for(case.dtype, target.declaration.profile)
    tables = target.declaration.tables
    key = (target.name, case.dtype)
    outcome = target.call(inputs)
    if outcome.status == "refused":
        return
    if outcome.stored is None:
        tally.alarms[key] += 1
        print(f"ALARM {key} {case}: {outcome.text}")
        return
    bound = allowance(inputs, exact, profile, tables)
    facts = compare(outcome.output, exact.output, bound, dtype=case.dtype)
    first, second = pairs(inputs.turning, inputs.pairing)
    with np.errstate(over="ignore", invalid="ignore"):
        actual = np.hypot(outcome.output[..., first], outcome.output[..., second])
    lengths = exact.factor * np.hypot(inputs.x[..., first], inputs.x[..., second])
    limits = norm_allowance(inputs, exact, profile, tables)
    norms = compare(actual, lengths, limits, dtype=case.dtype)
    tally.used[key] = max(tally.used[key], facts.used)
    tally.norms[key] = max(tally.norms[key], norms.used)
    for found, what in ((facts, "output"), (norms, "length")):
        if not found.judged:
            tally.unjudged[key] += 1
        elif not found.passes:
            tally.alarms[key] += 1
            print(f"ALARM {key} {case}: {what} used {found.used:.4g} at {found.index}", flush=True)
        elif found.vacuous:
            tally.vacuous[key] += 1
        else:
            tally.checks[key] += 1


def main() -> int:
    """Run the count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tally, start = Tally(), time.monotonic()
    everyone = list(targets())
    for number in range(arguments.cases):
        for dtype in DTYPES:
            case = rotary_case(arguments.seed + number, dtype)
            for target in everyone:
                if takes(target, case):
                    judge(case, target, tally)
    print("| embedding | dtype | checks | false alarms | vacuous | worst used | of lengths |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for key in sorted(tally.checks | tally.alarms):
        print(
            f"| {key[0]} | {key[1]} | {tally.checks[key]} | {tally.alarms[key]} "
            f"| {tally.vacuous[key]} | {tally.used[key]:.4f} | {tally.norms[key]:.4f} |"
        )
    alarms, checks = tally.alarms.total(), tally.checks.total()
    print(
        f"{checks:,} checks, {alarms} false alarms, {tally.vacuous.total():,} vacuous, "
        f"{tally.unjudged.total():,} outside the domain, {time.monotonic() - start:.0f} s"
    )
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
