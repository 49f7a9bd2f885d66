"""Every backend in torch and numpy keeps every law, known faults aside; the plugin counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from equivalence.engine import Request, check_target
from equivalence.registry import entries
from equivalence.results import TargetResult

EXAMPLES = 8
SLOW_CALLS = {"torch.flex_attention": 2}  # about 9 ms a call in eager mode
BACKENDS = [
    name
    for name, backend in entries().items()
    if backend.kind == "attention" and name.startswith(("torch.", "numpy."))
]
DTYPES = ("float32", "float64", "float16", "bfloat16")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(
            name,
            dtype,
            marks=[pytest.mark.slow] if name in SLOW_CALLS and dtype != "bfloat16" else [],
        )
        for name in BACKENDS
        for dtype in DTYPES
    ],
)
def test_backend_keeps_every_law(
    name: str,
    dtype: str,
    record_property: Callable[[str, object], None],
    count_checks: Callable[[TargetResult], None],
) -> None:
    examples = SLOW_CALLS.get(name, EXAMPLES)
    result = check_target(entries()[name].load(), Request(dtypes=(dtype,), examples=examples))
    assert [(f.law, f.case, f.trouble.text) for f in result.failures] == []
    assert result.held is True
    shares = result.shares.summary()
    assert shares["checks"] > 8 * examples
    count_checks(result)
    text = " ".join(f"{name}={value:g}" for name, value in shares.items())
    record_property("equivalence.shares", text)
