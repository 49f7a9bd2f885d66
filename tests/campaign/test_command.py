"""`equivalence campaign` on processes and on a Dask cluster, some of which are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from equivalence import cli
from equivalence.campaign.ledger import head_of, lines_of
from equivalence.campaign.plan import plan_of

Start = Callable[..., subprocess.Popen[str]]
SMALL = ("--law", "agrees-with-float64", "--examples", "10", "--workers", "1")


def shards_of(path: Path) -> Counter[str]:
    return Counter(line.shard for line in lines_of(path, lambda text: None))


def planned(path: Path) -> Counter[str]:
    plan = plan_of(head_of(path).plan, source="it")
    return Counter(shard.id for shard in plan.every_shard())


def wait_for(path: Path, lines: int, process: subprocess.Popen[str]) -> None:
    """Until the ledger has so many lines."""
    while not path.exists() or path.read_bytes().count(b"\n") < lines:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name what to search, or --resume"),
        (("torch.sdpa",), "say how long: --hours H, or --shards N"),
        (("torch.sdpa", "--hours", "nan"), "--hours nan must be a number above 0"),
        (("torch.sdpa", "--shards", "0"), "--shards 0 must be at least 1"),
        (("torch.sdpa", "--resume"), "--resume takes the targets of campaign.jsonl; name none"),
        (("--resume",), "campaign.jsonl cannot be read: no such file or directory"),
        (("torch.sdpa", "--shards", "1", "--law", "nope"), "--law nope: there is no such law"),
        (("nope.py:x", "--shards", "1"), "nope.py"),
        (
            ("torch.sdpa", "--shards", "1", "--workers", "2", "--scheduler", "tcp://x:1"),
            "--workers 2 are processes of this machine",
        ),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    code = cli.run(["campaign", *arguments])
    err = capfd.readouterr().err
    assert (code, err.count("\n")) == (2, 1)
    assert said in err
    assert not (folder / "campaign.jsonl").exists()


@pytest.mark.slow
def test_a_campaign_finds_shrinks_and_reports(start: Start, folder: Path) -> None:
    arguments = ("kernels.py:right", "kernels.py:tiled", "--shards", "4", *SMALL)
    process = start("campaign", *arguments, "--html", "page.html", "--database", "shared")
    out, err = process.communicate(timeout=280)
    assert (process.returncode, err) == (1, "")
    assert "'AttentionCase(num_kv_heads=2, group_size=2)' --law agrees-with-float64" in out
    assert "4 shards" not in out  # one more explains
    assert "5 shards" in out
    assert "head-mapping" in (folder / "page.html").read_text()
    assert any((folder / "shared").rglob("*"))


@pytest.mark.slow
def test_a_killed_coordinator_leaves_no_worker_and_resume_goes_on(
    start: Start, folder: Path
) -> None:
    process = start("campaign", "kernels.py:right", "--shards", "6", *SMALL)
    ledger = folder / "campaign.jsonl"
    wait_for(ledger, 3, process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    gone, alive = psutil.wait_procs(children, timeout=60)
    assert (bool(gone), alive) == (True, [])
    kept = shards_of(ledger)
    again = start("campaign", "--resume", "--workers", "1")
    out, err = again.communicate(timeout=280)
    assert (again.returncode, err) == (0, "")
    assert f"{sum(kept.values())} from before" in out
    assert shards_of(ledger) == planned(ledger)


@pytest.mark.slow
def test_a_killed_worker_is_replaced(start: Start, folder: Path) -> None:
    process = start("campaign", "kernels.py:right", "--shards", "4", *SMALL)
    ledger = folder / "campaign.jsonl"
    wait_for(ledger, 2, process)
    workers = [
        child
        for child in psutil.Process(process.pid).children()
        if "spawn_main" in " ".join(child.cmdline())
    ]
    workers[0].send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=280)
    assert (process.returncode, err) == (0, "")
    assert shards_of(ledger) == planned(ledger)
    assert "0 retries" not in out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_workers_of_a_dask_cluster_are_killed(start: Start, folder: Path) -> None:
    distributed: Any = pytest.importorskip("distributed")
    preload = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})"
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, preload=[preload]
    ) as cluster:
        arguments = ("kernels.py:right", "kernels.py:tiled", "--shards", "8", *SMALL[:-2])
        process = start("campaign", *arguments, "--scheduler", cluster.scheduler_address)
        ledger = folder / "campaign.jsonl"
        wait_for(ledger, 3, process)
        pids = [nanny.pid for nanny in cluster.workers.values()]
        psutil.Process(pids[0]).kill()
        out, err = process.communicate(timeout=280)
    assert process.returncode == 1, (out, err)
    assert "head-mapping" in out
    searched = Counter({k: n for k, n in shards_of(ledger).items() if not k.startswith("explain")})
    assert searched == planned(ledger)
    assert not any(line.lost for line in lines_of(ledger, lambda text: None))


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_told_in_one_line(start: Start, folder: Path) -> None:
    pytest.importorskip("distributed")
    process = start(
        "campaign", "kernels.py:right", "--shards", "1", "--scheduler", "tcp://127.0.0.1:1"
    )
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert err.count("\n") == 1
    assert err.startswith("equivalence: --scheduler tcp://127.0.0.1:1 cannot be reached")
    assert sys.executable not in err
