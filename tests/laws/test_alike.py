"""What laws of several kinds share: other bits, and answers that prove nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.compare import other_bits
from equivalence.domain import Domain
from equivalence.dtypes import stored
from equivalence.kinds import kind_named
from equivalence.laws import law_named
from equivalence.packed.case import VarlenCase
from equivalence.packed.domain import PackedDomain
from equivalence.registry import entries
from equivalence.subject import Subject


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
