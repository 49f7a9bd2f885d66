"""`equivalence audit`: what a converted graph holds, repeats and moves."""

from __future__ import annotations

from typing import Annotated

import typer

from equivalence.cli.options import Json, number, whole


def audit(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A saved MODEL.mlpackage or MODEL.onnx, the name of a known model (its attention "
            "part is converted), or a converter or an attention function as `check` takes it.",
        ),
    ],
    *,
    formulation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="F",
            help="How attention is written: repeat_kv (the default), q_fold_decode, "
            "...; give it again to see several side by side.",
        ),
    ] = None,
    cache: Annotated[
        list[str] | None,
        typer.Option(
            metavar="C",
            help="Where keys and values are kept: inputs (the default) or state; "
            "may be given again.",
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Whose head shapes a TARGET that has none gets.")
    ] = "exaone-4.0-1.2b",
    layers: Annotated[
        int | None, typer.Option(parser=whole, metavar="N", help="Layers; the model's own.")
    ] = None,
    context: Annotated[
        int, typer.Option(parser=whole, metavar="C", help="Tokens that the cache has room for.")
    ] = 4096,
    q_len: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Tokens of a step: 1 is decoding.")
    ] = 1,
    head_order: Annotated[
        str, typer.Option(metavar="O", help="Of the query heads: grouped or interleaved.")
    ] = "grouped",
    part: Annotated[
        str,
        typer.Option(
            metavar="P",
            help="What of a known model is converted: attention, or the whole decoder of "
            "exaone-4.0-1.2b (random weights of a small width).",
        ),
    ] = "attention",
    deployment: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="T",
            help="iOS15 to iOS26; of onnx.export opset18 to 24.",
        ),
    ] = "iOS18",
    route: Annotated[str, typer.Option(metavar="R", help="trace or export.")] = "trace",
    dtype: Annotated[str, typer.Option(metavar="D", help="float16 or float32.")] = "float16",
    against: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help="What it was before: a package, or what differs, as in "
            "formulation=repeat_kv,cache=state.",
        ),
    ] = None,
    max_tiles: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="Fail above N operations that repeat heads."),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="Fail where those write more than N bytes."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="FILE", help="A committed budget, in TOML.")
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(parser=number, metavar="MB/S", help="What the bandwidth model divides by."),
    ] = None,
    measured: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="With --against: measured tokens a second of OTHER and of TARGET."
        ),
    ] = None,
    outputs: Annotated[
        bool,
        typer.Option("--outputs", help="Evaluate every graph on the same numbers, and compare."),
    ] = False,
    json: Json = None,
) -> int:
    """Count what a graph holds, repeats and moves. Bytes are logical, of the graph alone.

    \b
      equivalence audit MODEL.mlpackage --max-tiles 0
      equivalence audit MODEL.onnx --max-tiles 0
      equivalence audit exaone-4.0-1.2b --formulation repeat_kv --formulation q_fold_decode
      equivalence audit new.mlpackage --against old.mlpackage --measured 20.39,54.30

    \b
    Exit codes: 0 within the budget, or none was given; 1 over it; 2 the request was wrong.
    """
    from equivalence.cli import auditing
    from equivalence.cli.destination import require_writable

    require_writable({"--json": json})
    limits = auditing.limits(max_tiles=max_tiles, max_bytes=max_bytes, budget=budget)
    check = auditing.Speeds.of(measured, bandwidth, against=against)
    asked = auditing.Asked(
        model=model,
        formulations=tuple(dict.fromkeys(formulation or ())),
        caches=tuple(dict.fromkeys(cache or ())),
        layers=layers,
        options={
            "context": context,
            "q_len": q_len,
            "head_order": head_order,
            "target": deployment,
            "route": route,
            "dtype": dtype,
            "part": part,
        },
    )
    return auditing.run(
        target,
        asked,
        against=against,
        budget=limits,
        speeds=check,
        outputs=outputs,
        json=json,
    )
