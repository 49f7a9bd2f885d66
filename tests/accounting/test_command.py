"""`equivalence kvspec`: its table, its JSON, what it refuses, and that it stays light."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from equivalence import cli
from equivalence.accounting import model_names

HEAVY = ("hypothesis", "matplotlib", "torch", "transformers", "coremltools")
Capture = pytest.CaptureFixture[str]


def asked(capsys: Capture, *arguments: str) -> dict[str, Any]:
    assert cli.run(["kvspec", *arguments, "--json", "-"]) == 0
    printed = capsys.readouterr()
    assert printed.err, "the table goes to stderr"
    answer: dict[str, Any] = json.loads(printed.out)
    return answer


def test_gemma_2_2b_with_its_windows(capsys: Capture) -> None:
    answer = asked(capsys, "gemma-2-2b", "--context", "32768")
    (model,) = answer["models"]
    assert answer["schema"] == 1
    assert model["bytes_per_token"] == 106_496
    assert model["held_bytes_per_token"] == 59_904
    assert model["layers"][:2] == [
        {
            "layers": 1,
            "attends": "self",
            "window": window,
            "elements_per_token": 2048,
            "keeps": [{"name": name, "count": 4, "width": 256} for name in ("key", "value")],
        }
        for window in (4096, None)
    ]


def test_llama_on_12_gib(capsys: Capture) -> None:
    answer = asked(capsys, "llama-3.2-3b", "--memory", "12", "--weights", "6.4")
    assert answer["models"][0]["sequences_that_fit"] == 11


def test_a_config_of_ones_own(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64})
    )
    options = ["--dtype", "int4", "--scale-group", "8", "--page-size", "16", "--context", "17"]
    (model,) = asked(capsys, str(tmp_path), *options)["models"]
    assert model["bytes_per_token"] == 2 * 2 * 4 * (8 + 2 * 2)
    assert model["sequence_bytes"] == 32 * model["bytes_per_token"]


def test_devices(capsys: Capture) -> None:
    (model,) = asked(capsys, "llama-3.1-70b", "--tensor-parallel", "16")["models"]
    assert (model["replication"], model["bytes_per_token"]) == (2, 80 * 2 * 128 * 2)


def test_no_model_lists_them_all(capsys: Capture) -> None:
    assert [model["model"] for model in asked(capsys)["models"]] == list(model_names())


def test_table(capsys: Capture) -> None:
    assert cli.run(["kvspec", "gemma-2-2b", "--context", "32768", "--memory", "12"]) == 0
    head, row, stored, note = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["model", "layers", "heads"]
    assert " ".join(row.split()) == "gemma-2-2b 26 8 4 256 106,496 2x 59,904 1.83 GiB 5"
    assert stored == "stored as float16; bytes/token counts every layer at full length"
    assert note == "gemma-2-2b: 13 of 26 layers keep a window of 4,096"


def test_compare(capsys: Capture) -> None:
    shapes = asked(capsys, "--compare")["shapes"]
    assert [shape["shape"] for shape in shapes] == ["16 heads of 128", "a layer of DeepSeek-V2"]
    elements = [[one["elements"] for one in shape["designs"]] for shape in shapes]
    assert elements == [[4096, 1024, 576, 512, 256], [32768, 2048, 576, 256]]


def test_compare_at_a_shape_of_ones_own(capsys: Capture) -> None:
    asked_shape = ["--compare", "--heads", "8", "--head-dim", "64", "--kv-heads", "2"]
    (shape,) = asked(capsys, *asked_shape)["shapes"]
    assert [one["elements"] for one in shape["designs"]] == [1024, 288, 256, 128]


@pytest.mark.parametrize("name", ["deepseek-v2", "llama-3.2-3b"])
def test_compare_at_the_shape_of_a_model(capsys: Capture, name: str) -> None:
    (shape,) = asked(capsys, "--compare", name)["shapes"]
    first = shape["designs"][0]["elements"]
    assert first == {"deepseek-v2": 32768, "llama-3.2-3b": 6144}[name]


@pytest.mark.parametrize(
    "ending", ["svg", "html", *(pytest.param(e, marks=pytest.mark.slow) for e in ("png", "pdf"))]
)
def test_chart(capsys: Capture, tmp_path: Path, ending: str) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `report`")
    path = tmp_path / f"designs.{ending}"
    drawn = []
    for _ in range(2):
        assert cli.run(["kvspec", "--compare", "--chart", str(path)]) == 0
        drawn.append(path.read_bytes())
    start = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF", "html": b"<!doctype"}[ending]
    assert drawn[0].startswith(start)
    assert drawn[0] == drawn[1], "the same chart is the same file"
    if ending in ("svg", "html"):
        for said in ("MLA, latent 512+64", "32,768", "16 heads of 128"):
            assert said in drawn[0].decode()
    capsys.readouterr()


WRONG = {
    "unknown model": (["llama-9000b"], "llama-9000b is neither a config.json, nor a folder"),
    "no file": (["no/config.json"], "no/config.json: no such file or directory"),
    "dtype": (["gpt2", "--dtype", "fp16"], "--dtype fp16 is not one of float16,"),
    "scales": (["gpt2", "--scale-group", "8"], "float16 has no scales to group"),
    "context": (["gpt2", "--context", "0"], "--context 0 must be at least 1"),
    "page": (["gpt2", "--page-size", "0"], "--page-size 0 must be at least 1"),
    "encoder": (["t5-base", "--encoder-tokens", "-1"], "--encoder-tokens -1 must be at least 0"),
    "memory": (["gpt2", "--memory", "0"], "--memory 0.0 must be a number above 0"),
    "weights": (["gpt2", "--weights", "1"], "--weights says nothing without --memory"),
    "too heavy": (
        ["gpt2", "--memory", "1", "--weights", "1"],
        "weights of 1.00 GB do not fit into 90% of 1.00 GiB",
    ),
    "share": (["gpt2", "--memory", "1", "--share", "2"], "--share 2 must be above 0"),
    "devices": (["gpt2", "--tensor-parallel", "5"], "num_attention_heads=12 must be a multiple"),
    "shape alone": (["--heads", "4"], "--heads 4 is about --compare, which is not given"),
    "shape twice": (["gpt2", "--compare", "--heads", "4"], "--heads and --head-dim come from gpt2"),
    "kv heads": (["--compare", "--kv-heads", "4,x"], "--kv-heads '4,x' must be whole numbers"),
    "kv heads that do not divide": (["--compare", "--kv-heads", "5"], "multiple of num_kv_heads=5"),
    "chart ending": (["--compare", "--chart", "a.gif"], "--chart a.gif: the name must end in one"),
    "chart alone": (["gpt2", "--chart", "a.svg"], "--chart draws what --compare compares"),
    "json in no folder": (["gpt2", "--json", "no/where.json"], "there is no folder no"),
}


@pytest.mark.parametrize(("arguments", "why"), WRONG.values(), ids=WRONG.keys())
def test_wrong_request(capsys: Capture, arguments: list[str], why: str) -> None:
    assert cli.run(["kvspec", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert why in line


def test_chart_without_matplotlib_names_the_extra(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("equivalence.report.charts.find_spec", lambda _: None)
    assert cli.run(["kvspec", "--compare", "--chart", "a.svg"]) == 2
    assert "pip install 'attention-equivalence[report]'" in capsys.readouterr().err


def test_nothing_heavy_is_imported() -> None:
    asked = [["kvspec", "llama-3.2-3b"], ["kvspec", "--compare", "--json", "-"]]
    program = (
        f"import sys\nfrom equivalence.cli import run\nfor arguments in {asked!r}:\n"
        "    code = run(arguments)\n"
        f"    print('code', code, *sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    told = [line for line in finished.stderr.splitlines() if line.startswith("code ")]
    assert told == ["code 0", "code 0"]


def test_help_fits_a_terminal(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run(["kvspec", "--help"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    for option in ("--dtype", "--context", "--memory", "--weights", "--compare", "--json"):
        assert option in said
