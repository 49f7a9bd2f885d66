"""The study of fewer key/value heads: its text, its training, its verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from equivalence.errors import InvalidRequest
from equivalence.quality import training
from equivalence.quality.corpus import Corpus, corpus_of, own_text
from equivalence.quality.gpt2 import Gpt2, Shape
from equivalence.quality.study import Plan, Study, run
from equivalence.quality.training import Curve, Recipe, bits_per_token, train
from equivalence.quality.verdict import doubts, remarks, rows_of

SHAPE = Shape(num_layers=1, num_heads=4, num_kv_heads=4, head_dim=2, vocabulary=256, max_tokens=16)
QUICK = Recipe(steps=6, learning_rate=1e-2, batch_size=2, tokens=16, scores=3, score_tokens=256)
PLAN = Plan(shape=SHAPE, kv_heads=(2, 1), pretraining=QUICK, uptraining=QUICK)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("text")
    for number in range(10):
        (folder / f"{number}.txt").write_text(f"{number} and again, " * 40)
    return corpus_of(sorted(folder.iterdir()))


def test_parts_share_no_file(tmp_path: Path) -> None:
    letters = "abcdefghijklmnopqrst"
    for letter in letters:
        (tmp_path / f"{letter}.txt").write_text(letter * 300)
        (tmp_path / f"copy of {letter}.txt").write_text(letter * 300)
    cut = corpus_of(list(tmp_path.iterdir()))
    parts = [set(part.tolist()) for part in (cut.train, cut.calibration, cut.test)]
    assert set.union(*parts) == set(letters.encode())
    assert sum(map(len, parts)) == len(letters), "each letter is in one part"
    assert list(map(len, parts)) == [16, 2, 2]
    assert cut.sizes() == {"train": 4800, "calibration": 600, "test": 600}


def test_the_order_and_names_of_files_do_not_matter(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text(f"{number}" * 300)
    files = sorted(tmp_path.iterdir())
    first, second = corpus_of(files), corpus_of(files[::-1])
    assert torch.equal(first.train, second.train)
    assert first.digest == second.digest


def test_one_file_is_cut_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("a" * 8000 + "b" * 1000 + "c" * 1000)
    cut = corpus_of([tmp_path / "book.txt"])
    kinds = [set(part.tolist()) for part in (cut.train, cut.calibration, cut.test)]
    assert kinds == [{97}, {98}, {99}]


def test_too_little_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("too short")
    with pytest.raises(InvalidRequest, match="the text leaves 7 tokens to train; 256 are needed"):
        corpus_of([tmp_path / "short.txt"])


def test_own_text_is_enough() -> None:
    assert sum(path.stat().st_size for path in own_text()) > 500_000
    assert len(set(own_text())) == len(own_text())


def test_a_model_that_knows_nothing_scores_the_uniform_guess(corpus: Corpus) -> None:
    model = Gpt2(SHAPE)
    with torch.no_grad():
        model.wte.weight.zero_()  # so all logits are 0
    assert bits_per_token(model, corpus.test, QUICK) == pytest.approx(8, abs=1e-5)


def test_bits_are_those_of_the_definition(corpus: Corpus) -> None:
    torch.manual_seed(0)
    model = Gpt2(SHAPE).double()
    recipe = replace(QUICK, score_tokens=33)
    windows = [corpus.test[:17], corpus.test[16:33]]
    bits = []
    for window in windows:
        logits = model(window[None, :-1].long())[0]
        for position, token in enumerate(window[1:].tolist()):
            bits.append(-math.log2(logits[position].softmax(0)[token].item()))
    assert bits_per_token(model, corpus.test, recipe) == pytest.approx(sum(bits) / len(bits))


def test_training_learns(corpus: Corpus) -> None:
    torch.manual_seed(0)
    curve = train(Gpt2(SHAPE), corpus, replace(QUICK, steps=40), seed=0)
    assert curve.steps[0] == 0
    assert curve.steps[-1] == 40
    assert curve.bits < curve.untrained_bits - 1
    assert curve.train[0] is None


def test_the_best_step_is_chosen_on_calibration_alone() -> None:
    curve = Curve(
        steps=[0, 1, 2], train=[None, 1, 1], calibration=[3.0, 1.0, 2.0], test=[3.0, 2.5, 1.5]
    )
    assert (curve.best, curve.untrained_bits, curve.bits) == (1, 3.0, 2.5)


class Stopped(Exception):
    pass


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_going_on_from_a_checkpoint_is_as_if_nothing_had_stopped(
    corpus: Corpus, tmp_path: Path, stop: int
) -> None:
    def fresh() -> Gpt2:
        torch.manual_seed(0)
        return Gpt2(SHAPE)

    def halt(done: int, total: int) -> None:
        if done == stop:
            raise Stopped

    whole = fresh()
    expected = train(whole, corpus, QUICK, seed=3)
    path = tmp_path / "one.pt"
    with pytest.raises(Stopped):
        train(fresh(), corpus, QUICK, seed=3, checkpoint=path, progress=halt)
    resumed = fresh()
    curve = train(resumed, corpus, QUICK, seed=3, checkpoint=path)
    assert (curve.steps, curve.calibration, curve.test) == (
        expected.steps, expected.calibration, expected.test,
    )  # fmt: skip
    for name, weight in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], weight)


def test_every_model_and_the_control_see_the_same_batches(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, list[Any]] = {}
    real = training.loss_of

    def watched(model: Gpt2, batch: Any, reduction: str = "mean") -> Any:
        if reduction == "mean":
            seen.setdefault(model.shape.num_kv_heads, []).append(batch)
        return real(model, batch, reduction)

    monkeypatch.setattr(training, "loss_of", watched)
    study = run(replace(PLAN, seeds=(0,), pretraining=replace(QUICK, steps=1)), corpus)
    assert set(study.curves) == {(4, 0), (2, 0), (1, 0)}
    control = seen[4][-QUICK.steps :]
    for heads in (2, 1):
        assert all(map(torch.equal, seen[heads], control))


def test_a_study_goes_on_from_its_folder_and_refuses_that_of_another(
    corpus: Corpus, tmp_path: Path
) -> None:
    plan = replace(PLAN, seeds=(0,))
    first = run(plan, corpus, checkpoints=tmp_path)
    calls: list[str] = []
    again = run(plan, corpus, checkpoints=tmp_path, progress=lambda stage, *_: calls.append(stage))
    assert calls == [], "nothing was trained anew"
    assert again.curves == first.curves
    with pytest.raises(InvalidRequest, match="holds another run"):
        run(replace(plan, method="first"), corpus, checkpoints=tmp_path)


def study_of(corpus: Corpus, bits: dict[int, tuple[float, float]], seeds: int = 3) -> Study:
    """A study whose curves go from one number to another, a little apart by seed."""
    study = Study(plan=replace(PLAN, seeds=tuple(range(seeds))), corpus=corpus)
    for heads, (before, after) in bits.items():
        for seed in range(seeds):
            ends = [before + 0.01 * seed, after + 0.01 * seed]
            study.curves[heads, seed] = Curve(
                steps=[0, 6], train=[None, after], calibration=ends, test=ends
            )
    return study


CLEAR = {4: (3.0, 2.5), 2: (4.0, 2.7), 1: (5.0, 2.9)}
UNCLEAR: dict[str, tuple[dict[int, tuple[float, float]], int, str]] = {
    "no rise": (
        {**CLEAR, 1: (3.9, 2.9)}, 3,
        "untrained bits do not rise from 2 to 1 key/value heads (4.010 to 3.910)",
    ),
    "no recovery": (
        {**CLEAR, 1: (5.0, 4.6)}, 3,
        "training recovers nothing at 1 key/value heads: 2.000 bits from the control before, "
        "2.100 after",
    ),
    "no better than chance": (
        {4: (8.1, 2.5), 2: (8.2, 2.52), 1: (8.3, 2.53)}, 3,
        "the model itself scores 8.11 bits, no better than the 8.00 of a uniform guess",
    ),
    "too few seeds": (CLEAR, 2, "2 of the three seeds that a comparison needs were run"),
}  # fmt: skip


def test_a_clear_study_has_no_doubts(corpus: Corpus) -> None:
    study = study_of(corpus, CLEAR)
    rows = rows_of(study)
    assert doubts(study, rows) == []
    assert [row.kv_heads for row in rows] == [4, 2, 1]
    assert rows[2].gap == pytest.approx(0.4)
    assert rows[2].untrained_perplexity == pytest.approx(2**5.01)
    assert remarks(study, rows) == ["still improving at the last step: 4, 2, 1 key/value heads"]


@pytest.mark.parametrize(("bits", "seeds", "why"), UNCLEAR.values(), ids=UNCLEAR.keys())
def test_doubts(corpus: Corpus, bits: dict[int, tuple[float, float]], seeds: int, why: str) -> None:
    study = study_of(corpus, bits, seeds)
    assert why in doubts(study, rows_of(study))


@settings(deadline=None)
@given(
    before=st.lists(st.floats(0, 20), min_size=3, max_size=3),
    after=st.lists(st.floats(0, 20), min_size=3, max_size=3),
)
def test_no_doubt_means_a_rise_and_a_recovery(
    corpus: Corpus, before: list[float], after: list[float]
) -> None:
    study = study_of(corpus, dict(zip((4, 2, 1), zip(before, after, strict=True), strict=True)))
    rows = rows_of(study)
    lost = [row.untrained - rows[0].untrained for row in rows]
    clear = lost == sorted(set(lost)) and before[0] < 7.98
    clear = clear and all(row.gap < one for row, one in zip(rows[1:], lost[1:], strict=True))
    if not doubts(study, rows):
        assert clear
