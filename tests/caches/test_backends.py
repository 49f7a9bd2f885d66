"""Every cache of this package keeps every law; the quantised bound holds, and is not loose."""

import pytest
import torch

from equivalence.engine import Request, check_target
from equivalence.registry import entries

torch.set_num_threads(1)
CACHES = sorted(name for name, backend in entries().items() if backend.kind == "kv_cache")


@pytest.mark.parametrize("name", CACHES)
def test_a_cache_of_ours_keeps_every_law(name, count_checks):
    backend = entries()[name]
    if backend.available() is not True:
        pytest.skip(str(backend.available()))
    dtype = "bfloat16" if "int8" in name else "float32"
    request = Request(examples=4, dtypes=(dtype,), seed=1)
    result = check_target(backend.load(), request)
    assert result.held is True, [(f.law, f.case, f.trouble.text) for f in result.failures]
    count_checks(result)
    summary = result.shares.summary()
    assert summary["refused"] <= 0.15
    assert summary["vacuous"] <= 0.2


@pytest.mark.parametrize(
    "name",
    ["cache.int8_per_head", pytest.param("cache.int8_per_channel", marks=pytest.mark.slow)],
)
def test_the_quantised_bound_is_used_and_never_exceeded(name, count_checks):
    laws = ("cache-agrees-with-float64",)
    request = Request(examples=80, dtypes=("float32",), laws=laws)
    result = check_target(entries()[name].load(), request)
    (law,) = result.laws
    assert law.held is True
    count_checks(result)
    assert 0.4 < law.used <= 1.0
    assert law.examples >= 54
