"""What docs/architecture.md shows works as it stands there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from equivalence import contract, declaration, kinds
from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.diagnosis import diagnose
from equivalence.diagnosis.table import FAMILIES
from equivalence.domain import Domain
from equivalence.engine import Request, check_target
from equivalence.laws import LAWS, law_named
from equivalence.probes import Asker, NotAnswered
from equivalence.registry import entries
from equivalence.replay import CASES
from equivalence.results import RunResult
from equivalence.subject import Subject
from equivalence.verdict import Trouble

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CASE = AttentionCase(
    num_kv_heads=2, group_size=2, q_len=2, kv_len=5, head_dim=8, values="normal", seed=1
)


def example(name: str) -> ModuleType:
    """The module that the page's example ``name`` is."""
    found = re.search(rf"<!-- example: {name} -->\n```python\n(.+?)```\n", PAGE, re.DOTALL)
    assert found, f"docs/architecture.md has no example {name}"
    module = ModuleType(f"architecture_example_{name}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(found[1], f"docs/architecture.md: {name}", "exec"), module.__dict__)
    return module


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What an example registers is forgotten after its test."""
    kept = [(table, set(table)) for table in (LAWS, CASES)]
    families = list(FAMILIES["attention"])
    yield
    for table, names in kept:
        for name in set(table) - names:
            del table[name]
    FAMILIES["attention"][:] = families
    for name in [name for name in sys.modules if name.startswith("architecture_example_")]:
        del sys.modules[name]


def test_every_path_that_is_named_exists():
    named = set(re.findall(r"`((?:equivalence|tests|docs|strategies|backends)/[\w/.]*)`", PAGE))
    assert len(named) > 30
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_a_backend():
    target = LocalTarget.of(example("backend").attention, name="torch.einsum")
    result = check_target(target, Request(examples=6, dtypes=("float32", "bfloat16")))
    assert result.held is True
    assert not result.refuses_grouped


def test_a_law():
    example("law")
    law, domain = law_named("scale-follows-queries"), Domain()
    assert law.sentence == "Twice the queries at half the scale give the same output."

    def verdict(function):
        target = LocalTarget.of(function, name="kernel")
        return law.check(law.adapt(CASE, domain), Subject(target, domain))

    right = entries()["torch.repeat_kv"].load().function
    assert verdict(right).status == "held"
    wrong = verdict(lambda query, key, value, *, scale=None: right(query, key, value))
    assert wrong.status == "broken"
    assert "before its queries were doubled" in wrong.trouble.text


def test_a_kind(monkeypatch: pytest.MonkeyPatch):
    row = contract.Contract(caller="architecture_example_kind", tensors=("scores",))
    monkeypatch.setitem(contract.CONTRACTS, "softmax", row)
    monkeypatch.setattr(declaration, "KINDS", (*declaration.KINDS, "softmax"))
    monkeypatch.setitem(kinds.MODULES, "softmax", "architecture_example_kind")
    kind = example("kind").KIND
    right = kind.open(lambda scores: scores.softmax(-1), "right", {})
    assert check_target(right, Request(examples=20)).held is True
    wrong = kind.open(lambda scores: scores.softmax(0), "wrong", {})
    (failure, *_) = check_target(wrong, Request(examples=20)).failures
    assert failure.law == "softmax-agrees-with-float64"
    assert failure.case.length == 1  # a softmax over the other axis shows at one place


def test_a_probe():
    page, target = example("probe"), entries()["torch.repeat_kv"].load()
    asked = page.value_width(Asker(target, Domain(), "float32"))
    assert asked == page.ValueWidth(given=4, returned=4)
    narrow = Domain(value_head_dim_differs=False)
    assert page.value_width(Asker(target, narrow, "float32")) == NotAnswered(
        why="values must be as wide as queries"
    )


def test_a_hypothesis():
    example("hypothesis")
    right = entries()["torch.repeat_kv"].load().function

    def kernel(query, key, value):
        return right(query, key, value) / query.shape[1]

    target = LocalTarget.of(kernel, name="kernel")
    found = diagnose(target, Domain(), CASE, Trouble(kind="outside-bound", text="disagrees"))
    assert found.text == "the output is divided by the number of query heads"


def test_a_report():
    target = LocalTarget.of(torch.nn.functional.scaled_dot_product_attention, name="sdpa")
    request = Request(examples=5, dtypes=("float32",), laws=("agrees-with-float64",))
    text = example("report").markdown(RunResult(targets=[check_target(target, request)]))
    assert text.startswith("## sdpa\n\n")
    assert "- agrees-with-float64: held" in text
