"""Time converters: how long a conversion takes, how long what comes out of it, what it repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from equivalence.arrays import to_native
from equivalence.calling import LocalTarget
from equivalence.converters.calling import conversion_of
from equivalence.converters.case import ConverterCase
from equivalence.converters.domain import ConverterDomain
from equivalence.converters.inputs import arguments, converter_inputs, module_of
from equivalence.converters.subject import ConverterSubject
from equivalence.dtypes import format_of
from equivalence.timing.calls import Prepared
from equivalence.timing.estimate import estimates
from equivalence.timing.measuring import Entry, Measured, Progress, measured
from equivalence.timing.plan import Sizes
from equivalence.timing.profiled import profiled
from equivalence.timing.results import Row
from equivalence.timing.tensors import settled

CONVERTERS: Final = ("coreml.trace", "coreml.export")
WRITTEN: Final = (
    "repeat_kv",
    "repeat_interleave",
    "broadcast",
    "einsum",
    "sdpa_repeat_kv",
    "sdpa_gqa",
    "q_fold_decode",
    "sdpa_fold",
)
CONVERSIONS: Final = 3  # rounds over all conversions: each takes a good part of a second


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertPlan:
    """Every converter, with every formulation, head count and format."""

    targets: Sequence[LocalTarget]
    formulations: Sequence[str] = WRITTEN
    kv_heads: Sequence[int] = (8,)
    dtypes: Sequence[str] = ("float16",)
    sizes: Sizes = field(default_factory=lambda: Sizes(kv_len=256, head_dim=64))
    rounds: int = 9
    threads: int = 1
    seed: int = 0


def timed_conversions(plan: ConvertPlan, progress: Progress) -> Iterator[Measured]:
    """The rows of each format: a time is that of a call of what came out of a conversion."""
    import torch

    torch.set_num_threads(plan.threads)
    for dtype in plan.dtypes:
        entries: list[Entry] = []
        again: dict[int, Callable[[], Any]] = {}
        asked = [
            (target, _case(plan, formulation, count, dtype))
            for target in plan.targets
            for formulation in plan.formulations
            for count in plan.kv_heads
        ]
        for number, (target, case) in enumerate(asked):
            progress(f"converting {dtype}", number, len(asked))
            entry = _converted(plan, target, case)
            entries.append(entry)
            if entry.prepared is not None:
                again[number] = partial(_convert, target, case)
        times = estimates(
            again,
            rounds=CONVERSIONS,
            threads=plan.threads,
            progress=partial(progress, f"conversions {dtype}"),
        )
        for number, time in times.items():
            entries[number].extras = {"convert s": time.minimum, **entries[number].extras}
        yield measured(
            entries,
            rounds=plan.rounds,
            threads=plan.threads,
            device="cpu",
            stage=f"rounds {dtype}",
            progress=progress,
        )


def _case(plan: ConvertPlan, formulation: str, num_kv_heads: int, dtype: str) -> ConverterCase:
    sizes = plan.sizes
    return ConverterCase(
        formulation=formulation,
        batch_size=sizes.batch_size,
        num_kv_heads=num_kv_heads,
        group_size=sizes.num_heads // num_kv_heads,
        kv_len=sizes.kv_len,
        head_dim=sizes.head_dim,
        dtype=dtype,
        values="normal",
        seed=plan.seed,
    )


def _convert(target: LocalTarget, case: ConverterCase) -> Any:
    """A fresh conversion; those of the verification are remembered by their shapes."""
    example = arguments(case.example)[0]
    tensors = tuple(to_native(x, arrays="torch", device="cpu") for x in example.values())
    return target.function(module_of(case), tensors)


def _converted(plan: ConvertPlan, target: LocalTarget, case: ConverterCase) -> Entry:
    """Convert, judge what comes out on the numbers that are timed, and count its graph."""
    sizes = plan.sizes
    entry = Entry(
        subject=f"{target.name} {case.formulation}",
        dtype=case.dtype,
        sizes={
            "batch_size": sizes.batch_size,
            "num_heads": sizes.num_heads,
            "num_kv_heads": case.num_kv_heads,
            "q_len": 1,
            "kv_len": sizes.kv_len,
            "head_dim": sizes.head_dim,
        },
        cache_bytes=2
        * sizes.batch_size
        * case.num_kv_heads
        * sizes.kv_len
        * sizes.head_dim
        * (format_of(case.dtype).bits // 8),
        flops=sizes.flops(causal=False),
        profile=target.declaration.profile or "eager",
    )
    supported = target.supports(case)
    if supported is not True:
        entry.why = str(supported)
        return entry
    outcome = target.call(converter_inputs(case))
    verdict = ConverterSubject(target, ConverterDomain()).judge(case, outcome)
    entry.used = verdict.used
    if verdict.status == "broken":
        entry.held = False
        entry.why = verdict.trouble.text if verdict.trouble is not None else "it is wrong"
        return entry
    if verdict.status != "held":
        entry.why = verdict.reason or f"nothing was judged: {verdict.status}"
        return entry
    entry.held = True
    converted = conversion_of(target, case)
    given = [to_native(x, arrays="torch", device="cpu") for x in arguments(case)[0].values()]
    entry.prepared = Prepared(
        call=lambda: settled(converted(*given)), cache=tuple(given[1:]), answer=lambda result: None
    )
    entry.extras = _graph(converted)
    entry.allocation, entry.kernels = profiled(entry.prepared.call, entry.prepared.cache)
    return entry


def _graph(converted: Any) -> dict[str, float]:
    """What the graph repeats for the sake of heads, where it is a graph that can be audited."""
    graph = getattr(converted, "graph", None)
    if graph is None:
        return {}
    from equivalence.audit.account import account_of
    from equivalence.audit.read_mil import read_mil

    try:
        account = account_of(read_mil(graph), name="graph")
    except Exception as error:  # a graph of another kind: it has a time, and no account
        del error
        return {}
    return {
        "ops": float(account.total_ops),
        "repeats": float(len(account.of_heads)),
        "repeated MiB": account.head_bytes / 2**20,
    }


def convert_in_words(rows: Sequence[Row]) -> tuple[str, ...]:
    """Which formulations a converter repeats heads for, what it refuses, and the fastest."""
    lines = []
    if any(row.subject.startswith(CONVERTERS) for row in rows):
        lines.append(
            "the graphs of coreml.trace and coreml.export are evaluated here, by MIL's documented "
            "meaning: these are not the times of a device"
        )
    converters = dict.fromkeys(row.subject.partition(" ")[0] for row in rows)
    for name in converters:
        own = [row for row in rows if row.subject.partition(" ")[0] == name]
        repeats = [_short(row) for row in own if row.extras.get("repeats")]
        free = [_short(row) for row in own if row.extras.get("repeats") == 0]
        refused = [_short(row) for row in own if row.time is None]
        for words, found in (
            ("repeats shared heads in its graph for", repeats),
            ("repeats nothing for", free),
            ("has no answer to be timed for", refused),
        ):
            if found:
                lines.append(f"{name} {words} {', '.join(dict.fromkeys(found))}")
        timed = [row for row in own if row.time is not None]
        if timed:
            best = min(timed, key=lambda row: row.time.minimum if row.time is not None else 0.0)
            assert best.time is not None
            lines.append(f"{name}: fastest: {_short(best)}, {best.time.minimum * 1e3:.3g} ms")
    return tuple(lines)


def _short(row: Row) -> str:
    return row.subject.partition(" ")[2]
