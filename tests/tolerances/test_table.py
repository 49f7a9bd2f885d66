"""The file: what is written is read back, numbers err outwards, and hostile files are refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equivalence.errors import InvalidRequest
from equivalence.tolerances.table import from_toml, outward, read_table, to_toml

from .conftest import entry, table

words = st.text(max_size=20)
sizes = st.floats(0, allow_nan=False, allow_infinity=False)
entries = st.builds(
    entry, kind=words, profile=words, worst=words, used=sizes, k=st.none() | sizes, searched=words
)
tables = st.builds(
    table,
    st.dictionaries(words, st.dictionaries(words, entries, min_size=1, max_size=2), max_size=2),
    seed=st.integers(0, 2**53),
    environment=st.dictionaries(
        words, st.text() | st.integers() | st.booleans() | st.dictionaries(words, words, min_size=1)
    ),
)


@settings(max_examples=30)
@given(tables)
def test_what_is_written_is_read_back(written: object) -> None:
    # What TOML cannot say (half of a surrogate pair) is not drawn by st.text().
    assert from_toml(to_toml(written), source="it") == written  # type: ignore[arg-type]


def test_half_a_surrogate_does_not_spoil_the_file() -> None:
    text = to_toml(table({"a\ud800\x7f": {"float32": entry()}}))
    assert list(from_toml(text, source="it").tolerance) == ["a\\ud800\x7f"]


@given(st.floats(0, allow_nan=False, allow_infinity=False))
def test_numbers_err_outwards_and_by_less_than_a_tenth(number: float) -> None:
    rounded = outward(number)
    assert rounded >= number
    assert outward(rounded) == rounded
    if 1e-300 < number < 1e300:
        assert rounded <= number * 1.1 * (1 + 1e-12)
        assert float(f"{rounded:.1e}") == rounded


def test_two_digits() -> None:
    assert [outward(x) for x in (0.0, 0.5, 0.501, 123.4, 9.96e-4)] == [0.0, 0.5, 0.51, 130.0, 1e-3]
    assert math.isinf(outward(math.inf))


def test_backends_stand_by_name_and_dtypes_in_their_order() -> None:
    one = {"bfloat16": entry(), "float32": entry()}
    text = to_toml(table({"b": one, "a": {"float16": entry()}}))
    heads = [line for line in text.splitlines() if line.startswith("[tolerance.")]
    assert heads == ["[tolerance.a.float16]", "[tolerance.b.float32]", "[tolerance.b.bfloat16]"]


GOOD = to_toml(table({"a": {"float32": entry()}}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("schema = 1", "schema = 2"), "has schema 2; this version reads 1"),
        (GOOD[: len(GOOD) // 2], "is not a table of tolerances"),
        ("", "missing required field"),
        ("a = " + "[" * 100_000, "is not a table of tolerances"),
        (GOOD.replace("seed = 0", "seed = 1" + "0" * 5_000), "is not a table of tolerances"),
        (GOOD.replace("seed = 0", "seed = 1" + "0" * 30), "is not a table of tolerances"),
        (GOOD.replace("seed = 0", "seed = true"), "Expected `int`, got `bool`"),
        (GOOD.replace("used = 0.5", "used = -1"), "Expected `float` >= 0"),
        (GOOD.replace("used = 0.5", "used = nan"), "is not a table of tolerances"),
        (GOOD.replace("used = 0.5", 'used = "__import__(1)"'), "Expected `float`, got `str`"),
        (GOOD.replace("cases = 299", "cases = 298"), "was measured on 298 cases, below 299"),
        (GOOD + "surprise = 1\n", "contains unknown field `surprise`"),
        (GOOD + GOOD, "is not a table of tolerances"),
    ],
)
def test_a_file_that_is_none_gets_one_line(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^file\.toml ") as caught:
        from_toml(text, source="file.toml")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_gets_one_line(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name, said in (("missing", "no such file"), ("binary", "UTF-8"), ("", "is a directory")):
        with pytest.raises(InvalidRequest, match=said):
            read_table(tmp_path / name, "--check")
