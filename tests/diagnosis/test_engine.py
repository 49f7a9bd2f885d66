"""Diagnosis beyond suspects: troubles that name themselves, experiments, cards, fallbacks."""

from __future__ import annotations

import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase as Case
from equivalence.diagnosis import Suspect, diagnose, register, suspects
from equivalence.diagnosis.by_card import faults
from equivalence.diagnosis.table import FAMILIES
from equivalence.diagnosis.troubles import DIRECT, FALLBACK
from equivalence.domain import Domain
from equivalence.masks import Mask
from equivalence.probes import battery
from equivalence.results import DIAGNOSES
from equivalence.verdict import TROUBLES, Trouble
from tests.diagnosis.asking import DOMAIN, diagnosis_of
from tests.probes.kernels import broken

PAIR = Case(kv_len=2, head_dim=4, values="normal")


def ask(function, case, kind="outside-bound", card=None, text="wrong"):
    target = LocalTarget.of(function, name="kernel")
    return diagnose(target, DOMAIN, case, Trouble(kind=kind, text=text), card and (lambda: card))


def test_every_kind_is_one_of_the_contract():
    assert set(DIRECT.values()) | set(FALLBACK.values()) <= set(DIAGNOSES)
    assert set(DIRECT) | set(FALLBACK) <= set(TROUBLES)


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        ("crash", "crash"),
        ("hang", "crash"),
        ("memory", "crash"),
        ("wrong-dtype", "wrong-dtype"),
        ("wrong-shape", "wrong-shape"),
        ("input-mutation", "input-mutation"),
        ("not-repeatable", "determinism"),
        ("nan-leak", "nan-propagation"),
        ("nan-laundered", "nan-propagation"),
        ("masked-rows", "fully-masked-row"),
        ("lse", "lse-merge"),
        ("gradient", "gradient"),
        ("answered-refusal", "refusal"),
        ("batch-dependence", "batch-dependence"),
        ("future-keys", "causal-alignment"),
        ("hidden-keys", "mask-semantics"),
        ("strides", "strides"),
        ("declaration", "unknown"),
    ],
)
def test_troubles_that_name_their_own_kind(trouble, kind):
    found = ask(broken(), PAIR, trouble, text="what was seen")
    assert found.kind == kind
    assert "what was seen" in found.text


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        (PAIR.but(softcap=5.0), "softcap"),
        (PAIR.but(sinks=True), "sinks"),
        (PAIR.but(alibi=True), "ignored-option"),
        (PAIR.but(window=1), "window"),
        (PAIR.but(scale=1.0), "scale"),
        (PAIR.but(mask=Mask()), "mask-semantics"),
        (PAIR.but(causal="lower_right"), "causal-alignment"),
        (PAIR, "ignored-option"),
    ],
)
def test_an_ignored_option_has_the_kind_of_the_option(case, kind):
    assert ask(broken(), case, "ignored-option").kind == kind


@pytest.mark.parametrize("trouble", ["nan-leak", "nan-laundered", "lse", "gradient"])
def test_what_a_wrong_output_brings_with_it_is_no_second_fault(trouble):
    tiled = broken(
        expand_key=lambda k, g: k.repeat(1, g, 1, 1), expand_value=lambda v, g: v.repeat(1, g, 1, 1)
    )
    case = Case(num_kv_heads=2, group_size=2, kv_len=2, values="normal")
    assert ask(tiled, case, trouble).kind == "head-mapping"


def test_what_a_right_output_brings_is_a_fault_of_its_own():
    tiled = broken(
        expand_key=lambda k, g: k.repeat(1, g, 1, 1), expand_value=lambda v, g: v.repeat(1, g, 1, 1)
    )
    assert ask(tiled, Case(kv_len=2, values="normal"), "nan-leak").kind == "nan-propagation"


@pytest.mark.parametrize(("kv_len", "torchs"), [(1, True), (15, True), (16, False)])
def test_nan_lost_in_a_short_row_may_be_the_doing_of_torch(kv_len, torchs):
    case = PAIR.but(kv_len=kv_len)
    text = ask(torch.nn.functional.scaled_dot_product_attention, case, "nan-laundered").text
    assert ("pytorch#141128" in text) is torchs


@pytest.mark.parametrize(
    ("dtype", "group_size", "torchs"),
    [
        ("bfloat16", 49, True),
        ("float16", 32, True),
        ("bfloat16", 31, False),
        ("float32", 49, False),
    ],
)
def test_a_gradient_of_many_heads_may_be_the_doing_of_torch(dtype, group_size, torchs):
    def attend(query, key, value):
        attention = torch.nn.functional.scaled_dot_product_attention
        return attention(query, key, value, enable_gqa=True)

    text = ask(attend, PAIR.but(dtype=dtype, group_size=group_size), "gradient").text
    assert ("torch-gqa-gradient-sum" in text) is torchs


def test_noise_is_no_other_mistake():
    generator = torch.Generator().manual_seed(1)

    def noisy(query, key, value):
        return broken()(query, key, value) * torch.rand((), generator=generator)

    assert ask(noisy, PAIR).kind == "determinism"


def test_wrong_in_a_batch_only():
    def mixes(query, key, value):
        output = broken()(query, key, value)
        return output + 0.1 * output.square().sum() * (len(output) > 1)

    found = diagnosis_of(mixes, PAIR.but(batch_size=2))
    assert found.kind == "batch-dependence"
    assert "right alone" in found.text


def test_an_option_is_guilty_where_no_suspect_fits():
    odd = broken(softcap=lambda s, c, bias: c * torch.atan(s / c))
    found = diagnosis_of(odd, PAIR.but(magnitude=20.0, softcap=3.0))
    assert found.kind == "softcap"
    assert found.text == "right without softcap, wrong with it: softcap=3.0"


def test_weights_tell_values_that_moved():
    def late(query, key, value):
        order = [*range(4), *range(3, value.shape[2] - 1)]
        return broken()(query, key, value[:, :, order[: value.shape[2]]])

    found = diagnosis_of(late, Case(q_len=3, kv_len=6, head_dim=4, values="normal"))
    assert found.kind in ("wrong-operand", "head-dim-tail")


def test_the_card_speaks_where_the_case_says_nothing():
    def odd(query, key, value):
        return torch.sin(broken()(query, key, value) * 7 + query.sum(-1, keepdim=True))

    silent = broken(operands=lambda q, k, v: (q[..., :64], k[..., :64], v))
    card = battery(LocalTarget.of(silent, name="silent"), Domain(), "float32")
    case = Case(q_len=2, kv_len=3, head_dim=3, values="normal")
    assert diagnosis_of(odd, case, card=card).kind == "head-dim-tail"


@pytest.mark.parametrize(("group_size", "found"), [(1, []), (2, ["head-mapping"])])
def test_where_every_head_has_its_own_the_map_is_right_by_any_name(group_size, found):
    def interleaved(query, key, value):
        group = query.shape[1] // key.shape[1]
        return broken()(query, key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1))

    card = battery(LocalTarget.of(interleaved, name="interleaved"), Domain(), "float32")
    case = Case(num_kv_heads=2, group_size=group_size, kv_len=2)
    assert [fault.kind for fault in faults(card, case)] == found


def test_unknown_keeps_the_facts():
    def odd(query, key, value):
        return torch.sin(broken()(query, key, value) * 7 + query.sum(-1, keepdim=True))

    found = diagnosis_of(odd, Case(q_len=2, kv_len=3, head_dim=3, values="normal"))
    assert found.kind == "unknown"
    assert "disagrees with float64 attention at output" in found.text


def test_a_case_of_another_kind_of_target_is_not_guessed_at():
    found = ask(broken(), object(), text="not attention")
    assert (found.kind, found.text) == ("unknown", "not attention")


def test_a_looser_profile_is_what_to_declare():
    def full(query, key, value):
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(group, 1) for x in (key, value))
        root = query.shape[-1] ** -0.25
        scores = (query * root) @ (key * root).mT
        return scores.float().softmax(-1).to(query.dtype) @ value

    case = Case(q_len=4, kv_len=6, head_dim=12, dtype="bfloat16", values="normal", magnitude=4.0)
    found = diagnosis_of(full, case, profile="f32")
    assert found.kind == "precision"
    assert "--declare profile=" in found.text


def test_a_declared_convention_is_kept_out_of_the_way():
    case = Case(num_kv_heads=2, group_size=2, head_order="interleaved")
    found = diagnosis_of(broken(), case, head_order="interleaved")
    assert found.text.endswith("--declare head_order=grouped")


def test_families_can_be_added():
    def family(sight):
        yield Suspect(kind="unknown", sentence="it is the new one", imagine=lambda i: i)

    register("a-test-kind", family)
    try:
        assert [s.sentence for s in suspects(None, "a-test-kind")] == ["it is the new one"]
    finally:
        del FAMILIES["a-test-kind"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_mistake_next_to_sinks_is_still_named(dtype):
    late = broken(softcap=lambda s, c, bias: torch.tanh(s / c))
    case = PAIR.but(softcap=5.0, sinks=True, magnitude=20.0, dtype=dtype)
    found = diagnosis_of(late, case)
    assert (found.kind, found.text) == ("softcap", "tanh is not multiplied by the softcap")
