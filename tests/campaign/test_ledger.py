"""The ledger: whole lines or none, one writer, and a clear word for anything else."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import msgspec
import pytest

from equivalence import cli
from equivalence.campaign.ledger import Ledger, is_ledger, lines_of
from equivalence.campaign.plan import plan_of
from equivalence.errors import InvalidRequest
from equivalence.gate.baseline import baseline_of
from equivalence.gate.findings import read_findings
from equivalence.gate.rules import compare
from equivalence.report.reading import read_merge

from .conftest import Bench, Breaking, plan, raw, searched


@pytest.fixture
def lines(bench: Bench) -> list[bytes]:
    """A ledger of four shards, by lines."""
    bench.run(plan(shards=4))
    return bench.path.read_bytes().splitlines(keepends=True)


def test_a_truncated_line_is_named_skipped_and_run_again(bench: Bench, lines: list[bytes]) -> None:
    bench.path.write_bytes(b"".join(lines[:3]) + lines[3][:50])
    assert len(bench.lines()) == 2
    assert bench.remarks == [
        f"{bench.path} line 4 ends before its end of line (a run died there): ignored"
    ]
    bench.run(plan(shards=4), resume=True)
    assert len(bench.lines()) == 4
    assert len(bench.remarks) == 1
    assert "line 4 cannot be read and is ignored" in bench.remarks[0]
    merge = read_merge([bench.path])
    assert merge.remarks == set(bench.remarks)
    assert sum(target.checks for target in merge.targets.values()) == 40


@pytest.mark.parametrize(
    "bad", [b"[" * 100_000, b'{"shard": 7}', b"\xff\xfe", b'{"shard":"x","report":1e999}']
)
def test_a_hostile_line_is_skipped(bench: Bench, lines: list[bytes], bad: bytes) -> None:
    bench.path.write_bytes(lines[0] + bad + b"\n" + b"".join(lines[1:]))
    assert len(bench.lines()) == 4
    assert len(bench.remarks) == 1


def test_two_campaigns_cannot_write_to_one_ledger(bench: Bench, lines: list[bytes]) -> None:
    open_one = Ledger.open(bench.path, None)
    with pytest.raises(InvalidRequest, match="is being written by another campaign"):
        Ledger.open(bench.path, None)
    open_one.close()
    Ledger.open(bench.path, None).close()
    assert bench.path.read_bytes().splitlines(keepends=True) == lines


def test_a_new_campaign_overwrites_nothing(bench: Bench, lines: list[bytes]) -> None:
    with pytest.raises(InvalidRequest, match="is there already: --resume goes on with it"):
        Ledger.open(bench.path, {})
    assert bench.path.read_bytes().splitlines(keepends=True) == lines


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_ends_the_campaign_in_one_line_and_loses_nothing(bench: Bench) -> None:
    (shard, *_) = plan(shards=1).every_shard()
    full = Ledger(Path("/dev/full"), os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(
        InvalidRequest, match="cannot be written: no space left on device; --resume"
    ):
        full.add(searched(shard))
    full.close()


def test_a_disk_that_fills_up_leaves_whole_lines_to_go_on_from(bench: Bench) -> None:
    asked = plan(shards=6)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        campaign = bench.campaign(asked)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500, hard))
        with pytest.raises(InvalidRequest, match="cannot be written"):
            campaign.run()
        campaign.ledger.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    kept = {line.shard for line in bench.lines()}
    assert 0 < len(kept) < 6
    bench.done.clear()
    bench.run(asked, resume=True)
    assert {line.shard for line in bench.lines()} == {s.id for s in asked.every_shard()}
    assert not kept & {shard.id for shard in bench.done}


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b'{"ledger":2,"plan":{}}', "has schema 2, which a newer version wrote"),
        (b'{"ledger":1' + b"0" * 18 + b',"plan":{}}', "has schema a huge number"),
        (b'{"ledger":' + b"[" * 100_000, "is not a ledger"),
        (b'{"ledger":1,"plan":{"targets":[]}}', "has a plan without a target"),
        (b'{"ledger":1,"plan":{"targets":[],"seed":-1}}', "has a plan that this version does not"),
        (b'{"ledger":1,"plan":{"targets":[],"evil":1}}', "has a plan that this version does not"),
    ],
)
def test_what_is_no_ledger_is_refused_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], first: bytes, said: str
) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(first + b"\n")
    code = cli.run(["campaign", "--resume", "--hours", "1", "--ledger", str(path)])
    err = capfd.readouterr().err
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_the_plan_reads_back(bench: Bench) -> None:
    asked = plan(shards=3, groups=2, dtypes=["float32"], declare="causal=upper_left", gib=1.5)
    assert plan_of(msgspec.to_builtins(asked), source="it") == asked


def test_the_gate_takes_a_ledger(bench: Bench) -> None:
    asked = plan("one", shards=3)
    bench.run(asked)
    baseline = baseline_of(read_findings([bench.path, bench.path]))
    state = baseline.targets["one"].laws["law-0"]["float32"]
    assert (state.held, state.examples, len(baseline.runs)) == (True, 30, 3)
    bench.path.unlink()
    bench.answer = lambda shard: searched(shard, *[raw()] * (shard.seed == 2))
    bench.run(asked)
    (looser,) = [c for c in compare(baseline, read_findings([bench.path])) if c.looser]
    assert looser.text.startswith("one: law-0 float32: broke")


def test_the_gate_fails_for_a_shard_that_was_given_up(bench: Bench) -> None:
    asked = plan("one", shards=2)
    bench.run(asked, make=lambda: Breaking(lambda shard: shard.seed == 1))
    found = read_findings([bench.path])
    (looser,) = [c for c in compare(baseline_of(found), found) if c.looser]
    assert looser.text.startswith("1:one:0: given up after 4 attempts")


def test_a_report_is_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{\n  "schema": 1\n}')
    assert not is_ledger(tmp_path / "run.json")
    with pytest.raises(InvalidRequest, match="is not a ledger"):
        list(lines_of(tmp_path / "run.json", print))
