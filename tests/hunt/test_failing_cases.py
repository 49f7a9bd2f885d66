"""The folder of failing cases: shared by runs, and never the reason why one stops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from equivalence.case import AttentionCase
from equivalence.failing_cases import FailingCases
from equivalence.masks import Mask

ONE = ("agrees-with-float64", AttentionCase(num_kv_heads=2, group_size=2))
TWO = ("causality", AttentionCase(mask=Mask(form="float", hidden="-1e4"), values="peaky"))


@pytest.fixture
def store(tmp_path: Path) -> FailingCases:
    """A store in an empty folder."""
    return FailingCases(folder=tmp_path / "failing", target="kernels.py:flash")


def test_what_is_added_is_read_back_once(store: FailingCases) -> None:
    assert store.read() == []
    assert (store.add([ONE, TWO, ONE]), store.add([TWO])) == (2, 0)
    assert store.read() == [ONE, TWO]
    assert store.path.read_text() == (
        "# kernels.py:flash\n"
        "agrees-with-float64 AttentionCase(num_kv_heads=2, group_size=2)\n"
        'causality AttentionCase(mask=Mask(form="float", hidden="-1e4"), values="peaky")\n'
    )
    assert store.remarks == []


def test_targets_with_like_names_have_files_of_their_own(tmp_path: Path) -> None:
    names = ("a/b.py:f", "a_b.py:f", "b.py:f", "../../b.py:f", "x" * 5_000, "", "né\n:\ud800")
    stores = [FailingCases(folder=tmp_path, target=name) for name in names]
    assert len({store.path for store in stores}) == len(names)
    assert all(store.path.parent == tmp_path for store in stores)
    for store in stores:
        assert store.add([ONE]) == 1
        assert store.read() == [ONE]


def test_a_truncated_line_is_said_and_the_next_run_goes_on(store: FailingCases) -> None:
    store.add([ONE, TWO])
    store.path.write_bytes(store.path.read_bytes()[:-9])  # a run died while it wrote
    assert store.read() == [ONE]
    (said,) = store.remarks
    assert said.endswith("line 3 ends before its end of line (a run died there): ignored")
    again = FailingCases(folder=store.folder, target=store.target)
    assert again.add([TWO]) == 1
    assert again.read() == [ONE, TWO]
    assert "line 3 is ignored: cannot read the case" in again.remarks[-1]


@pytest.mark.parametrize(
    "line",
    [
        "agrees-with-float64 __import__('os').system('touch hacked')",
        "agrees-with-float64",
        "agrees-with-float64 " + "(" * 50_000,
        "agrees-with-float64 AttentionCase(num_kv_heads=1" + "0" * 9_000 + ")",
        "\x00\ufffd",
    ],
)
def test_a_hostile_line_is_said_and_skipped(store: FailingCases, line: str) -> None:
    store.add([ONE])
    with store.path.open("a") as file:
        file.write(f"{line}\n")
    store.add([TWO])
    assert store.read() == [ONE, TWO]
    (said,) = store.remarks
    assert "line 3 is ignored" in said
    assert len(said) < 500
    assert not Path("hacked").exists()


def test_a_full_disk_is_said(store: FailingCases, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes half of a line; the next run, with room again, loses nothing."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, whole: write(file, whole[: len(whole) // 2]))
    assert store.add([ONE, TWO]) == 0
    assert store.remarks == [f"{store.path} cannot be written: no space left on device"]
    monkeypatch.setattr(os, "write", write)
    assert store.add([ONE, TWO]) >= 1
    assert set(map(repr, store.read())) == set(map(repr, [ONE, TWO]))


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs /dev/zero")
def test_an_endless_file_is_said(store: FailingCases) -> None:
    store.folder.mkdir()
    store.path.symlink_to("/dev/zero")
    assert store.read() == []
    assert store.remarks == [f"{store.path} is larger than 16 MiB: ignored"]


def test_a_folder_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "failing").touch()
    store = FailingCases(folder=tmp_path / "failing", target="it")
    assert store.add([ONE]) == 0
    assert store.read() == []
    assert store.remarks
    assert all("cannot be" in said for said in store.remarks)


WRITER = """
import sys
from pathlib import Path
from equivalence.case import AttentionCase
from equivalence.failing_cases import FailingCases

store = FailingCases(folder=Path(sys.argv[1]), target="it")
for number in range(150):
    store.add([("causality", AttentionCase(seed=number * 3 + int(sys.argv[2])))])
assert not store.remarks
"""


def test_two_runs_in_one_folder_lose_nothing(tmp_path: Path) -> None:
    command = (sys.executable, "-c", WRITER, str(tmp_path))
    writers = [subprocess.Popen([*command, str(number)]) for number in (1, 2)]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    store = FailingCases(folder=tmp_path, target="it")
    seeds = {case.seed for _, case in store.read()}
    assert seeds == {3 * number + own for number in range(150) for own in (1, 2)}
    assert store.remarks == []
