"""Time a decode step of a whole layer: latent attention, absorbed and expanded, against MHA,
GQA-4 and MQA of the same width.

The step holds the projections of the new token (query, and key and value or latent), attention
over the cache, and the output projection. The new token is not written to the cache. Sizes stand
to each other as in DeepSeek-V2 (arXiv:2405.04434, section 2.1): d_c = 4 d, d_R = d / 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from equivalence.arrays import from_native
from equivalence.calling import LocalTarget
from equivalence.dtypes import Array, format_of
from equivalence.errors import said
from equivalence.timing.calls import Prepared
from equivalence.timing.layer_steps import Absorbed, Cached, Expanded, Grouped, Step
from equivalence.timing.layer_truth import judged_attention, judged_latent, judged_product
from equivalence.timing.measuring import Entry, Measured, Progress, measured
from equivalence.timing.profiled import profiled
from equivalence.timing.results import Row
from equivalence.timing.tensors import native, normal

GQA_HEADS: Final = 4
EQUAL: Final = (0.95, 1.05)  # ratios that are told as one


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlan:
    """What `time mla` times: every batch with every context, in every format.

    targets: kernels of kind ``mla`` that take the place of the absorbed one in its layer.
    """

    batches: Sequence[int]
    contexts: Sequence[int]
    dtypes: Sequence[str]
    targets: Sequence[LocalTarget] = ()
    usual: bool = True
    num_heads: int = 16
    head_dim: int = 128
    rounds: int = 9
    threads: int = 1
    device: str = "cpu"
    seed: int = 0

    @property
    def latent_dim(self) -> int:
        """d_c."""
        return 4 * self.head_dim

    @property
    def rope_dim(self) -> int:
        """d_R."""
        return self.head_dim // 2

    def kept(self, batch: int, context: int) -> int:
        """Elements of the largest cache: that of MHA."""
        return 2 * batch * context * self.num_heads * self.head_dim


def timed_layers(plan: LayerPlan, progress: Progress) -> Iterator[Measured]:
    """The rows of each format, batch and context, as soon as they are known."""
    import torch

    torch.set_num_threads(plan.threads)
    sizes = [(batch, context) for context in plan.contexts for batch in plan.batches]
    for dtype in plan.dtypes:
        for number, (batch, context) in enumerate(sizes):
            progress(f"verifying {dtype}", number, len(sizes))
            yield measured(
                _verified(plan, batch, context, dtype),
                rounds=plan.rounds,
                threads=plan.threads,
                device=plan.device,
                stage=f"rounds {dtype}, batch {batch}, context {context}",
                progress=progress,
            )


def _verified(plan: LayerPlan, batch: int, context: int, dtype: str) -> list[Entry]:
    entries = []
    for step, profile in _steps(plan, batch, context, dtype):
        entry = Entry(
            subject=step.name,
            dtype=dtype,
            sizes={
                "batch_size": batch,
                "num_heads": plan.num_heads,
                "q_len": 1,
                "kv_len": context,
                "head_dim": plan.head_dim,
            },
            cache_bytes=step.cache_bytes,
            weight_bytes=step.weight_bytes,
            flops=step.flops,
            profile=profile or "eager",
            extras={"weights MiB": step.weight_bytes / 2**20},
        )
        entries.append(entry)
        try:
            _verify(entry, step, profile)
        except Exception as error:  # whatever a kernel raises is why it has no time
            entry.why = said(error)
    for entry in entries:
        if entry.prepared is not None:
            prepared = entry.prepared
            entry.allocation, entry.kernels = profiled(prepared.call, prepared.cache, plan.device)
    return entries


def _verify(entry: Entry, step: Step, profile: str | None) -> None:
    """Judge the three parts of the step one by one, each on what the one before it gave."""
    query = step.project()
    core = step.core(query)
    output = step.output(core)
    numbers: Callable[[Any], Array] = _numbers
    judge = judged_attention if isinstance(step, Grouped) else judged_latent
    parts = (
        ("query projection", judged_product(
            numbers(step.hidden), numbers(step.w_q), numbers(query), entry.dtype)),
        ("attention", judge(step.truth(query), numbers(core), entry.dtype, profile)),
        ("output projection", judged_product(
            numbers(core).reshape(output.shape[0], -1), numbers(step.w_o), numbers(output),
            entry.dtype)),
    )  # fmt: skip
    entry.used = max(verdict.used for _, verdict in parts)
    wrong = [f"{name}: {verdict.why}" for name, verdict in parts if not verdict.held]
    broken = any(verdict.held is False for _, verdict in parts)
    entry.held = False if broken else None if wrong else True
    entry.why = "; ".join(wrong)
    if entry.held:
        entry.prepared = Prepared(
            call=step, cache=tuple(step.cached), answer=lambda result: _numbers(result)
        )


def _steps(plan: LayerPlan, batch: int, context: int, dtype: str) -> list[tuple[Step, str | None]]:
    """The designs, with the profile by which each is judged; equal parts are drawn equally."""
    heads = plan.num_heads
    make = _Maker(plan, batch, context, dtype)
    found: list[tuple[Step, str | None]] = []
    if plan.usual:
        from equivalence.registry import entries

        expanded = entries()["mla.expanded"].load()
        found.append((Absorbed(name="mla absorbed", **make.latent()), "eager"))
        found.append(
            (
                Expanded(name="mla expanded", function=expanded.function, **make.latent()),
                expanded.declaration.profile,
            )
        )
        grouped = entries()["torch.grouped_matmul"].load()
        names = {1: "mqa", GQA_HEADS: f"gqa-{GQA_HEADS}", heads: "mha"}
        for count, name in sorted(names.items(), reverse=True):
            if heads % count == 0:
                found.append(
                    (
                        Grouped(name=name, function=grouped.function, **make.grouped(count)),
                        grouped.declaration.profile,
                    )
                )
    for target in plan.targets:
        step = Expanded(name=target.name, function=target.function, **make.latent())
        step.rebuilds = False
        found.append((step, target.declaration.profile))
    return found


class _Maker:
    """Draws hidden states, weights and caches of one size; the same name gives the same numbers."""

    def __init__(self, plan: LayerPlan, batch: int, context: int, dtype: str) -> None:
        self.plan, self.batch, self.context, self.dtype = plan, batch, context, dtype
        self.hidden_width = plan.num_heads * plan.head_dim

    def matrix(self, seed: int, *shape: int, fan_in: int) -> Any:
        drawn = normal(shape, self.dtype, (self.plan.seed, seed), fan_in**-0.5)
        return native(drawn, arrays="torch", device=self.plan.device)

    def numbers(self, seed: int, *shape: int) -> Any:
        drawn = normal(shape, self.dtype, (self.plan.seed, seed))
        return native(drawn, arrays="torch", device=self.plan.device)

    def _shared(self, query_width: int) -> dict[str, Any]:
        plan, width = self.plan, self.hidden_width
        return {
            "hidden": self.numbers(1, self.batch, width),
            "w_q": self.matrix(2, width, plan.num_heads * query_width, fan_in=width),
            "w_o": self.matrix(3, width, width, fan_in=width),
            "num_heads": plan.num_heads,
            "head_dim": plan.head_dim,
        }

    def latent(self) -> dict[str, Any]:
        plan, rank = self.plan, self.plan.latent_dim
        kept = rank + plan.rope_dim
        up = (plan.num_heads, plan.head_dim, rank)
        return {
            **self._shared(plan.head_dim + plan.rope_dim),
            "w_new": self.matrix(4, self.hidden_width, kept, fan_in=self.hidden_width),
            "cached": Cached((self.numbers(5, self.batch, self.context, kept),)),
            "w_uk": self.matrix(6, *up, fan_in=rank),
            "w_uv": self.matrix(7, *up, fan_in=rank),
            "rope_dim": plan.rope_dim,
        }

    def grouped(self, num_kv_heads: int) -> dict[str, Any]:
        plan, width = self.plan, self.hidden_width
        shape = (self.batch, num_kv_heads, self.context, plan.head_dim)
        new = 2 * num_kv_heads * plan.head_dim
        return {
            **self._shared(plan.head_dim),
            "w_new": self.matrix(8, width, new, fan_in=width),
            "cached": Cached((self.numbers(9, *shape), self.numbers(10, *shape))),
        }


def _numbers(tensor: Any) -> Array:
    found = from_native(tensor)
    assert found is not None
    return found[0].astype(np.float64)


def layer_bytes(plan: LayerPlan) -> int:
    """What the largest size takes, in the widest format: the cache of MHA, and keys rebuilt."""
    width = max(format_of(dtype).bits for dtype in plan.dtypes) // 8
    largest = max(plan.kept(batch, context) for batch in plan.batches for context in plan.contexts)
    return 5 * largest * width


def mla_in_words(rows: Sequence[Row]) -> tuple[str, ...]:
    """What absorption, and a latent cache against grouped heads, come to in time and bytes."""
    lines = []
    groups: dict[tuple[str, int, int], dict[str, Row]] = {}
    for row in rows:
        if row.time is not None:
            place = (row.dtype, row.sizes["batch_size"], row.sizes["kv_len"])
            groups.setdefault(place, {})[row.subject] = row
    for (dtype, batch, context), found in groups.items():
        absorbed = found.get("mla absorbed")
        if absorbed is None:
            continue
        said_of = [_against(absorbed, other) for name, other in found.items() if other != absorbed]
        lines.append(f"{dtype}, batch {batch}, context {context:,}: absorbed {'; '.join(said_of)}")
    return tuple(lines)


def _against(row: Row, other: Row) -> str:
    assert row.time is not None
    assert other.time is not None
    ratio = other.time.ratio(row.time)
    bytes_ratio = other.cache_bytes / row.cache_bytes
    sizes: Mapping[bool, str] = {True: "smaller", False: "larger"}
    cache = ""
    if bytes_ratio != 1:
        times = max(bytes_ratio, 1 / bytes_ratio)
        cache = f" (cache {times:.2g}x {sizes[bytes_ratio > 1]})"
    speed = f"{ratio:.2g}x as fast as"
    if ratio < 1:
        speed = f"{1 / ratio:.2g}x slower than"
    if EQUAL[0] <= ratio <= EQUAL[1]:
        speed = "as fast as"
    return f"{speed} {other.subject}{cache}"
