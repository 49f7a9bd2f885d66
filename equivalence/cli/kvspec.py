"""`equivalence kvspec`: what a model's cache holds, and how many sequences fit."""

from __future__ import annotations

from typing import Annotated

import typer

from equivalence.cli.options import Json, number, whole


def kvspec(
    model: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="A config.json, a folder with one, or the name of a known model. "
            "None: list the names.",
        ),
    ] = None,
    *,
    dtype: Annotated[
        str,
        typer.Option(metavar="D", help="How the cache is stored: float16, float8, int4, q8_0, ..."),
    ] = "float16",
    scale_group: Annotated[
        int | None,
        typer.Option(
            parser=whole, metavar="N", help="Elements that share a scale, of a quantised dtype."
        ),
    ] = None,
    context: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Tokens of a sequence.")
    ] = 4096,
    encoder_tokens: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="Tokens that cross-attention layers keep."),
    ] = None,
    page_size: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Tokens of a page of a paged cache.")
    ] = 1,
    tensor_parallel: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Devices that share the heads out.")
    ] = 1,
    memory: Annotated[
        float | None, typer.Option(parser=number, metavar="GIB", help="Memory of one device.")
    ] = None,
    weights: Annotated[
        float, typer.Option(parser=number, metavar="GB", help="Weights on one device (10^9 bytes).")
    ] = 0.0,
    share: Annotated[
        float, typer.Option(parser=number, metavar="X", help="Share of the memory that is used.")
    ] = 0.9,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare MHA, GQA, MQA and MLA at one shape.")
    ] = False,
    heads: Annotated[
        int | None, typer.Option(parser=whole, metavar="N", help="With --compare: query heads.")
    ] = None,
    head_dim: Annotated[
        int | None, typer.Option(parser=whole, metavar="N", help="With --compare: their width.")
    ] = None,
    kv_heads: Annotated[
        str | None, typer.Option(metavar="N,...", help="With --compare: the heads of GQA.")
    ] = None,
    chart: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw it: .svg, .png, .pdf or .html."),
    ] = None,
    json: Json = None,
) -> int:
    """Count the bytes that a model's keys and values take, from its config alone.

    \b
      equivalence kvspec llama-3.2-3b --memory 12 --weights 6.4
      equivalence kvspec path/to/config.json gemma-2-2b --context 32768
      equivalence kvspec llama-3.1-70b --dtype int8 --tensor-parallel 16
      equivalence kvspec --compare --chart designs.svg
    """
    from equivalence.cli import counting
    from equivalence.cli.destination import require_writable

    shape = counting.Shape(heads=heads, head_dim=head_dim, kv_heads=kv_heads)
    require_writable({"--json": json, "--chart": chart})
    if compare:
        return counting.compare(list(model or ()), shape, chart=chart, json=json)
    shape.refuse_without_compare()
    return counting.count(
        list(model or ()),
        dtype=dtype,
        scale_group=scale_group,
        tokens=context,
        encoder_tokens=encoder_tokens,
        page_size=page_size,
        tensor_parallel=tensor_parallel,
        memory=memory,
        weights=weights,
        share=share,
        chart=chart,
        json=json,
    )
