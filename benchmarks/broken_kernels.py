"""Measure the search on the broken attention kernels: caught, how soon, how small, how named.

    OMP_NUM_THREADS=1 python -m benchmarks.broken_kernels --dtype float32 --seed 0 --only mask

Prints one line for each kernel and dtype, then the shares, and the median and the worst of the
seconds of one core until the shrunk case. ``--laws all`` searches all laws at once, as the
command does; the default is the laws that see the mistake first.
"""

from __future__ import annotations

import argparse
import statistics

import torch

from tests.broken.attention_kernels import COLLECTION
from tests.broken.judging import Judged, judge


def line(judged: Judged) -> str:
    """One row of the table."""
    kinds = ", ".join(dict.fromkeys(f.diagnosis.kind for f in judged.failures))
    words = (
        f"{judged.entry.name:38} {judged.dtype:9}",
        "caught" if judged.caught else "MISSED",
        f"{judged.first or '-':>4}",
        f"{judged.seconds:6.2f}",
        "named  " if judged.named else "unnamed",
        "minimal" if judged.minimal else "larger ",
        kinds,
    )
    return " ".join(str(word) for word in words)


def main() -> None:
    """Run the collection, or a part of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", action="append", help="default: all that an entry names")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--laws", choices=("own", "all"), default="own")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    laws = () if chosen.laws == "all" else None
    found = []
    print(f"{'kernel':38} {'dtype':9} seen   first seconds diagnosis, size")
    for entry in COLLECTION:
        if chosen.only not in entry.name:
            continue
        for dtype in entry.dtypes:
            if chosen.dtype and dtype not in chosen.dtype:
                continue
            judged = judge(entry, dtype, seed=chosen.seed, laws=laws)
            found.append(judged)
            print(line(judged), flush=True)
    if not found:
        return
    seconds = [judged.seconds for judged in found]
    for word in ("caught", "named", "minimal"):
        count = sum(getattr(judged, word) for judged in found)
        print(f"{word}: {count} of {len(found)} ({count / len(found):.1%})")
    print(f"seconds: median {statistics.median(seconds):.2f}, worst {max(seconds):.2f}")


if __name__ == "__main__":
    main()
