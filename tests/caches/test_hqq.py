"""transformers' cache of HQQ's 8-bit numbers: half a step off in float32, drifting in 16 bit."""

import pytest
import torch

from equivalence.registry import entries

torch.set_num_threads(1)
NAME = "cache.transformers_hqq"
TOKENS = 1025


def test_without_the_library_the_hint_is_exact():
    backend = entries()[NAME]
    said = backend.available()
    assert said is True or str(said).endswith(
        "not installed: pip install 'attention-equivalence[hqq]'"
    )
    assert backend.extra == "hqq"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [(torch.float32, 0.4, 0.51), (torch.float16, 2.0, 12.0), (torch.bfloat16, 8.0, 40.0)],
)
def test_how_many_steps_a_number_is_off_after_a_long_context(dtype, least, most):
    """The figures of docs/known-faults.md."""
    pytest.importorskip("hqq", reason="the extra hqq is not installed")
    from equivalence.backends.cache_hqq import cache

    torch.manual_seed(0)
    held = cache(batch_size=1, num_kv_heads=2, head_dim=64, max_len=TOKENS, dtype=dtype)
    tokens = torch.randn(1, 2, TOKENS, 64).to(dtype)
    for n in range(TOKENS):
        held.append(tokens[:, :, n : n + 1], tokens[:, :, n : n + 1])
    off = (held.key.double() - tokens.double()).abs().amax(3)
    steps = off / (tokens.double().abs().amax(3) / 127)
    assert least < float(steps.max()) < most
