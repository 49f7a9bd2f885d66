"""What a list of expected failures may say, and what is said of one that says it wrong."""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equivalence.errors import InvalidRequest
from equivalence.xfails import Expected, parse_xfails, read_xfails, unmatched

TEXT = """\
# target | law | reason | expires

kernels.py:flash | visible-nan-is-kept | acme/kernels#123 | 2027-03-31
torch.sdpa|causality[bfloat16]|fixed in the next release|2027-01-15
"""


def test_entries_are_read() -> None:
    first, second = parse_xfails(TEXT)
    assert first == Expected(
        target="kernels.py:flash",
        law="visible-nan-is-kept",
        reason="acme/kernels#123",
        expires=datetime.date(2027, 3, 31),
        line=3,
    )
    assert (second.law, second.dtype, second.line) == ("causality", "bfloat16", 4)
    assert second.note == "expected failure until 2027-01-15: fixed in the next release"
    assert second.covers("causality", "bfloat16")
    assert not second.covers("causality", "float16")
    assert first.covers("visible-nan-is-kept", "float16")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("torch.sdpa causality", "line 1 is not TARGET | LAW or LAW[DTYPE] | REASON | YYYY-MM-DD"),
        ("torch.sdpa | causality | | 2027-01-15", "line 1 is not TARGET"),
        ("a | b | c | 2027-01-15 | d", "line 1 is not TARGET"),
        ("a | b | c | soon", "line 1: 'soon' is not a date, YYYY-MM-DD"),
        ("a | b | c | 2027-02-30", "line 1: '2027-02-30' is not a date"),
        ("a | b | c | 20270101", "line 1: '20270101' is not a date"),
        ("a | b[float33] | c | 2027-01-15", "line 1: dtype 'float33' is not one of"),
        ("a | b c | c | 2027-01-15", "line 1: 'b c' is not LAW or LAW[DTYPE]"),
        ("a | b | c | 2027-01-15\na | b | d | 2027-01-16", "line 2 repeats line 1"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(line: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_xfails(line)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidRequest):
        parse_xfails(text)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    for name, said in (("binary", "UTF-8"), ("missing", "no such file"), ("", "is a directory")):
        with pytest.raises(InvalidRequest, match=said):
            read_xfails(tmp_path / name)


def test_no_file_is_an_empty_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_xfails(None) == ()


def test_paths_start_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (entry,) = parse_xfails("sub/k.py:f | causality | why | 2027-01-15", folder=tmp_path)
    assert entry.is_about(f"{tmp_path}/sub/k.py:f")
    assert not entry.is_about("sub/k.py:f")


def test_an_entry_that_matches_nothing(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("f = print\n")

    def lines(target: str, law: str, *, whole: bool = False) -> list[str]:
        entries = parse_xfails(f"{target} | {law} | why | 2027-01-15", folder=tmp_path)
        return unmatched(entries, [("torch.sdpa", "attention")], whole=whole)

    assert lines("torch.sdpa", "causality") == []
    assert "there is no law causalty" in lines("torch.sdpa", "causalty")[0]
    assert "norms-are-kept is about rotary" in lines("torch.sdpa", "norms-are-kept")[0]
    assert lines("k.py:f", "causality") == []
    assert lines("torch.q_fold", "causality") == []
    assert "there is no target k.py:f" in lines("k.py:f", "causality", whole=True)[0]
    assert "there is no target k.py:g" in lines("k.py:g", "causality")[0]
    assert "there is no target torch.sdpb" in lines("torch.sdpb", "causality")[0]
