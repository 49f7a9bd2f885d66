"""`equivalence time`: how long formulations take, beside the least that their bytes allow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equivalence.cli.options import Declare, Device, Dtypes, Json, whole


def time(
    what: Annotated[
        str, typer.Argument(metavar="decode|prefill|mla|rotary|convert", help="What is timed.")
    ],
    target: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET",
            help="Also these: registered names, package.module:attr or path/to/file.py:attr.",
        ),
    ] = None,
    *,
    only: Annotated[
        bool, typer.Option("--only", help="The given targets alone, without the usual ones.")
    ] = False,
    kv_heads: Annotated[
        str | None, typer.Option(metavar="N,...", help="Key/value heads (32,8,4,2,1).")
    ] = None,
    heads: Annotated[
        int | None, typer.Option(parser=whole, metavar="N", help="Query heads (32; mla: 16).")
    ] = None,
    head_dim: Annotated[
        int | None, typer.Option(parser=whole, metavar="N", help="Channels of a head (128).")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(metavar="N", help="Sequences (1); of mla, a list.")
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Tokens in the cache (as memory allows); of mla and rotary, a list.",
        ),
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="prefill: queries (as many as tokens)."),
    ] = None,
    dtype: Dtypes = None,
    threads: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Threads of torch, also for the floor.")
    ] = 1,
    rounds: Annotated[int, typer.Option(parser=whole, metavar="N", help="Interleaved rounds.")] = 9,
    seed: Annotated[int, typer.Option(parser=whole, metavar="N", help="Of the tensors.")] = 0,
    declare: Declare = None,
    device: Device = None,
    json: Json = None,
    history: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append this run to a file, as one line.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Compare with a report, or the last run of a history."),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Draw it there, one PNG and one SVG for each dtype."),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Say which steps share the cache's memory or copy it.")
    ] = False,
    torch: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="The same table again, under another torch."),
    ] = None,
) -> int:
    """Time formulations on tensors on which each was first verified: a wrong answer gets no time.

    The floor is the time to read the cache once, at the bandwidth measured in the same rounds.
    Below the table stands what it says. Exit code 1 means that an answer was wrong, or that
    nothing could be timed; a time never fails.

    \b
      equivalence time decode
      equivalence time decode mine.py:attention --kv-heads 32,8 --batch 4 --context 8192
      equivalence time mla --batch 1,4 --context 1024,4096 --figures figures/
      equivalence time rotary --context 1,512 --dtype bfloat16
      equivalence time convert --json convert.json
      equivalence time decode --torch 2.9.1 --dtype bfloat16
      equivalence time decode --history times.jsonl --against times.jsonl
    """
    from equivalence.cli.timing import run
    from equivalence.cli.timing_plans import Asked

    return run(
        Asked(
            what=what,
            targets=tuple(target or ()),
            only=only,
            kv_heads=kv_heads,
            heads=heads,
            head_dim=head_dim,
            batch=batch,
            context=context,
            queries=queries,
            dtypes=tuple(dtype or ()),
            threads=threads,
            rounds=rounds,
            seed=seed,
            declare=tuple(declare or ()),
            device=device,
            json=json,
            history=history,
            against=against,
            figures=figures,
            trace=trace,
            torch=torch,
        )
    )
