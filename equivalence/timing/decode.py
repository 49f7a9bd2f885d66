"""Time formulations of attention over a cache: at decode, and causal at prefill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.dtypes import Array
from equivalence.errors import said
from equivalence.timing.calls import KINDS, prepare
from equivalence.timing.measuring import Entry, Measured, Progress, measured
from equivalence.timing.plan import Plan
from equivalence.timing.profiled import profiled
from equivalence.timing.results import CRASHED
from equivalence.timing.tensors import narrowed, normal, signs
from equivalence.timing.verifying import judged

STEP_BYTES: Final = 4  # an 8-bit cache keeps a float32 step for each token and head


def timed(plan: Plan, progress: Progress) -> Iterator[Measured]:
    """The rows of each number format, verified before they are timed, as soon as they are known.

    The rounds of one number format go over all its formulations and head counts, and over the two
    readers that measure the bandwidth.
    """
    import torch

    torch.set_num_threads(plan.threads)
    for dtype in plan.dtypes:
        yield measured(
            _verified(plan, dtype, progress),
            rounds=plan.rounds,
            threads=plan.threads,
            device=plan.device,
            stage=f"rounds {dtype}",
            progress=progress,
        )


def _entry(plan: Plan, target: LocalTarget, dtype: str, num_kv_heads: int) -> Entry:
    sizes, declared = plan.sizes, target.declaration
    size = sizes.cache_bytes(num_kv_heads, dtype)
    if declared.quantised is not None:
        rows = 2 * sizes.batch_size * num_kv_heads * sizes.kv_len
        size = rows * (sizes.head_dim + STEP_BYTES)
    return Entry(
        subject=target.name,
        dtype=dtype,
        sizes={
            "batch_size": sizes.batch_size,
            "num_heads": sizes.num_heads,
            "num_kv_heads": num_kv_heads,
            "q_len": sizes.q_len,
            "kv_len": sizes.kv_len,
            "head_dim": sizes.head_dim,
        },
        cache_bytes=size,
        flops=sizes.flops(causal=plan.causal),
        profile=declared.profile or "eager",
    )


def _verified(plan: Plan, dtype: str, progress: Progress) -> list[Entry]:
    """Every entry of one format, with its call, its verdict, what it allocates and what runs."""
    sizes = plan.sizes
    batch, heads, width = sizes.batch_size, max(plan.kv_heads), sizes.head_dim
    full = {
        "query": normal((batch, sizes.num_heads, sizes.q_len, width), dtype, (plan.seed, 3)),
        "key": normal((batch, heads, sizes.kv_len, width), dtype, (plan.seed, 5)),
        "value": normal((batch, heads, sizes.kv_len, width), dtype, (plan.seed, 7)),
    }
    entries: list[Entry] = []
    for number, num_kv_heads in enumerate(plan.kv_heads):
        progress(f"verifying {dtype}", number, len(plan.kv_heads))
        plain = narrowed(full, num_kv_heads)
        own = [(target, _entry(plan, target, dtype, num_kv_heads)) for target in plan.targets]
        rest = [pair for pair in own if pair[0].declaration.quantised is not None]
        _verify(plan, [pair for pair in own if pair not in rest], plain)
        if rest:
            _verify(plan, rest, {n: x if n == "query" else signs(x) for n, x in plain.items()})
        entries += [entry for _, entry in own]
    progress(f"verifying {dtype}", len(plan.kv_heads), len(plan.kv_heads))
    return entries


def _verify(
    plan: Plan, pairs: list[tuple[LocalTarget, Entry]], operands: Mapping[str, Array]
) -> None:
    """Call each entry once on the tensors that will be timed, and judge the answers together."""
    answers: dict[str, tuple[Array | None, str | None]] = {}
    for target, entry in pairs:
        entry.why = _refusal(plan, target, entry)
        if entry.why:
            continue
        try:
            entry.prepared = prepare(target, operands, causal=plan.causal)
            answer = entry.prepared.answer(entry.prepared.call())
        except Exception as error:  # whatever a kernel raises is why it has no time
            entry.prepared, entry.why = None, said(error)
            continue
        answers[target.name] = (answer, target.declaration.profile)
    dtype = pairs[0][1].dtype if pairs else ""
    verdicts = judged(answers, operands, dtype, causal=plan.causal) if answers else {}
    for target, entry in pairs:
        verdict = verdicts.get(target.name)
        if verdict is None or entry.prepared is None:
            continue
        entry.held, entry.used, entry.why = verdict.held, verdict.used, verdict.why
        if not verdict.held:
            entry.prepared = None
            continue
        prepared = entry.prepared
        entry.allocation, entry.kernels = profiled(prepared.call, prepared.cache, plan.device)


def _refusal(plan: Plan, target: LocalTarget, entry: Entry) -> str:
    """Why a target is not called at all, by its own declaration; "" for no reason."""
    declared, sizes = target.declaration, plan.sizes
    if target.name in plan.crashes:
        return f"{CRASHED}{plan.crashes[target.name]}"
    if declared.kind not in KINDS:
        return f"is of kind {declared.kind}, and {plan.command} times {', '.join(KINDS)}"
    if declared.dtypes is not None and entry.dtype not in declared.dtypes:
        return f"takes no {entry.dtype}"
    if declared.latent:
        return "is a cache of latents, and they are timed by `equivalence time mla`"
    if plan.causal and declared.kind != "kv_cache" and "causal" not in target.options:
        return "has no causal option"
    if plan.causal and declared.causal == "upper_left" and sizes.q_len != sizes.kv_len:
        return f"its causal order is upper left, which is another for {sizes.q_len} queries"
    if declared.kind != "attention":
        return ""
    num_kv_heads = entry.sizes["num_kv_heads"]
    case = AttentionCase(
        batch_size=sizes.batch_size,
        num_kv_heads=num_kv_heads,
        group_size=sizes.num_heads // num_kv_heads,
        q_len=sizes.q_len,
        kv_len=sizes.kv_len,
        head_dim=sizes.head_dim,
        dtype=entry.dtype,
        causal=declared.causal or "lower_right" if plan.causal else None,
    )
    answer = target.supports(case)
    return "" if answer is True else str(answer)
