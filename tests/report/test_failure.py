"""The block that a failure prints."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from equivalence.report.failure import failure_lines
from equivalence.report.numbers import percent, short, ulps, value
from equivalence.results import Failure
from equivalence.verdict import Trouble

STYLE = """\
OutsideBound: torch.sdpa_gqa disagrees with float64 attention at output[0, 2, 0, 17]
  got       0.4375  (bfloat16)      expected  0.43359
  error     3.9e-3, 2.0 ulp         allowed   1.6e-3  (244% used, profile flash)
  outside   41 of 192 elements, all in query head 2
  cause     head-mapping: query head 2 reads kv head 0, expected 1; \
the map found is interleaved (h % num_kv_heads)
  case      AttentionCase(num_kv_heads=2, group_size=2, dtype="bfloat16")
  replay    equivalence replay torch.sdpa_gqa \
'AttentionCase(num_kv_heads=2, group_size=2, dtype="bfloat16")'"""


def test_reads_like_the_style_guide(failure: Failure) -> None:
    assert "\n".join(failure_lines("torch.sdpa_gqa", failure)) == STYLE


@pytest.mark.parametrize(
    "trouble",
    [
        Trouble(kind="crash", text="RuntimeError: CUDA error: an illegal memory access"),
        Trouble(kind="wrong-shape", text="output has shape [1, 2, 1, 1], expected [1, 4, 1, 1]"),
        Trouble(
            kind="non-finite",
            text="disagrees with float64 attention at output[0, 0, 0, 0]",
            index=(0, 0, 0, 0),
            got=math.nan,
            expected=1.0,
            error=math.nan,
            allowed=1e-3,
            used=math.inf,
            outside=1,
            total=1,
            where="spread over the whole output",
            profile="eager",
        ),
        Trouble(
            kind="hidden-keys",
            text="disagrees with the output before hidden keys changed at output[0, 0, 1, 0]",
            index=(0, 0, 1, 0),
            got=1.0,
            expected=1.00390625,
            error=2.0**-8,
            allowed=0.0,
            used=math.inf,
            outside=1,
            total=2,
        ),
        Trouble(kind="masked-rows", text="a row that sees no key holds NaN", got=math.nan),
    ],
    ids=lambda trouble: trouble.kind,
)
def test_every_kind_of_trouble(
    trouble: Trouble, failure: Failure, snapshot: SnapshotAssertion
) -> None:
    shown = failure_lines("mine.py:attention", replace(failure, trouble=trouble, law="a-law"))
    assert "\n".join(shown) == snapshot


def test_a_script_is_named_last(failure: Failure) -> None:
    lines = failure_lines("mine.py:attention", replace(failure, script="failing/one.py"))
    assert lines[-1] == "  script    failing/one.py"


def test_numbers_that_differ_never_read_alike() -> None:
    near = 0.433590001
    assert value(0.43359, "bfloat16", near) != value(near, "bfloat16", 0.43359)
    assert value(0.1, "float32") == "0.1"


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.83, "0.83"), (3.9e-3, "3.9e-3"), (1.0, "1"), (2e-7, "2e-7"), (431.0, "431"),
     (8388608.0, "8.4e6"), (math.inf, "inf"), (-0.5, "-0.5")],
)  # fmt: skip
def test_short(number: float, text: str) -> None:
    assert short(number) == text


def test_a_small_share_never_reads_as_nothing() -> None:
    assert [percent(share) for share in (0, 0.001, 0.412, 1)] == ["0%", "0.1%", "41%", "100%"]


@pytest.mark.parametrize(
    ("expected", "dtype", "spacing"),
    [(1.0, "float32", 2.0**-23), (1.99, "bfloat16", 2.0**-7), (0.5, "float16", 2.0**-11),
     (-4.0, "float64", 2.0**-50), (0.0, "float16", 2.0**-24), (1e-7, "float16", 2.0**-24)],
)  # fmt: skip
def test_ulps_are_spacings(expected: float, dtype: str, spacing: float) -> None:
    assert ulps(3 * spacing, expected, dtype) == 3


def test_no_ulps_of_what_is_not_finite() -> None:
    assert ulps(math.nan, 1.0, "float32") is None
    assert ulps(1.0, math.inf, "float32") is None
    assert ulps(1.0, 1.0, "float8_e4m3") is None
