"""Time rotary embeddings: a turn of all heads of some tokens, beside reading them once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from equivalence.arrays import from_native
from equivalence.calling import LocalTarget
from equivalence.dtypes import format_of, stored
from equivalence.errors import said
from equivalence.outcome import Outcome
from equivalence.rope.calling import options_given
from equivalence.rope.case import RotaryCase
from equivalence.rope.domain import RotaryDomain
from equivalence.rope.inputs import RotaryInputs, rotary_inputs
from equivalence.rope.subject import RotarySubject
from equivalence.timing.calls import Prepared
from equivalence.timing.measuring import Entry, Measured, Progress, measured
from equivalence.timing.profiled import profiled
from equivalence.timing.results import Row
from equivalence.timing.tensors import native, settled

EMBEDDINGS: Final = ("rotary.torch_half", "rotary.torch_interleaved", "rotary.complex")
FLOPS: Final = 3  # of one channel: of each two, four multiplications and two additions


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryPlan:
    """Every embedding, with every number of tokens and format: x ``[batch, heads, S, D]``."""

    targets: Sequence[LocalTarget]
    tokens: Sequence[int] = (1, 512)
    dtypes: Sequence[str] = ("float32", "bfloat16")
    batch_size: int = 1
    num_heads: int = 32
    head_dim: int = 128
    rounds: int = 9
    threads: int = 1
    device: str = "cpu"
    seed: int = 0


def timed_rotary(plan: RotaryPlan, progress: Progress) -> Iterator[Measured]:
    """The rows of each format, each judged on the tensors that are timed."""
    import torch

    torch.set_num_threads(plan.threads)
    for dtype in plan.dtypes:
        asked = [(target, count) for count in plan.tokens for target in plan.targets]
        entries = []
        for number, (target, count) in enumerate(asked):
            progress(f"verifying {dtype}", number, len(asked))
            entries.append(_verified(plan, target, count, dtype))
        yield measured(
            entries,
            rounds=plan.rounds,
            threads=plan.threads,
            device=plan.device,
            stage=f"rounds {dtype}",
            progress=progress,
        )


def _verified(plan: RotaryPlan, target: LocalTarget, tokens: int, dtype: str) -> Entry:
    declared = target.declaration
    case = RotaryCase(
        batch_size=plan.batch_size,
        num_heads=plan.num_heads,
        seq_len=tokens,
        head_dim=plan.head_dim,
        pairing=declared.pairing or "half",
        dtype=dtype,
        values="normal",
        seed=plan.seed,
    )
    numbers = plan.batch_size * plan.num_heads * tokens * plan.head_dim
    entry = Entry(
        subject=target.name,
        dtype=dtype,
        sizes={
            "batch_size": plan.batch_size,
            "num_heads": plan.num_heads,
            "seq_len": tokens,
            "head_dim": plan.head_dim,
        },
        cache_bytes=numbers * (format_of(dtype).bits // 8),
        flops=FLOPS * numbers,
        profile=declared.profile or "eager",
    )
    supported = target.supports(case)
    if declared.dtypes is not None and dtype not in declared.dtypes:
        entry.why = f"takes no {dtype}"
    elif supported is not True:
        entry.why = str(supported)
    else:
        _judge(plan, target, case, entry)
    return entry


def _judge(plan: RotaryPlan, target: LocalTarget, case: RotaryCase, entry: Entry) -> None:
    inputs = rotary_inputs(case)
    try:
        prepared = _prepared(target, inputs)
        outcome = _outcome(target, prepared.call())
    except Exception as error:  # whatever a kernel raises is why it has no time
        entry.why = said(error)
        return
    verdict = RotarySubject(target, RotaryDomain()).judge(inputs, outcome)
    entry.used = verdict.used
    if verdict.status != "held":
        entry.held = False if verdict.status == "broken" else None
        entry.why = verdict.trouble.text if verdict.trouble else "nothing was judged"
        return
    entry.held, entry.prepared = True, prepared
    allocation, entry.kernels = profiled(prepared.call, prepared.cache, plan.device)
    # It turns what it reads into something new, so that a step writes it says nothing.
    entry.allocation = replace(allocation, copied=0, copies=(), shares=(), traced=False)


def _prepared(target: LocalTarget, inputs: RotaryInputs) -> Prepared:
    declared = target.declaration
    held = stored(inputs.x, inputs.dtype)
    if declared.layout == "BSHD":
        held = np.ascontiguousarray(held.swapaxes(1, 2))
    given = [
        native(array, arrays=declared.arrays, device=declared.device)
        for array in (held, inputs.positions.astype(np.int64))
    ]
    options = options_given(inputs, target.options)
    keywords = {target.options.get(name, name): value for name, value in options.items()}
    return Prepared(
        call=lambda: settled(target.function(*given, **keywords)),
        cache=(given[0],),
        answer=lambda result: None,
    )


def _outcome(target: LocalTarget, result: object) -> Outcome:
    first = result[0] if isinstance(result, tuple | list) and result else result
    found = from_native(first)
    if found is None:
        return Outcome(status="returned", text=f"returned a {type(first).__name__}, not an array")
    array, dtype = found
    swapped = target.declaration.layout == "BSHD" and array.ndim == 4
    return Outcome(
        status="returned", stored=array.swapaxes(1, 2) if swapped else array, dtype=dtype
    )


def rotary_in_words(rows: Sequence[Row]) -> tuple[str, ...]:
    """The fastest of each format and length, and how far off the others are."""
    lines = []
    for dtype, tokens in dict.fromkeys((row.dtype, row.sizes["seq_len"]) for row in rows):
        timed = [
            (row, row.time)
            for row in rows
            if (row.dtype, row.sizes["seq_len"]) == (dtype, tokens) and row.time is not None
        ]
        if not timed:
            continue
        best, least = min(timed, key=lambda pair: pair[1].minimum)
        others = ", ".join(
            f"{row.subject} {time.ratio(least):.2g}x as long" for row, time in timed if row != best
        )
        lines.append(
            f"{dtype}, {tokens:,} token{'s' * (tokens > 1)}: fastest: {best.subject}, "
            f"{least.minimum * 1e3:.3g} ms{'; ' * bool(others)}{others}"
        )
    return tuple(lines)
