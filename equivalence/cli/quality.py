"""`equivalence quality`: what fewer key/value heads cost, before and after some training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equivalence.cli.options import Json, number, whole


def quality(
    *,
    model: Annotated[
        str, typer.Option(metavar="DIR|tiny", help="A local GPT-2, or a tiny one trained here.")
    ] = "tiny",
    kv_heads: Annotated[
        str, typer.Option(metavar="N,...", help="Key/value heads to convert to.")
    ] = "12,6,4,3,2,1",
    steps: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Training steps after the conversion.")
    ] = 150,
    seeds: Annotated[int, typer.Option(parser=whole, metavar="N", help="How many seeds.")] = 3,
    method: Annotated[
        str, typer.Option(metavar="M", help="How heads are made: mean, first or random.")
    ] = "mean",
    pretrain_steps: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Steps that make the tiny model.")
    ] = 800,
    learning_rate: Annotated[
        float | None, typer.Option(parser=number, metavar="X", help="After the conversion.")
    ] = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Text of one's own; may be given again."),
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Save each score there, and go on from what is there."),
    ] = None,
    figure: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw it: .svg, .png, .pdf or .html.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="D", help="Where it is trained: cuda.")] = "cpu",
    json: Json = None,
) -> int:
    """Pool a model's key/value heads, train each result a while, and compare with a control.

    The default trains a tiny model on this program's own source, in minutes, so that the whole
    path runs anywhere. Exit code 1 means inconclusive, and the reasons are printed.

    \b
      equivalence quality
      equivalence quality --kv-heads 4,1 --steps 300 --checkpoints runs/ --figure cost.svg
      equivalence quality --model path/to/gpt2 --steps 400 --text book.txt
    """
    from equivalence.cli import converting

    return converting.quality(
        model=model,
        kv_heads=kv_heads,
        steps=steps,
        seeds=seeds,
        method=method,
        pretrain_steps=pretrain_steps,
        learning_rate=learning_rate,
        text=list(text or ()),
        checkpoints=checkpoints,
        figure=figure,
        device=device,
        json=json,
    )
