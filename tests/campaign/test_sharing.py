"""Failing cases that campaigns share: in a folder, or in Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from equivalence.campaign.sharing import SharedCases, shared_cases
from equivalence.errors import InvalidRequest

from .conftest import Bench, plan, raw, searched


@pytest.fixture(params=["folder", "redis"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedCases]:
    """A database of each sort."""
    if request.param == "folder":
        yield shared_cases(str(tmp_path / "database"))
        return
    fakeredis = pytest.importorskip("fakeredis")
    from hypothesis.extra.redis import RedisExampleDatabase

    yield SharedCases(RedisExampleDatabase(fakeredis.FakeRedis()))


def test_one_campaign_finds_and_the_next_looks_there_first(
    shared: SharedCases, tmp_path: Path
) -> None:
    def answer(shard):
        return searched(shard, raw(case="AttentionCase(kv_len=7)"))

    first = Bench(tmp_path / "first.jsonl", answer=answer)
    first.run(plan("one", shards=1), cases=shared)
    second = Bench(tmp_path / "second.jsonl")
    second.run(plan("one", "two", shards=4), cases=shared)
    looked = {shard.id: shard.first for shard in second.done}
    assert looked == {
        "0:one:0": ["AttentionCase(kv_len=7)"], "0:two:0": [], "1:one:0": [], "1:two:0": [],
    }  # fmt: skip


def test_what_is_no_case_is_named_and_never_evaluated(shared: SharedCases) -> None:
    shared.add("one", "causality", "AttentionCase(kv_len=3)")
    shared.add("one", "causality", "__import__('os').abort()")
    shared.database.save(b"attention-equivalence:one", b"\x80\x04\x95 pickle")
    assert shared.read("one") == ["AttentionCase(kv_len=3)"]
    assert len(shared.remarks) == 2


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("redis://127.0.0.1:1/0", "--database redis://127.0.0.1:1/0 cannot be reached: "),
        ("http://x", "--database http://x is neither a folder nor redis://HOST:PORT"),
    ],
)
def test_a_place_that_is_none_is_refused(place: str, said: str) -> None:
    pytest.importorskip("redis")
    with pytest.raises(InvalidRequest) as refusal:
        shared_cases(place)
    assert str(refusal.value).startswith(said)
