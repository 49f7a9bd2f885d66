"""`--torch VERSION`: the same table in an environment of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from equivalence import cli
from equivalence.errors import InvalidRequest
from equivalence.timing import other_torch

SMALL = ["--heads", "4", "--head-dim", "16", "--context", "64", "--kv-heads", "2", "--rounds", "3",
         "--dtype", "float32", "--only", "torch.sdpa_gqa"]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_this_torch_in_an_environment_of_its_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version = torch.__version__.partition("+")[0]
    for _ in range(2):  # made, and then found
        assert cli.run(["time", "decode", "--torch", version, *SMALL, "--json", "-"]) == 0
        printed = capsys.readouterr()
        assert f'"torch": "{version}' in printed.out
    (made,) = (folder / "attention-equivalence").iterdir()
    assert (made / "complete").exists()
    assert made.name.startswith(f"torch-{version}-python")
    assert "making" not in printed.err


def test_what_pip_says_is_one_line(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(other_torch.venv, "create", lambda *_, **__: None)

    def fails(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[1:4] == ["-m", "pip", "install"]
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no torch\n9.9.9 anywhere")

    monkeypatch.setattr(other_torch.subprocess, "run", fails)
    with pytest.raises(InvalidRequest, match="pip cannot install it: ERROR: no torch 9"):
        other_torch.run_under("9.9.9", ["decode"])
    # What was left half made is made again.
    assert not (other_torch.cache_folder() / "complete").exists()


def test_the_path_does_not_lead_back_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "here")
    monkeypatch.setenv("KEPT", "1")
    clean = other_torch._clean()
    assert "PYTHONPATH" not in clean
    assert clean["KEPT"] == "1"
