"""No shard is lost or repeated whatever dies, and each mistake is told once."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equivalence.campaign.coordinator import MOST_ATTEMPTS
from equivalence.campaign.ledger import LineJson
from equivalence.campaign.plan import Shard
from equivalence.campaign.shard import empty_report

from .conftest import Bench, Breaking, FallingTogether, explained, plan, raw, searched


def ids(bench: Bench) -> Counter[str]:
    return Counter(line.shard for line in bench.lines())


def expected(of) -> Counter[str]:
    return Counter(shard.id for shard in of.every_shard())


def test_every_shard_is_done_once(bench):
    asked = plan("one", "two", "three", shards=20, groups=2)
    tally = bench.run(asked).tally
    assert ids(bench) == expected(asked)
    assert (tally.finished, tally.checks, tally.held) == (20, 200, True)


def test_seeds_are_outside_then_laws_then_targets():
    made = [shard.id for shard in plan("one", "two", shards=6, groups=2).every_shard()]
    assert made == ["0:one:0", "0:two:0", "0:one:1", "0:two:1", "1:one:0", "1:two:0"]


def test_a_shard_is_the_same_wherever_it_is_made():
    asked = plan(shards=9, dtypes=["float32"], declare="causal=upper_left")
    assert list(asked.every_shard()) == list(asked.every_shard())


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 12), st.integers(0, 400), st.data())
def test_resume_neither_repeats_nor_loses(tmp_path_factory, shards, cut, data):
    # The coordinator may die at any byte of its ledger.
    bench = Bench(tmp_path_factory.mktemp("campaign") / "ledger.jsonl")
    asked = plan("one", "two", shards=shards)
    bench.run(asked)
    whole = bench.path.read_bytes()
    start = whole.index(b"\n") + 1
    bench.path.write_bytes(whole[: data.draw(st.integers(start, len(whole)))])
    kept = ids(bench)
    bench.done.clear()
    bench.run(asked, resume=True)
    assert ids(bench) == expected(asked)
    assert not {shard.id for shard in bench.done} & set(kept)


def test_time_that_is_over_starts_nothing_and_ends(bench):
    tally = bench.run(plan(shards=0), deadline=0.0).tally
    assert (tally.finished, bench.lines()) == (0, [])


@pytest.mark.parametrize(("shards", "unreached"), [(1, ["one", "two"]), (3, ["two"]), (4, [])])
def test_a_target_whose_turn_never_came_does_not_hold(bench, shards, unreached):
    asked = plan("one", "two", shards=shards, groups=2)
    tally = bench.run(asked).tally
    assert (tally.unreached, tally.held) == (unreached, not unreached)
    resumed = bench.run(asked, resume=True).tally
    assert (resumed.unreached, resumed.held) == (unreached, not unreached)


def test_a_lost_worker_costs_nothing_but_its_time(bench):
    fatal = {"0:two:0", "1:one:0"}

    def once(shard: Shard) -> bool:
        return shard.id in fatal and not fatal.discard(shard.id)

    asked = plan(shards=8)
    tally = bench.run(asked, make=lambda: Breaking(once)).tally
    assert ids(bench) == expected(asked)
    assert (tally.held, tally.lost, tally.finished) == (True, {}, 8)
    assert tally.retried >= 2


def test_a_shard_that_ends_every_worker_is_given_up_and_takes_no_other_with_it(bench):
    asked = plan(shards=8)
    poison = "1:one:0"
    tally = bench.run(asked, make=lambda: FallingTogether(lambda s: s.id == poison)).tally
    assert ids(bench) == expected(asked)
    assert set(tally.lost) == {poison}
    assert tally.lost[poison].startswith(f"given up after {MOST_ATTEMPTS} attempts: Broken")


def test_an_answer_that_is_none_is_tried_again(bench):
    stopped = []

    def answer(shard: Shard) -> LineJson:
        if len(stopped) < 2:
            stopped.append(shard.id)
            return LineJson(shard=shard.id, report=empty_report(), seconds=0, lost="interrupted")
        return searched(shard)

    bench.answer = answer
    asked = plan(shards=4)
    tally = bench.run(asked).tally
    assert ids(bench) == expected(asked)
    assert (tally.retried, tally.lost) == (2, {})


def test_each_mistake_is_shrunk_once(bench):
    def answer(shard: Shard) -> LineJson:
        if shard.explains:
            return explained(shard, "scale", "scores are not scaled")
        if shard.target == "one":
            return searched(
                shard, raw(), raw(law="law-1", case=f"AttentionCase(seed={shard.seed})")
            )
        return searched(shard)

    bench.answer = answer
    tally = bench.run(plan(shards=12, groups=2)).tally
    explaining = [shard for shard in bench.done if shard.explains]
    assert [(s.target, s.dtypes, s.explains) for s in explaining] == [("one", ["float32"], "scale")]
    assert list(tally.faults) == [("one", "scale", "scores are not scaled")]
    assert not tally.held


def test_two_mistakes_and_two_targets_are_told_apart(bench):
    def answer(shard: Shard) -> LineJson:
        if shard.explains:
            return explained(shard, shard.explains.partition(":")[0], f"of {shard.explains}")
        return searched(shard, raw(), raw(diagnosis="unknown"), raw("law-1", "unknown"))

    bench.answer = answer
    tally = bench.run(plan(shards=8)).tally
    assert len(tally.faults) == 6
    assert sum(bool(shard.explains) for shard in bench.done) == 6


def test_what_was_found_and_not_explained_is_explained_on_resume(bench):
    bench.answer = lambda shard: searched(shard, raw())
    asked = plan("one", shards=2)
    campaign = bench.campaign(asked)
    # The coordinator dies before it hands the explanation out.
    campaign.ledger.add(searched(next(asked.every_shard()), raw()))
    campaign.ledger.close()
    campaign.pool.close()
    bench.answer = lambda shard: (
        explained(shard, "scale", "it") if shard.explains else searched(shard)
    )
    tally = bench.run(asked, resume=True).tally
    assert [shard.id for shard in bench.done if shard.explains] == ["explain:one:scale"]
    assert len(tally.faults) == 1
    bench.done.clear()
    bench.run(asked, resume=True)
    assert bench.done == []


def test_ctrl_c_keeps_what_is_written(bench):
    def answer(shard: Shard) -> LineJson:
        if shard.seed == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return searched(shard)

    bench.answer = answer
    asked = plan("one", shards=0)
    with pytest.raises(KeyboardInterrupt):
        bench.run(asked)
    before = ids(bench)
    bench.answer = searched
    bench.run(plan("one", shards=12), resume=True)
    assert ids(bench) == expected(plan("one", shards=12)) | before
    assert max(ids(bench).values()) == 1
