"""ONNX Runtime's and onnx's operators agree with float64, and their known faults still show."""

from functools import cache

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from equivalence import registry
from equivalence.caches.case import CacheCase
from equivalence.case import AttentionCase
from equivalence.domain import Domain
from equivalence.inputs import attention_inputs
from equivalence.kinds import kind_named
from equivalence.laws import all_laws
from equivalence.masks import Mask
from equivalence.rope.case import RotaryCase

ATTENTION = [
    b.name
    for b in registry.OURS
    if b.kind == "attention" and b.name.partition(".")[0] in ("onnx", "onnxruntime")
]
ROTARY = ["rotary.onnxruntime", "rotary.onnxruntime_microsoft", "rotary.onnx_reference"]


@cache
def target_named(name):
    return registry.entries()[name].load()


def subject_of(name):
    target = target_named(name)
    kind = kind_named(target.declaration.kind)
    domain = kind.trials(target, ("float32",)).domain
    return kind.subject(target, domain)


def cases_of(name, dtype):
    """Cases of widths that GroupQueryAttention takes, causal from the operator's own corner."""
    target = target_named(name)
    causal = target.declaration.causal
    base = AttentionCase(head_dim=16, dtype=dtype, values="normal", causal=causal)
    cases = [
        base.but(num_kv_heads=2, group_size=3, kv_len=7),
        base.but(batch_size=3, num_kv_heads=2, group_size=2, q_len=3, kv_len=5),
        base.but(q_len=4, kv_len=4, group_size=4, scale=0.5),
        base.but(batch_size=2, q_len=2, kv_len=40, num_kv_heads=3, values="peaky"),
    ]
    if "softcap" in target.options:
        cases.append(base.but(q_len=2, kv_len=9, softcap=5.0, seed=1))
    if "window" in target.options:
        cases.append(base.but(batch_size=2, q_len=3, kv_len=9, window=3, group_size=2))
    if "mask" in target.options:
        mask = Mask(pattern="random", size=60, axes="bhq", form="float", bias=1.0)
        cases.append(base.but(batch_size=2, num_kv_heads=2, q_len=3, kv_len=6, mask=mask))
    if "kv_lengths" in target.options:
        cases.append(base.but(batch_size=2, q_len=2, kv_len=6, kv_lengths=(3, 6)))
    return cases


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ATTENTION)
def test_the_operator_agrees_with_float64(name, dtype):
    subject = kind_named("attention").subject(target_named(name), Domain())
    for case in cases_of(name, dtype):
        inputs = attention_inputs(case)
        verdict = subject.judge(inputs, subject.call(inputs))
        assert verdict.status in ("held", "vacuous"), (case, verdict.trouble)


@pytest.mark.parametrize("name", ["onnxruntime.attention", "onnxruntime.gqa", "onnx.reference"])
def test_another_head_order_would_be_seen(name):
    subject = kind_named("attention").subject(target_named(name), Domain())
    case = cases_of(name, "float32")[0].but(num_kv_heads=2, group_size=2, values="ramp")
    right, wrong = (attention_inputs(case.but(head_order=o)) for o in ("grouped", "interleaved"))
    outcome = subject.call(right)
    assert subject.judge(right, outcome).status == "held"
    assert subject.judge(wrong, outcome).status == "broken"


@pytest.mark.parametrize("name", [*ATTENTION, "onnxruntime.gqa_cache", *ROTARY])
def test_every_known_fault_still_shows(name):
    target = target_named(name)
    subject = subject_of(name)
    laws = {law.name: law for law in all_laws(target.declaration.kind)}
    for fault in target.declaration.known_faults:
        trouble = laws[fault.law].check(fault.case, subject).trouble
        assert trouble is not None, fault.note
        assert trouble.kind == fault.trouble
        assert fault.explains(fault.law, fault.trouble, fault.case)


@pytest.mark.parametrize("name", ROTARY)
def test_the_rotary_operator_agrees_with_float64_in_both_pairings(name):
    subject = subject_of(name)
    law = all_laws("rotary")[0]
    for pairing in ("half", "interleaved"):
        for turning in (None, 4):
            case = RotaryCase(
                batch_size=2, num_heads=3, seq_len=4, head_dim=8, start=5, rotary_dim=turning,
                pairing=pairing, values="normal",
            )  # fmt: skip
            assert law.check(case, subject).status == "held", case
            inputs = subject.inputs(case)
            other = "half" if pairing == "interleaved" else "interleaved"
            outcome = subject.call(inputs)
            assert (
                subject.judge(subject.inputs(case.but(pairing=other)), outcome).status == "broken"
            )


def test_rows_of_unequal_length_are_decoded_from_one_cache():
    subject = subject_of("onnxruntime.gqa_cache")
    case = CacheCase(
        batch_size=2, num_kv_heads=2, group_size=2, head_dim=8, max_len=4, values="normal",
        program=(("append", 2), ("append", 0, 2), ("attend", 2), ("append", 1, 0), ("attend", 1)),
    )  # fmt: skip
    assert all_laws("kv_cache")[0].check(case, subject).status == "held"


def test_a_session_is_made_once_for_each_shape_of_graph():
    from equivalence.backends import onnx_node, onnxruntime_attention

    x = np.ones((1, 1, 2, 4), np.float32)
    onnxruntime_attention.attention(x, x, x)
    before = onnx_node._runner.cache_info()
    for length in (1, 3, 7):
        y = np.ones((2, 2, length, 4), np.float32)
        onnxruntime_attention.attention(y, y, y)
    after = onnx_node._runner.cache_info()
    assert after.misses == before.misses
    assert after.maxsize == 256


def test_what_onnx_runtime_refuses_is_said_in_one_line():
    from equivalence.backends import onnxruntime_attention

    x = np.ones((1, 1, 2, 4), np.float32)
    mask = np.ones((1, 1, 1, 2), bool)
    with pytest.raises(RuntimeError, match=r"^ONNX Runtime: inconsistent q_sequence_length"):
        onnxruntime_attention.attention(x, x, x, attn_mask=mask)


def attention_node(by, *, past, given_mask=None, **attributes):
    """Attention of zeros with values 0, 1, 2, ...: the mean position of what each query sees."""
    from equivalence.backends.onnx_node import run_node

    queries, length = attributes.pop("queries"), attributes.pop("length")
    query = np.zeros((1, 1, queries, 4), np.float32)
    key = np.zeros((1, 1, length, 4), np.float32)
    value = key + np.arange(length, dtype=np.float32)[:, None]
    inputs = {
        "Q": query, "K": key[:, :, past:], "V": value[:, :, past:], "attn_mask": given_mask,
        "past_key": key[:, :, :past], "past_value": value[:, :, :past],
    }  # fmt: skip
    outputs = ("Y", "present_key", "present_value")
    return run_node("Attention", inputs, outputs, opset=23, by=by, **attributes)[0][0, 0, :, 0]


def test_onnx_runtime_still_ignores_is_causal_for_one_query_behind_a_past():
    """With two new keys, the query stands on the first of them: it may see past and that one."""
    asked = {"past": 1, "queries": 1, "length": 3, "is_causal": 1}
    assert attention_node("reference", **asked) == [0.5]
    assert attention_node("onnxruntime", **asked) == [1.0]
    asked = {"past": 1, "queries": 2, "length": 3, "is_causal": 1}  # two queries are right
    assert attention_node("onnxruntime", **asked).tolist() == [0.5, 1.0]


def test_onnx_runtime_still_refuses_masks_that_the_operator_broadcasts_or_pads():
    for shape in ((1, 1, 1, 3), (1, 1, 2, 2)):
        mask = np.ones(shape, bool)
        asked = {"past": 1, "queries": 2, "length": 3, "given_mask": mask}
        assert attention_node("reference", **asked).shape == (2,)
        with pytest.raises(RuntimeError, match="inconsistent"):
            attention_node("onnxruntime", **asked)


def test_the_reference_evaluator_still_caps_the_scores_of_mode_0():
    """Mode 0 is the product of queries and keys; the softcap is for mode 1."""
    from equivalence.backends.onnx_node import run_node

    one = np.full((1, 1, 1, 1), 3.0, np.float32)
    inputs = {"Q": one, "K": one, "V": one}
    outputs = ("Y", "", "", "qk_matmul_output")
    asked = {"opset": 23, "scale": 1.0, "softcap": 2.0, "qk_matmul_output_mode": 0}
    product = run_node("Attention", inputs, outputs, **asked)[1]
    assert product.item() == 9.0
    capped = run_node("Attention", inputs, outputs, by="reference", **asked)[1]
    assert capped.item() == pytest.approx(2 * np.tanh(4.5))


def test_what_a_row_without_keys_holds_in_group_query_attention_depends_on_the_path():
    from equivalence.backends import onnxruntime_gqa

    for dtype, length, softcap, zero in (
        (np.float32, 2, None, True),
        (np.float32, 1, None, False),
        (np.float32, 2, 5.0, False),
        (np.float16, 2, None, False),
    ):
        x = np.ones((1, 1, length, 8), dtype)
        mask = np.full((1, 1, 1, length), -np.inf, dtype)
        made = onnxruntime_gqa.attention(x[:, :, :1], x, x, attn_mask=mask, softcap=softcap)
        assert (made == 0).all() if zero else np.isnan(made).all()
