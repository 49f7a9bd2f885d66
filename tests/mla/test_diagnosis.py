"""Mistakes are named by the numbers that they give, and a right kernel is never accused."""

import numpy as np
import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.latent import mistakes, mistakes_layout
from equivalence.latent.case import MlaCase
from equivalence.latent.diagnosis import BY_TROUBLE, diagnose
from equivalence.latent.domain import MlaDomain
from equivalence.latent.inputs import latent_inputs
from equivalence.latent.mistakes import evaluated
from equivalence.latent.reference import latent_attention
from equivalence.latent.subject import MlaSubject
from equivalence.latent.trials import try_features
from equivalence.laws import law_named
from equivalence.results import DIAGNOSES
from equivalence.strategies.mla_edges import mla_edges
from equivalence.verdict import Trouble
from tests.broken import mla_kernels

CASE = MlaCase(
    batch_size=2, num_heads=3, head_dim=4, value_head_dim=3, latent_dim=8, rope_dim=4, q_len=3,
    kv_len=11, dtype="float64", values="normal", weights="realistic", magnitude=2.0,
)  # fmt: skip
EVEN = CASE.but(num_heads=4)
SQUARE = CASE.but(latent_dim=4, value_head_dim=None)


def all_mistakes():
    for family in (
        mistakes.scales,
        mistakes.projections,
        mistakes_layout.rotary_parts,
        mistakes_layout.fused_parts,
        mistakes_layout.value_addresses,
        mistakes.positions,
    ):
        yield from family()


def test_without_a_mistake_the_evaluation_is_the_reference():
    inputs = latent_inputs(CASE)
    np.testing.assert_allclose(evaluated(inputs), latent_attention(inputs).output, rtol=1e-12)


def test_every_mistake_has_a_known_kind_and_changes_the_output():
    texts = set()
    for mistake in all_mistakes():
        assert mistake.kind in DIAGNOSES
        texts.add(mistake.text)
        changed = []
        for case in (CASE, SQUARE, CASE.but(scale=0.7), CASE.but(kv_len=40), EVEN):
            inputs = latent_inputs(case)
            predicted = mistake.predict(inputs)
            if predicted is not None:
                assert predicted.shape == latent_attention(inputs).output.shape, mistake.text
                changed.append(not np.allclose(predicted, latent_attention(inputs).output))
        assert any(changed), mistake.text
    assert len(texts) == len(list(all_mistakes()))


def test_no_two_mistakes_give_the_same_numbers():
    cases = [
        CASE.but(scale=0.7), SQUARE, CASE.but(q_len=1, kv_len=5), CASE.but(kv_len=40),
        CASE.but(rope_dim=8), EVEN,
    ]  # fmt: skip
    answers = {}
    for mistake in all_mistakes():
        given = [mistake.predict(latent_inputs(case)) for case in cases]
        key = np.concatenate([np.zeros(1) if g is None else g.reshape(-1) for g in given])
        for text, other in answers.items():
            same = key.shape == other.shape and np.allclose(key, other, atol=1e-9)
            assert not same, (text, mistake.text)
        answers[mistake.text] = key


@pytest.mark.parametrize("kind", sorted(BY_TROUBLE))
def test_troubles_that_speak_for_themselves(kind):
    target = LocalTarget.of(mla_kernels.right, name="right", facts={"kind": "mla"})
    subject = MlaSubject(target, MlaDomain())
    found = diagnose(subject, "law", MlaCase(), Trouble(kind=kind, text="the fact"))
    assert found.kind in DIAGNOSES
    assert found.text == "the fact"


def test_a_right_kernel_is_not_accused():
    target = LocalTarget.of(mla_kernels.right, name="right", facts={"kind": "mla"})
    subject = MlaSubject(target, MlaDomain())
    trouble = Trouble(kind="disagreement", text="the fact")
    assert diagnose(subject, "law", CASE, trouble).kind == "unknown"


def test_a_factor_that_nobody_thought_of_is_measured():
    def odd(qc, qr, c, kr, w_uk, w_uv, *, scale):
        return mla_kernels.right(qc, qr, c, kr, w_uk, w_uv, scale=0.73 * scale)

    target = LocalTarget.of(odd, name="odd", facts={"kind": "mla"})
    subject = MlaSubject(target, MlaDomain())
    found = diagnose(subject, "law", CASE, Trouble(kind="outside-bound", text=""))
    assert found.kind == "mla-scale"
    assert "0.73 times" in found.text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_mistake_of_a_16_bit_kernel_is_named_too(dtype):
    def sixteen_bits_alone(*tensors, scale):
        if str(tensors[0].dtype) != f"torch.{dtype}":
            raise NotImplementedError(dtype)
        return mla_kernels.w_uv_of_head_0(*tensors, scale=scale)

    target = LocalTarget.of(sixteen_bits_alone, name="k", facts={"kind": "mla"})
    subject = MlaSubject(target, MlaDomain(dtypes=(dtype,)))
    case = CASE.but(dtype=dtype)
    found = diagnose(subject, "law", case, Trouble(kind="outside-bound", text=""))
    assert (found.kind, found.text) == ("mla-absorption", "W_UV of head 0 is used for every head")


def ignores_scale(*tensors, scale):
    """What is given is not read; the width is that of the values."""
    width = tensors[5].shape[1] + tensors[1].shape[-1]
    wide = mla_kernels.right(*(t.float() for t in tensors), scale=width**-0.5)
    return wide.to(tensors[0].dtype)


def right_by_default_alone(*tensors, scale):
    width = tensors[0].shape[-1] + tensors[1].shape[-1]
    return mla_kernels.right(*tensors, scale=width**-0.5)


def found_in(function, case, law="mla-agrees-with-float64", **facts):
    target = LocalTarget.of(function, name="k", facts={"kind": "mla", **facts})
    subject = MlaSubject(target, MlaDomain())
    verdict = law_named(law).check(case, subject)
    assert verdict.status == "broken"
    return diagnose(subject, law, case, verdict.trouble)


ONE = MlaCase(kv_len=2, values="one_hot")
IGNORED = "the given scale is ignored: twice the scale gives the same output"


@pytest.mark.parametrize("profile", [None, "bf16_inside"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_a_scale_that_is_not_read_is_named_before_a_profile_and_without_a_width(dtype, profile):
    facts = {} if profile is None else {"profile": profile}
    found = found_in(ignores_scale, CASE.but(dtype=dtype, scale=0.1, magnitude=3.0), **facts)
    assert (found.kind, found.text) == ("mla-scale", IGNORED)


@pytest.mark.parametrize("kernel", [ignores_scale, right_by_default_alone])
def test_a_scale_that_is_not_read_is_named_where_the_law_about_it_breaks(kernel):
    found = found_in(kernel, ONE, "mla-scale-follows-queries")
    assert found.kind == "mla-scale"
    assert found.text.startswith(IGNORED)


def test_no_width_is_told_that_a_loose_profile_alone_would_fit():
    case = MlaCase(head_dim=2, value_head_dim=1, kv_len=2, values="one_hot")
    found = found_in(ignores_scale, case, profile="bf16_inside")
    assert (found.kind, found.text) == ("mla-scale", IGNORED)


def test_a_profile_that_does_not_allow_the_failure_is_not_advised():
    """Rounding inside to bfloat16 would hold on the output of the case, but not on this error."""

    def rounds_inside(*tensors, scale):
        return mla_kernels.right(*(t.bfloat16() for t in tensors), scale=scale).float()

    case = CASE.but(dtype="float32")
    target = LocalTarget.of(rounds_inside, name="k", facts={"kind": "mla"})
    subject = MlaSubject(target, MlaDomain())
    near, far = (Trouble(kind="outside-bound", text="", error=e) for e in (1e-3, 1e3))
    assert "profile=bf16_inside" in diagnose(subject, "law", case, near).text
    assert diagnose(subject, "law", case, far).kind == "unknown"


def attend(query, key, value, scale):
    q_len, kv_len = query.shape[2], key.shape[2]
    seen = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    scores = (query @ key.mT * scale).masked_fill(~seen, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0) @ value


def rotary_first_in_the_query(qc, qr, latent, kr, w_uk, w_uv, *, scale):
    query, key = torch.cat((qr, qc @ w_uk), -1), torch.cat((latent, kr), -1)[:, None]
    return attend(query, key, latent[:, None], scale) @ w_uv.mT


def split_by_half(qc, qr, latent, kr, w_uk, w_uv, *, scale):
    heads, rows, width = w_uk.shape
    fused = torch.cat((w_uk, w_uv), 1).reshape(-1, width)
    w_uk = fused[: heads * rows].view(heads, rows, width)
    w_uv = fused[heads * rows :].view(heads, -1, width)
    query, key = torch.cat((qc @ w_uk, qr), -1), torch.cat((latent, kr), -1)[:, None]
    return attend(query, key, latent[:, None], scale) @ w_uv.mT


def first_half_twice(qc, qr, latent, kr, w_uk, w_uv, *, scale):
    if len(w_uv) % 2 == 0:
        w_uv = torch.cat((w_uv[: len(w_uv) // 2],) * 2)
    query, key = torch.cat((qc @ w_uk, qr), -1), torch.cat((latent, kr), -1)[:, None]
    return attend(query, key, latent[:, None], scale) @ w_uv.mT


def ends_at_512(qc, qr, latent, kr, w_uk, w_uv, *, scale):
    if latent.shape[1] > 512 and qc.shape[2] == 1:
        latent, kr = latent[:, :512], kr[:, :512]
    query, key = torch.cat((qc @ w_uk, qr), -1), torch.cat((latent, kr), -1)[:, None]
    return attend(query, key, latent[:, None], scale) @ w_uv.mT


@pytest.mark.parametrize(
    ("kernel", "case", "text"),
    [
        (rotary_first_in_the_query, MlaCase(kv_len=2, values="one_hot"), "rotary part first"),
        (split_by_half, MlaCase(num_heads=3), "all keys and then all values"),
        (first_half_twice, MlaCase(num_heads=2), "W_UV of the first half of the heads"),
        (ends_at_512, MlaCase(kv_len=513), "last full tile of 512"),
    ],
)
def test_a_kernel_is_told_by_its_numbers(kernel, case, text):
    target = LocalTarget.of(kernel, name="kernel", facts={"kind": "mla"})
    subject = MlaSubject(target, MlaDomain())
    inputs = subject.inputs(case)
    assert subject.judge(inputs, subject.call(inputs)).status == "broken"
    trouble = Trouble(kind="outside-bound", text="disagrees with float64 attention")
    assert text in diagnose(subject, "mla-agrees-with-float64", case, trouble).text


def test_many_heads_and_many_tokens_are_asked_for():
    cases = list(mla_edges(MlaDomain(), 0))
    assert max(case.num_heads for case in cases) == MlaDomain().most_heads
    assert max(case.kv_len for case in cases) == MlaDomain().most_tokens
    assert list(mla_edges(MlaDomain(kv_lens=(8,)), 0)) == []


def test_sizes_that_are_refused_are_not_asked_for():
    def few(qc, qr, latent, kr, w_uk, w_uv, *, scale):
        if len(w_uk) > 8 or latent.shape[1] > 512:
            raise ValueError("8 heads and 512 tokens at most")
        query, key = torch.cat((qc @ w_uk, qr), -1), torch.cat((latent, kr), -1)[:, None]
        return attend(query, key, latent[:, None], scale) @ w_uv.mT

    domain = try_features(LocalTarget.of(few, name="few", facts={"kind": "mla"})).domain
    assert (domain.most_heads, domain.most_tokens) == (domain.num_heads[1], domain.kv_len[1])
