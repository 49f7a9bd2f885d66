"""The fold is held to the graph before it, over generated layouts, and so are weaker folds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

from equivalence.audit.account import Account, account_of
from equivalence.audit.read_mil import read_mil
from equivalence.passes import recognising
from equivalence.passes.fold_queries import Folded, fold_queries
from tests.passes.layouts import Layout, converted, furthest, layouts, outputs

CLOSE = 1e-12


def account(program: Any) -> Account:
    return account_of(read_mil(program), name="graph")


def gate(layout: Layout) -> tuple[float, Folded, Account, Account]:
    """Fold a layout: how far its outputs move, what became of it, and both accounts."""
    program = converted(layout)
    first, before = outputs(program, layout), account(program)
    report = fold_queries(program)
    return furthest(first, outputs(program, layout)), report, before, account(program)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(layout=layouts)
@example(layout=Layout())
@example(layout=Layout(key_order="interleaved", value_order="interleaved"))
@example(layout=Layout(value_order="interleaved"))
@example(layout=Layout(mixing="over_heads"))
@example(layout=Layout(mixing="mean", num_kv_heads=1))
@example(layout=Layout(way="index", q_len=3, mask="per_head", batch_size=2))
@example(layout=Layout(num_kv_heads=1, batch_size=1, q_len=2))
@example(layout=Layout(way="stack"))  # becomes one concat with interleave
def test_folded_graph_computes_the_same_and_only_what_it_may_is_folded(layout: Layout) -> None:
    error, report, before, after = gate(layout)
    assert error <= CLOSE
    assert after.attention_macs == before.attention_macs
    if layout.foldable is False:
        assert not report.folded
        assert after.histogram == before.histogram
    elif layout.foldable:
        assert report.refused == {}
        assert len(report.folded) == 1
        assert (len(before.of_heads) > 0, after.of_heads) == (True, [])


def weaken(monkeypatch: pytest.MonkeyPatch, *checks: str) -> None:
    for check in checks:
        if check == "ROWWISE":
            monkeypatch.setattr(recognising, check, ("elementwise", "softmax", "opaque"))
        else:
            monkeypatch.setattr(recognising, check, lambda *_, **__: True)


@pytest.mark.parametrize(
    ("checks", "layout"),
    [
        (
            ("_require_grouped", "_repeats"),
            Layout(key_order="interleaved", value_order="interleaved", num_kv_heads=3),
        ),
        (("_require_grouped", "_repeats"), Layout(key_order="uneven", value_order="uneven")),
        (("_require_grouped", "_repeats"), Layout(value_order="interleaved", num_kv_heads=3)),
        (("_repeats",), Layout(key_changed=True)),
        (("_require_rowwise",), Layout(mixing="over_heads", way="index")),
        (("_require_rowwise", "ROWWISE"), Layout(mixing="mean")),
    ],
    ids=["interleaved", "uneven", "values", "changed-keys", "softmax-over-heads", "mean-of-heads"],
)
def test_a_fold_that_checks_less_is_caught_by_the_gate(
    checks: tuple[str, ...], layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    weaken(monkeypatch, *checks)
    recognising._KNOWN.clear()
    error, report, _, _ = gate(layout)
    assert report.folded
    assert error > 1e-3


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (Layout(key_order="interleaved"), "its key heads are matched in interleaved order"),
        (Layout(value_order="uneven"), "its value heads are matched in other order"),
        (Layout(mixing="over_heads"), "runs over axis 1, not over keys"),
        (Layout(mixing="mean"), "may mix heads between scores and values"),
        (Layout(key_changed=True), "its keys are not one tensor with each head repeated"),
        (Layout(read_again=True), "the repeated keys are read elsewhere too"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_says_why(layout: Layout, reason: str) -> None:
    program = converted(layout)
    (said,) = fold_queries(program).refused.values()
    assert reason in said


def test_decoding_takes_two_reshapes_and_prefill_four() -> None:
    for q_len, reshapes in ((1, 2), (2, 4)):
        program = converted(Layout(q_len=q_len, mask="shared"))
        fold_queries(program)
        assert account(program).histogram == {
            "add": 1, "matmul": 2, "mul": 1, "reshape": reshapes, "softmax": 1,
        }  # fmt: skip
