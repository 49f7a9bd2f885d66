"""The harness's own mutation score, beside the rules that are in use elsewhere.

    OMP_NUM_THREADS=1 python -m benchmarks.detection search --dtype float32
    OMP_NUM_THREADS=1 python -m benchmarks.detection search --set second --laws own
    OMP_NUM_THREADS=1 python -m benchmarks.detection rules --dtype float32
    OMP_NUM_THREADS=1 python -m benchmarks.detection floor --dtype float32
    OMP_NUM_THREADS=1 python -m benchmarks.detection mutants
    python docs/generate.py

``search`` checks every broken attention kernel of tests/broken (``--set second``: those of
tests/broken/second_set.py, a part of the record of its own), ``rules`` gives the same kernels
to plain comparison rules (``benchmarks.comparison_rules``), ``floor`` looks for the smallest
planted error that is still seen (``benchmarks.detection_floor``), ``mutants`` changes single
operators and constants of right backends (``benchmarks.source_mutants``). Each writes its rows to
docs/evidence/data/detection.json as it goes, and what stands there already is not run again;
``--fresh`` forgets it first, ``--every 6`` searches a sample of the kernels.
``docs/generate.py`` makes docs/evidence/detection.md of that file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.detection_record import RECORD, Record, part_of, read, write
from tests.broken.attention_kernels import COLLECTION
from tests.broken.entry import Broken
from tests.broken.judging import Judged, judge

DTYPES: Final = ("float32", "float16", "bfloat16", "float64")
# again: the second set, once what its first run taught is in the rules.
PART_OF: Final = {"first": "search", "second": "second", "again": "again"}


def row_of(judged: Judged, laws: str) -> dict[str, Any]:
    """What one search found, as it stands in the record."""
    return {
        "kernel": judged.entry.name,
        "dtype": judged.dtype,
        "laws": laws,
        "caught": judged.caught,
        "first": judged.first,
        "seconds": round(judged.seconds, 2),
        "whole": round(judged.whole, 2),
        "named": judged.caught and judged.named,
        "nameable": bool(judged.entry.diagnoses),
        "minimal": judged.caught and judged.minimal,
        "stated": judged.entry.smallest is not None,
        "diagnosis": judged.failures[0].diagnosis.kind if judged.failures else None,
    }


def _above_zero(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(text)


def search(record: Record, asked: argparse.Namespace, keep: Callable[[], None]) -> None:
    """Check each kernel in each dtype in which it must be seen."""
    sample = {"every": asked.every} if asked.every > 1 else {}
    rows = part_of(
        record,
        PART_OF[asked.set],
        seed=asked.seed,
        laws=asked.laws,
        dtypes=asked.dtype or [],
        **sample,
    )
    done = {(row["kernel"], row["dtype"], row["laws"]) for row in rows}
    for dtype in asked.dtype or DTYPES:
        for entry in list(COLLECTION if asked.set == "first" else second())[:: asked.every]:
            if dtype not in entry.dtypes or (entry.name, dtype, asked.laws) in done:
                continue
            judged = judge(entry, dtype, seed=asked.seed, laws=() if asked.laws == "all" else None)
            rows.append(row_of(judged, asked.laws))
            keep()
            print(rows[-1], flush=True)


def forget(record: Record, asked: argparse.Namespace) -> None:
    """Drop the part; of a search only the rows that are asked for."""
    if asked.part != "search":
        record.pop(asked.part, None)
        return
    part = record.get(PART_OF[asked.set], {"about": [], "rows": []})
    dtypes = set(asked.dtype or DTYPES)
    part["about"] = [
        run
        for run in part["about"]
        if run.get("laws") != asked.laws or not dtypes.issuperset(run.get("dtypes") or DTYPES)
    ]
    part["rows"] = [
        row for row in part["rows"] if row["laws"] != asked.laws or row["dtype"] not in dtypes
    ]


def second() -> Iterable[Broken]:
    """The kernels that were written after the rules of the diagnosis were fixed."""
    from tests.broken.second_set import SECOND

    return SECOND


def rules(record: Record, asked: argparse.Namespace, keep: Callable[[], None]) -> None:
    """Give each kernel, and each right backend, to every rule."""
    from benchmarks import rule_counts

    rows = part_of(record, "rules", seed=asked.seed)
    rule_counts.run(rows, asked.dtype or DTYPES[:3], asked.seed, keep)


def floor(record: Record, asked: argparse.Namespace, keep: Callable[[], None]) -> None:
    """Find the smallest planted error that is still seen."""
    from benchmarks import detection_floor

    rows = part_of(record, "floor", seed=asked.seed)
    detection_floor.run(rows, asked.dtype or DTYPES[:3], asked.seed, keep)


def mutants(record: Record, asked: argparse.Namespace, keep: Callable[[], None]) -> None:
    """Check every mechanical mutant of some right backends."""
    from benchmarks import source_mutants

    source_mutants.run(part_of(record, "mutants", seed=asked.seed), asked.seed, keep)


PARTS: Final = {"search": search, "rules": rules, "floor": floor, "mutants": mutants}


def main() -> int:
    """Run one part, and keep what it finds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=tuple(PARTS))
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--laws", choices=("own", "all"), default="all")
    parser.add_argument("--set", choices=tuple(PART_OF), default="first")
    parser.add_argument(
        "--every", type=_above_zero, default=1, help="search one kernel of so many, in their order"
    )
    parser.add_argument("--fresh", action="store_true", help="forget this part of the record")
    parser.add_argument("--record", type=Path, default=RECORD, help="the JSON to add to")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    record = read(asked.record)
    if asked.fresh:
        forget(record, asked)
    PARTS[asked.part](record, asked, lambda: write(record, asked.record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
