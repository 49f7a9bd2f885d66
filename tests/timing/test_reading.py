"""The reading in words, on tables made by hand."""

from __future__ import annotations

import pytest

from equivalence.timing.floor import floor_of, last_level_cache
from equivalence.timing.history import Change, changes, same_machine
from equivalence.timing.plan import chosen_context
from equivalence.timing.reading import decode_in_words, savings
from equivalence.timing.results import Allocation, Bandwidth, Estimate, Floor, Row, TimingRun

HEADS = (32, 8, 4)


def taking(seconds: float, spread: float = 0.01) -> Estimate:
    return Estimate(
        clock="thread", minimum=seconds, median=seconds, spread=spread, wall_minimum=seconds,
        wall_median=seconds, rounds=3, loops=1, contended=False, samples=(seconds,) * 3,
    )  # fmt: skip


def rows(subject: str, times: dict[int, float], *, copies: bool = False) -> list[Row]:
    return [
        Row(
            subject=subject,
            dtype="float32",
            sizes={"num_kv_heads": heads, "q_len": 1, "batch_size": 1, "kv_len": 64},
            cache_bytes=1000 * heads,
            flops=1,
            held=True,
            time=taking(seconds),
            floor=Floor(seconds=0.001 * heads, where="memory"),
            allocation=Allocation(allocated=1, copies=("clone",) if copies else (), traced=True),
        )
        for heads, seconds in times.items()
    ]


TABLE = [
    *rows("repeat", {32: 0.9, 8: 0.9, 4: 0.91}, copies=True),
    *rows("grouped", {32: 0.8, 8: 0.21, 4: 0.11}),
    *rows("per query head", {32: 0.5, 8: 0.5, 4: 0.49}),
    *rows("half", {32: 0.8, 8: 0.5, 4: 0.4}),
]


def test_what_keeps_the_saving_and_what_undoes_it():
    verdicts = {saving.subject: saving.verdict for saving in savings(TABLE)}
    assert verdicts == {
        "repeat": "undoes", "grouped": "keeps", "per query head": "undoes", "half": "partly"
    }  # fmt: skip
    words = "\n".join(decode_in_words(TABLE))
    assert "8 KV heads against 32 (cache 4x smaller): keep the saving: grouped (3.8x" in words
    assert "keep a part of it: half (1.6x as fast)" in words
    assert (
        "write every shared head out again for its query heads and read the copy: repeat" in words
    )
    assert (
        "are flat in KV heads although they copy nothing, since they read each shared head once "
        "for every query head: per query head (1x as fast)"
    ) in words
    assert "copy the cache: repeat (at 32, 8, 4 KV heads)" in words
    assert "float32, 8 KV heads: fastest: grouped, 210 ms, 26 times the floor" in words


def test_the_verdict_is_about_the_first_step_down():
    """Below it, a small cache costs less than the call itself, whatever the formulation."""
    (saving,) = savings(rows("grouped", {32: 0.8, 8: 0.25, 4: 0.24}))
    assert saving.verdict == "keeps"
    assert saving.faster == {8: pytest.approx(3.2), 4: pytest.approx(0.8 / 0.24)}
    (alone,) = savings(rows("grouped", {32: 0.8}))
    assert alone.verdict == ""
    assert list(decode_in_words(rows("grouped", {32: 0.8})))


def test_materialises_by_bytes_only_where_no_step_was_seen():
    row = rows("it", {8: 1.0})[0]

    def seen(**facts) -> bool | None:
        from dataclasses import replace

        return replace(row, allocation=Allocation(**facts)).materialises

    assert seen(allocated=10**9, traced=True) is False
    assert seen(allocated=10**9) is True
    assert seen(allocated=10) is False
    assert seen() is None


BANDWIDTH = Bandwidth(memory=1e9, cache=4e9, memory_bytes=1, cache_bytes=1, last_level=1000)


def test_the_floor_of_a_small_cache_is_the_cache_bandwidth():
    assert floor_of(2000, BANDWIDTH) == Floor(seconds=2e-6, where="memory")
    assert floor_of(400, BANDWIDTH) == Floor(seconds=1e-7, where="cache")
    assert floor_of(600, BANDWIDTH).where == "memory", "it shares the cache with others"


def run_of(table: list[Row], **machine: str) -> TimingRun:
    return TimingRun(
        command="decode", when="", threads=1, device="cpu", machine=machine, bandwidth=BANDWIDTH,
        rows=tuple(table),
    )  # fmt: skip


def test_a_change_is_told_beyond_chance():
    before = run_of(rows("a", {32: 1.0, 8: 0.5}) + rows("b", {32: 1.0}), cpu="one")
    after = run_of(rows("a", {32: 1.1, 8: 0.8}) + rows("c", {32: 1.0}), cpu="two")
    found = changes(after, before)
    assert [(change.row.sizes["num_kv_heads"], change.beyond) for change in found] == [
        (8, True), (32, False)
    ]  # fmt: skip
    assert isinstance(found[0], Change)
    assert found[0].ratio == pytest.approx(1.6)
    assert found[0].relative > 1 > found[1].relative
    assert same_machine(after, before) == ["cpu: one then, two now"]
    assert same_machine(after, after) == []


def test_the_context_is_the_shortest_that_leaves_the_cache():
    last_level, _ = last_level_cache()
    facts = {"batch_size": 1, "num_heads": 32, "head_dim": 128, "dtypes": ("float32",)}
    chosen = chosen_context(**facts, free=2**40)
    token = 2 * 32 * 128 * 4
    assert (
        chosen == 2**15 or chosen * token >= 4 * last_level > chosen * token / 2 or chosen == 1024
    )
    assert chosen_context(**facts, free=2**30) * token <= 2**30 / 16
    assert chosen_context(**facts, free=0) == 1024
