"""Drawn programs and packed cases reach far, and can show a fault: seeded, so that it stays so."""

from statistics import median

import pytest
import torch

from equivalence.engine import Request, check_target
from equivalence.registry import entries

torch.set_num_threads(1)
SEEDS = (0, 1, 2, 3, 4)  # what is drawn goes by what is imported, and few may well be short
# target, its law, and the least median of tokens, of which a window keeps fewer
DRAWN = [
    pytest.param("varlen.padded", "packed-agrees-with-float64", 20, marks=pytest.mark.slow),
    ("paged.gathered", "paged-agrees-with-float64", 20),
    pytest.param("cache.preallocated", "cache-agrees-with-float64", 20, marks=pytest.mark.slow),
    pytest.param("cache.ring", "cache-agrees-with-float64", 13, marks=pytest.mark.slow),
    pytest.param("cache.latent", "cache-agrees-with-float64", 14, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "law", "reach"), DRAWN)
def test_cases_are_long_and_few_of_them_are_vacuous(name, law, reach):
    target = entries()[name].load()
    lengths, judged, vacuous = [], 0, 0
    for seed in SEEDS:
        request = Request(examples=30, dtypes=("float32",), laws=(law,), seed=seed)
        result = check_target(target, request)
        assert result.held is True
        lengths += result.shares.kv_lens
        judged += result.laws[0].examples
        vacuous += result.laws[0].vacuous
    assert median(lengths) >= reach
    assert vacuous <= 0.06 * (judged + vacuous)
    assert judged >= 100
