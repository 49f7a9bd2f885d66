"""What laws of several kinds share: other bits, and answers that prove nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.compare import other_bits
from equivalence.domain import Domain
from equivalence.dtypes import stored
from equivalence.engine import Request, check_target
from equivalence.errors import Unsupported
from equivalence.kinds import kind_named
from equivalence.latent import transforms as latent_transforms
from equivalence.latent.domain import MlaDomain
from equivalence.latent.subject import MlaSubject
from equivalence.laws import all_laws, law_named
from equivalence.laws.rotary_conduct import take_rows, take_tokens
from equivalence.masks import Mask
from equivalence.packed.case import VarlenCase
from equivalence.packed.domain import PackedDomain
from equivalence.registry import entries
from equivalence.rope.domain import RotaryDomain
from equivalence.rope.subject import RotarySubject
from equivalence.strategies.attention import attention_cases
from equivalence.strategies.mla import mla_cases
from equivalence.strategies.rotary import rotary_cases
from equivalence.subject import Subject
from equivalence.transforms import take_batch, take_queries


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_bits_tell_zeros_apart_and_not_nans(dtype):
    first = stored(np.array([0.0, 0.0, np.nan, 1.0, np.inf]), dtype)
    second = stored(np.array([0.0, -0.0, -np.nan, 1.5, np.inf]), dtype)
    assert other_bits(first, second).tolist() == [False, True, False, True, False]


def test_another_sign_of_zero_is_another_answer_of_a_deterministic_target():
    signs = iter((1.0, -1.0))

    def kernel(query, key, value):
        return torch.zeros(*query.shape[:3], value.shape[3]) * next(signs)

    target = LocalTarget.of(kernel, name="kernel", facts={"deterministic": True})
    case = AttentionCase(values="zero")
    verdict = law_named("repeats-itself").check(case, Subject(target, Domain()))
    assert verdict.trouble is not None
    assert verdict.trouble.kind == "not-repeatable"
    assert verdict.trouble.text == "a repeated call gives other bits at output[0, 0, 0, 0]"


def test_a_packed_step_that_proves_nothing_is_not_counted_as_held():
    target = entries()["varlen.one_by_one"].load()
    subject = kind_named("varlen").subject(target, PackedDomain())
    law = law_named("packed-decode-equals-prefill")
    telling = VarlenCase(q_lens=(2,), kv_lens=(8,), head_dim=8, causal="lower_right")
    assert law.check(telling.but(values="normal"), subject).status == "held"
    # All values are near 100: in bfloat16 the bound reaches from one to the next.
    blind = telling.but(values="offset", kv_lens=(2,), dtype="bfloat16")
    assert law.check(blind, subject).status == "vacuous"


@pytest.mark.parametrize("kind", ["attention", "varlen", "paged"])
def test_refusing_all_groups_though_they_are_declared_is_a_failure_with_a_case_of_the_kind(kind):
    names = {
        "attention": "torch.repeat_kv",
        "varlen": "varlen.one_by_one",
        "paged": "paged.gathered",
    }
    right = entries()[names[kind]].load().function

    def ungrouped(query, key, value, **options):
        if query.shape[1] != key.shape[1 if kind != "paged" else 2]:
            raise Unsupported("as many query heads as key/value heads, please")
        return right(query, key, value, **options)

    facts = {"grouped": True, "dtypes": ("float32",)}
    target = kind_named(kind).open(ungrouped, "ungrouped", facts)
    laws = (all_laws(kind)[0].name,)
    result = check_target(target, Request(examples=2, laws=laws))
    (failure,) = [f for f in result.failures if f.diagnosis.kind == "refusal"]
    assert failure.law == laws[0]
    assert isinstance(failure.case, kind_named(kind).case_type)
    assert (failure.case.num_kv_heads, failure.case.group_size) == (2, 2)


def test_a_score_beyond_float16_is_not_what_a_row_that_sees_nothing_is_judged_by():
    """300 * 300 is infinite in float16, and infinity under a mask of -inf NaN."""
    target = entries()["torch.repeat_kv"].load()
    hidden = AttentionCase(dtype="float16", mask=Mask(form="float", empty_rows=1))
    beyond = hidden.but(plants=(("query", 0, 0, 300.0), ("key", 0, 0, 300.0)))
    law, subject = law_named("masked-rows"), Subject(target, Domain())
    assert np.isnan(target.call(subject.inputs(beyond)).output).all()
    assert law.check(beyond, subject).status == "inapplicable"
    assert law.check(hidden, subject).status == "held"


@settings(max_examples=40)
@given(attention_cases(Domain(causal=("lower_right",))))
def test_a_part_of_a_call_has_the_bound_that_it_has_in_the_whole(case):
    """What lets a law judge a step, a row or a head by the bound of the call it was cut from."""
    subject = Subject(entries()["torch.repeat_kv"].load(), Domain())
    inputs = subject.inputs(case)
    row, last = np.array([case.batch_size - 1]), np.array([case.q_len - 1])
    whole = subject.allowance(inputs)
    for part, at in (
        (take_batch(inputs, row), np.s_[row]),
        (take_queries(inputs, last), np.s_[:, :, last]),
    ):
        own = subject.allowance(part)
        # |v_j - o| of a key that takes nearly all the weight is what is left of large numbers.
        np.testing.assert_allclose(whole.at(at).allowed, own.allowed, rtol=1e-3)
        np.testing.assert_allclose(whole.at(at).natural, own.natural, rtol=1e-9)
        tiny = 1e-13 * np.abs(inputs.value).max(initial=0.0)  # the references' own rounding
        np.testing.assert_allclose(whole.at(at).furthest, own.furthest, atol=tiny)
        # Values of other rows may be larger: the whole can be out of range where this is not.
        assert not (whole.at(at).in_domain & ~own.in_domain).any()


@settings(max_examples=40)
@given(attention_cases(Domain(causal=("lower_right", None))))
def test_other_memory_and_heads_apart_have_one_reference_and_bound(case):
    """What ``alike`` takes for granted, and that both halves of the values are judged in one go."""
    subject = Subject(entries()["torch.repeat_kv"].load(), Domain())
    inputs = subject.inputs(case)
    apart = inputs.but(
        key=inputs.key[:, inputs.kv_head_of],
        value=inputs.value[:, inputs.kv_head_of],
        kv_head_of=np.arange(case.num_heads),
        head_order="grouped",
    )
    for other in (inputs.but(memory="contiguous"), apart):
        _same_reference_and_bound(subject, inputs, other)
    half = inputs.but(value=inputs.value / 2)
    both = inputs.but(value=np.concatenate([inputs.value, half.value], axis=-1))
    joined = [subject.allowance(one).allowed for one in (inputs, half)]
    np.testing.assert_allclose(
        subject.allowance(both).allowed, np.concatenate(joined, axis=-1), rtol=1e-3
    )


@settings(max_examples=30)
@given(mla_cases(MlaDomain()))
def test_a_part_of_a_latent_call_has_the_bound_that_it_has_in_the_whole(case):
    subject = MlaSubject(entries()["mla.absorbed"].load(), MlaDomain())
    inputs = subject.inputs(case)
    row, last = np.array([case.batch_size - 1]), np.array([case.q_len - 1])
    whole = subject.allowance(inputs)
    for part, at in (
        (latent_transforms.take_batch(inputs, row), np.s_[row]),
        (latent_transforms.take_queries(inputs, last), np.s_[:, :, last]),
    ):
        own = subject.allowance(part)
        np.testing.assert_allclose(whole.at(at).allowed, own.allowed, rtol=1e-3)
        assert not (whole.at(at).in_domain & ~own.in_domain).any()
    _same_reference_and_bound(subject, inputs, inputs.but(memory="contiguous"))


@settings(max_examples=40)
@given(rotary_cases(RotaryDomain()))
def test_a_part_of_a_rotary_call_has_the_bound_that_it_has_in_the_whole(case):
    subject = RotarySubject(entries()["rotary.torch"].load(), RotaryDomain())
    inputs = subject.inputs(case)
    row, last = np.array([case.batch_size - 1]), np.array([case.seq_len - 1])
    whole = subject.allowance(inputs)
    parts = [(take_rows(inputs, row), np.s_[row])]
    if not (case.by_row or case.step == 0):  # the last token has the largest position
        parts.append((take_tokens(inputs, last), np.s_[:, :, last]))
    for part, at in parts:
        if part.positions.max() != inputs.positions.max():
            continue  # a scaling may look at the largest position, and so turn otherwise
        own = subject.allowance(part)
        np.testing.assert_allclose(whole.at(at).allowed, own.allowed, rtol=1e-9)
        assert not (whole.at(at).in_domain & ~own.in_domain).any()
    _same_reference_and_bound(subject, inputs, inputs.but(memory="contiguous"))


def _same_reference_and_bound(subject, inputs, other):
    np.testing.assert_allclose(
        subject.exact(inputs).output, subject.exact(other).output, rtol=1e-12, atol=1e-9
    )
    ours, theirs = subject.allowance(inputs), subject.allowance(other)
    np.testing.assert_allclose(ours.allowed, theirs.allowed, rtol=1e-3)
    np.testing.assert_array_equal(ours.in_domain, theirs.in_domain)
