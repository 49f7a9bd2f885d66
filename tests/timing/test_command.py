"""`equivalence time`: whole runs on small tensors, what they write, and what they refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from equivalence import cli
from equivalence.report.json import from_json
from equivalence.timing.history import earlier_run, same_machine

KERNELS = """
import torch

sdpa = torch.nn.functional.scaled_dot_product_attention


def right(query, key, value):
    return sdpa(query, key, value, enable_gqa=True)


def interleaved(query, key, value):
    group = query.shape[1] // key.shape[1]
    return sdpa(query, key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1))


def aborts(query, key, value):
    import os
    os.abort()


def raises(query, key, value):
    raise RuntimeError("no kernel for this shape")
"""
SMALL = ["--heads", "4", "--head-dim", "16", "--context", "64", "--rounds", "3", "--only",
         "--dtype", "float32"]  # fmt: skip
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.py").write_text(KERNELS)
    return tmp_path


def test_decode_from_the_table_to_the_files(capsys: Capture, folder: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `report`")
    asked = ["time", "decode", "torch.repeat_kv", "torch.fused_grouped", "kernels.py:right", *SMALL,
             "--kv-heads", "4,2,1", "--history", "times.jsonl"]  # fmt: skip
    assert cli.run([*asked, "--json", "run.json", "--figures", "drawn", "--trace"]) == 0
    shown = capsys.readouterr().out
    (traced,) = re.findall("^torch.repeat_kv float32: (.*)$", shown, re.MULTILINE)
    assert "expand 1x2x2x64x16 shares" in traced
    assert "clone 1x2x2x64x16 copies" in traced
    assert "kv heads" in shown
    assert "x floor" in shown
    assert "GB/s from memory" in shown
    assert "copy the cache: torch.repeat_kv (at 2 KV heads)" in shown
    assert (folder / "drawn" / "decode-float32.png").read_bytes()[1:4] == b"PNG"
    drawn = (folder / "drawn" / "decode-float32.svg").read_text()
    assert "key/value heads" in drawn
    assert "floor: the cache read once" in drawn

    report = from_json((folder / "run.json").read_text())
    assert report.timing is not None
    assert len(report.timing.rows) == 9
    for row in report.timing.rows:
        assert row.held is True
        assert row.time is not None
        assert 0 < row.time.minimum <= row.time.median
        assert len(row.time.samples) == 3
        assert row.cache_bytes == 2 * row.sizes["num_kv_heads"] * 64 * 16 * 4
        assert row.flops == 4 * 4 * 64 * 16
    by_name = {target.target: target for target in report.targets}
    repeat = by_name["torch.repeat_kv"]
    assert repeat.held is True
    label = "float32, 1 batch, 2 kv heads, 64 context"
    assert (
        repeat.allocation[f"{label}: bytes"]
        > by_name["torch.fused_grouped"].allocation[f"{label}: bytes"]
    )
    assert f"{label}: over 4 kv heads" in repeat.ratios
    assert f"{label}: over the fastest" in repeat.ratios

    again = [*asked, "--against", "times.jsonl"]
    assert cli.run(again) == 0
    assert "9 rows compared" in capsys.readouterr().out
    assert len((folder / "times.jsonl").read_text().splitlines()) == 2
    earlier = earlier_run(folder / "run.json", "decode")
    assert earlier == report.timing
    assert same_machine(earlier, earlier) == []


def test_a_wrong_answer_gets_no_time(capsys: Capture) -> None:
    asked = ["time", "decode", "kernels.py:right", "kernels.py:interleaved", "kernels.py:raises"]
    assert cli.run([*asked, *SMALL, "--kv-heads", "2", "--json", "-"]) == 1
    printed = capsys.readouterr()
    rows = {row["subject"]: row for row in json.loads(printed.out)["timing"]["rows"]}
    assert rows["kernels.py:right"]["time"] is not None
    assert rows["kernels.py:interleaved"]["time"] is None
    assert rows["kernels.py:interleaved"]["held"] is False
    assert rows["kernels.py:raises"]["time"] is None
    assert "no time: wrong answer: " in printed.err
    assert "RuntimeError: no kernel for this shape" in printed.err


def test_a_named_target_without_a_time_is_no_success(capsys: Capture) -> None:
    asked = ["time", "decode", "kernels.py:right", "kernels.py:raises"]
    assert cli.run([*asked, *SMALL, "--kv-heads", "2", "--json", "-"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["exit_code"] == 1
    assert "kernels.py:raises float32 " in printed.err
    assert "no time: RuntimeError: no kernel for this shape" in printed.err


def test_a_gate_asserts_on_bytes_and_ratios_of_one_run(capsys: Capture, folder: Path) -> None:
    asked = [
        "time",
        "decode",
        *SMALL,
        "--kv-heads",
        "4,2",
        "--json",
        "run.json",
        "kernels.py:right",
    ]
    assert cli.run(asked) == 0
    assert cli.run(["gate", "--baseline", "accepted.json", "--update", "run.json"]) == 0
    assert cli.run(["gate", "--baseline", "accepted.json", "run.json"]) == 0
    report = json.loads((folder / "run.json").read_text())
    (target,) = report["targets"]
    for row in report["timing"]["rows"]:
        row["time"]["minimum"] *= 100
    target["timings"] = {name: 100 * value for name, value in target["timings"].items()}
    (folder / "slower.json").write_text(json.dumps(report))
    assert cli.run(["gate", "--baseline", "accepted.json", "slower.json"]) == 0
    label = "float32, 1 batch, 2 kv heads, 64 context"
    target["allocation"][f"{label}: bytes"] += 1
    target["ratios"][f"{label}: over 4 kv heads"] *= 2
    (folder / "copying.json").write_text(json.dumps(report))
    capsys.readouterr()
    assert cli.run(["gate", "--baseline", "accepted.json", "copying.json"]) == 1
    looser = [line for line in capsys.readouterr().out.splitlines() if line.startswith("looser")]
    assert len(looser) == 2
    assert "allocation" in looser[0]
    assert "ratio" in looser[1]


def test_an_interrupted_run_keeps_what_it_knew(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from equivalence.timing import decode

    measured = decode.measured

    def once(*entries: object, stage: str, **facts: object) -> object:
        if "bfloat16" in stage:
            raise KeyboardInterrupt
        return measured(*entries, stage=stage, **facts)

    monkeypatch.setattr(decode, "measured", once)
    asked = ["time", "decode", "torch.q_fold", *SMALL, "--dtype", "bfloat16", "--kv-heads", "2"]
    assert cli.run([*asked, "--json", "-"]) == 130
    report = json.loads(capsys.readouterr().out)
    assert [row["dtype"] for row in report["timing"]["rows"]] == ["float32"]
    assert report["interrupted"] is True
    assert report["timing"]["remarks"][-1] == "interrupted: this is what was known"


def test_a_kernel_that_ends_its_process_ends_only_that(capsys: Capture) -> None:
    asked = ["time", "decode", "torch.q_fold", "kernels.py:aborts", *SMALL, "--kv-heads", "2"]
    assert cli.run(asked) == 3
    shown = capsys.readouterr().out
    assert "kernels.py:aborts float32" in shown
    assert "no time: crashed: " in shown
    assert "fastest: torch.q_fold" in shown


def test_prefill(capsys: Capture) -> None:
    asked = ["time", "prefill", "torch.grouped_matmul", "torch.sdpa_gqa_flash", "kernels.py:right"]
    assert cli.run([*asked[:-1], *SMALL, "--kv-heads", "2"]) == 0
    assert "float32, 2 KV heads: fastest: " in capsys.readouterr().out
    assert cli.run([*asked, *SMALL, "--kv-heads", "2"]) == 1
    assert "no time: has no causal option" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["encode"], "time encode is not one of decode, prefill, mla, rotary, convert"),
        (["decode", "--kv-heads", "5"], "--kv-heads 5 must divide --heads 32"),
        (["decode", "--kv-heads", "x"], "'x' is not a whole number of at least 1"),
        (["decode", "--rounds", "1"], "--rounds 1 must be at least 3"),
        (["decode", "--only"], "--only needs at least one TARGET"),
        (["decode", "--batch", "1,2"], "--batch 1,2: this takes one number"),
        (
            ["rotary", "--kv-heads", "2"],
            "--kv-heads is about decode and prefill, and not about rotary",
        ),
        (["rotary", "--head-dim", "7"], "--head-dim 7"),
        (["decode", "--queries", "3"], "--queries is about prefill"),
        (["decode", "--context", "1000000000"], "give a smaller --batch or --context"),
        (["decode", "--dtype", "float12"], "float12"),
        (["decode", "torch.nothing"], "torch.nothing"),
        (["decode", "--against", "kernels.py"], "neither a report of `equivalence time` nor"),
        (["decode", "--against", "missing.json"], "cannot be read"),
        (["decode", "--history", "no/such/file"], "there is no folder"),
        (["decode", "--torch", "newest"], "--torch 'newest' is not a version such as 2.9.1"),
        (["decode", "--torch", "1.13.0"], "enable_gqa came with 2.5"),
    ],
)
def test_a_wrong_request_is_one_line(capsys: Capture, arguments: list[str], said: str) -> None:
    assert cli.run(["time", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert said in printed.err


def test_a_history_without_such_a_run_is_refused(capsys: Capture) -> None:
    Path("other.jsonl").write_text('{"schema": 1, "timing": null}\n')
    assert cli.run(["time", "mla", "--against", "other.jsonl"]) == 2
    assert "holds no run of `equivalence time mla`" in capsys.readouterr().err
