"""Gradients are judged where a row has a sink too, which the backward pass must count."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.engine import Request, check_target
from equivalence.laws import law_named
from equivalence.subject import Subject
from equivalence.trials import try_features


def attend(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None) -> Tensor:
    group, uneven = divmod(query.shape[1], key.shape[1])
    if uneven:
        raise NotImplementedError("heads")
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if sinks is None:
        return scores.softmax(-1) @ value
    column = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
    return torch.cat((scores, column), -1).softmax(-1)[..., :-1] @ value


def right(query, key, value, *, sinks=None):
    return attend(query, key, value, sinks)


def backward_forgets_the_sink(query, key, value, *, sinks=None):
    alone = attend(query, key, value, None)
    return attend(query, key, value, sinks).detach() + alone - alone.detach()


CASE = AttentionCase(num_kv_heads=2, group_size=2, q_len=3, kv_len=5, head_dim=4, values="normal")


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize(
    ("kernel", "wrong_with_sinks"), [(right, False), (backward_forgets_the_sink, True)]
)
def test_with_a_sink_and_without(kernel, wrong_with_sinks, sinks):
    target = LocalTarget.of(kernel, name="kernel", facts={"gradients": True})
    subject = Subject(target, try_features(target, dtypes=("float32",)).domain)
    case = CASE.but(sinks=sinks)
    verdict = law_named("gradients-agree").check(case, subject)
    assert verdict.status == ("broken" if sinks and wrong_with_sinks else "held")


def test_it_is_found_by_a_search():
    target = LocalTarget.of(backward_forgets_the_sink, name="kernel", facts={"gradients": True})
    request = Request(examples=30, dtypes=("float32",), laws=("gradients-agree",))
    (failure,) = check_target(target, request).failures
    assert failure.diagnosis.kind == "gradient"
    assert failure.case.sinks
