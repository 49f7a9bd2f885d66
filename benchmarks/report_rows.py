"""A report of a million ledger rows: seconds of CPU and of the wall, and the most memory held.

    python benchmarks/report_rows.py [--rows 1000000] [--rows-per-line 1]

A row is one law of one target in one dtype in one shard.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from equivalence.campaign.ledger import LineJson
from equivalence.report.page import page
from equivalence.report.reading import read_merge
from equivalence.report.schema import DtypeJson, LawJson, ReportJson, TargetJson
from equivalence.used_parts import PLACES

TARGETS, LAWS, DTYPES = 30, 20, ("float32", "float16", "bfloat16", "float64")


def written(path: Path, rows: int, per_line: int) -> int:
    """Write a ledger of so many rows; its bytes."""
    draw = random.Random(0)
    with path.open("wb") as file:
        file.write(b'{"ledger":1,"plan":{}}\n')
        for start in range(0, rows, per_line):
            file.write(msgspec.json.encode(line(start, min(per_line, rows - start), draw)) + b"\n")
    return path.stat().st_size


def line(start: int, rows: int, draw: random.Random) -> LineJson:
    """A shard of so many rows of one target."""
    number = start // rows
    name = f"kernels.py:attention_{number % TARGETS}"
    laws = []
    for index in range(rows):
        place = start + index if rows == 1 else index
        used = draw.random() ** 4
        row = DtypeJson(
            dtype=DTYPES[place % len(DTYPES)], held=True, examples=draw.randint(1, 300), vacuous=2,
            refused=1, used=used, histogram=[draw.randint(0, 40) for _ in range(PLACES)],
            worst=f"equivalence replay {name} 'AttentionCase(kv_len={draw.randint(1, 999)})'",
        )  # fmt: skip
        laws.append(
            LawJson(
                name=f"law-{place // len(DTYPES) % LAWS}",
                held=True,
                examples=row.examples,
                vacuous=2,
                refused=1,
                used=used,
                dtypes=[row],
            )
        )
    target = TargetJson(
        target=name, kind="attention", held=True, profile="f32", laws=laws, tolerance={},
        not_exercised={}, timings={},
    )  # fmt: skip
    environment = {"seed": number, "examples": 200, "packages": {"hypothesis": "6"}, "cpus": 2}
    report = ReportJson(schema=1, targets=[target], environment=environment)
    return LineJson(shard=f"{number}:{name}:0", report=report, seconds=30.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rows-per-line", type=int, default=40)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        child = os.fork()
        if not child:  # in a process of its own, whose memory does not count
            written(path, asked.rows, asked.rows_per_line)
            os._exit(0)
        os.waitpid(child, 0)
        started, cpu = time.monotonic(), time.process_time()
        merge = read_merge([path])
        shown = page(merge)
        cpu, wall = time.process_time() - cpu, time.monotonic() - started
        unit = 1 if sys.platform == "darwin" else 1024
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
        size = path.stat().st_size / 2**20
    found = len(merge._seen)
    assert found == asked.rows, found
    load = os.getloadavg()[0]
    print(
        f"{asked.rows:,} rows, {asked.rows_per_line} a line, {size:,.0f} MiB of ledger: "
        f"{cpu:.1f} s of CPU, {wall:.1f} s on the wall (load {load:.1f}), "
        f"{most:,.0f} MiB at most, a page of {len(shown) / 1024:,.0f} KiB"
    )


if __name__ == "__main__":
    main()
