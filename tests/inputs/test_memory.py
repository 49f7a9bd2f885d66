"""Other strides must leave the numbers as they are, and a kernel must be able to take them."""

import numpy as np
import pytest
import torch

from equivalence.arrays import to_native
from equivalence.calling import LocalTarget
from equivalence.case import MEMORIES, AttentionCase
from equivalence.inputs import attention_inputs
from equivalence.memory import lay_out


@pytest.mark.parametrize("layout", ["BHSD", "BSHD"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_a_kernel_gets_the_numbers_of_the_case_whatever_the_strides(memory, layout):
    case = AttentionCase(
        num_kv_heads=2, group_size=2, q_len=3, kv_len=5, head_dim=4, values="normal", memory=memory
    )
    inputs = attention_inputs(case)
    got = {}

    def kernel(query, key, value):
        got.update(query=query.clone(), key=key.clone(), value=value.clone())
        return query

    LocalTarget.of(kernel, name="kernel", facts={"layout": layout}).call(inputs)
    for name, tensor in got.items():
        seen = tensor.transpose(1, 2) if layout == "BSHD" else tensor
        np.testing.assert_array_equal(seen.numpy(), getattr(inputs, name), err_msg=name)


def test_expanded_heads_have_stride_zero_and_torch_takes_them_without_a_warning():
    array = np.ones((2, 3, 4, 5), np.float32)
    tensor = to_native(lay_out(array, "expanded"), arrays="torch")
    assert isinstance(tensor, torch.Tensor)
    assert tensor.stride()[1] == 0
    assert tensor.shape == (2, 3, 4, 5)
