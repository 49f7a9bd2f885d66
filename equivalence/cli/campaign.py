"""`equivalence campaign`: a search on several processes or machines, for hours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equivalence.cli.options import (
    Arrays,
    Declare,
    Device,
    Dtypes,
    Html,
    Kind,
    Laws,
    MaxTime,
    Memory,
    Seed,
    number,
    whole,
)


def campaign(
    target: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET...", help="As `check` takes them; none with --resume."),
    ] = None,
    *,
    hours: Annotated[
        float | None,
        typer.Option(parser=number, metavar="H", help="Start shards for so long, from now on."),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="So many shards in all, or until --hours."),
    ] = None,
    examples: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Cases of a shard for each dtype.")
    ] = 200,
    laws_per_shard: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="All laws of a target share their cases."),
    ] = None,
    seed: Seed = 0,
    ledger: Annotated[
        Path, typer.Option(metavar="FILE", help="Where each finished shard is written down.")
    ] = Path("campaign.jsonl"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the ledger that is there.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(parser=whole, metavar="N", help="Processes (one a core).")
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A Dask cluster instead: tcp://host:8786."),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|redis://...", help="A Hypothesis database of failing cases to share."
        ),
    ] = None,
    kind: Kind = None,
    dtype: Dtypes = None,
    law: Laws = None,
    declare: Declare = None,
    device: Device = None,
    arrays: Arrays = None,
    max_time_per_call: MaxTime = None,
    memory: Memory = None,
    html: Html = None,
) -> int:
    """Search seeds x laws x targets in shards, and explain each mistake once.

    \b
      equivalence campaign torch.sdpa mine.py:attention --hours 8
      equivalence campaign --resume --hours 8
      equivalence campaign mine.py:attention --hours 1 --scheduler tcp://10.0.0.5:8786
      equivalence report campaign.jsonl --html report.html
    """
    from equivalence.cli import validation as valid
    from equivalence.cli.campaigning import Asked, run
    from equivalence.cli.destination import require_writable
    from equivalence.errors import require

    valid.above_zero("--hours", hours)
    valid.searching(examples=examples, seconds=None, seed=seed)
    for option, value in (
        ("--shards", shards),
        ("--laws-per-shard", laws_per_shard),
        ("--workers", workers),
    ):
        if value is not None:
            valid.at_least(option, value, 1)
    valid.above_zero("--max-time-per-call", max_time_per_call)
    valid.above_zero("--memory", memory)
    require(
        scheduler is None or workers is None,
        f"--workers {workers} are processes of this machine; --scheduler has workers of its own",
    )
    require(bool(target) or resume, "name what to search, or --resume")
    require(not (target and resume), f"--resume takes the targets of {ledger}; name none")
    require(
        hours is not None or shards is not None or resume,
        "say how long: --hours H, or --shards N",
    )
    require_writable({"--html": html})
    asked = Asked(
        targets=tuple(dict.fromkeys(target or ())),
        hours=hours,
        shards=shards,
        examples=examples,
        laws_per_shard=laws_per_shard,
        seed=seed,
        dtypes=valid.known_dtypes(dtype),
        facts=valid.declared_facts(declare, kind=kind, device=device, arrays=arrays),
        laws=valid.known_laws(law, kind),
        seconds_per_call=max_time_per_call,
        gib=memory,
        workers=workers,
        scheduler=scheduler,
        database=database,
    )
    return run(asked, ledger, resume=resume, html=html)
