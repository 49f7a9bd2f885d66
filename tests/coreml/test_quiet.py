"""What is left out while coremltools is imported is what it does not use, and can be had later."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from equivalence.coreml import quiet


def test_coremltools_asks_for_neither() -> None:
    found = quiet.coremltools()
    package = Path(found.__file__).parent
    sources = [p for p in package.rglob("*.py") if not {"test", "tests"} & set(p.parts)]
    naming = [p for p in sources if "_HAS_HF" in p.read_text()]
    assert [p.parent.name for p in naming] == ["_deps"]
    newest = re.findall(r"\d+", found._deps._SKLEARN_MAX_VERSION)[:2]
    assert tuple(map(int, newest)) == quiet.NEWEST_SKLEARN
    assert found._deps._HAS_SKLEARN is False  # as it says itself of the version that is installed


def test_what_is_left_out_can_be_had_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    monkeypatch.setattr(quiet, "_unread", lambda: ["wave"])
    with quiet._unread_left_out(), pytest.raises(ModuleNotFoundError):
        importlib.import_module("wave")
    assert importlib.import_module("wave").__name__ == "wave"


def test_what_is_there_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", sys)
    assert "transformers" not in quiet._unread()


@pytest.mark.parametrize(("version", "left_out"), [("1.5.1", False), ("1.6.0", True)])
def test_a_scikit_learn_that_it_converts_is_left_to_it(
    version: str, left_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "sklearn", raising=False)
    monkeypatch.setattr(quiet, "version", lambda _: version)
    assert ("sklearn" in quiet._unread()) is left_out
