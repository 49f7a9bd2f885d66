"""A wrong request: one line that names the value, exit code 2, no traceback, nothing written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from equivalence import cli
from tests.commands import Run

WRONG = {
    "no such function": (
        ["check", "kernels.py:rihgt"],
        "kernels.py:rihgt: kernels.py has no rihgt; did you mean right?",
    ),
    "no such file": (["check", "kernel.py:right"], "there is no file kernel.py; did you mean"),
    "no such name": (["check", "torch.repeat_kvv"], "did you mean torch.repeat_kv"),
    "not callable": (["check", "kernels.py:not_callable"], "not_callable is a int, not a callable"),
    "one wrong of two": (["check", "kernels.py:right", "kernels.py:wrong"], "has no wrong"),
    "examples below 1": (["check", "--examples", "-1"], "--examples -1 must be at least 1"),
    "examples without end": (
        ["check", "--examples", "100000000000000000000000"],
        "--examples 100000000000000000000000 is more than a search does, 10000000 at most",
    ),
    "examples zero": (["check", "--examples", "0"], "--examples 0 must be at least 1"),
    "examples a word": (["check", "--examples", "many"], "'many' is not a whole number"),
    "seconds": (["check", "--seconds", "0"], "--seconds 0.0 must be a number above 0"),
    "seconds nan": (["check", "--seconds", "nan"], "--seconds nan must be a number above 0"),
    "seed": (["check", "--seed", "-2"], "--seed -2 must be at least 0"),
    "memory": (["check", "--memory", "-1"], "--memory -1.0 must be a number above 0"),
    "time per call": (["check", "--max-time-per-call", "x"], "'x' is not a number"),
    "workers": (["check", "--workers", "0"], "--workers 0 must be a number above 0"),
    "workers of calls that are timed": (
        ["check", "kernels.py:right", "--workers", "2", "--timings"],
        "--workers 2: calls that are timed are alone, leave out --timings or --workers",
    ),
    "workers of nothing": (
        ["check", "--against", "torch.sdpa", "--workers", "2"],
        "--workers 2 is for every backend side by side, or for one TARGET",
    ),
    "heads in a range": (
        ["check", "kernels.py:right", "--declare", "head_dims=64-128"],
        "--declare head_dims=64-128: expected a whole number or several as in (64,128), got a word",
    ),
    "number for a word": (
        ["check", "kernels.py:right", "--declare", "lse=3"],
        "--declare lse=3: expected a word, got a whole number",
    ),
    "no fact, and near none": (
        ["check", "kernels.py:right", "--declare", "window=3"],
        "--declare window=3: window cannot be declared here (known: arrays, ",
    ),
    "kernel of another kind": (
        ["check", "kernels.py:packed"],
        "cu_seqlens_q has no default, and is no option of attention: it is one of varlen "
        "(--kind varlen)",
    ),
    "kernel of attention as one of another kind": (
        ["check", "kernels.py:right", "--kind", "paged"],
        "kernels.py:right: has no parameter page_table or block_table or block_tables, which paged "
        "always gives; add it, or declare its kind",
    ),
    "widths": (
        ["check", "kernels.py:right", "--declare", "latent=maybe"],
        "--declare latent=maybe: expected true, or widths as in (512,64)",
    ),
    "fact of another kind": (
        ["check", "kernels.py:right", "--declare", "latent=true"],
        "declared latent=True is a fact of kind kv_cache, and this target is of kind attention",
    ),
    "fact of another kind, registered": (
        ["check", "rotary.torch", "--declare", "evicts=oldest"],
        "declared evicts='oldest' is a fact of kind kv_cache, and this target is of kind rotary",
    ),
    "fact twice": (
        ["check", "kernels.py:right", "--declare", "causal=upper_left,causal=lower_right"],
        "causal is declared twice, as upper_left and as lower_right",
    ),
    "dtype that is not declared": (
        ["check", "kernels.py:right", "--dtype", "float32", "--declare", "dtypes=bfloat16"],
        "--dtype float32: none of the declared dtypes (bfloat16)",
    ),
    "kind twice": (
        ["check", "kernels.py:right", "--kind", "attention", "--declare", "kind=mla"],
        "kind is declared twice, as mla and as attention",
    ),
    "option without a default": (
        ["check", "kernels.py:lengths_needed"],
        "kernels.py:lengths_needed: cache_seqlens has no default, and is left out where a case",
    ),
    "unknown parameter without a default": (
        ["check", "kernels.py:metadata_needed"],
        "kernels.py:metadata_needed: attn_metadata has no default, and is no option of attention",
    ),
    "rotary of two tensors": (
        ["check", "kernels.py:two_at_once", "--kind", "rotary"],
        "takes query, key by position, and then positions; rotary is called with x, positions",
    ),
    "rotary option without a default": (
        ["check", "kernels.py:turned", "--kind", "rotary"],
        "kernels.py:turned: theta has no default, and is left out where a case has none",
    ),
    "class": (["check", "kernels.py:Layer"], "kernels.py:Layer: is a class; name a function"),
    "option by a keyword that is not there": (
        ["check", "kernels.py:right", "--declare", "options={'window': 'nosuch'}"],
        "kernels.py:right: declared to take window as 'nosuch', but it has no such parameter",
    ),
    "option by a keyword that is not there, registered": (
        ["check", "torch.sdpa", "--declare", "options={'window': 'nosuch'}"],
        "torch.sdpa: declared to take window as 'nosuch', but it has no such parameter",
    ),
    "map twice": (
        ["check", "m.onnx", "--map", "query=a", "--declare", "inputs={'query': 'b'}"],
        "inputs is declared twice, as {'query': 'b'} and as {'query': 'a'}",
    ),
    "law": (
        ["check", "--law", "causalty"],
        "--law causalty: there is no such law; did you mean causality",
    ),
    "dtype": (["check", "--dtype", "bf16"], "did you mean bfloat16?"),
    "kind": (["check", "--kind", "rotarry"], "--kind rotarry is not one of attention, "),
    "declared key": (
        ["check", "--declare", "causl=upper_left"],
        "--declare causl=upper_left: causl cannot be declared here; did you mean causal?",
    ),
    "declared value": (["check", "--declare", "causal=upper"], "causal='upper' is not one of"),
    "declared type": (
        ["check", "--declare", "deterministic=maybe"],
        "--declare deterministic=maybe: expected true or false, got a word",
    ),
    "declared in code only": (["check", "--declare", "supports=x"], "supports cannot be declared"),
    "declared without value": (["check", "--declare", "causal"], "takes name=value pairs, not"),
    "device": (["check", "--device", "warp9"], "--device warp9 is not available here: "),
    "arrays": (["check", "--arrays", "tinygrad"], "--arrays tinygrad is not one of torch, "),
    "json in no folder": (["check", "--json", "no/where.json"], "there is no folder no"),
    "json a folder": (["check", "--json", "."], "--json . is a folder; name a file in it"),
    "json unwritable": (["check", "--json", "/proc/r.json"], "--json /proc/r.json cannot be"),
    "two outputs in one file": (
        ["check", "--json", "run.json", "--html", "./run.json"],
        "--json and --html both write to ./run.json; name a place for each",
    ),
    "two outputs on stdout": (
        ["backends", "--json", "-", "--markdown", "-"],
        "--markdown and --json both write to -; name a place for each",
    ),
    "script unwritable": (["check", "--script", "/proc/r"], "--script /proc/r cannot be written"),
    "like not there": (["check", "--like", "config.json"], "--like config.json: no such file"),
    "option": (["check", "--exmaples", "3"], "No such option: --exmaples"),
    "command": (["chek"], "No such command 'chek'"),
    "replay without case": (["replay", "kernels.py:right"], "Missing argument 'CASE'"),
    "replay of a huge case": (
        ["replay", "kernels.py:right", "AttentionCase(q_len=99999999, kv_len=99999)"],
        "the case needs more than 74,505 GiB; --memory 4 is the limit",
    ),
    "replay of no expression": (
        ["replay", "kernels.py:right", "AttentionCase("],
        "cannot read the case 'AttentionCase('",
    ),
    "replay of code": (
        ["replay", "kernels.py:right", "__import__('os').abort()"],
        "is not one of the known constructors",
    ),
    "replay of a bad field": (
        ["replay", "kernels.py:right", "AttentionCase(num_kv_head=2)"],
        "AttentionCase has no field num_kv_head; did you mean num_kv_heads?",
    ),
    "replay of a bad law": (
        ["replay", "kernels.py:right", "AttentionCase()", "--law", "x"],
        "--law x: there is no such law",
    ),
    "law of another kind": (
        ["check", "kernels.py:right", "--law", "rotary-agrees-with-float64"],
        "is about rotary, and kernels.py:right is declared as attention",
    ),
    "law of another kind, asked": (
        ["check", "--kind", "attention", "--law", "rotary-agrees-with-float64"],
        "there is no such law for attention",
    ),
    "one target to compare": (["compare", "kernels.py:right"], "give two targets or more"),
    "against nothing": (["check", "kernels.py:right", "--against", "x.py:y"], "no file x.py"),
    "probe dtype": (["probe", "kernels.py:right", "--dtype", "int8"], "--dtype int8 is not one"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG.keys())
def test_is_refused_in_one_line(run: Run, folder: Path, arguments: list[str], said: str) -> None:
    before = sorted(folder.rglob("*.json")), sorted(folder.glob("*"))
    finished = run(*arguments)
    assert finished.code == 2
    assert finished.out == ""
    assert finished.err.startswith("equivalence: ")
    assert said in finished.err
    assert finished.err.count("\n") == 1
    after = (
        sorted(folder.rglob("*.json")),
        sorted(p for p in folder.glob("*") if "__" not in p.name),
    )
    assert after == before


LIKE = {
    "not JSON": ("{", "it is not JSON"),
    "no object": ("[1]", "it holds a list, not an object"),
    "no heads": ({}, "it has no num_attention_heads"),
    "contradiction": (
        {"num_attention_heads": 6, "num_key_value_heads": 4, "head_dim": 8},
        "num_attention_heads=6 must be a multiple of num_key_value_heads=4",
    ),
    "uneven": (
        {"num_attention_heads": 6, "hidden_size": 32},
        "hidden_size=32 must be a multiple of num_attention_heads=6",
    ),
    "no width": ({"num_attention_heads": 6}, "it has neither head_dim nor hidden_size"),
    "text": ({"num_attention_heads": "6"}, "num_attention_heads='6' must be a whole number"),
    "true": ({"num_attention_heads": True}, "num_attention_heads=True must be a whole number"),
    "zero": (
        {"num_attention_heads": 6, "num_key_value_heads": 0},
        "num_key_value_heads=0 must be a whole number",
    ),
    "nested text": ({"text_config": 3}, "text_config is a int, not an object"),
}


@pytest.mark.parametrize(("config", "said"), LIKE.values(), ids=LIKE.keys())
def test_a_config_that_says_nothing_clear_is_refused(
    run: Run, folder: Path, config: object, said: str
) -> None:
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text)
    finished = run("check", "kernels.py:right", "--like", "config.json")
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith("equivalence: --like config.json: ")
    assert said in finished.err
    assert finished.err.count("\n") == 1


def test_a_file_that_does_not_import_is_refused_with_its_line(run: Run, folder: Path) -> None:
    (folder / "broken.py").write_text("import torch\n\n1 / 0\n")
    finished = run("check", "broken.py:attention")
    assert finished.code == 2
    assert "broken.py, line 3: ZeroDivisionError: division by zero" in finished.err


def test_no_command_shows_the_help(run: Run) -> None:
    finished = run()
    assert finished.code == 2
    assert finished.out.startswith("Usage: equivalence ")


def test_an_error_of_our_own_is_no_fault_of_the_target(
    run: Run, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("equivalence.hunting.check_target", fails)
    finished = run("check", "kernels.py:right", "kernels.py:chatty", "--json", "report.json")
    assert finished.code == 70
    assert "an error in attention-equivalence itself, not in the target" in finished.err
    report = json.loads((folder / "report.json").read_text())
    assert [target["held"] for target in report["targets"]] == [None, None]
    assert report["exit_code"] == 70


def test_an_error_outside_any_target_is_ours_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("equivalence.cli.validation.known_laws", fails)
    finished = run("laws")
    assert finished.code == 70
    assert finished.err.splitlines()[-1].startswith(
        "equivalence: an error in attention-equivalence"
    )


def test_reading_the_arguments_imports_nothing_heavy(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr("sys.argv", ["equivalence", "chek"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
