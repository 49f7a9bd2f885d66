"""A kernel that answers in one and the same memory is told apart from one that does not."""

from __future__ import annotations

import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.engine import Request, check_target
from equivalence.laws.alike import OVERWRITES

BUFFERS: dict[tuple[object, ...], torch.Tensor] = {}


def attend(query, key, value):
    group, uneven = divmod(query.shape[1], key.shape[1])
    if uneven:
        raise NotImplementedError("heads")
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    return torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, -1) @ value


def in_one_buffer(query, key, value):
    """As a captured CUDA graph answers: each shape has its own memory, and the next call too."""
    output = attend(query, key, value)
    return BUFFERS.setdefault((output.shape, output.dtype), torch.empty_like(output)).copy_(output)


def hands_back_its_query(query, key, value):
    return query.copy_(attend(query, key, value)[..., : query.shape[-1]])


@pytest.mark.parametrize(
    ("kernel", "told"), [(attend, False), (in_one_buffer, True), (hands_back_its_query, False)]
)
def test_that_a_result_does_not_last_is_said(kernel, told):
    target = LocalTarget.of(kernel, name="kernel")
    laws = ("agrees-with-float64", "inputs-are-not-modified", "linear-in-values")
    result = check_target(target, Request(examples=30, dtypes=("float32",), laws=laws))
    remarks = {remark for law in result.laws for remark in law.remarks}
    assert (OVERWRITES in remarks) is told
    assert (result.held is True) is (kernel is not hands_back_its_query)
