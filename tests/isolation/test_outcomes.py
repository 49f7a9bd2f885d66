"""Whatever a kernel does to its process is an outcome with a text, and the next call works."""

from pathlib import Path

import psutil
import pytest
import torch

from equivalence.case import AttentionCase
from equivalence.inputs import attention_inputs
from equivalence.isolation.supervise import Limits
from equivalence.isolation.target import IsolatedTarget

KERNELS = Path(__file__).with_name("kernels.py")
INPUTS = attention_inputs(AttentionCase(q_len=2, kv_len=3, head_dim=8))


def opened(name, **limits):
    return IsolatedTarget(f"{KERNELS}:{name}", limits=Limits(**limits))


@pytest.fixture(scope="module", autouse=True)
def warm():
    """The first worker waits for torch to be imported; no test shall count that."""
    opened("well_behaved").close()


@pytest.mark.parametrize(
    ("kernel", "status", "text"),
    [
        ("aborts", "died", "killed by SIGABRT in aborts, kernels.py line {}: about to abort"),
        ("segfaults", "died", "killed by SIGSEGV in segfaults, kernels.py line {}"),
        ("exits", "died", "ended its process with exit code 0"),
        ("closes_everything", "died", "closed the connection of its worker process"),
        ("refuses", "refused", "NotImplementedError: head_dim above 64"),
        ("raises", "raised", "ZeroDivisionError: first line"),
        ("raises_unprintable", "raised", "ValueError: no text"),
        ("exits_softly", "raised", "SystemExit: 3"),
        ("interrupts", "raised", "KeyboardInterrupt"),
        ("objects", "returned", "returned what is not an array of numbers: "),
    ],
)
def test_a_call_that_ends_badly(kernel, status, text):
    target = opened(kernel)
    for _ in range(2):  # the second one in a new worker, where the first has died
        outcome = target.call(INPUTS)
        assert outcome.status == status
        assert "\n" not in outcome.text
        if "{}" in text:
            start, end = text.split("{}")
            assert outcome.text.startswith(start)
            assert outcome.text.endswith(end)
        else:
            assert outcome.text.startswith(text), outcome.text
    target.close()


@pytest.mark.parametrize(
    "kernel", ["prints", "closes_stdout", "starts_threads", "forks", "sets_threads"]
)
def test_a_call_with_side_effects_still_returns(kernel, capfd):
    threads = torch.get_num_threads()
    target = opened(kernel)
    for _ in range(3):
        outcome = target.call(INPUTS)
        assert (outcome.status, outcome.text) == ("returned", "")
        assert outcome.stored is not None
        assert (outcome.stored == INPUTS.query).all()
    target.close()
    assert torch.get_num_threads() == threads
    assert capfd.readouterr() == ("", ""), "a worker wrote into this process's output"


def test_what_a_worker_prints_is_kept():
    target = opened("prints")
    target.call(INPUTS)
    target.close()
    assert target.printed.splitlines() == [
        "to standard output",
        "to descriptor 1",
        "from a child",
        "to standard error",
    ]


@pytest.mark.parametrize(
    "kernel", ["loops", pytest.param("sleeps_holding_the_lock", marks=pytest.mark.slow)]
)
def test_a_hang_is_cut_off_and_the_next_one_sooner(kernel):
    target = opened(kernel, seconds=1.1)
    outcome = target.call(INPUTS)
    assert outcome.status == "hung"
    assert outcome.text.startswith(f"no answer after 1.1 s in {kernel}, kernels.py line ")
    assert target.call(INPUTS).text.startswith("no answer after 1 s")
    target.close()


def test_after_a_hang_other_cases_still_pass():
    target = opened("hangs_on_two_heads", seconds=0.6)
    two_heads = attention_inputs(AttentionCase(group_size=2))
    assert target.call(INPUTS).status == "returned"
    assert target.call(two_heads).status == "hung"
    assert target.call(INPUTS).status == "returned"
    target.close()


def test_memory_that_is_used_is_limited():
    target = opened("eats_memory", memory=200 << 20)
    outcome = target.call(INPUTS)
    assert outcome.status == "memory"
    assert outcome.text.endswith("above the limit of 200 MiB") or "allocate" in outcome.text
    target.close()


def test_memory_that_is_only_asked_for_is_limited():
    target = opened("asks_for_a_tebibyte")
    outcome = target.call(INPUTS)
    assert outcome.status == "memory"
    assert "you tried to allocate 1099511627776 bytes" in outcome.text
    target.close()


def test_a_death_after_the_answer_is_told_at_the_next_call():
    target = opened("dies_later")
    assert target.call(INPUTS).status == "returned"
    assert target.pid is not None
    psutil.wait_procs([psutil.Process(target.pid)], timeout=5)
    outcome = target.call(INPUTS)
    assert (outcome.status, outcome.text) == ("died", "ended its process with exit code 7")
    assert target.call(INPUTS).status == "returned"
    target.close()


def test_processes_of_a_kernel_end_with_its_worker():
    target = opened("starts_processes")
    outcome = target.call(INPUTS)
    assert outcome.stored is not None
    child = psutil.Process(int(outcome.stored[0]))
    assert child.is_running()
    target.close()
    assert psutil.wait_procs([child], timeout=5)[1] == []


@pytest.mark.parametrize(
    ("source", "status", "text"),
    [
        ("import os; os.abort()", "died", "importing it: killed by SIGABRT in <module>, "),
        ("import os; os._exit(9)", "died", "importing it: ended its process with exit code 9"),
        ("while True: pass", "hung", "importing it: no answer after 0.5 s in <module>, "),
    ],
)
def test_a_file_that_ends_the_process_that_imports_it(tmp_path, source, status, text):
    file = tmp_path / "deadly.py"
    file.write_text(f"{source}\ndef attention(q, k, v): return q\n")
    limits = Limits(import_seconds=0.5 if status == "hung" else 60.0)
    target = IsolatedTarget(f"{file}:attention", facts={"layout": "BSHD"}, limits=limits)
    assert target.trouble.startswith(text)
    assert target.declaration.layout == "BSHD"
    outcome = target.call(INPUTS)
    assert (outcome.status, outcome.text) == (status, target.trouble)
    assert target.supports(AttentionCase()) is True
    target.close()


def test_forgetting_a_target_ends_its_worker():
    target = opened("well_behaved")
    assert target.pid is not None
    worker = psutil.Process(target.pid)
    del target
    assert psutil.wait_procs([worker], timeout=5)[1] == []
