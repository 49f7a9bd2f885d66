"""Runtimes of other projects agree with float64 attention, and their limits are as declared."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from equivalence import registry
from equivalence.case import AttentionCase
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask

from .judging import all_pass, judged, loaded, plain_cases

# How many cases in each dtype: those that compile for each shape get few.
QUICK = {
    "numba.scalar": 12,
    "mlx.sdpa": 12,
    "transformers.eager": 12,
    "transformers.sdpa": 12,
}
SLOW = {
    "openvino.sdpa": 6,
    "openvino.sdpa_default": 6,
    "transformers.flex": 6,
    "jax.dot_product_attention": 3,
}
EVERY = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
COUNTS = QUICK | SLOW


@pytest.mark.parametrize("name", EVERY)
def test_the_output_is_within_the_bound(name: str) -> None:
    target = loaded(name)
    for dtype in target.declaration.dtypes or ():
        cases = plain_cases(target, dtype, COUNTS[name])
        assert len(cases) == COUNTS[name]
        for case in cases:
            found = judged(target, case)
            assert found.used <= 1, (found.index, found.got, found.expected, found.used, case)


@pytest.mark.parametrize("name", ["numba.scalar", "mlx.sdpa", "transformers.sdpa"])
def test_wrong_heads_are_caught(name: str) -> None:
    """The same backend, handed the key/value heads in another order, is outside its bound."""
    target = loaded(name)

    def rotated(query: Any, key: Any, value: Any, **options: Any) -> Any:
        order = [*range(1, key.shape[1]), 0]
        if target.declaration.arrays == "mlx":
            import mlx.core as mx

            order = mx.array(order)
        return target.function(query, key[:, order], value[:, order], **options)

    wrong = dataclasses.replace(target, function=rotated)
    cases = [c for c in plain_cases(target, "float32", 60) if c.num_kv_heads > 1]
    assert all_pass(target, cases)
    assert not all_pass(wrong, cases)


@pytest.mark.parametrize("way", ["bool", "float"])
@pytest.mark.parametrize("name", [*QUICK, "openvino.sdpa"])
def test_rows_that_see_nothing_hold_what_is_declared(name: str, way: str) -> None:
    target = loaded(name)
    case = AttentionCase(
        num_kv_heads=2, group_size=2, q_len=2, kv_len=3, head_dim=8, values="normal",
        mask=Mask(form=way, empty_rows=1),
    )  # fmt: skip
    inputs = attention_inputs(case)
    row = target.call(inputs).output[:, :, 0]
    policy = target.declaration.masked_rows
    if policy == "uniform_or_nan":
        policy = "nan" if way == "float" else "uniform"
    match policy:
        case "zeros":
            assert (row == 0).all()
        case "nan":
            assert np.isnan(row).all()
        case "uniform":
            mean = inputs.value.mean(axis=2)[:, inputs.kv_head_of]
            np.testing.assert_allclose(row, mean, rtol=0, atol=1e-6)
        case other:
            pytest.fail(f"{name} declares masked_rows={other!r}")


@pytest.mark.parametrize("name", EVERY)
def test_heads_that_do_not_divide_are_refused(name: str) -> None:
    inputs = attention_inputs(AttentionCase(num_kv_heads=3, kv_len=3, head_dim=8, values="normal"))
    uneven = inputs.but(key=inputs.key[:, :2], value=inputs.value[:, :2])
    outcome = loaded(name).call(uneven)
    assert outcome.status == "refused"
    assert "num_heads=3 must be a multiple of num_kv_heads=2" in outcome.text


@pytest.mark.parametrize("name", ["numba.scalar", "mlx.sdpa", "transformers.eager"])
def test_causal_is_at_the_declared_corner(name: str) -> None:
    """Swapping the declared corner breaks what held: the corner is really exercised."""
    target = loaded(name)
    case = AttentionCase(
        group_size=2, q_len=3, kv_len=6, head_dim=8, values="normal", causal="lower_right"
    )
    assert judged(target, case).passes
    assert not judged(target, case.but(causal="upper_left")).passes


@pytest.mark.slow
def test_windows_of_jax_are_those_of_the_contract() -> None:
    target = loaded("jax.dot_product_attention")
    case = AttentionCase(q_len=3, kv_len=5, head_dim=8, values="normal", window=2)
    assert judged(target, case).passes
    assert not judged(target, case.but(window=3, mask=Mask(pattern="padding"))).vacuous
    assert isinstance(target.supports(case.but(q_len=7)), str)


@pytest.mark.slow
def test_one_environment_holds_them_together() -> None:
    """Opening one backend must not make another unavailable: all answer, one after the other."""
    case = AttentionCase(group_size=2, q_len=2, kv_len=4, head_dim=8, values="normal")
    names = [name for name in COUNTS if registry.entries()[name].available() is True]
    targets = [loaded(name) for name in names]
    assert [judged(target, case).passes for target in [*targets, *reversed(targets)]] == [True] * (
        2 * len(names)
    )
