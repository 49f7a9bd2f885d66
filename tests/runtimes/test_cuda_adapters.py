"""CUDA adapters, up to the call: what they hand to a stand-in that means what is documented.

The libraries themselves are not here, so this verifies layouts and arguments, and nothing else. A
stand-in takes the documented signature, records its call, and computes by the documented layout.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from equivalence import registry
from equivalence.backends.one_sequence import attend, visible_keys
from equivalence.case import AttentionCase
from equivalence.kinds import kind_named
from equivalence.latent.case import MlaCase
from equivalence.masks import Mask
from equivalence.packed.case import PagedCase, VarlenCase

Calls = list[tuple[str, dict[str, Any]]]


def one(q: Any, k: Any, v: Any, causal: bool, window: Any, scale: Any, softcap: Any = 0.0) -> Any:
    """One sequence, ``[S, H, D]``, with (left, right) neighbours and -1 for no limit."""
    sides = tuple(window) if max(window) >= 0 else None
    seen = visible_keys(q.shape[0], k.shape[0], causal=causal, window_size=sides)
    rows = attend(*(x.transpose(0, 1) for x in (q, k, v)), seen, scale, softcap or None)
    return rows.transpose(0, 1)


def unpaged(pages: Any, table: Any, length: int) -> Any:
    return pages[table.long()].flatten(0, 1)[:length]


def flash_attn(calls: Calls) -> dict[str, ModuleType]:
    def flash_attn_func(
        q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: Any = None,
        causal: bool = False, window_size: Any = (-1, -1), softcap: float = 0.0,
        alibi_slopes: Any = None, deterministic: bool = False, return_attn_probs: bool = False,
    ) -> Any:  # fmt: skip
        calls.append(("flash_attn_func", dict(locals())))
        rows = zip(q, k, v, strict=True)
        return torch.stack([one(*row, causal, window_size, softmax_scale, softcap) for row in rows])

    def flash_attn_varlen_func(
        q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int,
        max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: Any = None,
        causal: bool = False, window_size: Any = (-1, -1), softcap: float = 0.0,
    ) -> Any:  # fmt: skip
        calls.append(("flash_attn_varlen_func", dict(locals())))
        assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
        output = torch.zeros_like(q)
        for i in range(len(cu_seqlens_q) - 1):
            a = slice(int(cu_seqlens_q[i]), int(cu_seqlens_q[i + 1]))
            b = slice(int(cu_seqlens_k[i]), int(cu_seqlens_k[i + 1]))
            output[a] = one(q[a], k[b], v[b], causal, window_size, softmax_scale, softcap)
        return output

    def flash_attn_with_kvcache(
        q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None, rotary_cos: Any = None,
        rotary_sin: Any = None, cache_seqlens: Any = None, cache_batch_idx: Any = None,
        cache_leftpad: Any = None, block_table: Any = None, softmax_scale: Any = None,
        causal: bool = False, window_size: Any = (-1, -1), softcap: float = 0.0,
    ) -> Any:  # fmt: skip
        calls.append(("flash_attn_with_kvcache", dict(locals())))
        assert cache_seqlens.dtype == block_table.dtype == torch.int32
        return torch.stack([
            one(row, unpaged(k_cache, block_table[i], n), unpaged(v_cache, block_table[i], n),
                causal, window_size, softmax_scale, softcap)
            for i, (row, n) in enumerate(zip(q, cache_seqlens.tolist(), strict=True))
        ])  # fmt: skip

    return {"flash_attn": module(locals())}


def flashinfer(calls: Calls) -> dict[str, ModuleType]:
    def single_prefill_with_kv_cache(
        q: Any, k: Any, v: Any, *, causal: bool = False, kv_layout: str = "NHD",
        sm_scale: Any = None, window_left: int = -1, logits_soft_cap: Any = None,
        return_lse: bool = False,
    ) -> Any:  # fmt: skip
        calls.append(("single_prefill_with_kv_cache", dict(locals())))
        assert kv_layout == "NHD"
        output = one(q, k, v, causal, (window_left, -1), sm_scale, logits_soft_cap)
        return output, torch.zeros(q.shape[:2])

    class BatchPrefillWithPagedKVCacheWrapper:
        def __init__(self, float_workspace_buffer: Any, kv_layout: str = "NHD") -> None:
            assert kv_layout == "NHD"

        def plan(
            self, qo_indptr: Any, paged_kv_indptr: Any, paged_kv_indices: Any,
            paged_kv_last_page_len: Any, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int,
            page_size: int, **options: Any,
        ) -> None:  # fmt: skip
            calls.append(("plan", dict(locals())))
            self.planned = dict(locals())

        def run(self, q: Any, paged_kv_cache: Any) -> Any:
            p = SimpleNamespace(**self.planned)
            output = torch.zeros_like(q)
            for i in range(len(p.qo_indptr) - 1):
                own = slice(int(p.qo_indptr[i]), int(p.qo_indptr[i + 1]))
                first, last = int(p.paged_kv_indptr[i]), int(p.paged_kv_indptr[i + 1])
                length = (last - first - 1) * p.page_size + int(p.paged_kv_last_page_len[i])
                table = p.paged_kv_indices[first:last]
                k, v = (unpaged(pages, table, length) for pages in paged_kv_cache)
                o = p.options
                output[own] = one(
                    q[own], k, v, o["causal"], (o["window_left"], -1), o["sm_scale"],
                    o["logits_soft_cap"],
                )  # fmt: skip
            return output

    return {"flashinfer": module(locals())}


def xformers(calls: Calls) -> dict[str, ModuleType]:
    class LowerTriangularFromBottomRightMask:
        pass

    def memory_efficient_attention(
        query: Any, key: Any, value: Any, attn_bias: Any = None, p: float = 0.0, scale: Any = None
    ) -> Any:
        calls.append(("memory_efficient_attention", dict(locals())))
        q, k, v = (x.float().permute(0, 2, 3, 1, 4) for x in (query, key, value))  # B G H M K
        scores = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
        if isinstance(attn_bias, LowerTriangularFromBottomRightMask):
            seen = visible_keys(q.shape[-2], k.shape[-2], causal=True)
            scores = scores.masked_fill(~seen, -torch.inf)
        elif attn_bias is not None:
            assert attn_bias.shape == scores.shape
            scores = scores + attn_bias
        return (scores.softmax(-1) @ v).permute(0, 3, 1, 2, 4).to(query.dtype)

    bias = SimpleNamespace(LowerTriangularFromBottomRightMask=LowerTriangularFromBottomRightMask)
    fmha = SimpleNamespace(attn_bias=bias)
    ops = module({"memory_efficient_attention": memory_efficient_attention, "fmha": fmha})
    return {"xformers": module({"ops": ops}), "xformers.ops": ops}


def flash_mla(calls: Calls) -> dict[str, ModuleType]:
    def get_mla_metadata() -> Any:
        return object(), None

    def flash_mla_with_kvcache(
        q: Any, k_cache: Any, block_table: Any, cache_seqlens: Any, head_dim_v: int,
        tile_scheduler_metadata: Any, num_splits: None = None, softmax_scale: Any = None,
        causal: bool = False,
    ) -> Any:  # fmt: skip
        calls.append(("flash_mla_with_kvcache", dict(locals())))
        assert k_cache.shape[1:] == (64, 1, 576)
        assert num_splits is None
        rows = []
        for i, n in enumerate(cache_seqlens.tolist()):
            cache = unpaged(k_cache, block_table[i], n)
            rows.append(one(q[i], cache, cache[..., :head_dim_v], causal, (-1, -1), softmax_scale))
        return torch.stack(rows), torch.zeros(q.shape[0], q.shape[2], q.shape[1])

    return {"flash_mla": module(locals())}


def vllm(calls: Calls) -> dict[str, ModuleType]:
    def paged_attention_v1(
        out: Any, query: Any, key_cache: Any, value_cache: Any, num_kv_heads: int, scale: float,
        block_tables: Any, seq_lens: Any, block_size: int, max_seq_len: int, alibi_slopes: Any,
        kv_cache_dtype: str, k_scale: Any, v_scale: Any, tp_rank: int = 0,
    ) -> None:  # fmt: skip
        calls.append(("paged_attention_v1", dict(locals())))
        assert key_cache.shape[1] == num_kv_heads
        assert key_cache.shape[3:] == (block_size, 16 // query.element_size())
        keys = key_cache.permute(0, 3, 1, 2, 4).flatten(3)
        values = value_cache.permute(0, 3, 1, 2)
        for i, n in enumerate(seq_lens.tolist()):
            k, v = (unpaged(pages, block_tables[i], n) for pages in (keys, values))
            out[i] = one(query[i : i + 1], k, v, True, (-1, -1), scale)[0]

    def unified_attention(
        q: Any, k: Any, v: Any, out: Any, cu_seqlens_q: Any, max_seqlen_q: int, seqused_k: Any,
        max_seqlen_k: int, softmax_scale: float, causal: bool, window_size: Any, block_table: Any,
        softcap: float, q_descale: Any, k_descale: Any, v_descale: Any,
    ) -> None:  # fmt: skip
        calls.append(("unified_attention", dict(locals())))
        assert causal
        for i, n in enumerate(seqused_k.tolist()):
            own = slice(int(cu_seqlens_q[i]), int(cu_seqlens_q[i + 1]))
            keys, values = (unpaged(pages, block_table[i], n) for pages in (k, v))
            out[own] = one(q[own], keys, values, True, window_size, softmax_scale, softcap)

    triton = module({"unified_attention": unified_attention})
    custom = module({"paged_attention_v1": paged_attention_v1})
    return {
        "vllm": module({}),
        "vllm._custom_ops": custom,
        "vllm.v1.attention.ops.triton_unified_attention": triton,
    }


def module(names: dict[str, Any]) -> ModuleType:
    made = ModuleType("stand_in")
    for name, value in names.items():
        setattr(made, name, value)
    made.__spec__ = SimpleNamespace(name="stand_in")  # type: ignore[assignment]
    return made


ATTENTION = AttentionCase(
    batch_size=2, num_kv_heads=2, group_size=3, q_len=3, kv_len=5, head_dim=8, dtype="float16",
    values="normal",
)  # fmt: skip
VARLEN = VarlenCase(
    q_lens=(2, 3), kv_lens=(4, 3), num_kv_heads=2, group_size=3, head_dim=8, dtype="float16",
    causal="lower_right", values="normal",
)  # fmt: skip
PAGED = PagedCase(
    kv_lengths=(3, 5), page_size=2, q_len=2, num_kv_heads=2, group_size=3, head_dim=8,
    dtype="float16", causal="lower_right", order="shuffled", values="normal",
)  # fmt: skip
CAUSAL = ATTENTION.but(causal="lower_right")
CASES: dict[str, tuple[Callable[[Calls], dict[str, ModuleType]], list[Any]]] = {
    "flash_attn.attention": (
        flash_attn,
        [CAUSAL, ATTENTION.but(window=2, scale=0.5), ATTENTION.but(softcap=2.0)],
    ),
    "flash_attn.varlen": (flash_attn, [VARLEN]),
    "flash_attn.paged": (flash_attn, [PAGED.but(page_size=256)]),
    "flashinfer.attention": (flashinfer, [CAUSAL, ATTENTION.but(window=2)]),
    "flashinfer.paged": (flashinfer, [PAGED, PAGED.but(softcap=2.0)]),
    "xformers.attention": (
        xformers,
        [CAUSAL, ATTENTION.but(mask=Mask(pattern="padding", size=3, axes="h"))],
    ),
    "mla.flashmla": (
        flash_mla,
        [MlaCase(batch_size=2, num_heads=2, head_dim=4, latent_dim=512, rope_dim=64, q_len=2,
                 kv_len=70, dtype="float16", values="normal")],
    ),
    "vllm.paged_v1": (vllm, [PAGED.but(q_len=1)]),
    "vllm.unified": (vllm, [PAGED, PAGED.but(window=2)]),
}  # fmt: skip


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Calls]:
    def install(name: str) -> Calls:
        calls: Calls = []
        for place, stand_in in CASES[name][0](calls).items():
            monkeypatch.setitem(sys.modules, place, stand_in)
        return calls

    return install


def on_cpu(name: str) -> Any:
    from equivalence.calling import LocalTarget

    target = LocalTarget.of(registry.entries()[name].function(), name=name)
    return dataclasses.replace(target, declaration=target.declaration.but(device="cpu"))


@pytest.mark.parametrize("name", CASES)
def test_the_documented_layout_gives_attention(
    name: str, installed: Callable[[str], Calls]
) -> None:
    calls = installed(name)
    target = on_cpu(name)
    for case in CASES[name][1]:
        calls.clear()
        assert target.supports(case) is True
        kind = kind_named(target.declaration.kind)
        subject = kind.subject(target, None)
        inputs = subject.inputs(case)
        outcome = target.call(inputs)
        assert outcome.status == "returned", outcome.text
        assert calls, "the library was not called"
        assert subject.judge(inputs, outcome).status == "held", case


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("xformers")])
def test_a_library_that_means_something_else_is_caught(
    name: str, installed: Callable[[str], Calls], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(name)
    right = one
    monkeypatch.setattr(f"{__name__}.one", lambda q, k, *more: right(q, k.flip(0), *more))
    target, case = on_cpu(name), CASES[name][1][0]
    subject = kind_named(target.declaration.kind).subject(target, None)
    inputs = subject.inputs(case)
    assert subject.judge(inputs, target.call(inputs)).status == "broken"


def test_a_library_that_reads_other_heads_is_caught(installed: Callable[[str], Calls]) -> None:
    installed("flash_attn.attention")
    right = sys.modules["flash_attn"].flash_attn_func
    sys.modules["flash_attn"].flash_attn_func = (  # type: ignore[attr-defined]
        lambda q, k, v, **options: right(q, k.flip(2), v.flip(2), **options)
    )
    target = on_cpu("flash_attn.attention")
    subject = kind_named("attention").subject(target, None)
    inputs = subject.inputs(CAUSAL)
    assert subject.judge(inputs, target.call(inputs)).status == "broken"


def test_the_library_gets_its_own_words(installed: Callable[[str], Calls]) -> None:
    calls = installed("flash_attn.attention")
    target = on_cpu("flash_attn.attention")
    case = ATTENTION.but(window=2, scale=0.5)
    target.call(kind_named("attention").subject(target, None).inputs(case))
    ((name, given),) = calls
    assert name == "flash_attn_func"
    assert given["q"].shape == (2, 3, 6, 8)
    assert given["k"].shape == (2, 5, 2, 8)
    assert (given["window_size"], given["softmax_scale"]) == ((1, 0), 0.5)


@pytest.mark.parametrize("name", CASES)
def test_they_say_that_they_are_unverified(name: str) -> None:
    backend = registry.entries()[name]
    assert backend.unverified
    assert "CUDA" in str(backend.available())
    function = backend.function()  # without the library
    module_text = sys.modules[function.__module__].__doc__ or ""
    assert "Unverified" in module_text
