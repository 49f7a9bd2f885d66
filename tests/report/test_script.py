"""The stand-alone script of a failing case, run where this package cannot be imported."""

from __future__ import annotations

import runpy
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.domain import Domain
from equivalence.errors import InvalidRequest
from equivalence.masks import Mask
from equivalence.report.script import standalone_script
from equivalence.results import Diagnosis, Failure
from equivalence.subject import Subject
from equivalence.verdict import Trouble

WITHOUT_THE_PACKAGE = """
import runpy, sys
sys.modules["equivalence"] = None
runpy.run_path(sys.argv[1], run_name="__main__")
"""
REPEATS_INTERLEAVED = """
import torch

def attention(query, key, value, *, attn_mask=None, is_causal=False, scale=None):
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1)
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale
    )

def bshd(query, key, value, causal=False, softmax_scale=None):
    trio = (x.transpose(1, 2) for x in (query, key, value))
    return attention(*trio, is_causal=causal, scale=softmax_scale).transpose(1, 2)

def writes(query, key, value):
    query.mul_(2.0)
    return torch.nn.functional.scaled_dot_product_attention(query / 2, key, value)

def narrow(query, key, value):
    return attention(query, key, value).half()

def moody(query, key, value):
    exact = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    return exact * (1 + 1e-7 * torch.rand(1))

def raises(query, key, value):
    raise RuntimeError("no such kernel")
"""
CASES = [
    AttentionCase(num_kv_heads=2, group_size=2),
    AttentionCase(
        batch_size=2, num_kv_heads=2, group_size=3, q_len=3, kv_len=5, head_dim=4,
        dtype="bfloat16", values="normal", seed=4, memory="sliced", causal="upper_left",
    ),
    AttentionCase(
        batch_size=2, num_kv_heads=2, group_size=3, q_len=3, kv_len=50, head_dim=4,
        dtype="float16", values="normal", memory="bshd", scale=0.25,
        mask=Mask(form="float", axes="bhq", pattern="random", size=50, bias=1.0, empty_rows=1),
    ),
    AttentionCase(
        num_kv_heads=2, group_size=2, q_len=9, kv_len=50, head_dim=64, dtype="float64",
        values="peaky", mask=Mask(pattern="padding", size=20, axes="b"),
    ),
]  # fmt: skip


def failure_of(path: Path, attribute: str, case: AttentionCase, **facts: object) -> Failure:
    namespace: dict[str, object] = {}
    exec(compile(path.read_text(), path, "exec"), namespace)
    function = namespace[attribute]
    assert callable(function)
    target = LocalTarget.of(function, name=f"{path.name}:{attribute}", facts=facts)
    subject = Subject(target, Domain())
    inputs = subject.inputs(case)
    trouble = subject.judge(inputs, subject.call(inputs)).trouble
    assert trouble is not None
    failure = Failure(
        law="agrees-with-float64", dtype=case.dtype, case=case, trouble=trouble,
        diagnosis=Diagnosis(kind="unknown", text="not asked"), replay="equivalence replay ...",
    )  # fmt: skip
    script = standalone_script(
        failure, target.name, declaration=target.declaration, options=target.options
    )
    path.with_name("script.py").write_text(script)
    return failure


@dataclass(frozen=True, slots=True)
class Finished:
    """How a script ended."""

    returncode: int
    stdout: str
    stderr: str


RunScript = Callable[[Path], Finished]


@pytest.fixture
def run_script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunScript:
    """Run a script in this process, which has torch already, without this package."""

    def run_script(folder: Path) -> Finished:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setitem(sys.modules, "equivalence", None)
        code: object = 0
        try:
            runpy.run_path("script.py", run_name="__main__")
        except SystemExit as stop:
            code = stop.code
        except Exception as error:
            code = "".join(traceback.format_exception_only(error)).rstrip()
        finally:
            sys.modules.pop("kernel", None)
            monkeypatch.undo()
        out, err = capsys.readouterr()
        if isinstance(code, str):
            return Finished(1, out, f"{err}{code}\n")
        return Finished(int(str(code)), out, err)

    return run_script


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text(textwrap.dedent(REPEATS_INTERLEAVED))
    return path


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.dtype}-{case.memory}")
def test_shows_the_same_numbers_without_this_package(
    kernel: Path, case: AttentionCase, run_script: RunScript
) -> None:
    trouble = failure_of(kernel, "attention", case, causal="upper_left").trouble
    finished = run_script(kernel.parent)
    assert finished.returncode == 1, finished.stderr
    assert f"FAULT at output{list(trouble.index)}" in finished.stdout
    got, expected = finished.stdout.split("got ")[1].split("  error")[0].split("  expected ")
    assert float(got) == trouble.got
    assert float(expected) == pytest.approx(trouble.expected, rel=1e-12, abs=1e-13)
    assert f"{trouble.outside} of " in finished.stdout


def test_runs_by_itself(kernel: Path) -> None:
    failure_of(kernel, "attention", CASES[1], causal="upper_left")
    finished = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_PACKAGE, "script.py"],
        cwd=kernel.parent, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (finished.returncode, finished.stderr) == (1, "")
    assert finished.stdout.startswith("FAULT at output[")


def test_exits_with_0_once_the_kernel_is_right(kernel: Path, run_script: RunScript) -> None:
    failure_of(kernel, "attention", CASES[0])
    kernel.write_text(kernel.read_text().replace(".repeat(1, group", ".repeat_interleave(group, 1"
                      ).replace("group, 1, 1, 1)", "group, dim=1)"))  # fmt: skip
    finished = run_script(kernel.parent)
    assert (finished.returncode, finished.stderr) == (0, "")


def test_bshd_with_causal_and_renamed_options(kernel: Path, run_script: RunScript) -> None:
    case = AttentionCase(
        num_kv_heads=2, group_size=2, q_len=3, kv_len=3, head_dim=2, scale=0.3,
        values="normal", causal="lower_right",
    )  # fmt: skip
    trouble = failure_of(kernel, "bshd", case, layout="BSHD").trouble
    finished = run_script(kernel.parent)
    assert finished.returncode == 1, finished.stderr
    assert f"got {trouble.got!r}" in finished.stdout


def test_wrong_dtype(kernel: Path, run_script: RunScript) -> None:
    failure_of(kernel, "narrow", AttentionCase())
    finished = run_script(kernel.parent)
    assert finished.returncode == 1
    assert finished.stderr == "FAULT: output is torch.float16, expected torch.float32\n"


@pytest.mark.parametrize(
    ("attribute", "kind", "said"),
    [
        ("writes", "input-mutation", "FAULT: the call wrote to query\n"),
        ("moody", "not-repeatable", "FAULT: a repeated call gives other bits\n"),
        ("raises", "crash", "RuntimeError: no such kernel\n"),
    ],
)
def test_faults_that_are_not_numbers(
    kernel: Path, attribute: str, kind: str, said: str, run_script: RunScript
) -> None:
    case = AttentionCase(values="normal", kv_len=3)
    failure = Failure(
        law="a-law", dtype="float32", case=case, trouble=Trouble(kind=kind, text="said so"),
        diagnosis=Diagnosis(kind="unknown", text="not asked"), replay="equivalence replay ...",
    )  # fmt: skip
    script = standalone_script(failure, f"kernel.py:{attribute}")
    kernel.with_name("script.py").write_text(script)
    finished = run_script(kernel.parent)
    assert finished.returncode == 1
    assert finished.stderr.endswith(said)


def test_a_law_over_several_calls_says_so(kernel: Path, run_script: RunScript) -> None:
    kernel.write_text(
        "import torch\nattention = torch.nn.functional.scaled_dot_product_attention\n"
    )
    failure = Failure(
        law="causality", dtype="float32", case=AttentionCase(),
        trouble=Trouble(kind="future-keys", text="disagrees with the output before"),
        diagnosis=Diagnosis(kind="unknown", text="not asked"),
        replay="equivalence replay kernel.py:attention 'AttentionCase()' --law causality",
    )  # fmt: skip
    script = standalone_script(failure, "kernel.py:attention")
    kernel.with_name("script.py").write_text(script)
    finished = run_script(kernel.parent)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.endswith(f"{failure.replay}\n")


@pytest.mark.parametrize("text", ["torch.repeat_kv", ":attention", "mine.py:", "a:b c"])
def test_a_target_that_no_script_can_import_is_refused(kernel: Path, text: str) -> None:
    failure = failure_of(kernel, "attention", CASES[0])
    with pytest.raises(InvalidRequest, match=r"module:attr or file\.py:attr"):
        standalone_script(replace(failure), text)
