"""`equivalence quality`: a whole run in seconds, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from equivalence import cli
from equivalence.quality.gpt2 import Gpt2, Shape

Capture = pytest.CaptureFixture[str]
CONFIG = {
    "model_type": "gpt2", "n_layer": 1, "n_head": 4, "n_embd": 8, "n_positions": 16,
    "vocab_size": 256,
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small GPT-2 in `model`, a text, and the folder that they are in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("the same words again and again. " * 400)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    torch.manual_seed(0)
    shape = Shape(
        num_layers=1, num_heads=4, num_kv_heads=4, head_dim=2, vocabulary=256, max_tokens=16
    )
    torch.save(Gpt2(shape).state_dict(), tmp_path / "model" / "pytorch_model.bin")
    return tmp_path


QUICK = ["--model", "model", "--text", "book.txt", "--steps", "2", "--kv-heads", "2,1"]


def test_a_local_model(capsys: Capture) -> None:
    code = cli.run(["quality", *QUICK, "--json", "-"])
    printed = capsys.readouterr()
    answer: dict[str, Any] = json.loads(printed.out)
    assert code == (0 if answer["conclusive"] else 1)
    assert [row["kv_heads"] for row in answer["rows"]] == [4, 2, 1]
    assert answer["uniform_bits"] == 8
    assert answer["seeds"] == [0, 1, 2]
    assert len(answer["curves"]) == 9
    assert {len(curve["test"]) for curve in answer["curves"]} == {3}
    for row in answer["rows"]:
        assert row["untrained_perplexity"] == pytest.approx(2 ** row["untrained_bits"])
    assert "to control" in printed.err
    assert "a uniform guess knows nothing" in printed.err
    assert "bytes, since the folder has no tokenizer" in printed.err


def test_a_model_that_knows_nothing_is_inconclusive(capsys: Capture) -> None:
    assert cli.run(["quality", *QUICK]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("inconclusive: ")


def test_the_tiny_model_and_its_figure(capsys: Capture, folder: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `report`")
    arguments = ["--steps", "1", "--pretrain-steps", "1", "--seeds", "1", "--kv-heads", "1"]
    code = cli.run(["quality", *arguments, "--text", "book.txt", "--figure", "cost.svg"])
    assert code == 1, "one step of one seed shows nothing"
    printed = capsys.readouterr().out
    assert "1 of the three seeds" in printed
    assert "these figures are about a tiny model on little text" in printed
    assert "key/value heads" in (folder / "cost.svg").read_text()


def test_safetensors_of_transformers(capsys: Capture, folder: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra `transformers`")
    transformers.logging.set_verbosity_error()
    fields = {name: value for name, value in CONFIG.items() if name != "model_type"}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**fields)).save_pretrained("saved")
    asked = ["quality", *QUICK, "--model", "saved", "--seeds", "1", "--kv-heads", "2"]
    assert cli.run([*asked, "--json", "saved.json"]) in (0, 1)
    assert json.loads((folder / "saved.json").read_text())["rows"][0]["kv_heads"] == 4
    capsys.readouterr()


WRONG = {
    "no folder": (["--model", "nowhere"], "--model nowhere is neither a folder nor tiny"),
    "no gpt2": (["--model", "llama"], "--model llama: model_type=llama is not gpt2"),
    "no weights": (["--model", "empty"], "no model.safetensors or pytorch_model.bin"),
    "kv heads": (["--kv-heads", "5"], "--kv-heads 5: the 12 heads must be a multiple of it"),
    "kv heads a word": (["--kv-heads", "all"], "--kv-heads 'all' must be whole numbers above 0"),
    "steps": (["--steps", "0"], "--steps 0 must be at least 1"),
    "seeds": (["--seeds", "0"], "--seeds 0 must be at least 1"),
    "pretraining": (["--pretrain-steps", "0"], "--pretrain-steps 0 must be at least 1"),
    "rate": (["--learning-rate", "0"], "--learning-rate 0.0 must be a number above 0"),
    "method": (["--method", "median"], "--method median is not one of mean, first, random"),
    "text": (["--text", "none.txt"], "--text none.txt: there is no such file"),
    "figure": (["--figure", "a.gif"], "--figure a.gif: the name must end in one of"),
    "device": (["--device", "warp9"], "--device warp9 is not available here"),
    "checkpoints": (["--checkpoints", "/proc/x"], "--checkpoints /proc/x cannot be written"),
}


@pytest.mark.parametrize(("arguments", "why"), WRONG.values(), ids=WRONG.keys())
def test_wrong_request(capsys: Capture, folder: Path, arguments: list[str], why: str) -> None:
    for name, family in (("llama", "llama"), ("empty", "gpt2")):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps({**CONFIG, "model_type": family}))
    assert cli.run(["quality", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert why in line
