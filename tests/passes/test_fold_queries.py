"""The fold is held to the graph before it, over generated layouts, and so are weaker folds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings

from equivalence.audit.account import Account, account_of
from equivalence.audit.agreement import output_of, step_numbers
from equivalence.audit.converting import audit_package, saved_package
from equivalence.audit.packages import open_package
from equivalence.audit.read_mil import read_mil
from equivalence.audit.recipes import Recipe
from equivalence.coreml.conversion import conversion_noise_kept
from equivalence.coreml.quiet import coremltools
from equivalence.passes import recognising
from equivalence.passes.fold_queries import Folded, fold_queries, folding_pipeline
from tests.passes.layouts import Attention, Layout, converted, furthest, layouts, outputs
from tests.passes.layouts import example as example_tensors

CLOSE = 1e-12


def account(program: Any) -> Account:
    return account_of(read_mil(program), name="graph")


def gate(layout: Layout) -> tuple[float, Folded, Account, Account]:
    """Fold a layout: how far its outputs move, what became of it, and both accounts."""
    program = converted(layout)
    first, before = outputs(program, layout), account(program)
    report = fold_queries(program)
    return furthest(first, outputs(program, layout)), report, before, account(program)


CALM = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@settings(CALM, max_examples=150)
@given(layout=layouts)
def test_many_folded_graphs_compute_the_same(layout: Layout) -> None:
    is_folded_as_it_may(layout)


@settings(CALM, max_examples=3)
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
    is_folded_as_it_may(layout)


def is_folded_as_it_may(layout: Layout) -> None:
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


@pytest.mark.parametrize(
    ("cache", "q_len"),
    [
        ("inputs", 1),
        pytest.param("state", 1, marks=pytest.mark.slow),
        pytest.param("inputs", 3, marks=pytest.mark.slow),
        ("state", 3),
    ],
)
def test_a_saved_model_of_two_layers_is_folded(cache: str, q_len: int, tmp_path: Path) -> None:
    recipe = Recipe.of_model("exaone-4.0-1.2b", layers=2, context=24, cache=cache, q_len=q_len)
    program = open_package(saved_package(recipe, tmp_path)).program
    numbers = step_numbers(recipe)
    first, before = output_of(program, numbers, "double"), account(program)
    report = fold_queries(program)
    assert (len(report.folded), report.refused) == (2, {})
    assert float((output_of(program, numbers, "double") - first).abs().max()) <= CLOSE
    after = account(program)
    assert (len(before.of_heads), len(after.of_heads)) == (4, 0)
    assert after.state_writes == before.state_writes
    assert after.total_ops < before.total_ops


def test_conversion_with_the_pass_saves_a_graph_without_tiles(tmp_path: Path) -> None:
    layout = Layout(num_kv_heads=2, group_size=3, mask="shared")
    ct = coremltools()
    names = example_tensors(layout)
    with conversion_noise_kept():
        traced = torch.jit.trace(Attention(layout), tuple(names.values()), check_trace=False)
        model = ct.convert(
            traced,
            inputs=[ct.TensorType(name=n, shape=x.shape) for n, x in names.items()],
            minimum_deployment_target=ct.target.iOS18,
            compute_precision=ct.precision.FLOAT32,
            pass_pipeline=folding_pipeline(),
            skip_model_load=True,
        )
    path = tmp_path / "folded.mlpackage"
    model.save(str(path))
    assert audit_package(path).of_heads == []
    program = open_package(path).program
    assert furthest(outputs(converted(layout), layout), outputs(program, layout)) <= CLOSE


def test_decoding_takes_two_reshapes_and_prefill_four() -> None:
    for q_len, reshapes in ((1, 2), (2, 4)):
        program = converted(Layout(q_len=q_len, mask="shared"))
        fold_queries(program)
        assert account(program).histogram == {
            "add": 1, "matmul": 2, "mul": 1, "reshape": reshapes, "softmax": 1,
        }  # fmt: skip
