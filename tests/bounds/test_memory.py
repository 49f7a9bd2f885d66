"""The bound of a large case is evaluated in pieces: what is counted is bytes, not time."""

import tracemalloc

from equivalence.bounds import allowance
from equivalence.case import AttentionCase
from equivalence.inputs import attention_inputs
from equivalence.profiles import PROFILES
from equivalence.reference import attention


def test_32_heads_of_4096_keys_and_128_channels():
    """All distances |v - o| at once would take 128 MiB; so would a copy of the keys per head."""
    case = AttentionCase(
        num_kv_heads=8, group_size=4, q_len=1, kv_len=4096, head_dim=128, dtype="bfloat16",
        causal="lower_right", values="normal",
    )  # fmt: skip
    inputs = attention_inputs(case)
    exact = attention(inputs)
    tracemalloc.start()
    try:
        found = allowance(inputs, exact, PROFILES["eager"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.allowed.shape == (1, 32, 1, 128)
    assert peak < 64 * 2**20
