"""Every packed and paged kernel of this package keeps every law that applies to it."""

import pytest
import torch

from equivalence.engine import Request, check_target
from equivalence.registry import entries

torch.set_num_threads(1)
KERNELS = sorted(
    name for name, b in entries().items() if b.kind in ("varlen", "paged") and not b.unverified
)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_of_ours_keeps_every_law(name, count_checks):
    request = Request(examples=6, dtypes=("float32", "bfloat16"), seed=1)
    result = check_target(entries()[name].load(), request)
    assert result.held is True, [(f.law, f.case, f.trouble.text) for f in result.failures]
    count_checks(result)
    assert result.shares.summary()["refused"] == 0
    assert result.shares.summary()["vacuous"] <= 0.1
