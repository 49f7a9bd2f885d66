"""The dtypes of one target, shared with another process: what is found is the same."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from equivalence.cli.beside import Opening, OtherProcesses, other_processes
from equivalence.engine import check_target
from equivalence.isolation.opening import open_target
from equivalence.kinds import kind_named
from equivalence.parts import Part, search_parts
from equivalence.request import Request, silent

DTYPES = ("float32", "float16")
GROUPED = {"head_order": "interleaved", "gradients": False}  # it is grouped
SAFE = ("inputs-are-not-modified",)  # holds all the same


def opening(**facts):
    return Opening(text="torch.sdpa_gqa", facts=facts, seconds=None, gib=None)


@pytest.fixture(scope="module")
def others():
    """One process for all tests that leave it as it was: it takes seconds to start."""
    beside = OtherProcesses(1, opening(**GROUPED))
    yield beside
    beside.close()


def parts_of(target, *, examples, laws=("agrees-with-float64",)):
    domain = kind_named("attention").trials(target, DTYPES).domain
    request = Request(examples=examples)
    return [
        Part(domain=domain.but(dtypes=(dtype,)), laws=laws, request=request) for dtype in DTYPES
    ]


def told(result):
    """All that a report says, without the times."""
    laws = [
        (law.law, law.dtype, law.examples, law.vacuous, law.refused, law.used, law.worst_case)
        for law in result.laws
    ]
    faults = [(f.law, f.dtype, f.case, f.diagnosis, f.trouble, f.replay) for f in result.failures]
    return laws, faults, result.shares.summary(), result.card, result.remarks


def test_a_fault_and_all_else_are_told_as_by_one_process(others):
    target = open_target("torch.sdpa_gqa", facts=GROUPED)
    laws = ("agrees-with-float64", "head-permutation")
    request = Request(examples=8, dtypes=DTYPES, laws=laws)
    alone = check_target(target, request)
    shared = check_target(target, request, beside=others)
    assert told(shared) == told(alone)
    assert [failure.diagnosis.kind for failure in shared.failures] == ["head-mapping"]
    assert {law.dtype for law in shared.laws if law.held is False} == set(DTYPES)


@pytest.mark.parametrize(
    "request_",
    [
        Request(dtypes=("float32",)),
        Request(examples=8),
        Request(laws=("causality",)),
    ],
    ids=["one dtype", "few cases", "one law"],
)
def test_a_short_search_starts_no_process(request_):
    target = open_target("torch.sdpa_gqa")
    with other_processes(target, request_, opening(), 4) as beside:
        assert beside is None


def test_there_are_no_more_processes_than_dtypes():
    target = open_target("torch.sdpa_gqa")
    with other_processes(target, Request(dtypes=DTYPES), opening(), 4) as beside:
        assert beside is not None
        assert beside.size == 1


class Lost(OtherProcesses):
    """A process that ends in the middle of its work."""

    def submit(self, parts, seconds):
        return self._pool.submit(os._exit, 3)


def test_what_a_lost_process_had_to_search_is_searched_here():
    target = open_target("torch.sdpa_gqa")
    parts, beside = parts_of(target, examples=5), Lost(1, opening())
    try:
        found = search_parts(target, parts, None, [], silent, beside)
    finally:
        beside.close()
    assert [(law.dtype, law.examples > 0) for law in found.laws] == [
        ("float32", True),
        ("float16", True),
    ]
    assert "float16: searched again, the process that had it was lost" in found.laws[1].remarks


@pytest.mark.slow
def test_an_interrupted_process_says_what_it_knows(others):
    target = open_target("torch.sdpa_gqa", facts=GROUPED)
    (part, _) = parts_of(target, examples=100_000, laws=SAFE)
    first = others.submit(
        parts_of(target, examples=1, laws=SAFE)[:1], None
    )  # the process has started
    assert not first.result(timeout=60).interrupted
    future = others.submit([part], None)
    time.sleep(1)
    others.interrupt()
    found = future.result(timeout=10)
    assert found.interrupted
    assert 0 < found.laws[0].examples < 100_000


def test_ctrl_c_while_waiting_keeps_both(others):
    target = open_target("torch.sdpa_gqa", facts=GROUPED)
    parts = [parts_of(target, examples=many, laws=SAFE)[at] for at, many in ((0, 1), (1, 100_000))]
    others.submit(parts[:1], None).result(timeout=60)
    timer = threading.Timer(1.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    found = search_parts(target, parts, None, [], silent, others)
    timer.join()
    assert found.interrupted
    assert [law.dtype for law in found.laws] == ["float32", "float16"]
    assert all(law.examples > 0 for law in found.laws)
