"""From the command line of `equivalence time` to a plan: sizes, targets, and what times them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from equivalence.calling import LocalTarget
from equivalence.cli import validation as valid
from equivalence.errors import InvalidRequest, require
from equivalence.timing.plan import require_fits
from equivalence.timing.results import Bandwidth, Row

# Of what a rotary embedding turns, in float64: reference and bound hold fewer at once.
FLOAT64_COPIES: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says, as it was written."""

    what: str
    targets: tuple[str, ...] = ()
    only: bool = False
    kv_heads: str | None = None
    heads: int | None = None
    head_dim: int | None = None
    batch: str | None = None
    context: str | None = None
    queries: int | None = None
    dtypes: tuple[str, ...] = ()
    threads: int = 1
    rounds: int = 9
    seed: int = 0
    declare: tuple[str, ...] = ()
    device: str | None = None
    json: str | None = None
    history: Path | None = None
    against: Path | None = None
    figures: Path | None = None
    trace: bool = False
    torch: str | None = None


Table = Callable[[Any], Iterator[tuple[tuple[Row, ...], Bandwidth]]]


def table_of(asked: Asked) -> tuple[Table, Callable[[Sequence[Row]], tuple[str, ...]]]:
    """What times the rows part by part, and what puts them in words; refuses wrong sizes."""
    if asked.what == "mla":
        from equivalence.timing.layer import mla_in_words, timed_layers

        return partial(timed_layers, _layer_plan(asked)), mla_in_words
    if asked.what == "rotary":
        from equivalence.timing.rotary import rotary_in_words, timed_rotary

        return partial(timed_rotary, _rotary_plan(asked)), rotary_in_words
    if asked.what == "convert":
        from equivalence.timing.convert import convert_in_words, timed_conversions

        return partial(timed_conversions, _convert_plan(asked)), convert_in_words
    from equivalence.timing.decode import timed
    from equivalence.timing.reading import decode_in_words, prefill_in_words

    plan = _plan(asked)
    return partial(timed, plan), prefill_in_words if plan.causal else decode_in_words


def _plan(asked: Asked) -> Any:
    from equivalence.timing.machine import free_memory
    from equivalence.timing.plan import (
        FORMULATIONS,
        KV_HEADS,
        QUANTISED,
        Plan,
        Sizes,
        chosen_context,
        needed,
    )

    heads, width = asked.heads or 32, asked.head_dim or 128
    dtypes = valid.known_dtypes(asked.dtypes) or ("float32", "bfloat16")
    kv_heads = _numbers("--kv-heads", asked.kv_heads) or tuple(
        count
        for count in dict.fromkeys((heads, *KV_HEADS))
        if count <= heads and heads % count == 0
    )
    _require_divisors(kv_heads, heads)
    batch = _number("--batch", asked.batch) or 1
    free = free_memory()
    prefill = asked.what == "prefill"
    context = _number("--context", asked.context) or (
        512
        if prefill
        else chosen_context(
            batch_size=batch, num_heads=heads, head_dim=width, dtypes=dtypes, free=free
        )
    )
    queries = (asked.queries or context) if prefill else 1
    require(2 <= queries <= context or not prefill, f"--queries {queries} must be 2 to {context}")
    usual = () if asked.only else FORMULATIONS + (() if prefill else QUANTISED)
    names = tuple(dict.fromkeys((*usual, *asked.targets)))
    plan = Plan(
        command=asked.what,
        targets=(),
        kv_heads=tuple(sorted(set(kv_heads), reverse=True)),
        dtypes=dtypes,
        sizes=Sizes(
            batch_size=batch, num_heads=heads, q_len=queries, kv_len=context, head_dim=width
        ),
        rounds=asked.rounds,
        threads=asked.threads,
        device=asked.device or "cpu",
        seed=asked.seed,
    )
    require_fits(needed(plan), free)
    from equivalence.timing.first_call import crashes_of

    crashes = crashes_of(asked.targets, valid.declared_facts(asked.declare), plan)
    return replace(plan, targets=targets_named(names, asked, usual), crashes=crashes)


def _layer_plan(asked: Asked) -> Any:
    from equivalence.timing.layer import LayerPlan, layer_bytes
    from equivalence.timing.machine import free_memory

    require(asked.kv_heads is None, "--kv-heads is about decode and prefill, and not about mla")
    heads, width = asked.heads or 16, asked.head_dim or 128
    valid.even("--head-dim", width)
    targets = targets_named(asked.targets, asked, kind="mla")
    for target in targets:
        valid.of_kind(target, "mla", "time mla")
    plan = LayerPlan(
        batches=_numbers("--batch", asked.batch) or (1, 4),
        contexts=_numbers("--context", asked.context) or (512, 2048),
        dtypes=valid.known_dtypes(asked.dtypes) or ("float32", "bfloat16"),
        targets=targets,
        usual=not asked.only,
        num_heads=heads,
        head_dim=width,
        rounds=asked.rounds,
        threads=asked.threads,
        device=asked.device or "cpu",
        seed=asked.seed,
    )
    require_fits(layer_bytes(plan), free_memory())
    return plan


def _rotary_plan(asked: Asked) -> Any:
    from equivalence.timing.machine import free_memory
    from equivalence.timing.rotary import EMBEDDINGS, RotaryPlan

    require(asked.kv_heads is None, "--kv-heads is about decode and prefill, and not about rotary")
    width = asked.head_dim or 128
    valid.even("--head-dim", width)
    usual = () if asked.only else EMBEDDINGS
    names = tuple(dict.fromkeys((*usual, *asked.targets)))
    targets = targets_named(names, asked, usual, kind="rotary")
    for target in targets:
        valid.of_kind(target, "rotary", "time rotary")
    plan = RotaryPlan(
        targets=targets,
        tokens=_numbers("--context", asked.context) or (1, 512),
        dtypes=valid.known_dtypes(asked.dtypes) or ("float32", "bfloat16"),
        batch_size=_number("--batch", asked.batch) or 1,
        num_heads=asked.heads or 32,
        head_dim=width,
        rounds=asked.rounds,
        threads=asked.threads,
        device=asked.device or "cpu",
        seed=asked.seed,
    )
    numbers = plan.batch_size * plan.num_heads * max(plan.tokens) * plan.head_dim
    require_fits(FLOAT64_COPIES * 8 * numbers, free_memory())
    return plan


def _convert_plan(asked: Asked) -> Any:
    from equivalence.timing.convert import CONVERTERS, ConvertPlan
    from equivalence.timing.plan import Sizes

    heads = asked.heads or 32
    kv_heads = _numbers("--kv-heads", asked.kv_heads) or (max(1, heads // 4),)
    _require_divisors(kv_heads, heads)
    usual = () if asked.only else CONVERTERS
    names = tuple(dict.fromkeys((*usual, *asked.targets)))
    targets = targets_named(names, asked, usual, kind="converter")
    for target in targets:
        valid.of_kind(target, "converter", "time convert")
    return ConvertPlan(
        targets=targets,
        kv_heads=tuple(sorted(set(kv_heads), reverse=True)),
        dtypes=valid.known_dtypes(asked.dtypes) or ("float16",),
        sizes=Sizes(
            batch_size=_number("--batch", asked.batch) or 1,
            num_heads=heads,
            kv_len=_number("--context", asked.context) or 256,
            head_dim=asked.head_dim or 64,
        ),
        rounds=asked.rounds,
        threads=asked.threads,
        seed=asked.seed,
    )


def _require_divisors(kv_heads: Sequence[int], heads: int) -> None:
    for count in kv_heads:
        require(heads % count == 0, f"--kv-heads {count} must divide --heads {heads}")


def targets_named(
    names: Sequence[str], asked: Asked, usual: Sequence[str] = (), kind: str | None = None
) -> tuple[LocalTarget, ...]:
    """The targets, in this process; what is declared on the command line is for those given."""
    from equivalence.isolation.opening import open_target
    from equivalence.resolve import registered_names

    facts = valid.declared_facts(asked.declare)
    if kind is not None and not set(names) <= set(registered_names()):
        facts.setdefault("kind", kind)
    found = []
    for name in names:
        own: dict[str, Any] = {} if name in usual else dict(facts)
        if asked.device is not None:
            own |= valid.declared_facts(None, device=asked.device)
        target = open_target(name, facts=own, isolate=False)
        require(
            isinstance(target, LocalTarget),
            f"{name} cannot be called in this process, so it cannot be timed",
        )
        found.append(cast(LocalTarget, target))
    return tuple(found)


def _numbers(option: str, text: str | None) -> tuple[int, ...]:
    """``8,4,2`` as whole numbers of at least 1; nothing for None."""
    if text is None:
        return ()
    pieces = [piece.strip() for piece in text.split(",")]
    for piece in pieces:
        require(
            piece.isdigit() and 1 <= int(piece) <= 2**31,
            f"{option} {text}: {piece!r} is not a whole number of at least 1",
        )
    return tuple(int(piece) for piece in pieces)


def _number(option: str, text: str | None) -> int | None:
    numbers = _numbers(option, text)
    if len(numbers) > 1:
        raise InvalidRequest(f"{option} {text}: this takes one number")
    return numbers[0] if numbers else None
