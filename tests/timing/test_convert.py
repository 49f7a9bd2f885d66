"""Converters are timed on what they were judged on; one that drops something gets no time."""

from __future__ import annotations

import pytest

from equivalence import cli
from equivalence.calling import LocalTarget
from equivalence.registry import entries
from equivalence.timing.convert import ConvertPlan, convert_in_words, timed_conversions
from equivalence.timing.plan import Sizes

SMALL = Sizes(num_heads=4, kv_len=24, head_dim=8)


def kept(module, example_inputs):
    """A converter that changes nothing."""
    return module


def without_scale(module, example_inputs):
    """A converter that loses the scale of the scores."""

    def call(query, key, value):
        return module(3.0 * query, key, value)

    return call


def refuses(module, example_inputs):
    raise ValueError("an operator is missing")


def target(function):
    return LocalTarget.of(function, name=function.__name__, facts={"kind": "converter"})


def test_right_wrong_and_refused() -> None:
    plan = ConvertPlan(
        targets=[target(kept), target(without_scale), target(refuses)],
        formulations=("repeat_kv", "q_fold_decode"),
        kv_heads=(2,),
        dtypes=("float32",),
        sizes=SMALL,
        rounds=3,
    )
    ((rows, _),) = timed_conversions(plan, lambda *_: None)
    found = {row.subject: row for row in rows}
    assert len(found) == 6
    for name in ("repeat_kv", "q_fold_decode"):
        right = found[f"kept {name}"]
        assert right.time is not None
        assert right.extras["convert s"] > 0
        assert right.materialises is (name == "repeat_kv")
        wrong = found[f"without_scale {name}"]
        assert (wrong.held, wrong.time) == (False, None)
        assert found[f"refuses {name}"].why == "ValueError: an operator is missing"
    words = convert_in_words(rows)
    assert "refuses has no answer to be timed for repeat_kv, q_fold_decode" in words


@pytest.mark.slow
def test_core_ml_repeats_heads_in_its_graph_unless_they_are_folded() -> None:
    plan = ConvertPlan(
        targets=[entries()["coreml.trace"].load()],
        formulations=("repeat_kv", "sdpa_gqa", "sdpa_fold"),
        kv_heads=(2,),
        sizes=SMALL,
        rounds=3,
    )
    ((rows, _),) = timed_conversions(plan, lambda *_: None)
    found = {row.subject.partition(" ")[2]: row for row in rows}
    assert found["repeat_kv"].extras["repeats"] == 2
    assert found["repeat_kv"].extras["repeated MiB"] == 2 * 4 * 24 * 8 * 2 / 2**20
    assert found["sdpa_fold"].extras["repeats"] == 0
    assert found["sdpa_gqa"].time is None
    assert "coreml.trace repeats shared heads in its graph for repeat_kv" in convert_in_words(rows)


def test_another_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["time", "convert", "--only", "torch.q_fold"]) == 2
    said = capsys.readouterr().err
    assert said == (
        "equivalence: time convert is about converter, and torch.q_fold is declared as attention\n"
    )
