"""The attention of EXAONE-4.0-1.2B, 30 layers at a context of 4,096, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(600)]

MIB = 2**20
MEASURED = """
import json, resource, sys, time
from equivalence.cli import run
code = run(sys.argv[1:])
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([code, usage.ru_maxrss * 1024, time.process_time()]), file=sys.stderr)
"""


def audited(*arguments: str) -> tuple[dict[str, Any], int, int, float]:
    """The report, the exit code, the most memory in bytes, and the seconds of computing."""
    command = [sys.executable, "-c", MEASURED, "audit", "exaone-4.0-1.2b", *arguments]
    done = subprocess.run([*command, "--json", "-"], capture_output=True, text=True, check=True)
    code, memory, seconds = json.loads(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout), code, memory, seconds


def test_repeat_kv_copies_960_mib_a_token_in_under_20_seconds_and_2_gib() -> None:
    report, code, memory, seconds = audited("--formulation", "repeat_kv", "--max-tiles", "0")
    (graph,) = report["graphs"]
    assert code == 1
    assert graph["operations"]["histogram"]["tile"] == 60
    assert graph["repeated_heads"] == {
        "count": 60, "bytes_written": 1_006_632_960, "bytes_read": 1_006_632_960,
    }  # fmt: skip
    assert graph["repeated_heads"]["bytes_written"] * 2 == 1920 * MIB
    assert sum(one["feeds_scores"] for one in graph["replications"]) == 30
    assert memory < 2 * 2**30
    assert seconds < 20


def test_folding_the_query_copies_nothing_and_the_difference_is_owed_to_it() -> None:
    report, code, _, _ = audited(
        "--formulation", "q_fold_decode", "--max-tiles", "0", "--max-bytes", "0",
        "--against", "formulation=repeat_kv", "--measured", "20.39,54.30",
    )  # fmt: skip
    (graph,) = report["graphs"]
    assert code == 0
    assert graph["repeated_heads"]["count"] == 0
    assert report["against"]["owed_to"] == "formulation"
    assert "multiply-accumulates" not in report["against"]["quantities"]
    assert round(report["bandwidth_model"]["inferred_mb_per_token"]) == 1712
    assert round(report["bandwidth_model"]["graph_mb_per_token"]) == 2013


def test_states_take_60_writes_of_60_kib_and_all_outputs_agree() -> None:
    report, _, _, _ = audited(
        "--formulation", "repeat_kv", "--formulation", "q_fold_decode",
        "--cache", "inputs", "--cache", "state", "--outputs",
    )  # fmt: skip
    graphs = report["graphs"]
    assert [graph["states"]["writes"] for graph in graphs] == [0, 60, 0, 60]
    assert {graph["states"]["bytes_updated"] for graph in graphs} == {0, 60 * 1024}
    assert {graph["states"]["bytes"] for graph in graphs} == {0, 240 * MIB}
    totals = [graph["operations"]["total"] for graph in graphs]
    assert totals[0] < totals[1]
    assert totals[2] < totals[3]
    assert {graph["macs"]["total"] for graph in graphs} == {2 * 30 * 32 * 4096 * 64}
    for one in report["outputs"]:
        assert one["furthest"]["double"] <= 1e-12
