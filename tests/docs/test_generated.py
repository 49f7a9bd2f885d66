"""What `python docs/generate.py` writes is what stands in docs/."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_current():
    stale = [
        name
        for name, text in generator().pages()
        if not (DOCS / name).is_file() or (DOCS / name).read_text("utf-8") != text
    ]
    assert stale == [], "run `python docs/generate.py`"


def test_no_page_is_left_of_a_finding_that_is_gone():
    written = {name for name, _ in generator().pages()}
    there = {f"findings/{path.name}" for path in (DOCS / "findings").glob("*.md")}
    assert there <= written
