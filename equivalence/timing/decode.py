"""Time formulations of attention over a cache: at decode, and causal at prefill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.dtypes import Array
from equivalence.errors import said
from equivalence.timing.calls import KINDS, Prepared, prepare
from equivalence.timing.clocks import clock_for
from equivalence.timing.estimate import estimates
from equivalence.timing.floor import bandwidth_of, floor_of, readers
from equivalence.timing.plan import Plan
from equivalence.timing.profiled import profiled
from equivalence.timing.results import Allocation, Bandwidth, Row
from equivalence.timing.tensors import narrowed, normal, signs
from equivalence.timing.verifying import judged

STEP_BYTES: Final = 4  # an 8-bit cache keeps a float32 step for each token and head
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class _Entry:
    """A row in the making: ``prepared`` is None once it is known that there is no time."""

    target: LocalTarget
    dtype: str
    num_kv_heads: int
    prepared: Prepared | None = None
    why: str = ""
    held: bool | None = None
    used: float = 0.0
    allocation: Allocation = field(default_factory=Allocation)
    kernels: Mapping[str, float] | None = None


def timed(plan: Plan, progress: Progress) -> tuple[tuple[Row, ...], Bandwidth]:
    """Every row of the table, verified before it is timed, and the bandwidth they stand beside.

    The rounds of one number format go over all its formulations and head counts, and over the two
    readers that measure the bandwidth. The bandwidth is that of the first format's rounds.
    """
    import torch

    torch.set_num_threads(plan.threads)
    rows: list[Row] = []
    first: Bandwidth | None = None
    for dtype in plan.dtypes:
        entries = _verified(plan, dtype, progress)
        calls: dict[Any, Callable[[], Any]] = {
            (number, ""): entry.prepared.call
            for number, entry in enumerate(entries)
            if entry.prepared is not None
        }
        reading, about = readers(plan.device)
        calls |= {(-1, name): call for name, call in reading.items()}
        with torch.no_grad():
            times = estimates(
                calls,
                rounds=plan.rounds,
                threads=plan.threads,
                clock=clock_for(plan.device),
                progress=partial(progress, f"rounds {dtype}"),
            )
        bandwidth = bandwidth_of(times[-1, "memory"], times[-1, "cache"], about)
        first = first or bandwidth
        for number, entry in enumerate(entries):
            size = _cache_bytes(plan, entry)
            rows.append(
                Row(
                    subject=entry.target.name,
                    dtype=dtype,
                    sizes=_sizes(plan, entry.num_kv_heads),
                    cache_bytes=size,
                    flops=plan.sizes.flops(causal=plan.causal),
                    held=entry.held,
                    why=entry.why,
                    used=entry.used,
                    profile=entry.target.declaration.profile or "eager",
                    time=times.get((number, "")),
                    floor=floor_of(size, bandwidth),
                    allocation=entry.allocation,
                    kernels=entry.kernels or {},
                )
            )
    assert first is not None
    return tuple(rows), first


def _sizes(plan: Plan, num_kv_heads: int) -> dict[str, int]:
    sizes = plan.sizes
    return {
        "batch_size": sizes.batch_size,
        "num_heads": sizes.num_heads,
        "num_kv_heads": num_kv_heads,
        "q_len": sizes.q_len,
        "kv_len": sizes.kv_len,
        "head_dim": sizes.head_dim,
    }


def _cache_bytes(plan: Plan, entry: _Entry) -> int:
    sizes, heads = plan.sizes, entry.num_kv_heads
    if entry.target.declaration.quantised is None:
        return sizes.cache_bytes(heads, entry.dtype)
    rows = 2 * sizes.batch_size * heads * sizes.kv_len
    return rows * (sizes.head_dim + STEP_BYTES)


def _verified(plan: Plan, dtype: str, progress: Progress) -> list[_Entry]:
    """Every entry of one format, with its call, its verdict, what it allocates and what runs."""
    sizes = plan.sizes
    batch, heads, width = sizes.batch_size, max(plan.kv_heads), sizes.head_dim
    full = {
        "query": normal((batch, sizes.num_heads, sizes.q_len, width), dtype, (plan.seed, 3)),
        "key": normal((batch, heads, sizes.kv_len, width), dtype, (plan.seed, 5)),
        "value": normal((batch, heads, sizes.kv_len, width), dtype, (plan.seed, 7)),
    }
    entries: list[_Entry] = []
    for number, num_kv_heads in enumerate(plan.kv_heads):
        progress(f"verifying {dtype}", number, len(plan.kv_heads))
        plain = narrowed(full, num_kv_heads)
        own = [_Entry(target, dtype, num_kv_heads) for target in plan.targets]
        kept = [entry for entry in own if entry.target.declaration.quantised is None]
        rest = [entry for entry in own if entry.target.declaration.quantised is not None]
        _verify(plan, kept, plain)
        if rest:
            _verify(plan, rest, {n: x if n == "query" else signs(x) for n, x in plain.items()})
        entries += own
    progress(f"verifying {dtype}", len(plan.kv_heads), len(plan.kv_heads))
    return entries


def _verify(plan: Plan, entries: list[_Entry], operands: Mapping[str, Array]) -> None:
    """Call each entry once on the tensors that will be timed, and judge the answers together."""
    answers: dict[str, tuple[Array | None, str | None]] = {}
    for entry in entries:
        entry.why = _refusal(plan, entry)
        if entry.why:
            continue
        try:
            entry.prepared = prepare(entry.target, operands, causal=plan.causal)
            answer = entry.prepared.answer(entry.prepared.call())
        except Exception as error:  # whatever a kernel raises is why it has no time
            entry.prepared, entry.why = None, said(error)
            continue
        answers[entry.target.name] = (answer, entry.target.declaration.profile)
    dtype = entries[0].dtype if entries else ""
    verdicts = judged(answers, operands, dtype, causal=plan.causal) if answers else {}
    for entry in entries:
        verdict = verdicts.get(entry.target.name)
        if verdict is None or entry.prepared is None:
            continue
        entry.held, entry.used, entry.why = verdict.held, verdict.used, verdict.why
        if not verdict.held:
            entry.prepared = None
            continue
        call = entry.prepared.call
        entry.allocation, entry.kernels = profiled(call, entry.prepared.cache, plan.device)


def _refusal(plan: Plan, entry: _Entry) -> str:
    """Why a target is not called at all, by its own declaration; "" for no reason."""
    declared, sizes = entry.target.declaration, plan.sizes
    if declared.kind not in KINDS:
        return f"is of kind {declared.kind}, and {plan.command} times {', '.join(KINDS)}"
    if declared.dtypes is not None and entry.dtype not in declared.dtypes:
        return f"takes no {entry.dtype}"
    if plan.causal and declared.kind != "kv_cache" and "causal" not in entry.target.options:
        return "has no causal option"
    if declared.kind != "attention":
        return ""
    case = AttentionCase(
        batch_size=sizes.batch_size,
        num_kv_heads=entry.num_kv_heads,
        group_size=sizes.num_heads // entry.num_kv_heads,
        q_len=sizes.q_len,
        kv_len=sizes.kv_len,
        head_dim=sizes.head_dim,
        dtype=entry.dtype,
        causal=declared.causal or "lower_right" if plan.causal else None,
    )
    answer = entry.target.supports(case)
    return "" if answer is True else str(answer)
